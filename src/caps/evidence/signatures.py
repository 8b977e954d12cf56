"""Level E0: signatures that are equal where two candidates give the same answer."""

import json
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from caps.core.types import Candidate
from caps.evidence.anatomy import Enclosed, boxed_answer, dissect, final_answer, find_layout, spoken
from caps.evidence.programs import LONGEST_PARSED, bare_lines, shape, tidy_lines

# Canonical JSON and tool calls, independent of spacing, key order and call ids

MAX_DEPTH = 100
LEAD_IN = 20
_CALL_TYPES = ("function", "function_call", "tool_call", "tool_use")
_ARGUMENTS = ("arguments", "parameters", "input")
_NO_VALUE = object()


def canonical(text: str) -> str | None:
    """The canonical form of a JSON object or list, or of tool calls; None for prose."""
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
        return _NO_VALUE
    try:
        value = json.loads(text, parse_float=_number)
    except (ValueError, RecursionError, MemoryError):
        return _NO_VALUE
    return _NO_VALUE if _deeper_than(value, MAX_DEPTH) else value


def _number(digits: str) -> object:
    value = float(digits)
    if value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value if abs(value) < float("inf") else digits


def _deeper_than(value: object, limit: int) -> bool:
    """Whether a value is nested deeper than a limit; the interpreter's own depends on the caller."""
    layer = [value]
    for _ in range(limit):
        parts = [list(part.values()) if isinstance(part, dict) else part for part in layer]
        layer = [item for part in parts if isinstance(part, list) for item in part]
        if not layer:
            return False
    return True


def _dump(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _tagged_calls(text: str) -> list[Any] | None:
    """The calls between `<tool_call>` tags, if all of them can be read."""
    pieces = text.split("<tool_call>")[1:]
    return _all_calls(_load(piece.partition("</tool_call>")[0]) for piece in pieces)


def _calls(value: dict[str, Any] | list[Any]) -> list[Any] | None:
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    return _all_calls(value if isinstance(value, list) else [value])


def _all_calls(values: Iterable[object]) -> list[Any] | None:
    """All values as calls, or None if one is not a call."""
    calls = []
    for value in values:
        call = _call(value)
        if call is None:
            return None
        calls.append(call)
    return calls or None


def _call(value: object) -> list[Any] | None:
    """The name and arguments of a call.

    Its id is dropped only if a type or function field marks it as a call: other records have ids too.
    """
    if not isinstance(value, dict):
        return None
    function, expected = value, {"name", *_ARGUMENTS}
    if isinstance(value.get("function"), dict):
        function = value["function"]
        if set(value) - {"id", "type", "index", "function"}:
            return None
    elif value.get("type") in _CALL_TYPES:
        expected |= {"id", "type", "index", "call_id"}
    argument_keys = [name for name in _ARGUMENTS if name in function]
    if len(argument_keys) != 1 or not isinstance(function.get("name"), str) or set(function) - expected:
        return None
    arguments = function[argument_keys[0]]
    if isinstance(arguments, str):
        loaded = _load(arguments)
        arguments = arguments if loaded is _NO_VALUE else loaded
    return [function["name"], arguments]


MAX_SHOWN_CHARACTERS = 80
_SPACING = re.compile(r"\\[,!;: ]|\\q?quad(?![a-z])|\\(?:left|right)(?![a-z])|[\s~$]")
_FRACTION = re.compile(r"\\[dt]frac(?![a-z])")


def math_answer(candidate: Candidate) -> str | None:
    """The stated or last boxed answer, lowercase, without white space and LaTeX spacing: the paper's."""
    return _normalised(boxed_answer(candidate))


def math_final(candidate: Candidate) -> str | None:
    """The final answer alike; boxes in a row are one answer, and one may be announced in words."""
    return _normalised(final_answer(candidate))


def _normalised(answer: str | None) -> str | None:
    if answer is None:
        return None
    if not answer.isalnum():
        answer = _SPACING.sub("", _FRACTION.sub(r"\\frac", answer)).rstrip(".")
    return short_or_digest(answer.lower())


def code_ast(candidate: Candidate) -> str | None:
    """A hash of the parsed program without docstrings and layout, or of its lines if it does not parse."""
    code = dissect(candidate).code
    if code is None:
        code = spoken(candidate.text)
        return _digest(tidy_lines(code) if len(code) > LONGEST_PARSED else shape(code))
    tree = shape(code)
    return _digest(tidy_lines(code) if tree is None else tree)


def code_text(candidate: Candidate) -> str | None:
    """The paper's hash of the program's text without imports, comments, blank lines and indentation.

    Programs that differ only in indentation count as equal, although in Python they are not.
    """
    code = dissect(candidate).code
    if code is None:
        code = spoken(candidate.text)
        if not shape(code):
            return None
    return _digest(bare_lines(code))


def general_answer(candidate: Candidate) -> str | None:
    """The stated answer, or the JSON value or tool calls of the reply; None for other text."""
    reply = _reply_of(candidate)
    value = canonical(reply)
    if value is None:
        value = _fenced_value(reply)
    if value is not None:
        return _digest(value)
    answer = (candidate.answer or "").strip()
    return short_or_digest(_folded(answer)) if answer else None


def same_text(candidate: Candidate) -> str | None:
    """A hash of the reply without its thoughts, case and spacing, for a candidate without an answer."""
    reply = _reply_of(candidate) or candidate.text.strip() or (candidate.code or "").strip()
    return _digest("text\0" + _folded(reply)) if reply else None


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _reply_of(candidate: Candidate) -> str:
    """The stated answer, or the text without its thoughts; marks of thoughts inside a JSON value are data."""
    if answer := (candidate.answer or "").strip():
        return answer
    text = candidate.text.strip()
    reply = spoken(text).strip()
    return text if reply != text and _load(text) is not _NO_VALUE else reply


def cluster(candidate: Candidate) -> str | None:
    """The cluster that the findings put a candidate in: equal behaviour, value or files."""
    return None if candidate.found is None else candidate.found.cluster


def _fenced_value(reply: str) -> str | None:
    """The value in a fenced block that is the whole reply, except for a sentence around it."""
    block = find_layout(reply).block
    return canonical(block.within(reply)) if block is not None and _is_all(reply, block) else None


def _is_all(reply: str, block: Enclosed) -> bool:
    """Whether a reply has hardly anything but this block."""
    around = reply[: block.start] + " " + reply[block.stop :]
    return len(around.split(None, LEAD_IN)) <= LEAD_IN


def short_or_digest(text: str) -> str | None:
    """The text itself if it is short and printable, else its hash."""
    return text if text and len(text) <= MAX_SHOWN_CHARACTERS and text.isprintable() else _digest(text)


def _digest(text: str | None) -> str | None:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16] if text else None
