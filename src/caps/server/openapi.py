"""The description at /openapi.json, with the settings a request may change and this server's limits."""

from typing import Any

from caps.config import RunConfig, per_request_options
from caps.evidence.domains import known_domains
from caps.server.options import SHORTEST, strategy_names, with_ceilings
from caps.server.rules import Limits

ERRORS = {
    "400": "The request cannot be taken as it is",
    "401": "No key, or one that is not known",
    "408": "The body came too slowly",
    "413": "The body is too large",
    "415": "The body is not application/json",
    "429": "Too many requests wait",
    "502": "The model server failed",
    "503": "No turn came in time, or the model server is busy",
    "504": "The model server did not reply in time",
}


def description(base: RunConfig, limits: Limits) -> dict[str, Any]:
    """What can be asked for and how."""
    from caps import __version__  # noqa: PLC0415  (the package imports its parts first)

    chat = {"type": "object", "required": ["model", "messages"], "additionalProperties": True}
    chat["properties"] = {
        "model": {"type": "string", "description": "caps/<model>, or any other to be forwarded as it is"},
        "messages": {"type": "array", "minItems": 1, "items": {"type": "object"}},
        "n": {"type": "integer", "minimum": 1, "maximum": limits.n, "description": "the best n, in order"},
        "stream": {"type": "boolean"},
        "stream_options": {"type": "object"},
        "caps": _options(base, limits),
    }
    case = {"type": "object", "required": ["problem", "candidates"], "additionalProperties": True}
    case["properties"] = {
        "problem": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
        "candidates": {"type": "array", "minItems": 1, "maxItems": limits.n},
        "domain": {"enum": known_domains()},
        "model": {"type": "string", "description": "caps/<model>: who judges, if the server has no judge"},
        "caps": _options(base, limits),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "caps serve", "version": __version__},
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{"key": []}, {}],
        "paths": {
            "/v1/chat/completions": {"post": _post("The winner of n samples", chat)},
            "/v1/select": {"post": _post("The best of a case's own candidates", case)},
            "/v1/models": {"get": _get("Models of the upstream, each also as caps/<model>")},
            "/health": {"get": _get("Whether the upstream answers; 503 if not")},
            "/metrics": {"get": _get("Figures for Prometheus", "text/plain")},
        },
    }


def _options(base: RunConfig, limits: Limits) -> dict[str, Any]:
    """The settings that a request may change, as `RunConfig` declares them, within this server's limits."""
    config = with_ceilings(base, limits)
    kinds = {"integer": "integer", "number": "number", "flag": "boolean", "mapping": "object"}
    limited: dict[str, dict[str, object]] = {
        "samples": {"minimum": 1, "maximum": limits.n},
        "budget_seconds": {"minimum": SHORTEST, "maximum": limits.seconds},
        "budget_tokens": {"minimum": 0, **({"maximum": limits.tokens} if limits.tokens else {})},
        "seed": {"minimum": -(2**63), "maximum": 2**63 - 1},
        "strategy": {"enum": list(strategy_names())},
        "domain": {"enum": known_domains()},
    }
    properties = {}
    for one in per_request_options():
        row: dict[str, object] = {
            "type": kinds.get(one.kind, "string"),
            "description": one.help,
            **limited.get(one.name, {}),
        }
        default = getattr(config, one.name)
        properties[one.aliases[0] if one.aliases else one.name] = row | (
            {} if default in (None, {}) else {"default": default}
        )
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _post(about: str, schema: dict[str, Any]) -> dict[str, Any]:
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {**_get(about), "requestBody": body}


def _get(about: str, kind: str = "application/json") -> dict[str, Any]:
    errors = {status: {"description": words} for status, words in ERRORS.items()}
    return {"summary": about, "responses": {"200": {"description": about, "content": {kind: {}}}, **errors}}
