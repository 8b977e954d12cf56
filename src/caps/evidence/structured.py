"""JSON values and tool calls in one spelling each, whatever their spacing, key order and call ids."""

import json
from collections.abc import Iterable
from typing import Any

DEEPEST = 100
LEAD_IN = 20
_CALL_TYPES = ("function", "function_call", "tool_call", "tool_use")
_ARGUMENTS = ("arguments", "parameters", "input")
_NOTHING = object()


def canonical(text: str) -> str | None:
    """Spell a JSON object or list the one way, or tool calls as names with arguments; nothing for prose."""
    tagged = _tagged_calls(text)
    if tagged is not None:
        return _dump({"calls": tagged})
    value = _load(text)
    if not isinstance(value, dict | list):
        return None
    calls = _calls(value)
    return _dump(value) if calls is None else _dump({"calls": calls})


def _load(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return _NOTHING
    try:
        value = json.loads(text, parse_float=_number)
    except (ValueError, RecursionError, MemoryError):
        return _NOTHING
    return _NOTHING if _deeper_than(value, DEEPEST) else value


def _number(digits: str) -> object:
    value = float(digits)
    if value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value if abs(value) < float("inf") else digits


def _deeper_than(value: object, limit: int) -> bool:
    """Whether a value nests further; a fixed limit, since the interpreter's depends on who calls."""
    layer = [value]
    for _ in range(limit):
        parts = [list(one.values()) if isinstance(one, dict) else one for one in layer]
        layer = [item for part in parts if isinstance(part, list) for item in part]
        if not layer:
            return False
    return True


def _dump(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _tagged_calls(text: str) -> list[Any] | None:
    """The calls between `<tool_call>` tags, when all of them can be read."""
    pieces = text.split("<tool_call>")[1:]
    return _all_calls(_load(piece.partition("</tool_call>")[0]) for piece in pieces)


def _calls(value: dict[str, Any] | list[Any]) -> list[Any] | None:
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    return _all_calls(value if isinstance(value, list) else [value])


def _all_calls(values: Iterable[object]) -> list[Any] | None:
    """Every value as a call, or nothing as soon as one is none."""
    calls = []
    for value in values:
        call = _call(value)
        if call is None:
            return None
        calls.append(call)
    return calls or None


def _call(value: object) -> list[Any] | None:
    """Name and arguments of a call.

    Its id is only dropped where a type or a function says that it is a call: other records have ids too.
    """
    if not isinstance(value, dict):
        return None
    function, known = value, {"name", *_ARGUMENTS}
    if isinstance(value.get("function"), dict):
        function = value["function"]
        if set(value) - {"id", "type", "index", "function"}:
            return None
    elif value.get("type") in _CALL_TYPES:
        known |= {"id", "type", "index", "call_id"}
    given = [name for name in _ARGUMENTS if name in function]
    if len(given) != 1 or not isinstance(function.get("name"), str) or set(function) - known:
        return None
    arguments = function[given[0]]
    if isinstance(arguments, str):
        loaded = _load(arguments)
        arguments = arguments if loaded is _NOTHING else loaded
    return [function["name"], arguments]
