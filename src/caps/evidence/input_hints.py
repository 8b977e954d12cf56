"""What is known about the valid inputs of a problem, from its statement and from the programs.

None of it is certain: whether an input is valid is decided by what most programs do with it.
"""

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in ast.walk(tree):
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
        if lowest == 1 and re.search(
            r"(?<![\d.])0\s{0,2}(?:<=|≤|\\le)", words
        ):  # a stated bound wins over words
            lowest = 0
        never_empty = bool(re.search(r"\bnon-?\s?empty\b|won't be empty|not be empty", words))
        letters = bool(re.search(r"\b(?:lower-?\s?case|upper-?\s?case|letters|alphabet|words?)\b", words))
        return cls(*constants_of(sources), Range(lowest, LARGEST), never_empty, letters)
