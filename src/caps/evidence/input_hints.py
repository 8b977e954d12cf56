"""What is known about the valid inputs of a problem, from its statement and from the programs.

None of it is certain: whether an input is valid is decided by what most programs do with it.
"""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_STATEMENT = 20_000  # characters that are searched for constraints
MAX_TEXT, MAX_PATTERN = 12, 60  # characters of a text in a program, and of one whose punctuation is used
LARGE = 100_000  # larger constants of programs are left out


class Range(NamedTuple):
    """The smallest and the largest value that a statement allows."""

    low: int
    high: int

    def holds(self, values: Iterable[int]) -> bool:
        """Whether all values are in the range."""
        return all(self.low <= one <= self.high for one in values)


_POWER = r"(?:\s{0,2}(?:\^|\*\*)\s{0,2}[{(]?\s?\d{1,2}\s?[)}]?)?"
_PRODUCT = r"(?:\s{0,2}(?:\*|\\cdot|\\times|·|×)\s{0,2})"
_BOUND = rf"-?\s?\d[\d,]{{0,20}}{_POWER}(?:{_PRODUCT}10{_POWER})?(?:\s{{0,2}}[-+]\s{{0,2}}1(?!\d))?"
_LESS = r"\s{0,2}(?:<=|≤|⩽|&lt;=?|<|\\leqslant|\\leq?|\\lt)\s{0,2}"
_CONSTRAINT = re.compile(
    rf"(?P<low>{_BOUND})(?P<first>{_LESS})(?P<names>[^<>≤⩽\n]{{1,60}}?)(?P<second>{_LESS})(?P<high>{_BOUND})"
)
_LOWEST = re.compile(rf"(?P<low>{_BOUND})(?P<less>{_LESS})(?P<name>[A-Za-z_]\w{{0,30}})\b")
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_STRICT = {"<", "&lt;", "\\lt"}


def read_constraints(statement: str) -> dict[str, Range]:
    """The ranges that a statement gives, by the name as it is written: `n`, `a_i`, `nums[i]`, `|s|`."""
    text = _RAISED.sub(lambda found: "^" + found[0].translate(_SUPERSCRIPTS), statement[:MAX_STATEMENT])
    found: dict[str, Range] = {}
    for one in _CONSTRAINT.finditer(text):
        low, high = _number(one["low"]), _number(one["high"])
        if low is None or high is None:
            continue
        low += one["first"].strip() in _STRICT
        high -= one["second"].strip() in _STRICT
        for name in re.split(r",|\band\b", one["names"]):
            cleaned = re.sub(r"[\s${}\\]", "", name)
            if cleaned and low <= high:
                found.setdefault(cleaned, Range(low, high))
    return found


def read_lowest(statement: str) -> dict[str, int]:
    """The smallest values that a statement gives for names, also where the largest is no number."""
    found = (
        (one["name"], _number(one["low"]), one["less"]) for one in _LOWEST.finditer(statement[:MAX_STATEMENT])
    )
    return {name: low + (less.strip() in _STRICT) for name, low, less in found if low is not None}


def _number(text: str) -> int | None:
    """The value of a bound such as `2 * 10^5` or `2^31 - 1`."""
    words = re.sub(r"\\cdot|\\times|[·×]", "*", text).replace("^", "**")
    words = re.sub(r"[\s{}(),]", "", words)
    total = re.fullmatch(r"(-?)(\d+)(?:\*\*(\d+))?(?:\*(\d+)(?:\*\*(\d+))?)?([-+]1)?", words)
    if total is None:
        return None
    sign, base, power, other, raised, step = total.groups()
    value: int = int(base) ** int(power or 1) * int(other or 1) ** int(raised or 1)
    return (-value if sign else value) + int(step or 0)


def is_item(name: str) -> bool:
    """Whether a name stands for each item of a list: `a_i`, `nums[i]`."""
    return bool(re.search(r"_?[ijk]$|\[|_[ijk\d]|\.\.\.|…", name)) and len(name) > 1


def is_length(name: str) -> bool:
    """Whether a name stands for the length of something: `|s|`, `nums.length`."""
    return name.startswith(("|", "len(")) or "length" in name or ".size" in name


def constants_of(sources: Iterable[str], *, at_most: int = 60) -> tuple[list[int], list[str], str]:
    """Numbers, short texts and punctuation in programs: comparing with them is what most branches do."""
    numbers, texts, marks = dict[int, None](), dict[str, None](), set[str]()
    for source in sources:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant):
                if type(node.value) is int and abs(node.value) <= LARGE:
                    numbers.update(dict.fromkeys((node.value, node.value + 1, node.value - 1)))
                elif isinstance(node.value, str) and 0 < len(node.value) <= MAX_PATTERN:
                    marks.update(one for one in node.value if one.isprintable() and not one.isalnum())
                    if len(node.value) <= MAX_TEXT:
                        texts[node.value] = None
    return list(numbers)[:at_most], list(texts)[:at_most], "".join(sorted(marks))


@dataclass(frozen=True, slots=True)
class Hints:
    """What is known beside the examples: constraints, constants of the programs, words of the statement.

    `letters`: the statement speaks of letters or words, so that a text may have others than its examples.
    """

    constraints: Mapping[str, Range] = field(default_factory=dict)
    lowest: Mapping[str, int] = field(default_factory=dict)
    numbers: Sequence[int] = ()
    texts: Sequence[str] = ()
    marks: str = ""
    positive: bool = False
    never_negative: bool = False
    never_empty: bool = False
    letters: bool = False

    @classmethod
    def of(cls, statement: str, sources: Iterable[str]) -> "Hints":
        """The hints of a statement and of the programs written for it."""
        numbers, texts, marks = constants_of(sources)
        lowered = statement[:MAX_STATEMENT].lower()
        negative = bool(re.search(r"(?<!non)(?<!non[-\s])\bnegative\b", lowered))
        return cls(
            read_constraints(statement),
            read_lowest(statement),
            numbers,
            texts,
            marks,
            positive=not negative
            and bool(re.search(r"\b(?:positive|natural) (?:whole )?(?:integer|number)", lowered)),
            never_negative=bool(re.search(r"\bnon-?\s?negative\b", lowered)),
            never_empty=bool(re.search(r"\bnon-?\s?empty\b|won't be empty|not be empty", lowered)),
            letters=bool(
                re.search(r"\b(?:lower-?\s?case|upper-?\s?case|letters|alphabet|words?)\b", lowered)
            ),
        )
