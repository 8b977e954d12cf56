"""What an answer can be: a number, a word, a choice, several of them, a value under a name, a term."""

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Number:
    """An exact value; `digits` counts the significant ones of a decimal fraction and is 0 for any other."""

    value: Fraction
    digits: int = 0
    unit: tuple[str, Fraction] | None = None
    percent: bool = False
    base: int | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """Plain language, lowercase."""

    text: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A letter of a multiple choice, and what it stands for where that was said."""

    letter: str
    meaning: "Form | None" = None


@dataclass(frozen=True, slots=True)
class Group:
    r"""Several forms, of a kind.

    `()` `[]` `[)` `(]` are tuples and intervals, `{}` a set, `,` a bare list, `:` a ratio, `|` a union,
    `\` a matrix and `&` a row of it.
    """

    kind: str
    items: tuple["Form", ...]


@dataclass(frozen=True, slots=True)
class Named:
    """`x = 3` or `x > 3`: a value under a name, and all of it as it was written."""

    name: str
    value: "Form"
    text: str


@dataclass(frozen=True, slots=True)
class Term:
    """Anything else: for algebra. A relation holds `=`, `<` or the like at its top."""

    text: str
    relation: bool = False


Form: TypeAlias = Number | Words | Choice | Group | Named | Term
