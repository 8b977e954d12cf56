"""Arguments made from the annotations of a function, where a problem shows no examples."""

import ast
import re
from collections.abc import Callable
from random import Random
from typing import Any

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
        made = [[random_value(kind, rng) for kind in types] for _ in range(count)] if types else []
    except LookupError:
        return []
    return [_fitting(values, rng) if number % 2 else values for number, values in enumerate(made)]


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
        try:
            (tree,) = ast.parse("\n".join(lines[:count]).rstrip() + " pass").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return tree if isinstance(tree, ast.FunctionDef) else None
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
