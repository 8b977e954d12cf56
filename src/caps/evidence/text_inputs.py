"""Further standard inputs: edge cases and mutations that keep the shape of the examples; see `inputs`.

A number that may count the words, letters or lines after it changes together with them.
"""

import re
from collections.abc import Iterator, Sequence
from random import Random
from string import ascii_letters, ascii_lowercase
from typing import NamedTuple, TypeAlias

from caps.evidence.inputs import Hints, Range, Values

MAX_ITEMS = 60  # items of a list that is made longer
MAX_COUNT = 100_000
MAX_COUNTING, MAX_LINES = 40, 400  # lines that are searched for counts, and lines of such an input
MAX_PLACES = 6  # numbers of an example whose edge cases are tried
MUCH = 1_000  # the largest number that is tried, unless examples have larger ones
_INTEGER = re.compile(r"-?\d{1,18}")

Lines: TypeAlias = list[list[str]]


class Count(NamedTuple):
    """A number that counts what follows: the words of lines, groups of lines, or the letters of a word."""

    line: int
    word: int
    kind: str
    targets: tuple[int, ...]
    size: int = 1


def counts_in(lines: Sequence[Sequence[str]]) -> list[Count]:
    """Numbers of a standard input that may be counts; none in a long one, where searching takes long."""
    counts = list[Count]()
    for i, words in enumerate(lines[:MAX_COUNTING] if len(lines) <= MAX_LINES else ()):
        for j, word in enumerate(words):
            if not _INTEGER.fullmatch(word) or not 0 < int(word) <= MAX_COUNT:
                continue
            n, below = int(word), range(i + 1, len(lines))
            counted = tuple(k for k in below if len(lines[k]) == n > 1)
            if n == 1 and below and len(lines[i + 1]) == 1:
                counted = (i + 1,)
            if counted:
                counts.append(Count(i, j, "words", counted))
            is_ambiguous = n == 1 and bool(counted)
            if i == 0 and below and len(below) % n == 0 and len(below) // n <= 6 and not is_ambiguous:
                counts.append(Count(i, j, "lines", (i + 1,), len(below) // n))
            letters = tuple(k for k in below if len(lines[k]) == 1 and len(lines[k][0]) == n > 1)
            if letters:
                counts.append(Count(i, j, "letters", letters))
        if len(counts) > MAX_COUNTING:
            break
    return counts


class TextInputs:
    """Changes standard inputs."""

    def __init__(self, examples: Sequence[str], hints: Hints, rng: Random) -> None:
        self._examples, self._hints, self._rng = list(map(_split, examples)), hints, rng
        self._numbers = [int(word) for lines in self._examples for word in _numbers_in(lines)]
        self._values = Values(self._numbers, hints, rng)

    def edges(self) -> Iterator[str]:
        """Edge cases of single numbers, and inputs whose lists are as short as possible."""
        for lines in self._examples:
            counts = counts_in(lines)
            for count in counts:
                if (shorter := self._resized(lines, count, 1)) is not None:
                    yield _join(shorter)
            counted = {(count.line, count.word) for count in counts} if len(lines) > 1 else set()
            places = [place for place in _places(lines) if _INTEGER.fullmatch(lines[place[0]][place[1]])]
            for i, j in places[:MAX_PLACES]:
                if (i, j) not in counted:
                    value = int(lines[i][j])
                    limits = self._range(value)
                    for edge in (limits.low + 1, limits.low + 2, *self._values.edges(value, limits)):
                        yield _join(_with(lines, i, j, str(limits.nearest(edge))))

    def related(self) -> Iterator[str]:
        """None: in a text only counts are known to be related to what follows them."""
        return iter(())

    def change(self, basis: str) -> str:
        """Change an input in one to three ways."""
        lines = _split(basis)
        fixed = any(count.kind == "letters" for count in counts_in(lines))
        for _ in range(self._rng.randint(1, 3)):
            lines = self._step(lines, fixed=fixed)
        return _join(lines)

    def _step(self, lines: Lines, *, fixed: bool) -> Lines:
        """Change a count with what it counts, a number, or a word (of `fixed` length)."""
        rng, counts = self._rng, counts_in(lines)
        if counts and rng.randrange(2) == 0:
            count = rng.choice(counts)
            n = int(lines[count.line][count.word])
            sizes = (1, max(1, n - 1), n + 1, n + 2, min(2 * n, n + 8))
            if (resized := self._resized(lines, count, rng.choice(sizes))) is not None:
                return resized
        counted = {(count.line, count.word) for count in counts}
        places = [place for place in _places(lines) if place not in counted] or _places(lines)
        if not places:
            return lines
        i, j = rng.choice(places)
        if not _INTEGER.fullmatch(lines[i][j]):
            return _with(lines, i, j, self._word(lines, i, j, fixed=fixed))
        value = int(lines[i][j])
        return _with(lines, i, j, str(self._values.number(value, self._range(value))))

    def _range(self, value: int) -> Range:
        """From zero, or the smallest number of the examples, to a multiple of the value."""
        return Range(min([*self._numbers, value, 0]), max(MUCH, 20 * abs(value)))

    def _word(self, lines: Lines, i: int, j: int, *, fixed: bool) -> str:
        """Change the letters of a word, and their number unless that is `fixed`."""
        word, rng = lines[i][j], self._rng
        alphabet = sorted(
            {c for words in lines[i:] for w in words if w.isalpha() == word.isalpha() for c in w}
        )
        if self._hints.letters and word.isalpha():
            alphabet += ascii_lowercase if word.islower() else ascii_letters
        change = rng.choice(("letter", "same", "anew"))
        if change == "letter":
            place = rng.randrange(len(word))
            return word[:place] + rng.choice(alphabet) + word[place + 1 :]
        size = len(word) if fixed else rng.choice((len(word), 1, 2, len(word) + 1, len(word) + 3))
        if change == "same":
            return rng.choice(alphabet) * size
        return "".join(rng.choice(alphabet) for _ in range(size))

    def _resized(self, lines: Lines, count: Count, size: int) -> Lines | None:
        """Change a count together with all that it may count; None if it is too large, or ambiguous."""
        n, rng = int(lines[count.line][count.word]), self._rng
        if size == n or size > max(MAX_ITEMS, n) or lines[count.line].count(str(n)) > 1:
            return None
        kept = sorted(rng.sample(range(n), min(n, size)))
        kept += [rng.randrange(n) for _ in range(size - n)]
        changed = [list(words) for words in lines]
        meanings = [other for other in counts_in(lines) if other[:2] == count[:2]]
        for meaning in sorted(meanings, key=lambda meaning: meaning.kind == "lines"):
            if meaning.kind == "lines":
                start, step = meaning.targets[0], meaning.size
                groups = [changed[start + place * step : start + (place + 1) * step] for place in kept]
                changed[start:] = [list(words) for group in groups for words in group]
                continue
            for k in meaning.targets:
                items = lines[k] if meaning.kind == "words" else lines[k][0]
                chosen = [items[place] for place in kept if place < len(items)]
                changed[k] = chosen if meaning.kind == "words" else ["".join(chosen)]
        changed[count.line][count.word] = str(size)
        return changed


def _split(text: str) -> Lines:
    return [line.split() for line in text.strip("\n").split("\n")]


def _join(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(" ".join(words) for words in lines) + "\n"


def _places(lines: Lines) -> list[tuple[int, int]]:
    return [(i, j) for i, words in enumerate(lines) for j in range(len(words))]


def _numbers_in(lines: Lines) -> list[str]:
    return [word for words in lines for word in words if _INTEGER.fullmatch(word)]


def _with(lines: Sequence[Sequence[str]], i: int, j: int, word: str) -> Lines:
    changed = [list(words) for words in lines]
    changed[i][j] = word
    return changed
