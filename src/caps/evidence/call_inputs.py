"""Further arguments of functions: those of the examples changed, edge cases, and values of annotated types.

Everything is a function of the examples, the hints and the seed.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise, zip_longest
from random import Random
from typing import Any

from caps.evidence.input_hints import Hints, Range, is_item, is_length

MAX_HEADER_LINES = 30
MAX_ITEMS = 200  # items of a list or characters of a text
ANEW = 0.15  # how often a list of numbers is made anew
MATRICES = 0.7  # how often a list of lists has rows of the same length
RELATED = 0.25  # how often an argument is made from the others
UNSTATED = 10**9  # the largest number where the statement gives no range
_LETTERS = "abcde"
_SEEDS = 8  # argument lists made from annotations where there are no examples


class CallInputs:
    """Changes lists of arguments. `names` are those of the parameters, where known."""

    def __init__(
        self, examples: Sequence[Sequence[Any]], names: Sequence[str], hints: Hints, rng: Random
    ) -> None:
        self._examples, self._names, self._hints, self._rng = list(examples), names, hints, rng
        self._pool: dict[type, list[Any]] = {}
        for value in _values_in(self._examples):
            self._pool.setdefault(type(value), []).append(value)
        self._pool.setdefault(int, []).extend(hints.numbers)
        self._pool.setdefault(str, []).extend(hints.texts)
        self._kinds = [_LETTERS, "AZ", "0192", " .,-", *([hints.marks] if hints.marks else [])]
        self._either = {
            place
            for place in range(min(map(len, self._examples), default=0))
            if {int, float} <= {type(one[place]) for one in self._examples}
        }
        self._sorted = {
            place
            for place in range(max(map(len, self._examples), default=0))
            if all(_is_sorted(one[place]) for one in self._examples if place < len(one))
        }

    def edges(self) -> Iterator[list[Any]]:
        """Each argument of the examples replaced by edge cases, one at a time."""
        for basis in self._different()[:3]:
            for place, value in enumerate(basis):
                for edge in self._edges(value, place):
                    yield [*basis[:place], edge, *basis[place + 1 :]]

    def related(self) -> Iterator[list[Any]]:
        """Examples with two arguments exchanged, one made from the others, or a whole number as a float.

        The most telling ones come first, in turn for all examples and places.
        """
        kinds = list[list[list[Any]]]()
        for basis in self._different()[:3]:
            for place, value in enumerate(basis):
                fitting = [float(value)] if type(value) is int and place in self._either else []
                fitting += self._made_from_others(basis, place)
                kinds.append([[*basis[:place], one, *basis[place + 1 :]] for one in fitting])
            kinds.append(list(_exchanged(basis)))
        yield from (one for row in zip_longest(*kinds) for one in row if one is not None)

    def _different(self) -> list[Sequence[Any]]:
        """The examples, first one of each combination of types."""
        first = dict[tuple[type, ...], Sequence[Any]]()
        for one in self._examples:
            first.setdefault(tuple(map(type, one)), one)
        chosen = list(first.values())
        return chosen + [one for one in self._examples if not any(one is other for other in chosen)]

    def change(self, basis: Sequence[Any]) -> list[Any]:
        """Change one to all of the arguments, or make one of them fit another."""
        rng, count = self._rng, len(basis)
        chosen = rng.sample(range(count), rng.randint(1, count)) if count else []
        changed = [
            self._change(value, place) if place in chosen else value for place, value in enumerate(basis)
        ]
        if count > 1 and rng.random() < RELATED:
            place = rng.randrange(count)
            changed[place] = self._related(changed, place)
        return changed

    def _related(self, values: Sequence[Any], place: int) -> Any:
        """An argument made from the others, if it can be."""
        found = list(self._made_from_others(values, place))
        return self._rng.choice(found) if found else values[place]

    def _made_from_others(self, values: Sequence[Any], place: int) -> Iterator[Any]:
        """What may stand in a place: lengths and sums of the other arguments, their items, the same."""
        value, others = values[place], [one for k, one in enumerate(values) if k != place]
        for one in _made_from(value, others, self._rng):
            if type(one) is type(value) and (type(one) is not int or self._range(place, value).holds([one])):
                yield one

    def _edges(self, value: Any, place: int) -> Iterator[Any]:
        if isinstance(value, bool):
            yield not value
        elif isinstance(value, int):
            limits = self._range(place, value)
            wanted = [0, 1, 2, 3, -1, -value, value + 1, value - 1, 10, 100, 1_000, 2 * value, limits.low]
            small = (one for one in dict.fromkeys(wanted) if abs(one) < UNSTATED)
            yield from (one for one in small if limits.holds([one]) and one != value)
        elif isinstance(value, float):
            yield from (0.0, 1.0, -value, value + 0.5, value // 1)
        elif isinstance(value, str):
            yield from self._edge_texts(value)
        elif isinstance(value, list | tuple):
            kind = type(value)
            yield from (kind(one) for one in self._edge_lists(list(value), place))
        elif isinstance(value, dict):
            yield from ([] if self._hints.never_empty else [{}])
            yield dict(list(value.items())[:1])

    def _edge_texts(self, value: str) -> Iterator[str]:
        yield from ([] if self._hints.never_empty else [""])
        start = value[:1]
        yield from (start, value * 2, value[::-1], value.upper(), value.lower(), value + " ", start * 3)
        if " " in value:
            yield from (value.replace(" ", "  "), value.replace(" ", ""))

    def _edge_lists(self, items: list[Any], place: int) -> Iterator[list[Any]]:
        yield from ([] if self._hints.never_empty else [[]])
        if not items:
            return
        yield from (items[:1], items[-1:], items[:2], [items[0]] * 3, [items[0]] * 2)
        if place not in self._sorted:
            yield from (items[::-1], items + items)
        if all(type(one) is int for one in items):
            low = self._range(place, min(items), item=True).low
            yield [max(low, 0)] * len(items)
            if low < 0:
                yield [-one for one in items]
        for index, one in enumerate(items[:2]):
            for edge in self._edges(one, -1):
                yield [*items[:index], edge, *items[index + 1 :]]

    def _range(self, place: int, value: int, *, item: bool = False) -> Range:
        """The range of a number: of the constraint that names its parameter, else by what the text says."""
        name = self._names[place] if 0 <= place < len(self._names) else ""
        for stated, limits in self._hints.constraints.items():
            about = re.split(r"[\[_.|(]", stated.strip("|"))[0]
            if name and about == name and is_item(stated) == item and not is_length(stated):
                return Range(min(limits.low, value), max(limits.high, value))
        low = 1 if self._hints.positive else 0 if self._hints.never_negative else -UNSTATED
        low = self._hints.lowest.get(name, low) if not item else low
        return Range(min(low, value), max(UNSTATED, value))

    def largest(self) -> Iterator[list[Any]]:
        """Examples with a number as large as the statement allows."""
        for basis in self._examples:
            for place, value in enumerate(basis):
                if type(value) is int and 1_000 < (high := self._range(place, value).high) != UNSTATED:
                    yield [*basis[:place], high, *basis[place + 1 :]]

    def _change(self, value: Any, place: int, depth: int = 0) -> Any:
        """Keep a value in a list, take a known one, an edge case, or a changed one."""
        rng, dice = self._rng, self._rng.random()
        known = self._pool.get(type(value)) if dice < 0.15 else None
        if dice > 0.85 and depth:
            return value
        if dice < 0.35:
            known = known or list(self._edges(value, place))
        return rng.choice(known) if known else self._vary(value, place, depth)

    def _vary(self, value: Any, place: int, depth: int) -> Any:
        rng = self._rng
        if isinstance(value, bool):
            return rng.random() < 0.5
        if isinstance(value, int):
            return self._change_number(value, place, item=depth > 0)
        if isinstance(value, float):
            return round(value * rng.choice((0.5, 0.9, 1.1, 2.0, -1)) + rng.choice((0, 0, 0.25, 1)), 6)
        if isinstance(value, str):
            return self._change_text(value)
        if isinstance(value, list | tuple):
            if _is_matrix(value):
                return type(value)(self._change_matrix(value, place, depth))
            items = [self._change(one, place, depth + 1) for one in self._resize(list(value))]
            if place in self._sorted and not depth:
                items.sort()
            elif items and depth < 2 and all(type(one) is int for one in items) and rng.random() < ANEW:
                items = self._numbers(items, place)
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, set | frozenset):
            items = sorted(value, key=repr)
            return type(value)(self._change(one, place, depth + 1) for one in self._resize(items))
        if isinstance(value, dict):
            return {
                key: self._change(one, place, depth + 1) for key, one in value.items() if rng.random() < 0.9
            }
        return value

    def _numbers(self, items: Sequence[int], place: int) -> list[int]:
        """As many numbers of a small range, so that some are equal and, if allowed, some negative."""
        low = max(self._range(place, min(items), item=True).low, -3)
        high = low + self._rng.choice((2, 6, 12))
        return [self._rng.randint(low, high) for _ in items]

    def _change_matrix(self, rows: Sequence[Any], place: int, depth: int) -> list[Any]:
        """Change rows and columns so that all rows stay as long as each other; a square stays one."""
        kind, width = type(rows[0]), len(rows[0])
        across = self._resize(list(range(width)))
        down = across if len(rows) == width else self._resize(list(range(len(rows))))
        return [kind(self._change(rows[i][j], place, depth + 2) for j in across) for i in down]

    def _change_number(self, value: int, place: int, *, item: bool) -> int:
        rng, limits = self._rng, self._range(place, value, item=item)
        spread = max(2, abs(value) // 2)
        wanted = [
            rng.randint(value - spread, value + spread), rng.randint(0, 12), rng.randint(0, 100),
            rng.randint(0, 1_000), value + rng.choice((-1, 1)), rng.choice([*self._hints.numbers, value]),
            -value,
        ]  # fmt: skip
        return min(max(rng.choice(wanted), limits.low), limits.high)

    def _change_text(self, value: str) -> str:
        """Change letters to others of the text, put in some of one kind, or what programs compare with."""
        rng = self._rng
        letters = self._resize(list(value))
        alphabet = list(value) or list(_LETTERS)
        for _ in range(rng.randrange(3)):
            if letters:
                letters[rng.randrange(len(letters))] = rng.choice(alphabet)
        dice = rng.random()
        if dice < 0.35:
            kind = rng.choice(self._kinds)
            for _ in range(rng.choice((1, 2, 4))):
                letters.insert(rng.randint(0, len(letters)), rng.choice(kind))
        elif dice < 0.45 and self._hints.texts:
            starts = [0, len(letters), *(k + 1 for k, one in enumerate(letters) if one == " ")]
            letters.insert(rng.choice(starts), rng.choice(self._hints.texts))
        return "".join(letters)

    def _resize(self, items: list[Any]) -> list[Any]:
        """Shuffle the items, drop some, repeat some, or keep them."""
        rng = self._rng
        if not items:
            return items
        change = rng.choice(("shuffle", "drop", "repeat", "double", "keep", "keep"))
        if change == "shuffle":
            return rng.sample(items, len(items))
        if change == "drop":
            left = rng.randint(1 if self._hints.never_empty else 0, len(items) - 1) if len(items) > 1 else 1
            return [items[k] for k in sorted(rng.sample(range(len(items)), left))]
        if change == "repeat":
            items.insert(rng.randrange(len(items)), rng.choice(items))
        elif change == "double":
            items += [rng.choice(items) for _ in range(min(len(items), 8))]
        return items[:MAX_ITEMS]


def _exchanged(values: Sequence[Any]) -> Iterator[list[Any]]:
    """Two arguments of the same type in each other's place."""
    for a, b in combinations(range(len(values)), 2):
        if type(values[a]) is type(values[b]):
            yield [values[{a: b, b: a}.get(k, k)] for k in range(len(values))]


def _made_from(value: Any, others: Sequence[Any], rng: Random) -> Iterator[Any]:
    """Values in place of one that programs may compare with the other arguments, or look up in them."""
    sequences = [one for one in others if isinstance(one, list | tuple)]
    if type(value) in (int, float):
        for items in sequences:
            yield from (sum(pair) for pair in [_two_of(items, rng)] if {*map(type, pair)} <= {int, float})
        yield from (len(one) for one in others if isinstance(one, list | tuple | str))
        numbers = [one for one in others if type(one) in (int, float)]
        yield from (sum(numbers), *(a - b for a, b in pairwise(numbers)), *numbers, *(2 * a for a in numbers))
        yield from (rng.randint(0, len(one)) for one in others if isinstance(one, list | tuple | str))
    elif isinstance(value, str):
        for text in (one for one in others if isinstance(one, str)):
            yield from (text, text[::-1], text[: len(text) // 2], text + value)
    elif isinstance(value, list | tuple):
        yield from (type(value)([*value[: rng.randint(0, len(value))], *one]) for one in sequences)
        yield from (
            type(value)([*value[:-1], one]) for one in others if value and type(one) is type(value[0])
        )
    if isinstance(value, int | float | str):
        yield from (rng.choice(one) for one in sequences if one)


def _two_of(items: Sequence[Any], rng: Random) -> Sequence[Any]:
    return rng.sample(list(items), min(2, len(items)))


def _values_in(value: Any) -> Iterator[Any]:
    """The numbers and texts in nested values."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from _values_in(one)
    elif isinstance(value, int | float | str):
        yield value


def _is_matrix(value: Sequence[Any]) -> bool:
    """Whether these are at least two lists of the same length."""
    alike = {(type(one), len(one)) if isinstance(one, list | tuple) else None for one in value}
    return len(value) > 1 and len(alike) == 1 and None not in alike and len(value[0]) > 1


def _is_sorted(value: Any) -> bool:
    if not isinstance(value, list) or len(value) < 3:
        return False
    try:
        return all(a <= b for a, b in pairwise(value))
    except TypeError:
        return False


# --- Values of annotated types ---


def parameters_of(source: str, name: str) -> list[str]:
    """The names of the parameters of a function, empty if its header is not found."""
    header = _header(source, name)
    return [] if header is None else [one.arg for one in header.args.args if one.arg != "self"]


def generated_arguments(source: str, name: str, rng: Random, count: int = _SEEDS) -> list[list[Any]]:
    """Arguments made from the annotations of a function; none if one is missing or unknown."""
    annotations = annotations_of(source, name)
    if not annotations:
        return []
    types = list(map(_type_by_name, annotations, parameters_of(source, name)))
    try:
        return [_fitting([random_value(one, rng) for one in types], rng) for _ in range(count)]
    except LookupError:
        return []


def _type_by_name(annotation: ast.expr, name: str) -> ast.expr:
    """The type that the name of a parameter suggests where its annotation says nothing."""
    if _type_name(annotation) in {"Any", "object"}:
        for words, kind in _TYPES_OF_NAMES.items():
            if re.search(words, name.lower()):
                return ast.parse(kind, mode="eval").body
    return annotation


def _fitting(values: list[Any], rng: Random) -> list[Any]:
    """The same arguments; every second time, whole numbers are at most the length of a list beside them."""
    lengths = [len(one) for one in values if isinstance(one, list | tuple)]
    if not lengths or rng.random() < 0.5:
        return values
    return [rng.randint(0, rng.choice(lengths)) if type(one) is int else one for one in values]


def annotations_of(source: str, name: str) -> list[ast.expr] | None:
    """The annotations of a function's parameters, if all have one."""
    header = _header(source, name)
    if header is None:
        return None
    parameters = [one for one in header.args.args if one.arg != "self"]
    annotations = [one.annotation for one in parameters if one.annotation is not None]
    return annotations if len(annotations) == len(parameters) else None


def _header(source: str, name: str) -> ast.FunctionDef | None:
    found = re.search(rf"^[ \t]*(def {re.escape(name)}\(.*)", source, re.MULTILINE | re.DOTALL)
    return None if found is None else _parse_header(found[1])


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
    "Any": lambda rng: rng.choice(
        (rng.randint(0, 9), rng.randint(0, 9), rng.randint(-99, 99), rng.choice(_LETTERS))
    ),
}
_TYPES_OF_NAMES = {  # where an annotation is `Any`
    r"tup": "Tuple[int, ...]", r"dict|map": "Dict[str, int]", r"str|text|word": "str",
    r"lis|lst|arr|nums|seq|items|elements|values": "List[int]",
}  # fmt: skip
_CONTAINERS = {"list": list, "sequence": list, "iterable": list, "set": set, "frozenset": frozenset}


def random_value(annotation: ast.expr, rng: Random) -> Any:
    """A random value of an annotated type; raises `LookupError` for an unknown type."""
    if isinstance(annotation, ast.Constant) and annotation.value is None:
        return None
    if isinstance(annotation, ast.BinOp):  # int | None
        return random_value(rng.choice((annotation.left, annotation.right)), rng)
    name = _type_name(annotation)
    if name in _SCALARS:
        return _SCALARS[name](rng)
    inner = annotation.slice if isinstance(annotation, ast.Subscript) else ast.Name("int")
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    kind = name.lower()
    if kind in _CONTAINERS:
        if (
            _CONTAINERS[kind] is list
            and _type_name(parts[0]).lower() in _CONTAINERS
            and rng.random() < MATRICES
        ):
            return _random_matrix(parts[0], rng)
        return _CONTAINERS[kind](random_value(parts[0], rng) for _ in range(rng.randrange(6)))
    if kind == "tuple":
        parts = [one for one in parts if not (isinstance(one, ast.Constant) and one.value is ...)]
        return tuple(
            random_value(one, rng) for one in (parts if len(parts) > 1 else parts * rng.randrange(1, 5))
        )
    if kind in {"dict", "mapping"} and len(parts) == 2:
        return {random_value(parts[0], rng): random_value(parts[1], rng) for _ in range(rng.randrange(4))}
    if kind in {"optional", "union"}:
        return random_value(rng.choice(parts), rng)
    raise LookupError(name)


def _random_matrix(annotation: ast.expr, rng: Random) -> list[Any]:
    """Rows of the same length, mostly as many as columns."""
    inner = annotation.slice if isinstance(annotation, ast.Subscript) else ast.Name("int")
    size = rng.randint(1, 4)
    width = size if rng.random() < 0.6 else rng.randint(1, 4)
    return [[random_value(inner, rng) for _ in range(width)] for _ in range(size)]


def _type_name(annotation: ast.expr) -> str:
    if isinstance(annotation, ast.Subscript):
        return _type_name(annotation.value)
    return getattr(annotation, "id", getattr(annotation, "attr", ""))
