r"""Equality of two SymPy expressions, in layers; for algebra workers only, since SymPy takes a second.

1. *Symbolic*: the difference is zero after expanding or simplifying it.
2. *Numeric*: both are evaluated at several points, to as many digits as their own numbers call for. A clear
   difference at one point means that they differ. Agreement at all points makes functions equal, but not
   constants: of a constant there is one value only, and `2^{1/2^{1000}}` is very close to 1. A constant made
   of roots is zero if it is smaller than the least absolute value such a number can have (the bound of
   Burnikel, Funke, Mehlhorn and Schirra). Otherwise close values stay undecided.

The order saves time: most pairs differ clearly, and that is quickest to see.

Expressions come unevaluated from the parser. `_measure` estimates their size before anything is computed,
so that towers of powers are refused at once; what is slow in other ways is ended by the worker's time limit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, log10
from typing import Any

import sympy
from sympy.core.function import AppliedUndef
from sympy.functions.elementary.trigonometric import InverseTrigonometricFunction

from caps.graders.answers import Decision

__all__ = ["compare_expressions", "compare_relations", "compare_rounded", "prepare", "sympy"]

MAX_DIGITS = 3000  # of a number in an expression, and of an evaluation
MAX_ROOT = 64  # roots of higher order are not treated as algebraic numbers
MARGIN = 10  # digits between the accuracy of an evaluation and what counts as a difference
DIGITS = 50  # of every evaluation, on top of the digits of the numbers in the expressions
POINTS = 5
TRIED = 12
TOO_LARGE = "it contains numbers that are too large to compare"
NO_VALUE = "it cannot be evaluated"
CLOSE = "the values agree to {} digits, but no proof of equality was found"
# Values for variables: of both signs, neither whole nor simple, between -3 and 3 so that powers stay small.
_SAMPLES = tuple(
    sympy.Rational(above, below)
    for above, below in ((137, 101), (269, 103), (-151, 107), (59, 109), (211, 113), (-83, 127), (331, 131),
                         (173, 137), (-293, 139), (97, 149), (239, 151), (-31, 157))
)  # fmt: skip


class TooLargeError(Exception):
    """An expression contains a number that is too large to compute."""


def prepare(*values: Any) -> list[Any]:
    """Give both expressions the same variables, read `i` as the imaginary unit, and calls as variables.

    The parser takes `i` for a variable, and it assumes more or less of a variable depending on what stands
    beside it.
    """
    symbols = {symbol for value in values for symbol in value.free_symbols}
    names = {one: sympy.I if one.name == "i" else sympy.Symbol(one.name, real=True) for one in symbols}
    calls = sorted({call for value in values for call in value.atoms(AppliedUndef)}, key=str)
    names |= {call: sympy.Symbol(f"call {place}", real=True) for place, call in enumerate(calls)}
    return [value.xreplace(names) for value in values]


def compare_expressions(first: Any, second: Any) -> Decision:
    """Whether two expressions, numbers or functions, are equal."""
    first, second = prepare(first, second)
    try:
        size = _measure(first).joined(_measure(second))
        first, second = first.doit(), second.doit()
        if first == second:
            return Decision(equal=True, layer="symbolic")
        if not _is_finite(first) or not _is_finite(second):
            return Decision(equal=False, layer="symbolic")
        difference = first - second
        size = size.joined(_measure(difference))
    except TooLargeError:
        return Decision(None, why=TOO_LARGE)
    if difference.free_symbols:
        return _compare_functions(first, second, difference, size)
    return _compare_constants(difference, size)


def compare_rounded(exact: Any, written: Any, last: Any) -> Decision:
    """Whether a constant, rounded or cut to the last digit of a decimal fraction, is that fraction."""
    (exact,) = prepare(exact)
    try:
        size = _measure(exact)
    except TooLargeError:
        return Decision(None, why=TOO_LARGE)
    value = _evaluate(exact.doit(), size.digits)
    if value is None:
        return Decision(None, why=NO_VALUE)
    if not _is_real(value, size.digits):
        return Decision(equal=False, layer="numeric")
    value = sympy.re(value)
    inside = 2 * abs(value - written) <= last or 0 <= abs(value) - abs(written) < last
    return Decision(equal=bool(inside), layer="numeric")


def compare_relations(first: Any, second: Any) -> Decision:
    """Whether two equations or inequalities say the same; None where only solving them can tell."""
    first, second = prepare(first, second)
    kinds = [_KINDS[type(one)] for one in (first, second)]
    if {kind for kind, _ in kinds} != {kinds[0][0]}:
        return Decision(equal=False, layer="symbolic")
    try:
        for one in (first, second):
            _measure(one.lhs - one.rhs)
        sides = [
            ((one.lhs - one.rhs) * sign).doit() for one, (_, sign) in zip((first, second), kinds, strict=True)
        ]
        ordered = kinds[0][0] in ("<", "<=")
        if not ordered:
            sides = [sympy.fraction(sympy.together(side))[0] for side in sides]
        found = _proportional(*sides, positive=ordered)
    except TooLargeError:
        return Decision(None, why=TOO_LARGE)
    symbols = sorted(sides[0].free_symbols | sides[1].free_symbols, key=str)
    simple = all(side.is_polynomial(*symbols) for side in sides)
    if found.equal is False and (
        not simple or (ordered and any(sympy.Poly(side, *symbols).total_degree() > 1 for side in sides))
    ):
        return Decision(None, why="they have to be solved")
    return found


_KINDS = {
    sympy.Eq: ("=", 1), sympy.Ne: ("!=", 1), sympy.Lt: ("<", 1), sympy.Gt: ("<", -1), sympy.Le: ("<=", 1),
    sympy.Ge: ("<=", -1),
}  # fmt: skip


def _proportional(first: Any, second: Any, *, positive: bool) -> Decision:
    """Whether two expressions differ by a constant (positive) factor, so that they have the same zeros."""
    size = _measure(first).joined(_measure(second))
    symbols = sorted(first.free_symbols | second.free_symbols, key=str)
    if first.free_symbols != second.free_symbols or not symbols:
        return Decision(equal=False, layer="symbolic")
    ratios: list[Any] = []
    for point in _points(symbols):
        values = [_evaluate(one, size.digits, point) for one in (first, second)]
        if None in values or 0 in values:
            continue
        ratios.append(values[0] / values[1])
        if abs(ratios[-1] - ratios[0]) > abs(ratios[0]) * _tolerance(size.digits):
            return Decision(equal=False, layer="numeric")
        if len(ratios) == POINTS:
            break
    if len(ratios) < POINTS:
        return Decision(None, why=NO_VALUE)
    if positive and not (_is_real(ratios[0], size.digits) and sympy.re(ratios[0]) > 0):
        return Decision(equal=False, layer="numeric")
    quotient = sympy.cancel(first / second)
    return Decision(equal=True, layer="numeric" if quotient.free_symbols else "symbolic")


def _compare_constants(difference: Any, size: "_Size") -> Decision:
    value = _evaluate(difference, size.digits)
    if value is None:
        return _prove(difference, NO_VALUE)
    if abs(value) > _tolerance(size.digits):
        return Decision(equal=False, layer="numeric")
    if sympy.expand(difference) == 0:
        return Decision(equal=True, layer="symbolic")
    needed = size.separation
    if needed <= MAX_DIGITS:
        value = _evaluate(difference, int(needed) + DIGITS)
        if value is not None:
            return Decision(bool(abs(value) < sympy.Float(10) ** -int(needed + MARGIN)), "numeric")
    if difference.has(InverseTrigonometricFunction):
        sine = sympy.expand_trig(sympy.sin(difference))  # of so small a number, zero only if the number is
        if sympy.simplify(sine) == 0:
            return Decision(equal=True, layer="symbolic")
    return _prove(difference, CLOSE.format(size.digits - MARGIN))


def _compare_functions(first: Any, second: Any, difference: Any, size: "_Size") -> Decision:
    agreed = unlike = 0
    for point in _points(sorted(first.free_symbols | second.free_symbols, key=str)):
        values = [_evaluate(one, size.digits, point) for one in (first, second)]
        if None in values or not all(_is_finite(value) for value in values):
            continue
        if _is_real(values[0], size.digits) != _is_real(values[1], size.digits):
            unlike += 1  # such as 2 ln x and ln x^2 for negative x
            continue
        a, b = values
        if abs(a - b) > _tolerance(size.digits) * max(1, abs(a), abs(b)):
            return Decision(equal=False, layer="numeric")
        agreed += 1
        if agreed == POINTS:
            break
    if unlike and not agreed:
        return Decision(equal=False, layer="numeric")
    if sympy.expand(sympy.fraction(sympy.together(difference))[0]) == 0:
        return Decision(equal=True, layer="symbolic")
    if agreed == POINTS:
        return Decision(equal=True, layer="numeric")
    return _prove(difference, f"both have values at {agreed} of {TRIED} points only")


def _prove(difference: Any, why: str) -> Decision:
    """Try to simplify a difference to zero."""
    zero = sympy.expand(difference, complex=True) == 0 or sympy.simplify(difference) == 0
    return Decision(equal=True, layer="symbolic") if zero else Decision(None, why=why)


def _is_real(value: Any, digits: int) -> bool:
    return bool(abs(sympy.im(value)) <= _tolerance(digits) * max(1, abs(value)))


def _evaluate(value: Any, digits: int, point: Mapping[Any, Any] | None = None) -> Any:
    """The value at a point, to as many digits; None if SymPy cannot compute it.

    Never with `subs` first: that computes powers of fractions exactly.
    """
    found = sympy.N(value, digits, maxn=4 * digits, subs=point)
    return found if found.is_number and _is_evaluated(found) else None


def _is_evaluated(value: Any) -> bool:
    real, imaginary = value.as_real_imag()
    return all(part.is_Float or part.is_Rational for part in (real, imaginary))


def _tolerance(digits: int) -> Any:
    return sympy.Float(10) ** (MARGIN - digits)


def _is_finite(value: Any) -> bool:
    return value.is_finite is not False and not value.has(sympy.zoo, sympy.nan, sympy.oo, -sympy.oo)


def _points(symbols: Sequence[Any]) -> Iterator[dict[Any, Any]]:
    """Points at which functions are compared: each variable has other values."""
    count = len(_SAMPLES)
    for place in range(TRIED):
        yield {
            symbol: _SAMPLES[(place + 5 * index) % count] + sympy.Rational(index, 17)
            for index, symbol in enumerate(symbols)
        }


@dataclass(frozen=True, slots=True)
class _Size:
    """The size of a number made of integers: bounds of its numerator and denominator, in decimal digits.

    `degree` bounds its degree as an algebraic number; infinite if it may be transcendental.
    """

    above: float = 0.0
    below: float = 0.0
    degree: float = 1.0

    def __post_init__(self) -> None:
        if not (self.above <= MAX_DIGITS and self.below <= MAX_DIGITS):
            raise TooLargeError

    @property
    def digits(self) -> int:
        """To how many digits a number of this size is evaluated."""
        return DIGITS + int(self.above + self.below)

    @property
    def separation(self) -> float:
        """If such a number is not zero, its absolute value is at least 10 to the minus this."""
        return self.below + (self.degree - 1) * self.above if isfinite(self.degree) else inf

    def joined(self, other: "_Size") -> "_Size":
        """The larger of both in every way."""
        return _Size(
            max(self.above, other.above), max(self.below, other.below), max(self.degree, other.degree)
        )


def _measure(value: Any) -> _Size:
    """Estimate the size of an expression from its tree, without evaluating it; variables count as 3."""
    roots: dict[Any, float] = {}
    above, below = _bounds(value, roots)
    degree = 1.0
    for order in roots.values():
        degree *= order
    return _Size(above, below, degree)


def _bounds(value: Any, roots: dict[Any, float]) -> tuple[float, float]:  # noqa: PLR0912  # one branch a kind
    """Bounds of numerator and denominator as powers of ten; `roots` collects what raises the degree."""
    if value.is_Rational:
        found = _log(value.p), _log(value.q)
    elif value.is_Float:
        found = 15.0, 15.0
    elif value.is_Add:
        parts = [_bounds(part, roots) for part in value.args]
        below = sum(part[1] for part in parts)
        found = max(part[0] - part[1] for part in parts) + below + _log(len(parts)), below
    elif value.is_Mul:
        parts = [_bounds(part, roots) for part in value.args]
        found = sum(part[0] for part in parts), sum(part[1] for part in parts)
    elif value.is_Pow or isinstance(value, sympy.exp):
        found = _power_bounds(value, roots)
    elif isinstance(value, sympy.factorial | sympy.gamma):
        size = _whole(value.args[0], roots)
        roots[value] = 1.0 if value.args[0].is_Integer else inf
        found = size * _log(size), 0.0
    elif isinstance(value, sympy.binomial):
        roots[value] = 1.0 if all(part.is_Integer for part in value.args) else inf
        found = _whole(value.args[0], roots), 0.0
    elif isinstance(value, _SATURATED):  # as close to 1 as its argument is large
        roots[value] = inf
        found = (_whole(value.args[0], roots) + 1,) * 2
    elif value is sympy.I:
        roots[value] = 2.0
        found = 0.0, 0.0
    elif isinstance(value, _TRIGONOMETRIC) and (order := _rational_angle(value.args[0])):
        roots[value] = 2.0 * order
        found = 0.7, 0.7
    elif value.is_Symbol:
        roots[value] = inf
        found = 0.6, 0.0
    else:
        parts = [_bounds(part, roots) for part in value.args if isinstance(part, sympy.Basic)]
        roots[value] = inf
        found = sum(part[0] for part in parts) + 1, sum(part[1] for part in parts)
    if not (found[0] <= MAX_DIGITS and found[1] <= MAX_DIGITS):
        raise TooLargeError
    return found


_TRIGONOMETRIC = (sympy.sin, sympy.cos, sympy.tan, sympy.cot, sympy.sec, sympy.csc)
_SATURATED = (sympy.tanh, sympy.coth, sympy.sech, sympy.csch, sympy.sinh, sympy.cosh, sympy.erf, sympy.erfc)


def _power_bounds(value: Any, roots: dict[Any, float]) -> tuple[float, float]:
    base, exponent = value.as_base_exp()
    above, below = _bounds(base, roots)
    weight, part = _bounds(exponent, roots)
    if base is sympy.E and (order := _rational_angle(exponent / sympy.I)):
        roots[value] = 2.0 * order  # a root of unity
        return 0.0, 0.0
    size = 10.0 ** min(weight - part, 300)
    if exponent.is_number and exponent.is_rational:
        exponent = exponent.doit()  # its numbers are short enough, or `_bounds` had refused it
    if not exponent.is_Rational or exponent.q > MAX_ROOT:
        roots[value] = inf
        spread = max(above, below, 1.0) * size + weight + part
        return spread, spread
    order, times = int(exponent.q), abs(int(exponent.p))
    if order > 1:
        roots[sympy.Pow(base, sympy.Rational(1, order), evaluate=False)] = float(order)
        above, below = _root_bounds(above, below, order)
    return (above * times, below * times) if exponent > 0 else (below * times, above * times)


def _root_bounds(above: float, below: float, order: int) -> tuple[float, float]:
    if above >= below:
        return (above + (order - 1) * below) / order, below
    return above, (below + (order - 1) * above) / order


def _whole(value: Any, roots: dict[Any, float]) -> float:
    above, below = _bounds(value, roots)
    return 10.0 ** max(above - below, 0.5) if above < 300 else inf


def _rational_angle(angle: Any) -> int | None:
    """The denominator of an angle that is a fraction of π."""
    part = (angle / sympy.pi).doit() if angle.is_number and angle.has(sympy.pi) else None
    return int(part.q) if part is not None and part.is_Rational and part.q <= MAX_ROOT else None


def _log(value: float) -> float:
    return log10(abs(value)) if abs(value) > 1 else 0.0
