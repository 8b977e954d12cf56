"""The OpenAPI description of the server, with the settings a request may change and the limits in force."""

from importlib.metadata import version
from typing import Any

from caps.config import RunConfig, per_request_options
from caps.evidence.domains import known_domains
from caps.server.admission import Limits
from caps.server.requests import MIN_SECONDS, client_name, strategy_names, within_limits

ERRORS = {
    "400": "A field of the request is wrong; the message names it",
    "401": "The API key is missing or wrong",
    "404": "There is no such path, or the upstream has no such model",
    "408": "The body did not arrive in time",
    "413": "The body is too large",
    "415": "The body is not application/json",
    "429": "Too many requests are waiting",
    "502": "The model server failed",
    "503": "The request waited too long, or the model server is overloaded",
    "504": "The model server did not reply in time",
}

LIST = {"type": "array", "minItems": 1, "items": {"type": "object"}}
TOOLS = {"type": ["array", "null"], "items": {"type": "object"}}
TEXT = {"type": "string"}
OPENAI_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {"message": TEXT, "type": TEXT, "code": {}, "param": {"type": ["string", "null"]}},
        }
    },
}
ANTHROPIC_ERROR = {
    "type": "object",
    "required": ["type", "error"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": TEXT, "message": TEXT},
        },
    },
}


def description(base: RunConfig, limits: Limits) -> dict[str, Any]:
    """The description as a JSON object."""
    shared = {
        "model": {
            "type": "string",
            "description": "caps/<model>; requests for any other model are forwarded",
        },
        "stream": {"type": "boolean"},
        "stream_options": {"type": "object"},
        "caps": _options(base, limits),
    }
    number = {
        "type": "integer",
        "minimum": 1,
        "maximum": limits.max_samples,
        "description": "number of choices to return, best first",
    }
    chat = _schema(shared, required={"messages": LIST}, n=number)
    response = _schema(
        shared,
        required={"input": {"oneOf": [{"type": "string", "minLength": 1}, LIST]}},
        instructions={"type": ["string", "null"]},
        max_output_tokens={"type": ["integer", "null"], "minimum": 1},
        tools=TOOLS,
        text={"type": "object"},
        reasoning={"type": ["object", "null"]},
    )
    system = {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]}
    counted = _schema(shared, required={"messages": LIST}, system=system, tools=TOOLS)
    message = _schema(
        shared,
        required={"messages": LIST, "max_tokens": {"type": "integer", "minimum": 1}},
        system=system,
        tools=TOOLS,
        tool_choice={"type": "object"},
        stop_sequences={"type": "array", "items": {"type": "string"}},
    )
    case: dict[str, Any] = {
        "type": "object",
        "required": ["problem", "candidates"],
        "additionalProperties": True,
    }
    case["properties"] = {
        "problem": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
        "candidates": {"type": "array", "minItems": 1, "maxItems": limits.max_samples},
        "domain": {"enum": known_domains()},
        "model": {
            "type": "string",
            "description": "caps/<model>: the judge model, if the server has none configured",
        },
        "dry_run": {"type": "boolean", "description": "ask nothing; return the forecast of caps plan"},
        "caps": _options(base, limits),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "caps serve", "version": version("caps-select")},
        "components": {
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "anthropic": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "schemas": {"Error": OPENAI_ERROR, "AnthropicError": ANTHROPIC_ERROR},
        },
        "security": [{"key": []}, {}],
        "paths": {
            "/v1/chat/completions": {"post": _post("A chat completion: the best of several samples", chat)},
            "/v1/responses": {"post": _post("A response: the best of several samples", response)},
            "/v1/messages": {"post": _anthropic("A message: the best of several samples", message)},
            "/v1/messages/count_tokens": {"post": _anthropic("The tokens of a message, estimated", counted)},
            "/v1/select": {"post": _post("The best of given candidates", case)},
            "/v1/models": {"get": _get("Models of the upstream, each also as caps/<model>")},
            "/health": {"get": _get("Whether the upstream answers; 503 if not")},
            "/live": {"get": _get("Whether this process answers, whatever the upstream does")},
            "/ready": {"get": _get("Whether requests can be answered now; 503 if not")},
            "/recent": {"get": _get("The last requests with their answers, if --recent keeps them")},
            "/metrics": {"get": _get("Metrics for Prometheus", "text/plain")},
        },
    }


def _schema(
    shared: dict[str, Any], *, required: dict[str, dict[str, Any]], **fields: dict[str, Any]
) -> dict[str, Any]:
    """The schema of a request; fields that are not named go to the model as they are."""
    names = ["model", *required]
    properties = {**shared, **required, **fields}
    return {"type": "object", "required": names, "additionalProperties": True, "properties": properties}


def _options(base: RunConfig, limits: Limits) -> dict[str, Any]:
    """The settings that a request may change, as `RunConfig` declares them, within this server's limits."""
    config = within_limits(base, limits)
    kinds: dict[str, object] = {
        "integer": "integer", "number": "number", "flag": "boolean", "mapping": "object",
        "integer or auto": ["integer", "string"],
    }  # fmt: skip
    of_server: dict[str, dict[str, object]] = {
        "samples": {"maximum": limits.max_samples},
        "max_n": {"maximum": limits.max_samples},
        "budget_seconds": {"minimum": MIN_SECONDS, "maximum": limits.max_seconds},
        "strategy": {"enum": list(strategy_names())},
        "domain": {"enum": known_domains()},
    }
    properties = {}
    for setting in per_request_options():
        limits_of_setting = {
            "minimum": setting.least,
            "maximum": setting.most,
            "enum": list(setting.choices) or None,
        }
        default = getattr(config, setting.name)
        properties[client_name(setting)] = {
            "type": kinds.get(setting.kind, "string"),
            "description": setting.help,
            **{name: value for name, value in limits_of_setting.items() if value is not None},
            **of_server.get(setting.name, {}),
            **({} if default in (None, {}) else {"default": default}),
        }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _post(about: str, schema: dict[str, Any], error: str = "Error") -> dict[str, Any]:
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {**_get(about, error=error), "requestBody": body}


def _anthropic(about: str, schema: dict[str, Any]) -> dict[str, Any]:
    security: list[dict[str, list[str]]] = [{"anthropic": []}, {"key": []}, {}]
    return {**_post(about, schema, "AnthropicError"), "security": security}


def _get(about: str, kind: str = "application/json", error: str = "Error") -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{error}"}}}
    errors = {status: {"description": meaning, "content": content} for status, meaning in ERRORS.items()}
    return {"summary": about, "responses": {"200": {"description": about, "content": {kind: {}}}, **errors}}
