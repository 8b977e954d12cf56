"""Exact values of plain arithmetic, without ever computing anything large; nothing where it is not that.

sum     = term (("+" | "-") term)*
term    = factor (("*" | "/")? factor)*          what stands side by side is multiplied
factor  = "-" factor | power ["!"]
power   = atom ["^" factor]
atom    = number | "(" sum ")" | "{" sum "}" | "\\frac" atom atom | "\\sqrt" atom
"""

import re
from fractions import Fraction
from math import factorial, isqrt

LONGEST = 400
MOST_BITS = 4096
DEEPEST = 30
LARGEST_FACTORIAL = 200
_GROUPED = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3})++(?![\d,])")
_TOKEN = re.compile(r"\s*+(\d++(?:\.\d*+)?(?:[eE][+-]?\d{1,4}+(?!\d))?|\.\d++|\\frac|\\sqrt|[-+*/^!(){}])")
_MIXED = re.compile(
    r"(?<![\d.^_}])(\d{1,9})\s*+(?:\\frac\{(\d{1,9})\}\{(\d{1,9})\}|(?<=\s)(\d{1,9})/(\d{1,9}))(?![\d.^])"
)
_CLOSING = {"(": ")", "{": "}"}


class _NoValueError(Exception):
    """It is not arithmetic, or not small."""


def rational(text: str) -> Fraction | None:
    """The exact value of tidy arithmetic on plain numbers."""
    if len(text) > LONGEST:
        return None
    text = _MIXED.sub(_spell_out, _GROUPED.sub(lambda number: number.group().replace(",", ""), text))
    try:
        reader = _Reader(_tokens(text.strip()))
        value = reader.sum(0)
        reader.end()
    except (_NoValueError, ZeroDivisionError):
        return None
    return value


def _spell_out(mixed: re.Match[str]) -> str:
    whole, *parts = (part for part in mixed.groups() if part)
    return f"({whole}+{parts[0]}/{parts[1]})" if int(parts[0]) < int(parts[1]) else mixed.group()


def _tokens(text: str) -> list[str]:
    tokens, place = [], 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            raise _NoValueError
        tokens.append(token[1])
        place = token.end()
    return tokens


class _Reader:
    """One pass over the tokens, by recursive descent of bounded depth."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, ""]
        self._place = 0

    def sum(self, depth: int) -> Fraction:
        if depth > DEEPEST:
            raise _NoValueError
        value = self._term(depth)
        while (sign := self._tokens[self._place]) in ("+", "-"):
            self._place += 1
            term = self._term(depth)
            value = _small(value + term if sign == "+" else value - term)
        return value

    def end(self) -> None:
        if self._tokens[self._place]:
            raise _NoValueError

    def _term(self, depth: int) -> Fraction:
        value = self._factor(depth)
        while (sign := self._tokens[self._place]) not in ("", "+", "-", ")", "}"):
            if sign in ("*", "/"):
                self._place += 1
            elif sign not in ("(", "\\frac", "\\sqrt"):
                raise _NoValueError  # "3 4" and the like: not a product anyone writes
            factor = self._factor(depth)
            value = _small(value / factor if sign == "/" else value * factor)
        return value

    def _factor(self, depth: int) -> Fraction:
        if depth > DEEPEST:
            raise _NoValueError
        if self._tokens[self._place] in ("-", "+"):
            sign = -1 if self._tokens[self._place] == "-" else 1
            self._place += 1
            return sign * self._factor(depth + 1)
        value = self._atom(depth)
        if self._tokens[self._place] == "^":
            self._place += 1
            value = _power(value, self._factor(depth + 1))
        if self._tokens[self._place] == "!":
            self._place += 1
            value = _factorial(value)
        return value

    def _atom(self, depth: int) -> Fraction:
        sign = self._tokens[self._place]
        self._place += 1
        if sign in _CLOSING:
            value = self.sum(depth + 1)
            if self._tokens[self._place] != _CLOSING[sign]:
                raise _NoValueError
            self._place += 1
            return value
        if sign == "\\frac":
            above = self._braced(depth)
            return _small(above / self._braced(depth))
        if sign == "\\sqrt":
            return _root(self._braced(depth))
        if not sign[:1].isdigit() and not sign.startswith("."):
            raise _NoValueError
        return _small(Fraction(sign))

    def _braced(self, depth: int) -> Fraction:
        if self._tokens[self._place] != "{" or depth > DEEPEST:
            raise _NoValueError
        return self._atom(depth + 1)


def _small(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS:
        raise _NoValueError
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if exponent.denominator != 1 or abs(exponent) * bits > MOST_BITS:
        raise _NoValueError
    return Fraction(base ** int(exponent))


def _factorial(value: Fraction) -> Fraction:
    if value.denominator != 1 or not 0 <= value <= LARGEST_FACTORIAL:
        raise _NoValueError
    return Fraction(factorial(int(value)))


def _root(value: Fraction) -> Fraction:
    """Of squares only: other roots are for algebra."""
    if value < 0:
        raise _NoValueError
    root = Fraction(isqrt(value.numerator), isqrt(value.denominator))
    if root * root != value:
        raise _NoValueError
    return root
