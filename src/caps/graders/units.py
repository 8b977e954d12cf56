"""What stands behind a number and is no part of it: units, money, per cent."""

import re
from fractions import Fraction
from typing import NamedTuple

LONGEST_TAIL = 80
_TEXT = re.compile(r"\\text\{[^{}\d]*+\}")
_TAIL = re.compile(
    rf"\s*+(?:(?:{_TEXT.pattern}|[a-zA-Z]{{2,}}+\.?+)(?:\s*+\^\s*+\{{?+[23]\}}?+)?+[/\s.-]*+)++$"
)
_LETTERS = re.compile(r"[a-zA-Z]+")
_STOP = frozenset(
    {"and", "or", "to", "not", "no", "if", "is", "are", "than", "from", "when", "where", "with", "of", "for",
     "the", "mod", "less", "more"}
)  # fmt: skip
_CONSTANTS = (["e"], ["i"])
_MONEY = re.compile(r"^(-?)\s*(?:US)?[€£¥](?=[\d.(])|(?<=\d)\s*[€£¥]$")
_SCALES = {
    "length": {"mm": "1/1000", "cm": "1/100", "m": "1", "km": "1000", "in": "127/5000", "ft": "381/1250"},
    "mass": {"mg": "1/1000", "g": "1", "kg": "1000"},
    "time": {"s": "1", "min": "60", "h": "3600", "day": "86400", "week": "604800"},
    "money": {"cent": "1/100", "dollar": "1"},
    "angle": {"degree": "1"},
}
_NAMES = {
    "millimeter": "mm", "centimeter": "cm", "meter": "m", "metre": "m", "kilometer": "km", "inch": "in",
    "inche": "in", "foot": "ft", "feet": "ft", "milligram": "mg", "gram": "g", "kilogram": "kg", "kgs": "kg",
    "second": "s", "sec": "s", "minute": "min", "min": "min", "hour": "h", "hr": "h", "usd": "dollar",
    "centimetre": "cm", "kilometre": "km",
}  # fmt: skip
_KNOWN = {
    name: (dimension, Fraction(scale)) for dimension, row in _SCALES.items() for name, scale in row.items()
}


class Measure(NamedTuple):
    """A text without its unit; the unit where it is one we know, and whether it was per cent."""

    text: str
    unit: tuple[str, Fraction] | None = None
    percent: bool = False


def measure(text: str) -> Measure:
    """Take a unit off the end of tidy text, and a currency off its start."""
    text = _MONEY.sub(r"\1", text.strip()).strip()
    if text.endswith("%"):
        return Measure(text[:-1].strip(), percent=True)
    start = max(len(text) - LONGEST_TAIL, 0)
    tail = _TAIL.search(text, start)
    if tail is None or tail.start() == 0 or not _ends_a_value(text[: tail.start()]):
        return Measure(text)
    head, unit = text[: tail.start()].rstrip(" /"), tail.group()
    words = _LETTERS.findall(unit.replace("\\text", " "))
    if (
        not _worded(
            _LETTERS.findall(_TEXT.sub(" ", unit)), glued=unit[0].isalpha() and text[tail.start() - 1] != "/"
        )
        or words in _CONSTANTS
    ):
        return Measure(text)
    if "percent" in (word.lower() for word in words):
        return Measure(head, percent=True)
    return Measure(head, _known(words, unit))


def _worded(plain: list[str], *, glued: bool) -> bool:
    """Whether plain words name a unit: `5 miles per hour` and `5cm` do, `5xy` and `5 or more` do not."""
    if glued and _scale(plain[0]) is None:
        return False
    wanted = all(len(word) > 2 or _scale(word) is not None for word in plain)
    return wanted and len(plain) <= 6 and not any(word.lower() in _STOP for word in plain)


def _ends_a_value(head: str) -> bool:
    """A unit follows a digit, a closing brace or bracket; letters before it would make it a sentence."""
    return head.rstrip()[-1:].isdigit() or head.rstrip()[-1:] in ("}", ")", "%", "/")


def _known(words: list[str], tail: str) -> tuple[str, Fraction] | None:
    if len(words) != 1 or "^" in tail or "/" in tail:
        return None  # areas, speeds and phrases: what the question asked for, most likely
    return _scale(words[0])


def _scale(word: str) -> tuple[str, Fraction] | None:
    name = word.lower()
    singular = name[:-1] if len(name) > 2 and name.endswith("s") else name
    for one in (name, singular):
        if (known := _KNOWN.get(_NAMES.get(one, one))) is not None:
            return known
    return None
