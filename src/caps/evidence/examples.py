"""Examples shown in a problem statement.

Recognised: `>>> f([1, 2])` with the value on the next line, `f(3) == 4`, `f("a") -> "b"`, `f(1) should return
2`, `Input: n = 5` with `Output: 1` below. Arguments and values must be literals; nothing is evaluated.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

MAX_CHARACTERS = 2000
MAX_EXAMPLES = 20
MAX_CALLS = 300  # places of a statement that are looked at; a hostile one may have a million
_RESULT_SIGN = re.compile(
    r"(?:[ \t`:#]*(?:={1,3}>?|-{1,2}>|[→➞➜⇒]|is\b"
    r"|(?:(?:should|must|will) )?(?:return|equal|be|give)s?\b)){1,2}"
    r"[ \t:`]*(?P<value>\S.*)"
)
_JSON = {"true": True, "false": False, "null": None}
_CLOSERS = {"(": ")", "[": "]", "{": "}"}


class ShownCall(NamedTuple):
    """A call in a problem statement: its arguments and the stated value."""

    arguments: list[Any]
    value: Any


def shown_calls(statement: str, name: str) -> list[ShownCall]:
    """The calls of `name` that a statement shows with their values, without duplicates, in order."""
    calls: dict[str, ShownCall] = {}
    for start in _call_positions(statement, name):
        end = _closing(statement, start + len(name))
        if end is None:
            continue
        arguments = _literals(statement[start:end])
        value = _value_beside(statement, start, end)
        if arguments is not None and value is not None:
            calls.setdefault(repr(arguments), ShownCall(arguments, value[0]))
        if len(calls) >= MAX_EXAMPLES:
            break
    return list(calls.values())


_LABELLED = (
    re.compile(
        r"\bInput[ \t]*:[ \t]*(?P<input>\S.{0,500})\n\s{0,40}"
        r"Output[ \t]*:[ \t]*(?P<value>\S.{0,500})"
    ),
    re.compile(
        r"\bFor (?P<input>\w+ = \S.{0,300}?)\s{1,3}"
        r"the (?:output|result) (?:should be|is) (?P<value>\S.{0,200})"
    ),
)


def labelled_examples(statement: str, parameters: Sequence[str]) -> list[ShownCall]:
    """Examples given by the names of the parameters: `Input: n = 5` with `Output: 1` on the next line."""
    calls = []
    for pattern in _LABELLED:
        for example in islice(pattern.finditer(statement), MAX_EXAMPLES):
            arguments, value = _named_arguments(example["input"], parameters), _literal(example["value"])
            if arguments is not None and value is not None:
                calls.append(ShownCall(arguments, value[0]))
    return calls[:MAX_EXAMPLES]


def _named_arguments(text: str, parameters: Sequence[str]) -> list[Any] | None:
    """The values of `arr = [1, 2], k = 3` in the order of the parameters; a single one needs no name."""
    parts = re.split(r"(?:^|,)\s*([A-Za-z_]\w*)\s*=(?!=)\s*", text.strip())
    named = dict(zip(parts[1::2], parts[2::2], strict=True))
    if not named and len(parameters) == 1:
        named = {parameters[0]: text}
    values = [_literal(named[name]) for name in parameters if name in named]
    arguments = [value[0] for value in values if value is not None]
    return arguments if arguments and len(arguments) == len(parameters) else None


def shown_arguments(statement: str, name: str) -> list[list[Any]]:
    """The arguments of calls that a statement shows, with or without their values."""
    calls = []
    for start in islice(_call_positions(statement, name), MAX_EXAMPLES):
        end = _closing(statement, start + len(name))
        arguments = None if end is None else _literals(statement[start:end])
        if arguments:
            calls.append(arguments)
    return calls


def _call_positions(statement: str, name: str) -> Iterator[int]:
    places = re.finditer(rf"(?<![\w.]){re.escape(name)}(?=\()", statement)
    for start in (place.start() for place in islice(places, MAX_CALLS)):
        if not statement[max(0, start - 20) : start].rstrip(" ").endswith("def"):
            yield start


def _closing(text: str, start: int) -> int | None:
    """The end of the bracket at `start`, ignoring quoted text."""
    closers, quoted = list[str](), ""
    for position in range(start, min(len(text), start + MAX_CHARACTERS)):
        sign = text[position]
        if quoted:
            if sign == quoted and text[position - 1] != "\\":
                quoted = ""
        elif sign in "\"'":
            quoted = sign
        elif sign in _CLOSERS:
            closers.append(_CLOSERS[sign])
        elif closers and sign == closers[-1]:
            closers.pop()
            if not closers:
                return position + 1
    return None


def _literals(call: str) -> list[Any] | None:
    try:
        tree = ast.parse(call.strip(), mode="eval").body
        if not isinstance(tree, ast.Call) or tree.keywords:
            return None
        return [ast.literal_eval(argument) for argument in tree.args]
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _value_beside(statement: str, start: int, end: int) -> tuple[Any] | None:
    """The literal after a call: after a sign on the same line, or on the line after a `>>>` prompt."""
    line_start = statement.rfind("\n", 0, start) + 1
    rest, _, below = statement[end:].partition("\n")
    beside = _RESULT_SIGN.match(rest)
    if beside:
        return _literal(beside["value"])
    if rest.strip() or not statement[line_start:start].strip().endswith(">>>"):
        return None
    return _literal(below.partition("\n")[0])


def _literal(text: str) -> tuple[Any] | None:
    """The literal a text begins with, in a tuple because it may be None; trailing prose is ignored."""
    text = text.strip().strip("`").strip()[:MAX_CHARACTERS]
    first_phrase = re.split(r"\s+#|\s{2,}|[.;,]?\s+[A-Za-z(]", text)[0]
    for words in (text, text.rstrip(".,;"), first_phrase.rstrip(".,;`")):
        if words in _JSON:
            return (_JSON[words],)
        try:
            return (ast.literal_eval(words),)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
    return None
