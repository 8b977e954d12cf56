r"""Exact values of plain arithmetic with bounded size; None for any other text.

Normalized LaTeX is rewritten as Python, of which the syntax tree is read: `2\frac{1}{3}^2` is
`2*frac(1,3)**2`. A number may be mixed (2 1/3), in groups of thousands (1,234) or repeating
(0.\overline{3}). Adjacent factors are multiplied if the second is in brackets or a command; "3 4" is none.
"""

import ast
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from math import comb, factorial, isqrt

MAX_CHARS = 400
MAX_BITS = 4096
MAX_DEPTH = 100
MAX_FACTORIAL = 200
_GROUPED = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3})++(?![\d,])")
_MIXED = re.compile(
    r"(?<![\d.^_}])(\d{1,9})\s*+(?:\\frac\{(\d{1,9})\}\{(\d{1,9})\}|(?<=\s)(\d{1,9})/(\d{1,9}))(?![\d.^])"
)
_REPEATING = re.compile(r"(?<![\d.])(\d{0,9})\.(\d{0,20})\\overline\s*+\{(\d{1,20})\}(?!\d)")
_NUMBER = re.compile(r"\d++(?:\.\d*+)?(?:[eE][+-]?\d{1,4}+(?!\d))?|\.\d++")
_ARITHMETIC = re.compile(r"(?:[\d\s.,+*/^!(){}-]|(?<=[\d.])[eE][+-]?(?=\d)|\\(?:frac|binom|sqrt|overline))++")
_TO_PYTHON = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(\d++)\s*+!", r"factorial(\1)"),
        (r"\}\s*+\{", ","),
        (r"\{", "("),
        (r"\}", ")"),
        (r"\\(?=frac|binom|sqrt)", ""),
        (r"(?<=[\d.)])\s*+(?=[(bfs])", "*"),
        (r"\^", "**"),
    )
)


def rational(text: str) -> Fraction | None:
    """The exact value of normalized arithmetic on plain numbers, or None."""
    if len(text) > MAX_CHARS or not _ARITHMETIC.fullmatch(text):
        return None
    text = _GROUPED.sub(lambda number: number.group().replace(",", ""), text)
    text = _MIXED.sub(_spell_out, _REPEATING.sub(_repeated, text))
    for pattern, replacement in _TO_PYTHON:
        text = pattern.sub(replacement, text)
    try:
        return _value(ast.parse(_NUMBER.sub(_exact, text).strip(), mode="eval").body, 0)
    except (ArithmeticError, KeyError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError):
        return None


def _spell_out(mixed: re.Match[str]) -> str:
    whole, *parts = (part for part in mixed.groups() if part)
    return f"({whole}+{parts[0]}/{parts[1]})" if int(parts[0]) < int(parts[1]) else mixed.group()


def _repeated(number: re.Match[str]) -> str:
    r"""The fraction of a repeating decimal: 0.1\overline{6} is (16 - 1) / 90."""
    whole, fixed, period = number.groups()
    above = int(whole + fixed + period) - int(whole + fixed or "0")
    return f"({above}/{10 ** len(fixed + period) - 10 ** len(fixed)})"


def _exact(number: re.Match[str]) -> str:
    value = Fraction(number.group())
    _check_size(value)
    return f" ({value}) "


def _value(node: ast.expr, depth: int) -> Fraction:
    if depth > MAX_DEPTH:
        raise ValueError
    match node:
        case ast.Constant(value=int(number)):
            value = Fraction(number)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            value = _value(operand, depth + 1) * (-1 if isinstance(sign, ast.USub) else 1)
        case ast.BinOp(left=left, op=operation, right=right):
            value = _OPERATIONS[type(operation)](_value(left, depth + 1), _value(right, depth + 1))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            value = _FUNCTIONS[name](*(_value(argument, depth + 1) for argument in arguments))
        case _:
            raise ValueError
    _check_size(value)
    return value


def _check_size(value: Fraction) -> None:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise ValueError


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if exponent.denominator != 1 or abs(exponent) * bits > MAX_BITS:
        raise ValueError
    return Fraction(base ** int(exponent))


def _factorial(value: Fraction) -> Fraction:
    if value > MAX_FACTORIAL:
        raise ValueError
    return Fraction(factorial(int(value)))


def _binomial(above: Fraction, below: Fraction) -> Fraction:
    if above.denominator != 1 or below.denominator != 1 or not 0 <= below <= above <= MAX_FACTORIAL:
        raise ValueError
    return Fraction(comb(int(above), int(below)))


def _root(value: Fraction) -> Fraction:
    """The root of a square; other roots are left to algebra."""
    root = Fraction(isqrt(value.numerator), isqrt(value.denominator))
    if root * root != value:
        raise ValueError
    return root


_OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: _power,
}
_FUNCTIONS: dict[str, Callable[..., Fraction]] = {
    "frac": operator.truediv,
    "binom": _binomial,
    "sqrt": _root,
    "factorial": _factorial,
}
