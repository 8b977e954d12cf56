"""The algebra worker: decides whether two answers are equal.

This module alone uses math-verify, which parses LaTeX, and SymPy, which compares. Both may run forever or
exhaust memory on a hostile answer, so this runs in a separate process (`caps.workers`) that limits itself and
can be killed from outside.

Expressions are compared in three steps, the cheapest first:

1. Their numbers are measured before anything is computed (`_digits`): towers of powers are refused at once.
2. Their difference is evaluated at a few points, to as many digits as their own numbers call for. A value
   that is certainly not zero means that they differ, as most pairs do.
3. SymPy's `Expr.equals` proves the rest, or leaves it undecided. Agreement of values alone proves nothing:
   `2^{1/2^{1000}}` is very close to 1. It draws random points, from a generator seeded with the pair, so that
   the same pair is always decided alike.
"""

import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from math import log10
from typing import Any

from caps.grading.answer_forms import parse_number
from caps.grading.answers import ALGEBRA, MIN_DIGITS, Decision, decide
from caps.workers import child

CACHE_SIZE = 256  # parsed expressions
MAX_DIGITS = 3000  # of a number in an expression, and of an evaluation
DIGITS = 50  # of every evaluation, on top of the digits of the numbers in the expressions
TOO_LARGE = "it contains numbers that are too large to compare"
NO_PROOF = "no proof was found that they are equal or different"
_RECURSION_LIMIT = 3000
_DECIMAL = re.compile(r"(?<![\d.])(\d*)\.(\d+)(?![\d.])")
_DEGREES = re.compile(r"(\d+(?:/\d+)?|\\frac\{\d+\}\{\d+\}|[a-zA-Z]|\([^()]*\))\s*\\text\{ degrees\}")
_LARGE_SAMPLE = 3  # for variables, where sizes are estimated
# Values for variables: neither whole nor simple, and small, so that powers stay small.
_SAMPLES = ((137, 101), (59, 109), (-151, 107))
_DIFFERENT = Decision(equal=False, layer=ALGEBRA)
_EQUAL = Decision(equal=True, layer=ALGEBRA)


class TooLargeError(Exception):
    """An expression contains a number that is too large to compute."""


def serve(seconds: float, memory: int) -> None:
    """Run a worker: compare pairs of answers until the input ends."""
    sys.setrecursionlimit(_RECURSION_LIMIT)
    algebra = _Algebra()
    child.serve(lambda pair, _: algebra.decide(*pair), seconds=seconds, memory=memory)


class _Algebra:
    """Compares two expressions in normalized LaTeX; one that does not parse equals nothing else."""

    def __init__(self) -> None:
        import math_verify  # noqa: PLC0415  # takes a second
        import sympy  # noqa: PLC0415

        self._math_verify, self._sympy = math_verify, sympy
        latex = math_verify.LatexExtractionConfig()
        # With units, the s of x + 2 s would be seconds.
        without_units = replace(latex.normalization_config, units=False)
        self._latex = [replace(latex, normalization_config=without_units)]
        self._read = lru_cache(maxsize=CACHE_SIZE)(self._parse)
        self(r"\sqrt{8} + x", r"2\sqrt{2} + x")  # the first comparison takes longer than a request may

    def decide(self, a: str, b: str) -> dict[str, Any]:
        """The decision about a pair of answers, and the processor time that it took."""
        before = time.process_time()
        # The random points of SymPy are a function of the pair.
        digest = sha256("\0".join(sorted((a, b))).encode("utf-8", "surrogatepass"))
        self._sympy.core.random.seed(int.from_bytes(digest.digest()[:8], "big"))
        try:
            decision = decide(a, b, self)
        except Exception as error:  # a failure of the library does not prove a difference
            decision = Decision(None, why=f"algebra failed on it ({type(error).__name__})")
        return {**decision._asdict(), "seconds": time.process_time() - before}

    def __call__(self, a: str, b: str) -> Decision:
        try:
            return self._compare(a, b)
        except TooLargeError:
            return Decision(None, why=TOO_LARGE)

    def _compare(self, a: str, b: str) -> Decision:
        for decimal, other in ((a, b), (b, a)):
            number = parse_number(decimal)
            if number is not None and number.digits >= MIN_DIGITS:
                return self._is_rounded(other, number.value, number.last)
        first, second = self._read(a), self._read(b)
        if first is None or second is None:
            return _DIFFERENT
        sympy = self._sympy

        def both_are(*kinds: type) -> bool:
            return isinstance(first, kinds) and isinstance(second, kinds)

        if both_are(sympy.Expr):
            return self._same_expression(first, second)
        if both_are(sympy.core.relational.Relational):
            return self._proportional(first, second) or self._same_set(first, second)
        if both_are(sympy.MatrixBase, sympy.MatrixExpr):
            first, second = first.doit(), second.doit()
            if both_are(sympy.MatrixBase):
                return self._same_matrix(first, second)
        return self._same_set(first, second)

    def _parse(self, text: str) -> Any:
        """Parse LaTeX; decimals become exact fractions, and degrees fractions of π.

        The parser takes `i` for a variable, and assumes more or less of a variable depending on what stands
        beside it: here `i` is the imaginary unit, a variable is real, and an unknown call is a variable.
        """
        text = _DECIMAL.sub(_fraction, text)
        if re.search(r"\\(?:sin|cos|tan|cot|sec|csc)", text):
            text = _DEGREES.sub(r"(\1*\\frac{\\pi}{180})", text)
        parsed = self._math_verify.parse(
            f"${text}$", self._latex, fallback_mode="no_fallback", parsing_timeout=None, raise_on_error=True
        )
        if not parsed or not hasattr(parsed[0], "xreplace"):
            return parsed[0] if parsed else None
        value, sympy = parsed[0], self._sympy
        names = {
            symbol: sympy.I if symbol.name == "i" else sympy.Symbol(symbol.name, real=True)
            for symbol in value.free_symbols
        }
        for call in value.atoms(sympy.core.function.AppliedUndef):
            names[call] = sympy.Symbol(str(call), real=True)
        return value.xreplace(names)

    def _is_rounded(self, text: str, written: Any, last: Any) -> Decision:
        """Whether a constant, rounded or cut to the last digit of a decimal fraction, is that fraction."""
        sympy = self._sympy
        exact = self._read(text)
        if not isinstance(exact, sympy.Expr) or not exact.is_number:
            return _DIFFERENT
        value = sympy.N(exact, DIGITS + int(_digits(exact)))
        if not value.is_comparable:
            return Decision(None, why=NO_PROOF) if value.is_real else _DIFFERENT
        written, last = (sympy.Rational(part.numerator, part.denominator) for part in (written, last))
        is_rounded = 2 * abs(value - written) <= last or 0 <= abs(value) - abs(written) < last
        return _EQUAL if is_rounded else _DIFFERENT

    def _same_expression(self, first: Any, second: Any) -> Decision:
        digits = _digits(first) + _digits(second)
        first, second = first.doit(), second.doit()
        if first == second:
            return _EQUAL
        infinite = self._sympy.oo, -self._sympy.oo, self._sympy.zoo, self._sympy.nan
        if first.has(*infinite) or second.has(*infinite):
            return _DIFFERENT
        difference = first - second
        if any(self._is_certainly_not_zero(difference, point, digits) for point in self._points(difference)):
            return _DIFFERENT
        equal = first.equals(second)
        return Decision(equal, ALGEBRA, "" if equal is not None else NO_PROOF)

    def _points(self, value: Any) -> Iterator[dict[Any, Any]]:
        """Points at which a difference is evaluated: each variable has another value."""
        symbols = sorted(value.free_symbols, key=str)
        for above, below in _SAMPLES if symbols else _SAMPLES[:1]:
            sample = self._sympy.Rational(above, below)
            yield {symbol: sample + self._sympy.Rational(place, 17) for place, symbol in enumerate(symbols)}

    def _is_certainly_not_zero(self, value: Any, point: dict[Any, Any], digits: float) -> bool:
        """Whether a value at a point is known to differ from zero.

        Never with `subs` first: that computes powers of fractions exactly.
        """
        result = self._sympy.N(value, 15, subs=point, maxn=DIGITS + int(digits))
        return all(part.is_comparable or part == 0 for part in result.as_real_imag()) and result != 0

    def _proportional(self, first: Any, second: Any) -> Decision | None:
        """Whether two relations differ by a constant factor; None if they have to be solved."""
        kinds, sides = set(), []
        for relation in (first, second):
            kind, sign = _SIGNS[relation.rel_op]
            kinds.add(kind)
            for side in (relation.lhs, relation.rhs):
                _digits(side)  # refuses what is too large
            sides.append(sign * (relation.lhs - relation.rhs).doit())
        if len(kinds) > 1:
            return _DIFFERENT
        ratio = self._sympy.simplify(sides[0] / sides[1])
        is_ordered = not kinds & {"=", "!="}
        if ratio.is_number and ratio.is_nonzero and (ratio.is_positive or not is_ordered):
            return _EQUAL
        return None

    def _same_matrix(self, first: Any, second: Any) -> Decision:
        if first.shape != second.shape:
            return _DIFFERENT
        entries = [self._same_expression(*pair) for pair in zip(first, second, strict=True)]
        return next((decision for decision in entries if not decision.equal), _EQUAL)

    def _same_set(self, first: Any, second: Any) -> Decision:
        """Compare sets, and relations that have to be solved."""
        verify = self._math_verify.verify
        equal = any(
            verify(gold, answer, timeout_seconds=None, raise_on_error=True)
            for gold, answer in ((first, second), (second, first))
        )
        return Decision(equal, ALGEBRA)


_GROWING = frozenset(
    {"factorial", "gamma", "binomial", "sinh", "cosh", "tanh", "coth", "sech", "csch", "erf", "erfc"}
)
_SIGNS = {"==": ("=", 1), "!=": ("!=", 1), "<": ("<", 1), ">": ("<", -1), "<=": ("<=", 1), ">=": ("<=", -1)}


def _digits(value: Any) -> float:
    """Bound the decimal digits of the numbers in an expression from its tree; a variable counts as one."""
    parts = [_digits(part) for part in value.args]
    if value.is_Rational:
        digits = log10(max(abs(value.p), value.q))
    elif value.is_Pow or value.func.__name__ == "exp":
        base, exponent = (parts[0] if value.is_Pow else 1.0), parts[-1]
        digits = base * max(_magnitude(value.args[-1], exponent), 1) + exponent
    elif value.func.__name__ in _GROWING:
        argument = _magnitude(value.args[0], parts[0])
        digits = argument * log10(argument + 10)
    else:
        digits = sum(parts) if value.is_Add or value.is_Mul else sum(parts) + 1
    if not digits <= MAX_DIGITS:
        raise TooLargeError
    return digits


def _magnitude(value: Any, digits: float) -> float:
    """Bound the absolute value of an expression whose numbers have at most so many digits."""
    size = abs(value.evalf(3, subs=dict.fromkeys(value.free_symbols, _LARGE_SAMPLE)))
    return float(size) if size.is_comparable else 10.0 ** min(digits, 300)


def _fraction(decimal: re.Match[str]) -> str:
    whole, part = decimal.groups()
    return rf"\frac{{{int(whole + part)}}}{{{10 ** len(part)}}}"
