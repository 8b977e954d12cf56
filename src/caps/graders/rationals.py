"""Exact values of plain arithmetic with bounded size; None for any other text.

sum     = term (("+" | "-") term)*
term    = factor (("*" | "/")? factor)*          adjacent factors are multiplied
factor  = "-" factor | power ["!"]
power   = atom ["^" factor]
atom    = number | "(" sum ")" | "{" sum "}" | "\\frac" atom atom | "\\binom" atom atom | "\\sqrt" atom

A number may be mixed (2 1/3), in groups of thousands (1,234) or repeating (0.\\overline{3}).
"""

import re
from fractions import Fraction
from math import comb, factorial, isqrt

MAX_CHARS = 400
MAX_BITS = 4096
MAX_DEPTH = 30
MAX_FACTORIAL = 200
_GROUPED = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3})++(?![\d,])")
_TOKEN = re.compile(
    r"\s*+(\d++(?:\.\d*+)?(?:[eE][+-]?\d{1,4}+(?!\d))?|\.\d++|\\frac|\\binom|\\sqrt|[-+*/^!(){}])"
)
_MIXED = re.compile(
    r"(?<![\d.^_}])(\d{1,9})\s*+(?:\\frac\{(\d{1,9})\}\{(\d{1,9})\}|(?<=\s)(\d{1,9})/(\d{1,9}))(?![\d.^])"
)
_REPEATING = re.compile(r"(?<![\d.])(\d{0,9})\.(\d{0,20})\\overline\s*+\{(\d{1,20})\}(?!\d)")
_CLOSING = {"(": ")", "{": "}"}


class _NoValueError(Exception):
    """The text is not arithmetic, or a value is too large."""


def rational(text: str) -> Fraction | None:
    """The exact value of normalized arithmetic on plain numbers, or None."""
    if len(text) > MAX_CHARS:
        return None
    text = _GROUPED.sub(lambda number: number.group().replace(",", ""), text)
    text = _MIXED.sub(_spell_out, _REPEATING.sub(_repeated, text))
    try:
        parser = _Parser(_tokens(text.strip()))
        value = parser.sum(0)
        parser.end()
    except (_NoValueError, ZeroDivisionError):
        return None
    return value


def _spell_out(mixed: re.Match[str]) -> str:
    whole, *parts = (part for part in mixed.groups() if part)
    return f"({whole}+{parts[0]}/{parts[1]})" if int(parts[0]) < int(parts[1]) else mixed.group()


def _repeated(number: re.Match[str]) -> str:
    """The fraction of a repeating decimal: 0.1\\overline{6} is (16 - 1) / 90."""
    whole, fixed, period = number.groups()
    above = int(whole + fixed + period) - int(whole + fixed or "0")
    return f"({above}/{10 ** len(fixed + period) - 10 ** len(fixed)})"


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise _NoValueError
        tokens.append(token[1])
        position = token.end()
    return tokens


class _Parser:
    """A recursive-descent parser of bounded depth."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, ""]
        self._position = 0

    def sum(self, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise _NoValueError
        value = self._term(depth)
        while (sign := self._tokens[self._position]) in ("+", "-"):
            self._position += 1
            term = self._term(depth)
            value = _bounded(value + term if sign == "+" else value - term)
        return value

    def end(self) -> None:
        if self._tokens[self._position]:
            raise _NoValueError

    def _term(self, depth: int) -> Fraction:
        value = self._factor(depth)
        while (sign := self._tokens[self._position]) not in ("", "+", "-", ")", "}"):
            if sign in ("*", "/"):
                self._position += 1
            elif sign not in ("(", "\\frac", "\\binom", "\\sqrt"):
                raise _NoValueError  # such as "3 4", which is not a product
            factor = self._factor(depth)
            value = _bounded(value / factor if sign == "/" else value * factor)
        return value

    def _factor(self, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise _NoValueError
        if self._tokens[self._position] in ("-", "+"):
            sign = -1 if self._tokens[self._position] == "-" else 1
            self._position += 1
            return sign * self._factor(depth + 1)
        value = self._atom(depth)
        if self._tokens[self._position] == "^":
            self._position += 1
            value = _power(value, self._factor(depth + 1))
        if self._tokens[self._position] == "!":
            self._position += 1
            value = _factorial(value)
        return value

    def _atom(self, depth: int) -> Fraction:
        sign = self._tokens[self._position]
        self._position += 1
        if sign in _CLOSING:
            value = self.sum(depth + 1)
            if self._tokens[self._position] != _CLOSING[sign]:
                raise _NoValueError
            self._position += 1
            return value
        if sign == "\\frac":
            above = self._braced(depth)
            return _bounded(above / self._braced(depth))
        if sign == "\\binom":
            return _binomial(self._braced(depth), self._braced(depth))
        if sign == "\\sqrt":
            return _root(self._braced(depth))
        if not sign[:1].isdigit() and not sign.startswith("."):
            raise _NoValueError
        return _bounded(Fraction(sign))

    def _braced(self, depth: int) -> Fraction:
        if self._tokens[self._position] != "{" or depth > MAX_DEPTH:
            raise _NoValueError
        return self._atom(depth + 1)


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise _NoValueError
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if exponent.denominator != 1 or abs(exponent) * bits > MAX_BITS:
        raise _NoValueError
    return Fraction(base ** int(exponent))


def _factorial(value: Fraction) -> Fraction:
    if value.denominator != 1 or not 0 <= value <= MAX_FACTORIAL:
        raise _NoValueError
    return Fraction(factorial(int(value)))


def _binomial(above: Fraction, below: Fraction) -> Fraction:
    if above.denominator != 1 or below.denominator != 1 or not 0 <= below <= above <= MAX_FACTORIAL:
        raise _NoValueError
    return Fraction(comb(int(above), int(below)))


def _root(value: Fraction) -> Fraction:
    """The root of a square; other roots are left to algebra."""
    if value < 0:
        raise _NoValueError
    root = Fraction(isqrt(value.numerator), isqrt(value.denominator))
    if root * root != value:
        raise _NoValueError
    return root
