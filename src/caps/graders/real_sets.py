r"""Sets of real numbers with rational ends, compared by their members.

Two such sets are equal if they contain the same ends and the same points between neighbouring ends. So
`[0,1] \cup [1,2]` is `[0,2]`, and `x \ne 0` is `(-\infty,0) \cup (0,\infty)`.
"""

from fractions import Fraction
from itertools import pairwise
from math import inf
from typing import TypeAlias

from caps.graders.answer_forms import INTERVALS, Form, Group, Named, Number, Term
from caps.graders.latex import without_spaces

End: TypeAlias = Fraction | float
_INFINITE = {r"\infty": inf, r"+\infty": inf, r"-\infty": -inf}


def same_real_set(a: Form, b: Form) -> bool | None:
    """Whether two forms are the same set of real numbers; None if either is not one with rational ends."""
    first, second = _ends(a), _ends(b)
    if first is None or second is None:
        return None
    ends = sorted(end for end in first | second if abs(end) != inf)
    if not ends:
        ends = [Fraction(0)]
    between = [(low + high) / 2 for low, high in pairwise(ends)]
    points = [*ends, *between, ends[0] - 1, ends[-1] + 1]
    return all(_contains(a, point) == _contains(b, point) for point in points)


def is_real_set(form: Form) -> bool:
    """Whether a form can only be a set of numbers, where `(1, 2)` may also be a point."""
    if isinstance(form, Named):
        return isinstance(form.value, Group) and form.value.kind in (*INTERVALS, "|", "-")
    if not isinstance(form, Group):
        return False
    endless = form.kind in INTERVALS and any(_end(item) in (inf, -inf) for item in form.items)
    return endless or form.kind in ("|", "-", "[)", "(]")


def _ends(form: Form) -> set[End] | None:
    if isinstance(form, Named):
        return _ends(form.value)
    if isinstance(form, Number):
        return {form.value} if form.unit is None and form.factor == 1 and form.base is None else None
    if not isinstance(form, Group):
        return None
    if form.kind in INTERVALS:
        ends = [_end(item) for item in form.items]
        found = {end for end in ends if end is not None}
        return found if len(ends) == 2 and None not in ends else None
    if form.kind not in ("{}", "|", "-"):
        return None
    parts = [_ends(item) for item in form.items]
    return None if None in parts else {end for part in parts if part for end in part}


def _end(form: Form) -> End | None:
    if isinstance(form, Number):
        return form.value if form.unit is None and form.factor == 1 else None
    return _INFINITE.get(without_spaces(form.text)) if isinstance(form, Term) else None


def _contains(form: Form, point: End) -> bool:
    if isinstance(form, Named):
        return _contains(form.value, point)
    if isinstance(form, Number):
        return form.value == point
    assert isinstance(form, Group)  # noqa: S101  # `_ends` accepts nothing else
    if form.kind in INTERVALS:
        low, high = (_end(item) for item in form.items)
        assert low is not None and high is not None  # noqa: S101, PT018
        return low < point < high or (
            (point == low and form.kind[0] == "[") or (point == high and form.kind[1] == "]")
        )
    if form.kind == "-":
        return _contains(form.items[0], point) and not _contains(form.items[1], point)
    return any(_contains(item, point) for item in form.items)
