"""Examples shown in a problem statement, and further inputs generated from them.

Recognised: `>>> f([1, 2])` with the value on the next line, `f(3) == 4`, `f("a") -> "b"`, `f(1) should return
2`. Arguments and values must be literals; nothing is evaluated.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

MAX_CHARACTERS = 2000
MAX_EXAMPLES = 20
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
    found: dict[str, ShownCall] = {}
    for start in _call_positions(statement, name):
        end = _closing(statement, start + len(name))
        if end is None:
            continue
        arguments = _literals(statement[start:end])
        value = _value_beside(statement, start, end)
        if arguments is not None and value is not None:
            found.setdefault(repr(arguments), ShownCall(arguments, value[0]))
        if len(found) >= MAX_EXAMPLES:
            break
    return list(found.values())


def _call_positions(statement: str, name: str) -> Iterator[int]:
    for position in re.finditer(rf"(?<![\w.]){re.escape(name)}(?=\()", statement):
        if not statement[: position.start()].rstrip(" ").endswith("def"):
            yield position.start()


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


# Further inputs that distinguish programs: mutated examples, or values from a function's annotations
#
# A mutation keeps the structure of its example, including counts, so that it is usually a valid input.

_NUMBER = re.compile(r"-?\d{1,15}")
_LETTERS = "abcde"
MAX_HEADER_LINES = 30
EDGE_CASE_RATE = 0.25  # how often a number becomes an edge case; most functions accept any number


def mutate_text(text: str, rng: Random) -> str:
    """Mutate the numbers and words of a standard input, except numbers that may be counts."""
    lines = [line.split(" ") for line in text.split("\n")]
    counts = _counts(lines)
    return "\n".join(" ".join(_change_words(words, counts, rng)) for words in lines)


def _counts(lines: Sequence[Sequence[str]]) -> set[str]:
    """Numbers that may be a count of words, letters or lines."""
    sizes = {len(words) for words in lines} | {len(word) for words in lines for word in words}
    return {str(size) for size in sizes | set(range(len(lines) + 1))}


def _change_words(words: Sequence[str], counts: set[str], rng: Random) -> list[str]:
    numbers = [int(word) for word in words if _NUMBER.fullmatch(word) and word not in counts]
    return [_change_word(word, numbers, counts, rng) for word in words]


def _change_word(word: str, numbers: Sequence[int], counts: set[str], rng: Random) -> str:
    if word in counts or not word or rng.random() < 0.3:
        return word
    if _NUMBER.fullmatch(word):
        return str(_near(int(word), rng) if len(numbers) < 2 else rng.randint(min(numbers), max(numbers)))
    return "".join(rng.sample(word, len(word))) if word.isalpha() else word


def mutate_arguments(arguments: Sequence[Any], rng: Random) -> list[Any]:
    """Mutate arguments; each may also stay as it is."""
    return [_mutate(value, rng) for value in arguments]


def _mutate(value: Any, rng: Random) -> Any:
    if rng.random() < 0.2:
        return value
    if isinstance(value, bool):
        return rng.random() < 0.5
    if isinstance(value, int):
        return rng.choice((0, 1, -1, -value)) if rng.random() < EDGE_CASE_RATE else _near(value, rng)
    if isinstance(value, float):
        return round(value * rng.choice((0.5, 0.9, 1.1, 2.0)), 6)
    if isinstance(value, str):
        return "".join(_resize(list(value), rng))
    if isinstance(value, list | tuple):
        changed = [_mutate(one, rng) for one in _resize(list(value), rng)]
        return changed if isinstance(value, list) else tuple(changed)
    if isinstance(value, dict):
        return {key: _mutate(one, rng) for key, one in value.items()}
    return value


def _near(number: int, rng: Random) -> int:
    """A number of similar size and the same sign."""
    spread = max(1, abs(number) // 2)
    low, high = (0, number + spread) if number >= 0 else (number - spread, -1)
    return rng.randint(max(low, number - spread), high)


def _resize(items: list[Any], rng: Random) -> list[Any]:
    """Shuffle the items, drop one, repeat one, or keep them."""
    if not items:
        return items
    change = rng.choice(("shuffle", "drop", "repeat", "keep"))
    if change == "shuffle":
        return rng.sample(items, len(items))
    if change == "drop" and len(items) > 1:
        items.pop(rng.randrange(len(items)))
    elif change == "repeat":
        items.insert(rng.randrange(len(items)), rng.choice(items))
    return items


def generated_inputs(source: str, name: str, rng: Random, count: int) -> list[list[Any]]:
    """Generate arguments from the annotations of a function; none if one is missing or unknown."""
    parameters = _annotations(source, name)
    if not parameters:
        return []
    try:
        return [[_random_value(annotation, rng) for annotation in parameters] for _ in range(count)]
    except LookupError:
        return []


def _annotations(source: str, name: str) -> list[ast.expr] | None:
    """The annotations of a function's parameters, if all have one."""
    found = re.search(rf"^[ \t]*(def {re.escape(name)}\(.*)", source, re.MULTILINE | re.DOTALL)
    header = None if found is None else _parse_header(found[1])
    if header is None:
        return None
    parameters = [one for one in header.args.args if one.arg != "self"]
    annotations = [one.annotation for one in parameters if one.annotation is not None]
    return annotations if len(annotations) == len(parameters) else None


def _parse_header(source: str) -> ast.FunctionDef | None:
    """Parse the function header at the start of a source; it may span several lines."""
    lines = source.split("\n")[:MAX_HEADER_LINES]
    for count in range(1, len(lines) + 1):
        try:
            (tree,) = ast.parse("\n".join(lines[:count]).rstrip() + " pass").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return tree if isinstance(tree, ast.FunctionDef) else None
    return None


_SCALARS: dict[str, Callable[[Random], Any]] = {
    "int": lambda rng: rng.choice((0, 1, 2, 3, 5, 8, 12, 100, rng.randint(-20, 200))),
    "float": lambda rng: round(rng.choice((0.0, 1.0, rng.uniform(-10, 10), rng.uniform(0, 100))), 3),
    "bool": lambda rng: rng.random() < 0.5,
    "str": lambda rng: "".join(rng.choice(_LETTERS + "AB 1") for _ in range(rng.randrange(9))),
    "Any": lambda rng: rng.randint(0, 9),
}
_CONTAINERS = {"list": list, "sequence": list, "iterable": list, "set": set, "frozenset": frozenset}


def _random_value(annotation: ast.expr, rng: Random) -> Any:
    """A random value of an annotated type; raises `LookupError` for an unknown type."""
    if isinstance(annotation, ast.Constant) and annotation.value is None:
        return None
    if isinstance(annotation, ast.BinOp):  # int | None
        return _random_value(rng.choice((annotation.left, annotation.right)), rng)
    name = _type_name(annotation)
    if name in _SCALARS:
        return _SCALARS[name](rng)
    inner = annotation.slice if isinstance(annotation, ast.Subscript) else ast.Name("int")
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    kind = name.lower()
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](_random_value(parts[0], rng) for _ in range(rng.randrange(6)))
    if kind == "tuple":
        parts = [one for one in parts if not (isinstance(one, ast.Constant) and one.value is ...)]
        return tuple(
            _random_value(one, rng) for one in (parts if len(parts) > 1 else parts * rng.randrange(1, 5))
        )
    if kind in {"dict", "mapping"} and len(parts) == 2:
        return {_random_value(parts[0], rng): _random_value(parts[1], rng) for _ in range(rng.randrange(4))}
    if kind in {"optional", "union"}:
        return _random_value(rng.choice(parts), rng)
    raise LookupError(name)


def _type_name(annotation: ast.expr) -> str:
    if isinstance(annotation, ast.Subscript):
        return _type_name(annotation.value)
    return getattr(annotation, "id", getattr(annotation, "attr", ""))
