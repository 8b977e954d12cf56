"""Examples shown in a problem statement, and arguments made from annotations where there are none.

Recognised: `>>> f([1, 2])` with the value on the next line, `f(3) == 4`, `f("a") -> "b"`, `f(1) should return
2`, `Input: n = 5` with `Output: 1` below. Arguments and values must be literals; nothing is evaluated.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from random import Random
from typing import Any, NamedTuple

from caps.core.text import UNPARSABLE, syntax_tree

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
    except UNPARSABLE:
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
        except UNPARSABLE:
            continue
    return None


# --- Arguments made from the annotations of a function, where a problem shows no examples ---


MAX_HEADER_LINES = 30
_SEEDS = 8  # argument lists that are made
_SCALARS: dict[str, Callable[[Random], Any]] = {
    "int": lambda rng: rng.choice((0, 1, 2, 3, 5, 8, 12, 100, rng.randint(-20, 200))),
    "float": lambda rng: round(rng.choice((0.0, 1.0, rng.uniform(-10, 10), rng.uniform(0, 100))), 3),
    "bool": lambda rng: rng.choice((True, False)),
    "str": lambda rng: "".join(rng.choice("abcdeAB 1") for _ in range(rng.randrange(9))),
    "Any": lambda rng: rng.choice((rng.randint(0, 9), rng.randint(-99, 99), rng.choice("abcde"))),
}
_TYPES_OF_NAMES = {  # where an annotation is `Any`
    r"tup": "Tuple[int, ...]", r"dict|map": "Dict[str, int]", r"str|text|word": "str",
    r"lis|lst|arr|nums|seq|items|elements|values": "List[int]",
}  # fmt: skip
_CONTAINERS = {"list": list, "sequence": list, "iterable": list, "set": set, "frozenset": frozenset}


def parameters_of(source: str, name: str) -> list[str]:
    """The names of the parameters of a function, empty if its header is not found."""
    return [parameter.arg for parameter in _parameters(source, name)]


def generated_arguments(source: str, name: str, rng: Random, count: int = _SEEDS) -> list[list[Any]]:
    """Arguments made from the annotations of a function; none if one is missing or unknown."""
    parameters = _parameters(source, name)
    types = [_type_of(parameter) for parameter in parameters]
    try:
        argument_lists = [[random_value(kind, rng) for kind in types] for _ in range(count)] if types else []
    except LookupError:
        return []
    return [_fitting(values, rng) if number % 2 else values for number, values in enumerate(argument_lists)]


def _fitting(values: list[Any], rng: Random) -> list[Any]:
    """The arguments with whole numbers that are at most the length of a list beside them, as an index is."""
    lengths = [len(value) for value in values if isinstance(value, list | tuple)]
    if not lengths:
        return values
    return [rng.randint(0, rng.choice(lengths)) if type(value) is int else value for value in values]


def _type_of(parameter: ast.arg) -> ast.expr | None:
    """The annotation of a parameter; the type that its name suggests where the annotation says nothing."""
    if parameter.annotation is not None and _type_name(parameter.annotation) in {"Any", "object"}:
        for words, kind in _TYPES_OF_NAMES.items():
            if re.search(words, parameter.arg.lower()):
                return ast.parse(kind, mode="eval").body
    return parameter.annotation


def _parameters(source: str, name: str) -> list[ast.arg]:
    header = re.search(rf"^[ \t]*(def {re.escape(name)}\(.*)", source, re.MULTILINE | re.DOTALL)
    tree = None if header is None else _parse_header(header[1])
    return [] if tree is None else [parameter for parameter in tree.args.args if parameter.arg != "self"]


def _parse_header(source: str) -> ast.FunctionDef | None:
    """Parse the function header at the start of a source; it may span several lines."""
    lines = source.split("\n")[:MAX_HEADER_LINES]
    for count in range(1, len(lines) + 1):
        tree = syntax_tree("\n".join(lines[:count]).rstrip() + " pass")
        if tree is not None:
            return tree.body[0] if isinstance(tree.body[0], ast.FunctionDef) else None
    return None


def random_value(annotation: ast.expr | None, rng: Random) -> Any:
    """A random value of an annotated type; raises `LookupError` for an unknown type."""
    if annotation is None:
        raise LookupError("no annotation")
    if isinstance(annotation, ast.Constant) and annotation.value is None:
        return None
    if isinstance(annotation, ast.BinOp):  # int | None
        return random_value(rng.choice((annotation.left, annotation.right)), rng)
    name = _type_name(annotation)
    if name in _SCALARS:
        return _SCALARS[name](rng)
    parts, kind = _parts(annotation), name.lower()
    if kind in _CONTAINERS:
        inner = _type_name(parts[0]).lower()
        if _CONTAINERS[kind] is list and inner in _CONTAINERS and rng.choice((True, False)):
            (item,) = _parts(parts[0])[:1]
            return [[random_value(item, rng) for _ in range(3)] for _ in range(rng.choice((1, 3, 3, 4)))]
        return _CONTAINERS[kind](random_value(parts[0], rng) for _ in range(rng.randrange(6)))
    if kind == "tuple":
        items = [part for part in parts if not (isinstance(part, ast.Constant) and part.value is ...)]
        return tuple(
            random_value(item, rng) for item in (items if len(items) > 1 else items * rng.randrange(1, 5))
        )
    if kind in {"dict", "mapping"} and len(parts) == 2:
        return {random_value(parts[0], rng): random_value(parts[1], rng) for _ in range(rng.randrange(4))}
    if kind in {"optional", "union"}:
        return random_value(rng.choice(parts), rng)
    raise LookupError(name)


def _parts(annotation: ast.expr) -> list[ast.expr]:
    """The types in the brackets of a type."""
    inner = annotation.slice if isinstance(annotation, ast.Subscript) else ast.Name("int")
    return inner.elts if isinstance(inner, ast.Tuple) else [inner]


def _type_name(annotation: ast.expr) -> str:
    if isinstance(annotation, ast.Subscript):
        return _type_name(annotation.value)
    return getattr(annotation, "id", getattr(annotation, "attr", ""))
