"""Equality of two final answers: by exact rules here, by `algebra` where these are inconclusive.

What counts as the same:

* A value is the same with and without its unit, name (`x = 3`), currency or degree sign; two units that are
  both known must agree (100 cm is 1 m, 20 m/s is 72 km/h, 5 cm is not 5 m, 5 cm^2 is not 5 cm).
* 50 % is 1/2, and it is also 50, since a question may ask for per cent; 50 is not 1/2. Likewise 2 million is
  2,000,000, and also 2.
* A decimal fraction of six or more significant digits may stand for a value that, rounded or cut to these
  digits, is the same; 0.33 is not 1/3.
* `1,234` is one thousand and something. A comma that cannot separate thousands separates the items of a list,
  or is a decimal comma if the other answer is a single number: `1,5` is 1.5 and also 1 and 5.
* Sets and bare lists may be in any order, tuples may not; (1, 2) is neither [1, 2] nor {1, 2}. A bare `1, 2`
  may stand for a tuple in that order, and for a set in any. A set has each element once.
* Sets of real numbers are compared by their members, however they are written.
* A ratio in lowest terms is the same as the fraction: 3:4 is 3/4; 6:8 is not 3:4.
* `y = 2x + 3` is `f(x) = 2x + 3`, and `f(t) = t^2` is `f(x) = x^2`; `g(x) = x^2` is another function.
* A calculation with its result (`3 * 4 = 12`) is the same as the result alone, but not as another calculation
  with that result: `2 * 6 = 12` is a different answer.
* `204_5` is also 204, since the question may name the base; it is no fraction, percentage or measure.

Equality is symmetric, but not transitive for units, percentages, decimal commas and bare lists.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import gcd
from typing import NamedTuple, TypeAlias

from caps.graders.answer_forms import (
    Choice,
    Equation,
    Form,
    Group,
    Named,
    Number,
    Term,
    Words,
    parse,
    with_decimal_point,
)
from caps.graders.latex import normalize, without_spaces
from caps.graders.real_sets import is_real_set, same_real_set
from caps.graders.units import same_dimensions

MAX_CHARS = 2000
CACHE_SIZE = 512  # parsed answers, each of at most MAX_CHARS
MIN_DIGITS = 6
_LARGEST_WRITTEN = Fraction(36) ** 200  # in a base
LAYERS = ("exact", "symbolic", "numeric")


class Decision(NamedTuple):
    """Whether two answers are equal (None: undecided), the last layer needed, and why if undecided."""

    equal: bool | None
    layer: str = "exact"
    why: str = ""


Algebra: TypeAlias = Callable[[str, str], Decision]


def no_algebra(_a: str, _b: str) -> Decision:
    """Decide nothing: the exact rules cannot compare different expressions."""
    return Decision(None)


def same_answer(a: str, b: str) -> bool | None:
    """Whether two answers are equal by the exact rules; None if these are inconclusive."""
    return decide(a, b).equal


def decide(a: str, b: str, algebra: Algebra = no_algebra) -> Decision:
    """Compare two answers, layer by layer."""
    used: list[Decision] = []

    def recorded(first: str, second: str) -> bool | None:
        used.append(algebra(first, second))
        return used[-1].equal

    equal = _compare(a, b, recorded)
    if equal is None:
        return Decision(None, why=next((one.why for one in used if one.equal is None), ""))
    layers = [one.layer for one in used if one.equal is equal]
    return Decision(equal, max(layers, key=LAYERS.index, default="exact"))


def rounds_to(exact: Fraction, written: Fraction, last: Fraction) -> bool:
    """Whether an exact value, rounded or cut to the last written digit, is what was written."""
    return 2 * abs(exact - written) <= last or 0 <= abs(exact) - abs(written) < last


_Algebra: TypeAlias = Callable[[str, str], bool | None]


def _compare(a: str, b: str, algebra: _Algebra) -> bool | None:
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
        verdict = _same_otherwise(a, b, algebra)
    elif verdict is False and isinstance(first, Group) != isinstance(second, Group) and r"\begin" in a + b:
        verdict = algebra(a, b)  # such as a number times a matrix
    return verdict


def _same_otherwise(a: str, b: str, algebra: _Algebra) -> bool | None:
    """Compare with the other reading of a comma: of thousands or in a list, in a list or of decimals."""
    first, second = (_form(_listed(text)) for text in (a, b))
    if isinstance(first, Group) and isinstance(second, Group):
        return _same(first, second, algebra)
    points = [text if isinstance(_form(text), Number) else with_decimal_point(text) for text in (a, b)]
    if points[0] is None or points[1] is None:
        return False
    return _same(_form(points[0]), _form(points[1]), algebra)


def _listed(text: str) -> str:
    return text.replace(",", ", ") if isinstance(_form(text), Number) else text


# An answer is compared with one answer of every class of its case, but parsed once.
@lru_cache(maxsize=CACHE_SIZE)
def _normalized(text: str) -> str:
    return normalize(text)


@lru_cache(maxsize=CACHE_SIZE)
def _form(text: str) -> Form:
    return parse(text)


def _same(a: Form, b: Form, algebra: _Algebra) -> bool | None:
    if is_real_set(a) or is_real_set(b):
        named = isinstance(a, Named) and isinstance(b, Named) and a.name != b.name
        if not named and (same := same_real_set(a, b)) is not None:
            return same
    if isinstance(a, Equation) or isinstance(b, Equation):
        return _same_equation(a, b, algebra)
    if isinstance(a, Named) or isinstance(b, Named):
        return _same_named(a, b, algebra)
    if isinstance(a, Choice) or isinstance(b, Choice):
        return _same_choice(a, b, algebra)
    if isinstance(a, Number) and isinstance(b, Number):
        return _same_number(a, b)
    if isinstance(a, Group) or isinstance(b, Group):
        return _same_group(a, b, algebra)
    if isinstance(a, Words) or isinstance(b, Words):
        return a == b
    return _same_term(a, b, algebra)


def _same_equation(a: Form, b: Form, algebra: _Algebra) -> bool | None:
    """Two calculations are compared as they are written: a question may ask for one with a given result."""
    if isinstance(a, Equation) and isinstance(b, Equation):
        return a.sides == b.sides
    first, second = (form.value if isinstance(form, Equation) else form for form in (a, b))
    return _same(first, second, algebra)


_FUNCTION = re.compile(r"([a-zA-Z])\(([a-zA-Z])\)")


def _same_named(a: Form, b: Form, algebra: _Algebra) -> bool | None:
    if isinstance(a, Named) and isinstance(b, Named) and a.name != b.name:
        if (renamed := _as_function(a, b)) is not None:
            return _same(a.value, renamed, algebra)
        # x = 3 is not y = 3; but y = 1 - x may be x + y = 1.
        curved = isinstance(a.value, Term) or isinstance(b.value, Term)
        return algebra(a.text, b.text) if curved or "+" in a.name + b.name else False
    if _is_relation(a) or _is_relation(b):
        return algebra(_written(a), _written(b))
    return _same(_value(a), _value(b), algebra)


def _as_function(a: Named, b: Named) -> Form | None:
    """The value of `b` with the variable of `a` if both are one function, as `y` and `f(x)` are."""
    first, second = _FUNCTION.fullmatch(a.name), _FUNCTION.fullmatch(b.name)
    if first and second and first[1] == second[1]:
        if not isinstance(b.value, Term):
            return b.value
        return Term(_renamed(b.value.text, second[2], first[2]), b.value.relation)
    return b.value if {"y"} & {a.name, b.name} and (first or second) else None


def _renamed(text: str, old: str, new: str) -> str:
    """Rename a variable; letters of commands and words stay."""
    return re.sub(
        r"\\[a-zA-Z]+(?:\{[a-z ]{2,}\})?|[a-zA-Z]",
        lambda one: new if one.group() == old else one.group(),
        text,
    )


def _is_relation(form: Form) -> bool:
    return isinstance(form, Term) and form.relation


def _written(form: Form) -> str:
    return form.text if isinstance(form, Named | Term) else ""


def _value(form: Form) -> Form:
    return form.value if isinstance(form, Named) else form


def _same_choice(a: Form, b: Form, algebra: _Algebra) -> bool | None:
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
        digits = _digits(a)
        return digits is not None and digits == _digits(b)
    if a.unit and b.unit and not same_dimensions(a.unit, b.unit):
        return False
    if a.factor != b.factor and 1 in (a.factor, b.factor) and _same_value(a, b, (Fraction(1), Fraction(1))):
        return True
    scales = (a.unit.scale, b.unit.scale) if a.unit and b.unit else (Fraction(1), Fraction(1))
    return _same_value(a, b, (scales[0] * a.factor, scales[1] * b.factor))


def _same_value(a: Number, b: Number, scales: tuple[Fraction, Fraction]) -> bool:
    first, second = a.value * scales[0], b.value * scales[1]
    return (
        first == second
        or (a.digits >= MIN_DIGITS and not b.digits and rounds_to(second, first, a.last * scales[0]))
        or (b.digits >= MIN_DIGITS and not a.digits and rounds_to(first, second, b.last * scales[1]))
    )


def _digits(written: Number) -> str | None:
    """The digits of a whole number as written; None for fractions, measures and what is too long."""
    value, base = written.value, written.base or 10
    plain = written.unit is None and written.factor == 1
    if not plain or value.denominator != 1 or abs(value) >= _LARGEST_WRITTEN:
        return None
    left, digits = abs(value.numerator), ""
    while left:
        left, digit = divmod(left, base)
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[digit] + digits
    return ("-" if value < 0 else "") + (digits or "0")


def _same_group(a: Form, b: Form, algebra: _Algebra) -> bool | None:
    if not (isinstance(a, Group) and isinstance(b, Group)):
        group, other = (a, b) if isinstance(a, Group) else (b, a)
        assert isinstance(group, Group)  # noqa: S101  # one of the two is
        return _same_single(group, other, algebra)
    if "\\" in (a.kind, b.kind) and a.kind != b.kind:
        a, b = _column(a), _column(b)
        a, b = _matrix(a), _matrix(b)
    if a.kind == b.kind == "mod":
        return _same_residue(a, b, algebra)
    kinds = {a.kind, b.kind}
    if len(kinds) == 2 and not ("," in kinds and kinds & {"()", "{}"}):
        return False
    if kinds == {"{}"}:
        a, b = _distinct(a), _distinct(b)
    if len(a.items) != len(b.items):
        return False
    if kinds <= {",", "{}", "|"}:
        return _match_items(a.items, b.items, algebra)
    return _all(_same(x, y, algebra) for x, y in zip(a.items, b.items, strict=True))


def _same_single(group: Group, other: Form, algebra: _Algebra) -> bool | None:
    """A set with one element equals that element; no solution equals the empty set; a residue its value."""
    if not group.items:
        return isinstance(other, Words) and _NOTHING.fullmatch(other.text) is not None
    if group.kind == "mod":
        return _same(group.items[0], other, algebra)
    if group.kind == ":" and isinstance(other, Number):
        return _same_ratio(group, other)
    if len(group.items) == 1 and group.kind == "{}":
        return _same(group.items[0], other, algebra)
    return False


_NOTHING = re.compile(
    r"none|(?:the )?empty set"
    r"|(?:there (?:is|are) )?no (?:real )?(?:solutions?|roots?|such \w+)(?: exists?| for \w+)?"
)


def _same_ratio(group: Group, other: Number) -> bool:
    terms = [item.value for item in group.items if isinstance(item, Number)]
    if len(terms) != 2 or not all(term.denominator == 1 and term > 0 for term in terms) or other.digits:
        return False
    lowest = gcd(*(term.numerator for term in terms)) == 1
    return lowest and other.value == terms[0] / terms[1]


def _same_residue(a: Group, b: Group, algebra: _Algebra) -> bool | None:
    """`7 (mod 11)` is `18 (mod 11)`."""
    modulus = _same(a.items[1], b.items[1], algebra)
    values = a.items[0], b.items[0], a.items[1]
    numbers = [one.value for one in values if isinstance(one, Number)]
    if modulus and len(numbers) == 3 and numbers[2]:
        return (numbers[0] - numbers[1]) % numbers[2] == 0
    return _all([modulus, _same(a.items[0], b.items[0], algebra)])


def _distinct(group: Group) -> Group:
    return Group(group.kind, tuple(dict.fromkeys(group.items)))


def _matrix(group: Group) -> Group:
    """Convert `[[1, 2], [3, 4]]` to a matrix."""
    rows = [row for row in group.items if isinstance(row, Group) and row.kind in ("[]", "()")]
    if group.kind not in ("[]", "()") or not rows or len(rows) < len(group.items):
        return group
    return Group("\\", tuple(Group("&", row.items) for row in rows))


def _column(group: Group) -> Group:
    """Convert a matrix with one column to a tuple."""
    if group.kind != "\\" or not all(isinstance(row, Group) and len(row.items) == 1 for row in group.items):
        return group
    return Group("()", tuple(row.items[0] for row in group.items if isinstance(row, Group)))


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


def _same_term(a: Form, b: Form, algebra: _Algebra) -> bool | None:
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
