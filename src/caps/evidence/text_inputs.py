"""Further standard inputs: examples changed in ways that keep their shape, and edge cases.

A number that may count the words, letters or lines after it changes together with them; a line that is
sorted, distinct or a permutation stays so. Everything is a function of the examples, the hints and the seed.
"""

import re
from collections.abc import Iterator, Sequence
from random import Random
from string import ascii_letters, ascii_lowercase
from typing import NamedTuple

from caps.evidence.input_hints import Hints, Range, is_item, is_length

MAX_ITEMS = 60  # items of a list that is made longer
MAX_COUNT = 100_000
MAX_COUNTING, MAX_LINES = 40, 400  # lines that are searched for counts, and lines of such an input
UNSTATED = 1_000  # the largest number where the statement gives no range, unless examples have larger ones

_INTEGER = re.compile(r"-?\d{1,18}")


class Count(NamedTuple):
    """A number that counts what follows: the words of lines, groups of lines, or the letters of a word."""

    line: int
    word: int
    kind: str
    targets: tuple[int, ...]
    size: int = 1


def counts_in(lines: Sequence[Sequence[str]]) -> list[Count]:
    """Numbers of a standard input that may be counts; none in a long one, where searching takes long."""
    found = []
    for i, words in enumerate(lines[:MAX_COUNTING] if len(lines) <= MAX_LINES else ()):
        for j, word in enumerate(words):
            if not _INTEGER.fullmatch(word) or not 0 < int(word) <= MAX_COUNT:
                continue
            n, below = int(word), len(lines) - i - 1
            same = tuple(k for k in range(i + 1, len(lines)) if len(lines[k]) == n and n > 1)
            alone = tuple(k for k in (i + 1,) if n == 1 and below and len(lines[k]) == 1)
            if same or alone:
                found.append(Count(i, j, "words", same or alone))
            if i == 0 and below and below % n == 0 and below // n <= 6:
                found.append(Count(i, j, "lines", (i + 1,), below // n))
            letters = tuple(
                k for k in range(i + 1, len(lines)) if len(lines[k]) == 1 and len(lines[k][0]) == n and n > 1
            )
            if letters:
                found.append(Count(i, j, "letters", letters))
        if len(found) > MAX_COUNTING:
            break
    return found


class TextInputs:
    """Changes standard inputs."""

    def __init__(self, examples: Sequence[str], hints: Hints, rng: Random) -> None:
        self._examples, self._hints, self._rng = list(examples), hints, rng
        split = [_split(one) for one in examples]
        numbers = [int(w) for lines in split for words in lines for w in words if _INTEGER.fullmatch(w)]
        self._seen_numbers = sorted(set(numbers))
        self._lowest = min(numbers, default=0)
        scalars = [r for name, r in hints.constraints.items() if not is_item(name) and not is_length(name)]
        self._items = [r for name, r in hints.constraints.items() if is_item(name)]
        self._scalars = self._assign(split, scalars)

    def _assign(
        self, split: Sequence[list[list[str]]], ranges: Sequence[Range]
    ) -> dict[tuple[int, int], Range]:
        """The ranges of single numbers, in the order of the statement, where they fit all examples."""
        assigned: dict[tuple[int, int], Range] = {}
        left = list(ranges)
        for i in range(min((len(lines) for lines in split), default=0)):
            for j in range(min(len(lines[i]) for lines in split)):
                values = [lines[i][j] for lines in split]
                if left and all(map(_INTEGER.fullmatch, values)) and left[0].holds(map(int, values)):
                    assigned[i, j] = left.pop(0)
        return assigned

    def edges(self) -> Iterator[str]:
        """Edge cases of single numbers, and inputs whose lists are as short as possible."""
        for text in self._examples:
            lines = _split(text)
            counted = {(one.line, one.word) for one in counts_in(lines)}
            for count in counts_in(lines):
                shorter = self._resized(lines, count, 1)
                if shorter is not None:
                    yield _join(shorter)
            places = [
                (i, j) for i, words in enumerate(lines) for j, w in enumerate(words) if _INTEGER.fullmatch(w)
            ]
            for i, j in places[:6]:
                if (i, j) not in counted or len(lines) == 1:
                    for value in self._edges_at(i, j, int(lines[i][j])):
                        yield _join(_with(lines, i, j, str(value)))

    def largest(self) -> Iterator[str]:
        """Examples with a single number as large as the statement allows."""
        for text in self._examples:
            lines = _split(text)
            counted = {(one.line, one.word) for one in counts_in(lines)}
            for (i, j), limits in self._scalars.items():
                if (i, j) not in counted and i < len(lines) and j < len(lines[i]):
                    yield _join(_with(lines, i, j, str(limits.high)))

    def _edges_at(self, i: int, j: int, value: int) -> list[int]:
        limits = self._range(i, j, value)
        low = limits.low
        wanted = [low, low + 1, low + 2, value + 1, value - 1, 2 * value, value // 2, 10, 100]
        return [one for one in dict.fromkeys(wanted) if one != value and limits.low <= one <= limits.high]

    def _range(self, i: int, j: int, value: int) -> Range:
        known = self._scalars.get((i, j))
        if known is not None and known.holds([value]):
            return known
        for limits in self._items:
            if limits.holds([value]):
                return limits
        every = [*self._hints.constraints.values()]
        low = min((one.low for one in every), default=min(self._lowest, 0))
        return Range(min(low, value), max(UNSTATED, 20 * abs(value)))

    def change(self, basis: str) -> str:
        """Change an input in one to three ways."""
        lines = _split(basis)
        for _ in range(self._rng.choice((1, 1, 2, 3))):
            lines = self._step(lines)
        return _join(lines)

    def _step(self, lines: list[list[str]]) -> list[list[str]]:
        counts = counts_in(lines)
        if counts and self._rng.random() < 0.4:
            count = self._rng.choice(counts)
            n = int(lines[count.line][count.word])
            longer = [n + 1, n + 2, min(2 * n, n + 8)]
            resized = self._resized(lines, count, self._rng.choice([max(1, n - 1), 1, *longer, *longer]))
            if resized is not None:
                return resized
        counted = {(one.line, one.word) for one in counts}
        places = [(i, j) for i, words in enumerate(lines) for j in range(len(words))]
        free = [place for place in places if place not in counted] or places
        if not free:
            return lines
        i, j = self._rng.choice(free)
        if _INTEGER.fullmatch(lines[i][j]):
            numbers = [w for w in lines[i] if _INTEGER.fullmatch(w)]
            if len(numbers) == len(lines[i]) > 2 and self._rng.random() < 0.6 and (i, 0) not in counted:
                return [*lines[:i], self._numbers(lines[i]), *lines[i + 1 :]]
            value = self._value(i, j, int(lines[i][j]))
            return _with(lines, i, j, str(value))
        return _with(lines, i, j, self._word(lines, i, j, fixed=any(c.kind == "letters" for c in counts)))

    def _value(self, i: int, j: int, value: int) -> int:
        limits, rng = self._range(i, j, value), self._rng
        low, high = limits
        spread = max(2, abs(value) // 2)
        wanted = [
            rng.randint(value - spread, value + spread), rng.randint(low, min(high, low + 9)),
            rng.choice(self._seen_numbers or [value]), rng.choice([*self._hints.numbers, value]),
            rng.randint(low, min(high, max(low, 100))), rng.randint(low, min(high, max(low, UNSTATED))),
            value + rng.choice((-1, 1)), rng.randint(low, min(high, max(low, 3 * abs(value) + 10))),
        ]  # fmt: skip
        return min(max(rng.choice(wanted), low), high)

    def _numbers(self, words: Sequence[str]) -> list[str]:
        """A line of numbers anew; one that is sorted, distinct or a permutation stays so."""
        values, rng = [int(word) for word in words], self._rng
        if sorted(values) == list(range(1, len(values) + 1)):
            return [str(one) for one in rng.sample(values, len(values))]
        limits = self._range(-1, -1, min(values))
        low, high = min(values), max(values)
        if rng.random() < 0.5:
            low, high = limits.low, min(max(limits.high, low), limits.low + max(4, high - low))
        if rng.random() < 0.2:
            high = low + 1  # many equal values
        high = max(high, low)
        distinct = len(set(values)) == len(values) > 3 and high - low + 1 >= len(values)
        drawn = (
            rng.sample(range(low, high + 1), len(values))
            if distinct
            else [rng.randint(low, high) for _ in values]
        )
        if values == sorted(values) and len(values) > 2:
            drawn.sort()
        elif values == sorted(values, reverse=True) and len(values) > 2:
            drawn.sort(reverse=True)
        return [str(one) for one in drawn]

    def _word(self, lines: Sequence[Sequence[str]], i: int, j: int, *, fixed: bool) -> str:
        """Change the letters of a word; its alphabet is that of its line and of others like it."""
        word, rng = lines[i][j], self._rng
        alphabet = sorted(
            {c for words in lines[i:] for w in words if w.isalpha() == word.isalpha() for c in w}
        )
        if self._hints.letters and word.isalpha():
            alphabet += ascii_lowercase if word.islower() else ascii_letters
        letters = list(word)
        change = rng.choice(("letter", "letter", "shuffle", "same", "length", "anew"))
        if change == "shuffle":
            rng.shuffle(letters)
        elif change == "same":
            letters = [rng.choice(alphabet)] * len(letters)
        elif change == "anew":
            letters = [rng.choice(alphabet) for _ in letters]
        elif change == "length" and not fixed:
            letters = [rng.choice(alphabet) for _ in range(rng.choice((1, 2, len(word) + 1, len(word) + 3)))]
        else:
            letters[rng.randrange(len(letters))] = rng.choice(alphabet)
        return "".join(letters)

    def _resized(self, lines: list[list[str]], count: Count, size: int) -> list[list[str]] | None:
        """Change a count together with what it counts; every other number that counts the same, too."""
        n, rng = int(lines[count.line][count.word]), self._rng
        if size == n or size < 1 or size > max(MAX_ITEMS, n):
            return None
        changed = [list(words) for words in lines]
        alike = [other for other in counts_in(lines) if (other.line, other.word) == (count.line, count.word)]
        places = [rng.randrange(n) for _ in range(size)] if size > n else sorted(rng.sample(range(n), size))
        if size > n:
            places = [*range(n), *places[n:]]
        for one in alike if lines[count.line].count(str(n)) == 1 else [count]:
            if one.kind == "words":
                for k in one.targets:
                    changed[k] = [changed[k][p] for p in places if p < len(changed[k])]
            elif one.kind == "letters":
                for k in one.targets:
                    changed[k] = ["".join(changed[k][0][p] for p in places)]
        for one in alike:
            if one.kind == "lines" and (count.kind == "lines" or lines[count.line].count(str(n)) == 1):
                start, step = one.targets[0], one.size
                groups = [changed[start + p * step : start + (p + 1) * step] for p in places]
                changed[start:] = [list(words) for group in groups for words in group]
                break
        changed[count.line][count.word] = str(size)
        return changed


def _split(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip("\n").split("\n")]


def _join(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(" ".join(words) for words in lines) + "\n"


def _with(lines: Sequence[Sequence[str]], i: int, j: int, word: str) -> list[list[str]]:
    changed = [list(words) for words in lines]
    changed[i][j] = word
    return changed
