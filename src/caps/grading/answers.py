"""Equality of two final answers: by exact rules here, by `algebra` where these are inconclusive.

What counts as the same:

* A value is the same with and without its unit, name (`x = 3`), currency or degree sign; two units that are
  both known must be the same (5 cm is not 5 m, 5 cm^2 is not 5 cm), and none is converted.
* 50 % is 1/2, and it is also 50, since a question may ask for per cent; 50 is not 1/2. Likewise 2 million is
  2,000,000, and also 2.
* A decimal fraction of six or more significant digits may stand for a value that, rounded or cut to these
  digits, is the same; 0.33 is not 1/3.
* `1,234` is one thousand and something. A comma that cannot separate thousands separates items of a list.
* Sets and bare lists may be in any order, tuples may not; (1, 2) is neither [1, 2] nor {1, 2}. A bare `1, 2`
  may stand for a tuple in that order, and for a set in any. A set has each element once.
* An inequality is the interval it describes: `1 < x < 2` is (1, 2).
* A calculation with its result (`3 * 4 = 12`) is the same as the result alone, but not as another calculation
  with that result: `2 * 6 = 12` is a different answer.
* `204_5` is also 204, since the question may name the base.

Equality is symmetric, but not transitive for units, percentages and bare lists.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from caps.grading.answer_forms import Choice, Equation, Form, Group, Named, Number, Term, Words, parse
from caps.grading.notation import normalize, without_spaces

MAX_CHARS = 2000
MAX_CANONICAL = 200
CACHE_SIZE = 512  # parsed answers, each of at most MAX_CHARS
MIN_DIGITS = 6
EXACT, ALGEBRA = "exact", "algebra"


class Decision(NamedTuple):
    """Whether two answers are equal (None: undecided), the last layer needed, and why if undecided."""

    equal: bool | None
    layer: str = EXACT
    why: str = ""


Algebra: TypeAlias = Callable[[str, str], Decision]


def no_algebra(_a: str, _b: str) -> Decision:
    """Decide nothing: the exact rules cannot compare different expressions."""
    return Decision(None)


def same_answer(a: str, b: str) -> bool | None:
    """Whether two answers are equal by the exact rules; None if these are inconclusive."""
    return decide(a, b).equal


def decide(a: str, b: str, algebra: Algebra = no_algebra) -> Decision:
    """Compare two answers by the exact rules, and by algebra what these leave open."""
    asked: list[Decision] = []

    def recorded(first: str, second: str) -> bool | None:
        asked.append(algebra(first, second))
        return asked[-1].equal

    equal = _compare(a, b, recorded)
    why = next((decision.why for decision in asked if decision.equal is None), "") if equal is None else ""
    return Decision(equal, ALGEBRA if asked else EXACT, why)


def canonical(answer: str) -> str:
    """One spelling of an answer: its exact value if it is a plain number, else its normalized notation."""
    if len(answer) > MAX_CANONICAL:
        return " ".join(answer.split())
    text = _normalized(answer)
    form = _form(text)
    return str(form.value) if isinstance(form, Number) and not form.unit else without_spaces(text)


_Algebra: TypeAlias = Callable[[str, str], bool | None]
_SETS_AND_MATRICES = re.compile(r"\\(?:cup|cap|setminus|mathbb|ne|begin)(?![a-zA-Z])")


def _compare(a: str, b: str, algebra: _Algebra) -> bool | None:
    if a.split() == b.split():
        return True
    if max(len(a), len(b)) > MAX_CHARS:
        return None
    a, b = sorted((_normalized(a), _normalized(b)))
    if without_spaces(a) == without_spaces(b):
        return True
    if not a:
        return False
    equal = _same(_form(a), _form(b), algebra)
    if equal is False and _SETS_AND_MATRICES.search(a + b):
        return algebra(a, b)  # such as a number times a matrix, or the union of two intervals
    return equal


# An answer is compared with one answer of every class of its case, but parsed once.
@lru_cache(maxsize=CACHE_SIZE)
def _normalized(text: str) -> str:
    return normalize(text)


@lru_cache(maxsize=CACHE_SIZE)
def _form(text: str) -> Form:
    return parse(text)


def _same(a: Form, b: Form, algebra: _Algebra) -> bool | None:  # one branch a form
    if isinstance(a, Equation) or isinstance(b, Equation):
        return _same_equation(a, b, algebra)
    if isinstance(a, Named) or isinstance(b, Named):
        return _same_named(a, b, algebra)
    if isinstance(a, Choice) or isinstance(b, Choice):
        return _same_choice(a, b, algebra)
    if isinstance(a, Number) and isinstance(b, Number):
        return _same_number(a, b)
    if isinstance(a, Group) and isinstance(b, Group):
        return _same_group(a, b, algebra)
    if isinstance(a, Group) or isinstance(b, Group):
        return _same_single(a, b, algebra)
    if isinstance(a, Words) or isinstance(b, Words):
        return a == b
    if _is_relation(a) != _is_relation(b):
        return False
    first, second = _to_latex(a), _to_latex(b)
    return without_spaces(first) == without_spaces(second) or algebra(first, second)


def _same_equation(a: Form, b: Form, algebra: _Algebra) -> bool | None:
    """Two calculations are compared as they are written: a question may ask for one with a given result."""
    if isinstance(a, Equation) and isinstance(b, Equation):
        return a.sides == b.sides
    first, second = (form.value if isinstance(form, Equation) else form for form in (a, b))
    return _same(first, second, algebra)


def _same_named(a: Form, b: Form, algebra: _Algebra) -> bool | None:
    if isinstance(a, Named) and isinstance(b, Named) and a.name != b.name:
        # x = 3 is not y = 3; but y = 1 - x may be x + y = 1.
        curved = isinstance(a.value, Term) or isinstance(b.value, Term)
        return algebra(a.text, b.text) if curved or "+" in a.name + b.name else False
    if _is_relation(a) or _is_relation(b):
        return algebra(*(form.text if isinstance(form, Named | Term) else "" for form in (a, b)))
    first, second = (form.value if isinstance(form, Named) else form for form in (a, b))
    return _same(first, second, algebra)


def _is_relation(form: Form) -> bool:
    return isinstance(form, Term) and form.relation


def _same_choice(a: Form, b: Form, algebra: _Algebra) -> bool | None:
    if isinstance(a, Choice) and isinstance(b, Choice):
        return a.letter == b.letter
    chosen, other = (a, b) if isinstance(a, Choice) else (b, a)
    assert isinstance(chosen, Choice)  # noqa: S101  # one of the two is
    if chosen.meaning is not None:
        return _same(chosen.meaning, other, algebra)
    return isinstance(other, Term) and without_spaces(other.text) == chosen.letter


def _same_number(a: Number, b: Number) -> bool:
    if a.unit and b.unit:
        return a.unit == b.unit and _same_value(a, b)
    return _same_value(a, b) or _same_value(_scaled(a), _scaled(b))


def _scaled(number: Number) -> Number:
    return Number(number.value * number.factor, number.digits, number.last * number.factor)


def _same_value(a: Number, b: Number) -> bool:
    return (
        a.value == b.value
        or (a.digits >= MIN_DIGITS and not b.digits and _rounds_to(b.value, a))
        or (b.digits >= MIN_DIGITS and not a.digits and _rounds_to(a.value, b))
    )


def _rounds_to(exact: Fraction, written: Number) -> bool:
    """Whether an exact value, rounded or cut to the last written digit, is what was written."""
    value, last = written.value, written.last
    return 2 * abs(exact - value) <= last or 0 <= abs(exact) - abs(value) < last


def _same_group(a: Group, b: Group, algebra: _Algebra) -> bool | None:
    kinds = {a.kind, b.kind}
    if len(kinds) == 2 and not ("," in kinds and kinds & {"()", "{}"}):
        return False
    first, second = a.items, b.items
    if kinds == {"{}"}:
        first, second = tuple(dict.fromkeys(first)), tuple(dict.fromkeys(second))
    if len(first) != len(second):
        return False
    if kinds <= {",", "{}"}:
        return _match_items(first, second, algebra)
    return _all(_same(item, other, algebra) for item, other in zip(first, second, strict=True))


def _same_single(a: Form, b: Form, algebra: _Algebra) -> bool | None:
    """A set with one element equals that element; no solution equals the empty set."""
    group, other = (a, b) if isinstance(a, Group) else (b, a)
    assert isinstance(group, Group)  # noqa: S101  # one of the two is
    if not group.items:
        return isinstance(other, Words) and other.text in ("none", "no solution", "no solutions", "empty set")
    return _same(group.items[0], other, algebra) if (group.kind, len(group.items)) == ("{}", 1) else False


def _match_items(first: Sequence[Form], second: Sequence[Form], algebra: _Algebra) -> bool | None:
    """Match each item with an equal one, in any order."""
    left, unsure = list(second), False
    for item in first:
        for index, other in enumerate(left):
            same = _same(item, other, algebra)
            if same:
                del left[index]
                break
            unsure = unsure or same is None
        else:
            if not unsure:
                return False
    return None if left else True


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    sure = True
    for verdict in verdicts:
        if verdict is False:
            return False
        sure = sure and verdict is True
    return True if sure else None


def _to_latex(form: Form) -> str:
    if isinstance(form, Number):
        above, below = form.value.numerator, form.value.denominator
        if form.digits:
            return format(Decimal(above) / below, "f")
        return str(above) if below == 1 else f"\\frac{{{above}}}{{{below}}}"
    assert isinstance(form, Term)  # noqa: S101  # nothing else comes here
    return form.text
