"""The description at /openapi.json: small, by hand, with the limits of this very server in it."""

from typing import Any

from caps.datasets.jsonl import DOMAINS
from caps.server.options import SHORTEST, strategy_names
from caps.server.rules import Defaults, Limits

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


def description(defaults: Defaults, limits: Limits) -> dict[str, Any]:
    """What can be asked for and how."""
    from caps import __version__  # noqa: PLC0415  (the package imports its parts first)

    chat = {"type": "object", "required": ["model", "messages"], "additionalProperties": True}
    chat["properties"] = {
        "model": {"type": "string", "description": "caps/<model>, or any other to be forwarded as it is"},
        "messages": {"type": "array", "minItems": 1, "items": {"type": "object"}},
        "n": {"type": "integer", "minimum": 1, "maximum": limits.n, "description": "the best n, in order"},
        "stream": {"type": "boolean"},
        "stream_options": {"type": "object"},
        "caps": _options(defaults, limits),
    }
    case = {"type": "object", "required": ["problem", "candidates"], "additionalProperties": True}
    case["properties"] = {
        "problem": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
        "candidates": {"type": "array", "minItems": 1, "maxItems": limits.n},
        "domain": {"enum": list(DOMAINS)},
        "model": {"type": "string", "description": "caps/<model>: who judges, if the server has no judge"},
        "caps": _options(defaults, limits),
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


def _options(defaults: Defaults, limits: Limits) -> dict[str, Any]:
    samples = {"type": "integer", "minimum": 1, "maximum": limits.n, "default": min(defaults.n, limits.n)}
    properties = {
        "n": {**samples, "description": "samples to choose from"},
        "strategy": {"enum": list(strategy_names()), "default": defaults.strategy},
        "set": {"type": "object", "description": "fields of the strategy"},
        "domain": {"enum": list(DOMAINS), "description": "guessed from the answers if absent"},
        "seed": {"type": "integer", "default": defaults.seed},
        "early_exit": {"type": "boolean", "default": defaults.early_exit},
        "seconds": {"type": "number", "minimum": SHORTEST, "maximum": limits.seconds},
        "budget_tokens": {"type": "integer", "minimum": 0, "description": "for the judge"},
    }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _post(about: str, schema: dict[str, Any]) -> dict[str, Any]:
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {**_get(about), "requestBody": body}


def _get(about: str, kind: str = "application/json") -> dict[str, Any]:
    errors = {status: {"description": words} for status, words in ERRORS.items()}
    return {"summary": about, "responses": {"200": {"description": about, "content": {kind: {}}}, **errors}}
