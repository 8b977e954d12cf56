"""Further inputs for programs: hints, and edge cases, mutations and related arguments of the examples.

How inputs are chosen
---------------------

Two programs that pass the same examples differ on inputs that the examples do not cover. Nobody knows the
right output for such an input, so an input is useful if programs disagree on it, and harmful only if it is
invalid and still splits right programs. Three sources give most of what separates programs:

1. *Edge cases of the types*: zero, one, minus one, the neighbours of a value; the empty text or list, one
   item, equal items, the reverse. Programs for the same task differ most often there.
2. *Mutations of the examples*: inputs that look like the examples are mostly valid. A mutation keeps the
   type and the shape: rows of a matrix stay as long as each other, a sorted list stays sorted, a number that
   counts what follows it changes together with that (`text_inputs`). Numbers and texts also come from the
   constants in the programs themselves: comparing with them is what most of their branches do.
3. *Related arguments* (`CallInputs`): a number that is the length of a list, the sum of two of its items or
   equal to another argument; two arguments exchanged. Independent mutations almost never meet `a + b == c`.

The programs decide whether an input is valid: one on which half of them fail is dropped
(`findings.separation`). So a range that is too wide costs runs, and one that is too narrow costs answers.
Words such as "positive integers" and "non-empty" are heeded (`Hints`). Constraints such as
`1 <= n <= 10^5` are not read, and which lines an input reaches is not traced: without both, as many problems
of the pools of `docs/design/0005` have clusters of right and wrong programs.

All choices are uniform: each way to change a value is as likely as any other. Everything is a function of the
examples, the hints and the seed.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, zip_longest
from random import Random
from typing import Any, NamedTuple

from caps.core.text import syntax_tree

MAX_STATEMENT = 20_000  # characters that are searched for words
MAX_TEXT, MAX_PATTERN = 12, 60  # characters of a text in a program, and of one whose punctuation is used
LARGE = 100_000  # larger constants of programs are left out
MAX_CONSTANTS = 60  # numbers and texts of programs that are used
LARGEST = 10**9  # number that is tried


class Range(NamedTuple):
    """The smallest and the largest whole number that is tried."""

    low: int
    high: int

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and self.low <= value <= self.high

    def including(self, value: int) -> "Range":
        """The range, extended to a value that is known to be valid."""
        return Range(min(self.low, value), max(self.high, value))

    def nearest(self, value: int) -> int:
        """The value of the range that is nearest to another."""
        return min(max(value, self.low), self.high)


ANY = Range(-LARGEST, LARGEST)


def constants_of(sources: Iterable[str]) -> tuple[list[int], list[str], str]:
    """Numbers, short texts and punctuation in programs: comparing with them is what most branches do."""
    numbers, texts, marks = dict[int, None](), dict[str, None](), set[str]()
    for source in sources:
        tree = syntax_tree(source)
        for node in () if tree is None else ast.walk(tree):
            constant = node.value if isinstance(node, ast.Constant) else None
            if type(constant) is int and abs(constant) <= LARGE:
                numbers.update(dict.fromkeys((constant, constant + 1, constant - 1)))
            elif isinstance(constant, str) and 0 < len(constant) <= MAX_PATTERN:
                marks.update(sign for sign in constant if sign.isprintable() and not sign.isalnum())
                if len(constant) <= MAX_TEXT:
                    texts[constant] = None
    return list(numbers)[:MAX_CONSTANTS], list(texts)[:MAX_CONSTANTS], "".join(sorted(marks))


@dataclass(frozen=True, slots=True)
class Hints:
    """What is known beside the examples: constants of the programs, and words of the statement.

    `letters`: the statement speaks of letters or words, so that a text may have others than its examples.
    """

    numbers: Sequence[int] = ()
    texts: Sequence[str] = ()
    marks: str = ""
    limits: Range = ANY
    never_empty: bool = False
    letters: bool = False

    @classmethod
    def of(cls, statement: str, sources: Iterable[str]) -> "Hints":
        """The hints of a statement and of the programs written for it."""
        words = statement[:MAX_STATEMENT].lower()
        negative = re.search(r"(?<!non)(?<!non[-\s])\bnegative\b", words)
        lowest = -LARGEST
        if re.search(r"\bnon-?\s?negative\b", words):
            lowest = 0
        if not negative and re.search(r"\b(?:positive|natural) (?:whole )?(?:integer|number)", words):
            lowest = 1
        if lowest == 1 and re.search(r"(?<![\d.])0\s{0,2}(?:<=|≤|\\le)", words):
            lowest = 0  # a stated bound wins over words
        never_empty = bool(re.search(r"\bnon-?\s?empty\b|won't be empty|not be empty", words))
        letters = bool(re.search(r"\b(?:lower-?\s?case|upper-?\s?case|letters|alphabet|words?)\b", words))
        return cls(*constants_of(sources), Range(lowest, LARGEST), never_empty, letters)


ANEW_EVERY = 4  # changes of a list of numbers, one of which draws all of them anew
MAX_ITEMS = 200  # items of a list or characters of a text
LETTER_KINDS = ("abcde", "AZ", "0192", " .,-")  # from which letters are put into a text


class Values:
    """Edge cases and mutations of values; `examples` are the values known to be valid."""

    def __init__(self, examples: Iterable[Any], hints: Hints, rng: Random) -> None:
        self._hints, self._rng = hints, rng
        self._known: dict[type, list[Any]] = {int: list(hints.numbers), str: list(hints.texts)}
        for value in _scalars_in(list(examples)):
            self._known.setdefault(type(value), []).append(value)
        self._letters = [*LETTER_KINDS, *([hints.marks] if hints.marks else [])]

    def edges(self, value: Any, limits: Range) -> Iterator[Any]:
        """Edge cases of the type of a value, and of the value itself; `limits` are those of its numbers."""
        if isinstance(value, bool):
            yield not value
        elif isinstance(value, int):
            wanted = (0, 1, 2, 3, -1, -value, value + 1, value - 1, 10, 100, 1_000, 2 * value, limits.low)
            yield from (
                edge for edge in dict.fromkeys(wanted) if edge != value and edge in limits.including(value)
            )
        elif isinstance(value, float):
            yield from (0.0, 1.0, -value, value + 0.5, value // 1)
        elif isinstance(value, str):
            yield from self._edges_of_text(value)
        elif isinstance(value, list | tuple):
            yield from (type(value)(items) for items in self._edges_of_items(list(value), limits))
        elif isinstance(value, dict):
            yield from () if self._hints.never_empty else ({},)
            yield dict(list(value.items())[:1])

    def _edges_of_text(self, value: str) -> Iterator[str]:
        yield from () if self._hints.never_empty else ("",)
        start = value[:1]
        yield from (start, value * 2, value[::-1], value.upper(), value.lower(), value + " ", start * 3)
        if " " in value:
            yield from (value.replace(" ", "  "), value.replace(" ", ""))

    def _edges_of_items(self, items: list[Any], limits: Range) -> Iterator[list[Any]]:
        yield from () if self._hints.never_empty else ([],)
        if not items:
            return
        yield from (items[:1], items[-1:], items[:2], [items[0]] * 3, [items[0]] * 2)
        if not is_sorted(items):
            yield from (items[::-1], items + items)
        if all(type(item) is int for item in items):
            yield [max(limits.low, 0)] * len(items)
            yield from () if limits.low >= 0 else ([-item for item in items],)
        for place, item in enumerate(items[:2]):
            for edge in self.edges(item, limits):
                yield [*items[:place], edge, *items[place + 1 :]]

    def mutate(self, value: Any, limits: Range) -> Any:
        """A value of the same type: a known one, an edge case, or the value changed."""
        examples = self._known.get(type(value), [])
        source = self._rng.choice(("known", "edge", "changed", "changed"))
        if source == "known" and examples:
            chosen = self._rng.choice(examples)
            return limits.including(value).nearest(chosen) if type(chosen) is int else chosen
        if source == "edge" and (edges := list(self.edges(value, limits))):
            return self._rng.choice(edges)
        return self._changed(value, limits)

    def _changed(self, value: Any, limits: Range) -> Any:
        rng = self._rng
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return self.number(value, limits)
        if isinstance(value, float):
            return round(value * rng.choice((0.5, 0.9, 1.1, 2.0, -1)) + rng.choice((0, 0.25, 1)), 6)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return type(value)(self._rows(value, limits) if is_matrix(value) else self._items(value, limits))
        if isinstance(value, set | frozenset):
            return type(value)(self._items(sorted(value, key=repr), limits))
        if isinstance(value, dict):
            left = self.resize(list(value))
            return {key: self._maybe(value[key], limits) for key in dict.fromkeys(left)}
        return value

    def number(self, value: int, limits: Range) -> int:
        """Another whole number within the limits: near, small, or one that programs compare with."""
        rng, spread = self._rng, max(2, abs(value) // 2)
        wanted = (
            rng.randint(value - spread, value + spread),
            rng.randint(0, 12),
            rng.randint(0, 100),
            rng.randint(0, 1_000),
            value + rng.choice((-1, 1)),
            -value,
            *((rng.choice(self._hints.numbers),) if self._hints.numbers else ()),
        )
        return limits.including(value).nearest(rng.choice(wanted))

    def text(self, value: str) -> str:
        """A text with other letters, in another order or number, or with a text of the programs in it."""
        rng = self._rng
        letters = self.resize(list(value))
        for _ in range(rng.randrange(3)):
            if letters:
                letters[rng.randrange(len(letters))] = rng.choice(value or LETTER_KINDS[0])
        put_in = rng.choice(("nothing", "letters", "text"))
        if put_in == "letters":
            kind = rng.choice(self._letters)
            for _ in range(rng.choice((1, 2, 4))):
                letters.insert(rng.randint(0, len(letters)), rng.choice(kind))
        elif put_in == "text" and self._hints.texts:
            starts = [0, len(letters), *(k + 1 for k, letter in enumerate(letters) if letter == " ")]
            letters.insert(rng.choice(starts), rng.choice(self._hints.texts))
        return "".join(letters)

    def _items(self, items: Sequence[Any], limits: Range) -> list[Any]:
        """The items in another order or number, about half of them changed; or small numbers, many equal."""
        rng = self._rng
        if items and all(type(item) is int for item in items) and rng.randrange(ANEW_EVERY) == 0:
            low = max(limits.including(min(items)).low, -3)
            changed = [rng.randint(low, low + rng.choice((2, 6, 12))) for _ in items]
        else:
            changed = [self._maybe(item, limits) for item in self.resize(list(items))]
        return sorted(changed) if is_sorted(items) else changed

    def _maybe(self, item: Any, limits: Range) -> Any:
        return self.mutate(item, limits) if self._rng.randrange(2) == 0 else item

    def _rows(self, rows: Sequence[Any], limits: Range) -> list[Any]:
        """Rows and columns changed so that all rows stay as long as each other; a square stays one."""
        width = len(rows[0])
        across = self.resize(list(range(width)))
        down = across if len(rows) == width else self.resize(list(range(len(rows))))
        return [type(rows[0])(self._maybe(rows[i][j], limits) for j in across) for i in down]

    def resize(self, items: list[Any]) -> list[Any]:
        """The items shuffled, fewer of them, some repeated, or as they are."""
        rng = self._rng
        change = rng.choice(("shuffle", "drop", "repeat", "double", "keep"))
        if not items or change == "keep":
            return items
        if change == "shuffle":
            return rng.sample(items, len(items))
        if change == "drop":
            least = 1 if self._hints.never_empty or len(items) == 1 else 0
            left = rng.randint(least, max(least, len(items) - 1))
            return [items[k] for k in sorted(rng.sample(range(len(items)), left))]
        if change == "repeat":
            items.insert(rng.randrange(len(items)), rng.choice(items))
        else:
            items += [rng.choice(items) for _ in range(min(len(items), 8))]
        return items[:MAX_ITEMS]


def is_matrix(value: Sequence[Any]) -> bool:
    """Whether these are at least two lists of the same length."""
    shapes = {(type(row), len(row)) if isinstance(row, list | tuple) else None for row in value}
    return len(value) > 1 and len(shapes) == 1 and None not in shapes and len(value[0]) > 1


def is_sorted(items: Sequence[Any]) -> bool:
    """Whether these are at least three items in ascending order."""
    try:
        return len(items) > 2 and all(a <= b for a, b in pairwise(items))
    except TypeError:
        return False


def _scalars_in(value: Any) -> Iterator[Any]:
    """The numbers and texts in nested values."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _scalars_in(item)
    elif isinstance(value, int | float | str):
        yield value


EXAMPLES = 3  # examples whose edge cases and related arguments are tried
RELATED_EVERY = 4  # changes of an input, one of which makes an argument fit the others


class CallInputs:
    """Changes lists of arguments."""

    def __init__(self, examples: Sequence[Sequence[Any]], hints: Hints, rng: Random) -> None:
        self._examples, self._limits, self._rng = list(examples), hints.limits, rng
        self._values = Values(examples, hints, rng)

    def edges(self) -> Iterator[list[Any]]:
        """Each argument of the examples replaced by edge cases, one at a time."""
        for basis in self._different()[:EXAMPLES]:
            for place, value in enumerate(basis):
                for edge in self._values.edges(value, self._limits):
                    yield _with(basis, place, edge)

    def related(self) -> Iterator[list[Any]]:
        """Examples with two arguments exchanged, or one made from the others; in turn for all places."""
        kinds = list[list[list[Any]]]()
        for basis in self._different()[:EXAMPLES]:
            for place in range(len(basis)):
                kinds.append([_with(basis, place, value) for value in self._made_from_others(basis, place)])
            kinds.append(list(_exchanged(basis)))
        yield from (values for row in zip_longest(*kinds) for values in row if values is not None)

    def change(self, basis: Sequence[Any]) -> list[Any]:
        """Change one to all of the arguments; or change all, then make one fit the others."""
        rng, count = self._rng, len(basis)
        if not count:
            return []
        changed = list(basis)
        for place in rng.sample(range(count), rng.randint(1, count)):
            changed[place] = self._values.mutate(changed[place], self._limits)
        place = rng.randrange(count)
        fitting = list(self._made_from_others(changed, place))
        if fitting and rng.randrange(RELATED_EVERY) == 0:
            changed[place] = rng.choice(fitting)
        return changed

    def _different(self) -> list[Sequence[Any]]:
        """The examples, first one of each combination of types."""
        first = dict[tuple[type, ...], Sequence[Any]]()
        for example in self._examples:
            first.setdefault(tuple(map(type, example)), example)
        chosen = list(first.values())
        return chosen + [
            example for example in self._examples if not any(example is other for other in chosen)
        ]

    def _made_from_others(self, values: Sequence[Any], place: int) -> Iterator[Any]:
        """What may stand in a place, of the same type: made from the other arguments."""
        value, others = values[place], [*values[:place], *values[place + 1 :]]
        limits = self._limits.including(value) if type(value) is int else None
        for related in _related_to(value, others, self._rng):
            if type(related) is type(value) and (limits is None or related in limits):
                yield related


def _related_to(value: Any, others: Sequence[Any], rng: Random) -> Iterator[Any]:
    """Values in place of one that programs may compare with the other arguments, or look up in them."""
    sequences = [other for other in others if isinstance(other, list | tuple)]
    sized = [other for other in others if isinstance(other, list | tuple | str)]
    numbers = [other for other in others if type(other) in (int, float)]
    if type(value) in (int, float):
        for items in sequences:
            pair = rng.sample(list(items), min(2, len(items)))
            yield from [sum(pair)] if {*map(type, pair)} <= {int, float} else []
        yield from map(len, sized)
        yield from (sum(numbers), *(a - b for a, b in pairwise(numbers)), *numbers, *(2 * a for a in numbers))
        yield from (rng.randint(0, len(other)) for other in sized)
    elif isinstance(value, str):
        for text in (other for other in others if isinstance(other, str)):
            yield from (text, text[::-1], text[: len(text) // 2], text + value)
    elif isinstance(value, list | tuple):
        yield from (type(value)([*value[: rng.randint(0, len(value))], *items]) for items in sequences)
        yield from (
            type(value)([*value[:-1], other]) for other in others if value and type(other) is type(value[0])
        )
    if isinstance(value, int | float | str):
        yield from (rng.choice(items) for items in sequences if items)


def _exchanged(values: Sequence[Any]) -> Iterator[list[Any]]:
    """Two arguments of the same type in each other's place."""
    for a, b in combinations(range(len(values)), 2):
        if type(values[a]) is type(values[b]):
            yield _with(_with(values, a, values[b]), b, values[a])


def _with(values: Sequence[Any], place: int, value: Any) -> list[Any]:
    return [*values[:place], value, *values[place + 1 :]]
