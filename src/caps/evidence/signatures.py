"""Level E0: signatures that are equal where two candidates give the same answer."""

import ast
import json
import re
import textwrap
import warnings
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from caps.core.text import parse_json, syntax_tree
from caps.core.types import Candidate
from caps.evidence.anatomy import Enclosed, boxed_answer, dissect, final_answer, find_layout, spoken

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
    value = parse_json(text, _NO_VALUE, parse_float=_number)
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


# --- Normalised forms of programs, so that equal programs compare equal; nothing is run ---


DEEPEST = 1_000  # levels of a syntax tree
_IGNORED_FIELDS = {"ctx", "kind", "type_comment", "type_ignores"}
_CLOSING = object()


def _spell(tree: ast.Module) -> str:
    """Write a syntax tree without positions and docstrings; raises `RecursionError` if it is too deep.

    Not `ast.dump`: that recurses, so the depth of its caller decides which programs it can read, and what it
    writes differs between versions of Python.
    """
    written: list[str] = []
    waiting: list[tuple[str, Any, int]] = [("", tree, 1)]  # a label, its value, and the level of the value
    while waiting:
        label, value, level = waiting.pop()
        if value is _CLOSING:
            written.append(label)
        elif isinstance(value, list):
            if value:
                written.append(f"{label}[")
                waiting.append(("]", _CLOSING, level))
                waiting += [("", item, level) for item in reversed(_without_docstrings(value))]
        elif isinstance(value, ast.AST):
            if level > DEEPEST:
                raise RecursionError
            written.append(f"{label}{type(value).__name__} (")
            waiting.append((")", _CLOSING, level))
            fields = [field for field in ast.iter_fields(value) if field[0] not in _IGNORED_FIELDS]
            waiting += [(f"{name}= ", item, level + 1) for name, item in reversed(fields)]
        elif value is not None or not label:  # None in a list counts: it keeps the places of the others
            written.append(f"{label}{value!r}")
    return " ".join(written)


def _without_docstrings(parts: list[Any]) -> list[Any]:
    """The statements that are not string literals, that is docstrings or comments in quotes.

    If all are string literals they stay: a program may consist of just a text.
    """
    return [part for part in parts if not isinstance(part, ast.Expr) or not _is_text(part.value)] or parts


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


LONGEST_PARSED = 50_000  # characters: 0.1 s, and ten times a long program
_SOURCE = "<candidate>"
_SOURCE_PATTERN: object = re.compile(_SOURCE)
_IMPORT = re.compile(r"(?:import|from)\s")
# An unclosed quote takes the rest of its line, so that no line is scanned twice.
_COMMENT = re.compile(r"""("(?:\\.?|[^"\\])*+"?|'(?:\\.?|[^'\\])*+'?)|#.*""")


def shape(program: str) -> str | None:
    """The normalised syntax tree of a program; None if it is not Python, empty if it does nothing."""
    if len(program) > LONGEST_PARSED:
        return None
    program = program.strip("\r\n")
    if program[:1].isspace():
        program = textwrap.dedent(program)
    _silence_warnings()
    tree = syntax_tree(program, _SOURCE)
    try:
        return None if tree is None else _spell(tree) if tree.body else ""
    except RecursionError:
        return None


def tidy_lines(program: str) -> str:
    """The lines of a program in any language without blank lines and comments; indentation stays.

    `#` before a letter stays: `#define` is not a comment.
    """
    lines = (line.rstrip() for line in program.splitlines())
    return "\n".join(line for line in lines if line and not re.match(r"\s*#(?![a-z])", line))


def bare_lines(program: str) -> str:
    """The lines of a program without imports, comments and indentation, as in the paper's appendix."""
    lines = (_COMMENT.sub(r"\1", line).strip() for line in program.splitlines())
    return "\n".join(line for line in lines if line and not _IMPORT.match(line))


def _silence_warnings() -> None:
    """Ignore parser warnings about candidates; under `-W error` they would be syntax errors.

    `warnings.catch_warnings` swaps the filters of the whole process and is not thread-safe. A filter that
    only matches candidates may stay.
    """
    if not warnings.filters or warnings.filters[0][3] != _SOURCE_PATTERN:
        warnings.filterwarnings("ignore", module=_SOURCE)
