r"""Units, currencies, per cent and words such as *million* around a number.

A unit is known if all its words are: `km/h`, `square meters`, `kg\cdot m/s^2`. Any other words behind a
number (`8 pieces of wire`) are removed and not compared.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from caps.graders.rationals import rational

UNIT_CHARS = 80
MAX_WORDS = 6


class Unit(NamedTuple):
    """A known unit: the exponents of its dimensions, and its size in base units."""

    dimensions: tuple[tuple[str, int], ...]
    scale: Fraction


class Measure(NamedTuple):
    """A text without its unit; the unit if it is known, and the factor of a percent sign or of *million*."""

    text: str
    unit: Unit | None = None
    factor: Fraction = Fraction(1)


_PERCENT = Fraction(1, 100)
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
_FACTORS = {
    "percent": _PERCENT, "dozen": Fraction(12), "hundred": Fraction(100), "thousand": Fraction(1000),
    "million": Fraction(10**6), "billion": Fraction(10**9), "trillion": Fraction(10**12),
}  # fmt: skip
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
# Size in base units, and the dimensions.
_SYMBOLS = {
    "mm": ("1/1000", "length"), "cm": ("1/100", "length"), "m": ("1", "length"), "km": ("1000", "length"),
    "in": ("127/5000", "length"), "ft": ("381/1250", "length"), "yd": ("1143/1250", "length"),
    "mi": ("201168/125", "length"), "mg": ("1/1000", "mass"), "g": ("1", "mass"), "kg": ("1000", "mass"),
    "s": ("1", "time"), "ms": ("1/1000", "time"), "min": ("60", "time"), "h": ("3600", "time"),
    "day": ("86400", "time"), "week": ("604800", "time"), "cent": ("1/100", "money"),
    "dollar": ("1", "money"), "degree": ("1", "angle"), "rad": ("1", "radian"), "celsius": ("1", "celsius"),
    "fahrenheit": ("1", "fahrenheit"), "am": ("1", "morning"), "pm": ("1", "afternoon"),
    "mL": ("1/1000000", "length 3"), "L": ("1/1000", "length 3"), "N": ("1000", "mass length time -2"),
    "J": ("1000", "mass length 2 time -2"), "W": ("1000", "mass length 2 time -3"),
    "Pa": ("1000", "mass length -1 time -2"), "Hz": ("1", "time -1"), "V": ("1", "volt"),
    "A": ("1", "ampere"), "K": ("1", "kelvin"), "mph": ("1397/3125", "length time -1"),
    "kph": ("5/18", "length time -1"),     "kmh": ("5/18", "length time -1"),
}  # fmt: skip
_NAMES = {
    "millimeter": "mm", "centimeter": "cm", "meter": "m", "metre": "m", "kilometer": "km", "inch": "in",
    "inche": "in", "foot": "ft", "feet": "ft", "yard": "yd", "mile": "mi", "milligram": "mg", "gram": "g",
    "kilogram": "kg", "kgs": "kg", "second": "s", "sec": "s", "minute": "min", "hour": "h", "hr": "h",
    "usd": "dollar", "centimetre": "cm", "kilometre": "km", "millimetre": "mm", "radian": "rad", "liter": "L",
    "litre": "L", "l": "L", "ml": "mL", "milliliter": "mL", "millilitre": "mL", "newton": "N", "joule": "J",
    "watt": "W", "pascal": "Pa", "hertz": "Hz", "hz": "Hz", "volt": "V", "ampere": "A", "amp": "A",
    "kelvin": "K",
}  # fmt: skip


def _unit(size: str, dimensions: str) -> Unit:
    exponents: dict[str, int] = {}
    name = ""
    for word in dimensions.split():
        if word.lstrip("-").isdigit():
            exponents[name] = int(word)
        else:
            name = word
            exponents[name] = 1
    return Unit(tuple(sorted(exponents.items())), Fraction(size))


_KNOWN = {name: _unit(*row) for name, row in _SYMBOLS.items()}


def strip_unit(text: str) -> Measure:
    """Remove a unit from the end of normalized text, and a currency sign from its start."""
    text = _MONEY.sub(r"\1", text.strip()).strip()
    if text.endswith("%"):
        return Measure(text[:-1].strip(), factor=_PERCENT)
    tail = _TAIL.search(text, max(len(text) - UNIT_CHARS, 0))
    if tail is None or tail.start() == 0 or not _ends_a_value(text[: tail.start()]):
        return Measure(text)
    head, unit = text[: tail.start()].rstrip(" /"), tail.group()
    words = _LETTERS.findall(unit.replace("\\text", " "))
    plain = _LETTERS.findall(_UNIT_TEXT.sub(" ", unit))
    glued = unit[0].isalpha() and text[tail.start() - 1] != "/"
    if words in _CONSTANTS or not _is_unit(plain, head, glued=glued):
        return Measure(text)
    factor = _FACTORS.get(words[0].lower(), Fraction(1)) if words else Fraction(1)
    return Measure(head, _parse_unit(unit) if factor == 1 else None, factor)


def same_dimensions(a: Unit, b: Unit) -> bool:
    """Whether one unit can be converted into the other."""
    return a.dimensions == b.dimensions


def _is_unit(plain: list[str], head: str, *, glued: bool) -> bool:
    """Whether words outside `\\text` are a unit: `5 miles per hour` and `5cm` are, `5xy` and `5 or more` not.

    A single letter is one only behind a plain number: `x + 2 s` ends with a variable.
    """
    if glued and (_find(plain[0]) is None or (len(plain[0]) == 1 and plain[0] not in _GLUED)):
        return False
    if any(len(word) == 1 for word in plain) and rational(head) is None:
        return False
    return (
        len(plain) <= MAX_WORDS
        and all(len(word) > 2 or _find(word) is not None or word in ("of", "sq", "cu") for word in plain)
        and not any(word.lower() in _STOP for word in plain)
    )


def _ends_a_value(head: str) -> bool:
    """Whether a unit can follow: after a digit, π, a closing brace or bracket; letters mean a sentence."""
    end = head.rstrip()[-1:]
    return end.isdigit() or end in ("}", ")", "%", "/") or _PI.search(head) is not None


def _parse_unit(tail: str) -> Unit | None:
    """The product of all units of a tail; None if any word is unknown."""
    exponents: dict[str, int] = {}
    scale, sign, power = Fraction(1), 1, 1
    last: tuple[Unit, int] | None = None
    for token in _TOKEN.finditer(tail.replace("\\text", " ")):
        word = token.group().lower()
        if word in ("/", "per"):
            sign = -1
            continue
        if raised := (int(token[1]) if token[1] else _POWERS.get(word) if last else None):
            if last is None:
                return None
            unit, once = last
            scale *= unit.scale ** (once * (raised - 1))
            _add(exponents, unit, once * (raised - 1))
            continue
        if word in _POWERS:
            power = _POWERS[word]
            continue
        if word in ("degree", "degrees") and _names_temperature(tail):
            continue
        unit_ = _find(token.group())
        if unit_ is None:
            return None
        scale *= unit_.scale ** (sign * power)
        _add(exponents, unit_, sign * power)
        last, power, sign = (unit_, sign * power), 1, 1
    found = tuple(sorted((name, exponent) for name, exponent in exponents.items() if exponent))
    return Unit(found, scale) if found else None


def _add(exponents: dict[str, int], unit: Unit, times: int) -> None:
    for name, exponent in unit.dimensions:
        exponents[name] = exponents.get(name, 0) + exponent * times


def _names_temperature(tail: str) -> bool:
    return re.search(r"(?:[CF]|elsius|ahrenheit)\W*$", tail) is not None


def _find(word: str) -> Unit | None:
    if len(word) == 1:  # the letters of units have a case
        return _KNOWN.get({"C": "celsius", "F": "fahrenheit", "l": "L"}.get(word, word))
    name = word.lower()
    singular = name[:-1] if len(name) > 2 and name.endswith("s") else name
    for one in (word, name, singular):
        if (known := _KNOWN.get(_NAMES.get(one, one))) is not None:
            return known
    return None
