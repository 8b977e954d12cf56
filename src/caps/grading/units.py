r"""Units, currencies, per cent and words such as *million* around a number.

A unit is known if all its words are: `km/h`, `square meters`, `kg\cdot m/s^2`. Any other words behind a
number (`8 pieces of wire`) are removed and not compared. Units are compared by name and never converted.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from caps.grading.rationals import rational

UNIT_CHARS = 80
MAX_WORDS = 6


class Measure(NamedTuple):
    """A text without its unit; the unit if it is known, and the factor of a percent sign or of *million*."""

    text: str
    unit: tuple[str, ...] = ()
    factor: Fraction = Fraction(1)


_TEXT = r"\\text\{[^{}\d]*+\}"
_TAIL = re.compile(
    rf"\s*+(?:(?:{_TEXT}|(?<![a-zA-Z\\])[a-zA-Z]++\.?+)(?:\s*+\^\s*+\{{?+-?[1-3]\}}?+)?+[/*\s.-]*+)++$"
)
_UNIT_TEXT = re.compile(_TEXT)
_LETTERS = re.compile(r"[a-zA-Z]+")
_TOKEN = re.compile(r"/|[a-zA-Z]+|\^\s*\{?(-?[1-3])")
_MONEY = re.compile(r"^(-?)\s*(?:US)?[€£¥](?=[\d.(])|(?<=\d)\s*[€£¥]$")
_PI = re.compile(r"\\pi\s*+$")
_STOP = frozenset(
    {"and", "or", "to", "not", "no", "if", "is", "are", "than", "from", "when", "where", "with", "mod",
     "less", "more", "choose", "mapsto"}
)  # fmt: skip
_CONSTANTS = (["e"], ["i"])
_GLUED = frozenset({"m", "s", "g", "L"})  # 5m are five metres; 5h, 5N and 5x are products
_PERCENT = Fraction(1, 100)
_FACTORS = {
    "percent": _PERCENT, "dozen": Fraction(12), "hundred": Fraction(100), "thousand": Fraction(1000),
    "million": Fraction(10**6), "billion": Fraction(10**9), "trillion": Fraction(10**12),
}  # fmt: skip
_SPELLINGS = {
    "mm": "millimeter millimetre", "cm": "centimeter centimetre", "m": "meter metre",
    "km": "kilometer kilometre", "in": "inch inche", "ft": "foot feet", "yd": "yard", "mi": "mile",
    "mg": "milligram", "g": "gram", "kg": "kilogram kgs", "s": "second sec", "ms": "", "min": "minute",
    "h": "hour hr", "day": "", "week": "", "cent": "", "dollar": "usd", "degree": "", "rad": "radian",
    "celsius": "C", "fahrenheit": "F", "am": "", "pm": "", "mL": "ml milliliter millilitre",
    "L": "l liter litre", "N": "newton", "J": "joule", "W": "watt", "Pa": "pascal", "Hz": "hz hertz",
    "V": "volt", "A": "ampere amp", "K": "kelvin", "/": "per", "2": "square sq squared",
    "3": "cubic cu cubed",
}  # fmt: skip
_SHORT = {"mph": "mi/h", "kph": "km/h", "kmh": "km/h"}
_KNOWN = {word: name for name, words in _SPELLINGS.items() for word in (name, *words.split())}


def strip_unit(text: str) -> Measure:
    """Remove a unit from the end of normalized text, and a currency sign from its start."""
    text = _MONEY.sub(r"\1", text.strip()).strip()
    if text.endswith("%"):
        return Measure(text[:-1].strip(), ("percent",), _PERCENT)
    tail = _TAIL.search(text, max(len(text) - UNIT_CHARS, 0))
    if tail is None or tail.start() == 0 or not _ends_a_value(text[: tail.start()]):
        return Measure(text)
    head, unit = text[: tail.start()].rstrip(" /"), tail.group()
    words = _LETTERS.findall(unit.replace("\\text", " "))
    plain = _LETTERS.findall(_UNIT_TEXT.sub(" ", unit))
    glued = unit[0].isalpha() and text[tail.start() - 1] != "/"
    if words in _CONSTANTS or not _is_unit(plain, head, glued=glued):
        return Measure(text)
    scale = words[0].lower() if words else ""
    if scale in _FACTORS:
        return Measure(head, (scale,), _FACTORS[scale])
    return Measure(head, _parse_unit(unit))


def _is_unit(plain: list[str], head: str, *, glued: bool) -> bool:
    r"""Whether words outside `\text` are a unit: `5 miles per hour` and `5cm` are, `5xy` and `5 or more` not.

    A single letter is one only behind a plain number: `x + 2 s` ends with a variable.
    """
    if glued and (_name_of(plain[0]) is None or (len(plain[0]) == 1 and plain[0] not in _GLUED)):
        return False
    if any(len(word) == 1 for word in plain) and rational(head) is None:
        return False
    return (
        len(plain) <= MAX_WORDS
        and all(len(word) > 2 or word == "of" or _name_of(word) is not None for word in plain)
        and not any(word.lower() in _STOP for word in plain)
    )


def _ends_a_value(head: str) -> bool:
    """Whether a unit can follow: after a digit, π, a closing brace or bracket; letters mean a sentence."""
    end = head.rstrip()[-1:]
    return end.isdigit() or end in ("}", ")", "%", "/") or _PI.search(head) is not None


def _parse_unit(tail: str) -> tuple[str, ...]:
    """The names of all parts of a unit in a fixed order; empty if any word is unknown."""
    spelled = _LETTERS.sub(lambda word: _SHORT.get(word.group(), word.group()), tail.replace("\\text", " "))
    tokens = [token[1] or token.group() for token in _TOKEN.finditer(spelled)]
    names = [_name_of(token) for token in tokens]
    if {"celsius", "fahrenheit"} & set(names):
        names = [name for name in names if name != "degree"]
    return tuple(sorted(name for name in names if name)) if all(names) else ()


def _name_of(word: str) -> str | None:
    if len(word) == 1:  # the letters of units have a case
        return _KNOWN.get(word)
    name = word.lower()
    singular = name[:-1] if len(name) > 2 and name.endswith("s") else name
    return next((_KNOWN[spelling] for spelling in (word, name, singular) if spelling in _KNOWN), None)
