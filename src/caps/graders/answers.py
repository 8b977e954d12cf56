"""Equality of two final answers: by cheap rules here, by `algebra` where these are inconclusive.

What counts as the same:

* A value is the same with and without its unit, name (`x = 3`), currency or degree sign; two units that are
  both known must agree (100 cm is 1 m, 5 cm is not 5 m).
* 50 % is 1/2, and it is also 50, since a question may ask for per cent; 50 is not 1/2.
* A decimal fraction of six or more significant digits may stand for what it is rounded from; 0.33 is not 1/3.
* Sets and bare lists may be in any order, tuples may not; (1, 2) is neither [1, 2] nor {1, 2}. A bare `1, 2`
  may stand for a tuple in that order, and for a set in any.
* `204_5` is also 204, since the question may name the base.

Equality is symmetric, but not transitive for units, percentages and bare lists.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from caps.graders.answer_forms import Choice, Form, Group, Named, Number, Term, Words, parse
from caps.graders.latex import normalize, without_spaces

MAX_CHARS = 2000
CACHE_SIZE = 512  # parsed answers, each of at most MAX_CHARS
MIN_DIGITS = 6
Algebra: TypeAlias = Callable[[str, str], bool | None]


def no_algebra(_a: str, _b: str) -> bool | None:
    """Decide nothing: the cheap rules cannot compare different expressions."""
    return None


def same_answer(a: str, b: str, algebra: Algebra = no_algebra) -> bool | None:
    """Whether two answers are equal; None if undecided."""
    a, b = sorted((a, b))
    if a.split() == b.split():
        return True
    if max(len(a), len(b)) > MAX_CHARS:
        return None
    a, b = sorted((_normalized(a), _normalized(b)))
    if without_spaces(a) == without_spaces(b):
        return True
    if not a:
        return False
    first, second = _form(a), _form(b)
    verdict = _same(first, second, algebra)
    if verdict is False and isinstance(first, Number) != isinstance(second, Number):
        # `100,200,300` is a number, unless the other answer is a list.
        first, second = (_listed(text, form) for text, form in ((a, first), (b, second)))
        verdict = isinstance(first, Group) and isinstance(second, Group) and _same(first, second, algebra)
    return verdict


# An answer is compared with one answer of every class of its case, but parsed once.
@lru_cache(maxsize=CACHE_SIZE)
def _normalized(text: str) -> str:
    return normalize(text)


@lru_cache(maxsize=CACHE_SIZE)
def _form(text: str) -> Form:
    return parse(text)


def _listed(text: str, form: Form) -> Form:
    return parse(text.replace(",", ", ")) if isinstance(form, Number) else form


def _same(a: Form, b: Form, algebra: Algebra) -> bool | None:
    if isinstance(a, Named) or isinstance(b, Named):
        if isinstance(a, Named) and isinstance(b, Named) and a.name != b.name:
            # x = 3 is not y = 3; but y = 1 - x may be x + y = 1.
            curved = isinstance(a.value, Term) or isinstance(b.value, Term)
            return algebra(a.text, b.text) if curved or "+" in a.name + b.name else False
        if _is_relation(a) or _is_relation(b):
            return algebra(_written(a), _written(b))
        return _same(_value(a), _value(b), algebra)
    if isinstance(a, Choice) or isinstance(b, Choice):
        return _same_choice(a, b, algebra)
    if isinstance(a, Number) and isinstance(b, Number):
        return _same_number(a, b)
    if isinstance(a, Group) or isinstance(b, Group):
        return _same_group(a, b, algebra)
    if isinstance(a, Words) or isinstance(b, Words):
        return a == b
    return _same_term(a, b, algebra)


def _is_relation(form: Form) -> bool:
    return isinstance(form, Term) and form.relation


def _written(form: Form) -> str:
    return form.text if isinstance(form, Named | Term) else ""


def _value(form: Form) -> Form:
    return form.value if isinstance(form, Named) else form


def _same_choice(a: Form, b: Form, algebra: Algebra) -> bool | None:
    if isinstance(a, Choice) and isinstance(b, Choice):
        return a.letter == b.letter
    chosen, other = (a, b) if isinstance(a, Choice) else (b, a)
    assert isinstance(chosen, Choice)  # noqa: S101  # one of the two is
    if chosen.meaning is not None:
        return _same(chosen.meaning, other, algebra)
    if isinstance(other, Term):
        return without_spaces(other.text) == chosen.letter
    return False


def _same_number(a: Number, b: Number) -> bool:
    if (a.base is None) != (b.base is None):
        return _digits(a) == _digits(b)
    if a.unit and b.unit and a.unit[0] != b.unit[0]:
        return False
    scales = (a.unit[1], b.unit[1]) if a.unit and b.unit else (1, 1)
    first, second = a.value * scales[0], b.value * scales[1]
    if a.percent != b.percent:
        part, whole = (first, second) if a.percent else (second, first)
        return part in (whole, 100 * whole)
    return first == second or _rounded(a, b) or _rounded(b, a)


def _digits(number_: Number) -> str:
    """The digits as written."""
    value, base = number_.value, number_.base or 10
    if value.denominator != 1 or abs(value) >= Fraction(10) ** 60:
        return str(value.denominator)
    left, digits = abs(value.numerator), ""
    while left:
        left, digit = divmod(left, base)
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[digit] + digits
    return ("-" if value < 0 else "") + (digits or "0")


def _rounded(decimal: Number, exact: Number) -> bool:
    if decimal.digits < MIN_DIGITS or exact.digits or decimal.unit != exact.unit:
        return False
    return abs(decimal.value - exact.value) * Fraction(10) ** (decimal.digits - 1) < abs(exact.value)


def _same_group(a: Form, b: Form, algebra: Algebra) -> bool | None:
    if not (isinstance(a, Group) and isinstance(b, Group)):
        group, other = (a, b) if isinstance(a, Group) else (b, a)
        assert isinstance(group, Group)  # noqa: S101  # one of the two is
        return _same_single(group, other, algebra)
    if "\\" in (a.kind, b.kind) and a.kind != b.kind:
        a, b = _column(a), _column(b)
    kinds = {a.kind, b.kind}
    if len(kinds) == 2 and not ("," in kinds and kinds & {"()", "{}"}):
        return False
    if len(a.items) != len(b.items):
        return False
    if kinds <= {",", "{}", "|"}:
        return _match_items(a.items, b.items, algebra)
    return _all(_same(x, y, algebra) for x, y in zip(a.items, b.items, strict=True))


def _same_single(group: Group, other: Form, algebra: Algebra) -> bool | None:
    """A set with one element equals that element; no solution equals the empty set."""
    if not group.items:
        return isinstance(other, Words) and other.text in ("no solution", "no solutions", "none", "empty set")
    if len(group.items) == 1 and group.kind == "{}":
        return _same(group.items[0], other, algebra)
    return False


def _column(group: Group) -> Group:
    """Convert a matrix with one column to a tuple."""
    if group.kind != "\\" or not all(isinstance(row, Group) and len(row.items) == 1 for row in group.items):
        return group
    return Group("()", tuple(row.items[0] for row in group.items if isinstance(row, Group)))


def _match_items(first: Sequence[Form], second: Sequence[Form], algebra: Algebra) -> bool | None:
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


def _same_term(a: Form, b: Form, algebra: Algebra) -> bool | None:
    if isinstance(a, Term) and isinstance(b, Term):
        if without_spaces(a.text) == without_spaces(b.text):
            return True
        return algebra(a.text, b.text) if a.relation == b.relation else False
    if _is_relation(a) or _is_relation(b):
        return False
    return algebra(_to_latex(a), _to_latex(b))


def _to_latex(form: Form) -> str:
    if isinstance(form, Number):
        above, below = form.value.numerator, form.value.denominator
        if form.digits:
            return format(Decimal(above) / below, "f")
        return str(above) if below == 1 else f"\\frac{{{above}}}{{{below}}}"
    assert isinstance(form, Term)  # noqa: S101  # nothing else comes here
    return form.text
