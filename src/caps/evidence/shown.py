"""Examples a problem statement shows: calls of the wanted function with what they should return.

`>>> f([1, 2])` with the value on the next line, `f(3) == 4`, `f("a") -> "b"`, `f(1) should return 2`. Only
literal arguments and values count: nothing is evaluated.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

LONGEST = 2000
MOST = 20
_EQUALS = re.compile(
    r"(?:[ \t`:#]*(?:={1,3}>?|-{1,2}>|[→➞➜⇒]|is\b"
    r"|(?:(?:should|must|will) )?(?:return|equal|be|give)s?\b)){1,2}"
    r"[ \t:`]*(?P<value>\S.*)"
)
_JSON = {"true": True, "false": False, "null": None}
_CLOSERS = {"(": ")", "[": "]", "{": "}"}


class ShownCall(NamedTuple):
    """A call in a statement: its arguments, and the value that stands beside it."""

    arguments: list[Any]
    value: Any


def shown_calls(statement: str, name: str) -> list[ShownCall]:
    """The calls of `name` a statement shows with their values, each once, in order."""
    found: dict[str, ShownCall] = {}
    for start in _places(statement, name):
        end = _closing(statement, start + len(name))
        if end is None:
            continue
        arguments = _literals(statement[start:end])
        value = _value_beside(statement, start, end)
        if arguments is not None and value is not None:
            found.setdefault(repr(arguments), ShownCall(arguments, value[0]))
        if len(found) >= MOST:
            break
    return list(found.values())


def _places(statement: str, name: str) -> Iterator[int]:
    for place in re.finditer(rf"(?<![\w.]){re.escape(name)}(?=\()", statement):
        if not statement[: place.start()].rstrip(" ").endswith("def"):
            yield place.start()


def _closing(text: str, start: int) -> int | None:
    """Where the bracket at `start` is closed; texts in quotes do not count."""
    wanted, quoted = list[str](), ""
    for place in range(start, min(len(text), start + LONGEST)):
        sign = text[place]
        if quoted:
            if sign == quoted and text[place - 1] != "\\":
                quoted = ""
        elif sign in "\"'":
            quoted = sign
        elif sign in _CLOSERS:
            wanted.append(_CLOSERS[sign])
        elif wanted and sign == wanted[-1]:
            wanted.pop()
            if not wanted:
                return place + 1
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
    """The literal after a call: behind a sign on the same line, or, after a prompt `>>>`, on the next."""
    line_start = statement.rfind("\n", 0, start) + 1
    rest, _, below = statement[end:].partition("\n")
    beside = _EQUALS.match(rest)
    if beside:
        return _literal(beside["value"])
    if rest.strip() or not statement[line_start:start].strip().endswith(">>>"):
        return None
    return _literal(below.partition("\n")[0])


def _literal(text: str) -> tuple[Any] | None:
    """What a text says, in a tuple because it may be None; without what is said after it, if need be."""
    text = text.strip().strip("`").strip()[:LONGEST]
    said_alone = re.split(r"\s+#|\s{2,}|[.;,]?\s+[A-Za-z(]", text)[0]
    for words in (text, text.rstrip(".,;"), said_alone.rstrip(".,;`")):
        if words in _JSON:
            return (_JSON[words],)
        try:
            return (ast.literal_eval(words),)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
    return None
