"""Read tidy text as the form of answer it is; pure, total, and no deeper than `DEEPEST`."""

import re
from collections.abc import Iterator
from fractions import Fraction

from caps.graders.brackets import DEEPEST, closes_last, split, unwrap
from caps.graders.forms import Choice, Form, Group, Named, Number, Term, Words
from caps.graders.latex import bare
from caps.graders.rationals import rational
from caps.graders.units import measure

MOST_ITEMS = 60
_INDEX = r"(?:_(?:\w|\{\w+\}))?"
_NAME = (
    rf"(?:\\text\{{[^{{}}]*\}}|\\[a-zA-Z]+ ?|[a-zA-Z])'?{_INDEX}(?:\^\{{-1\}})?"
    r"(?:\([a-zA-Z0-9](?:,[a-zA-Z0-9])*\))?"
)
_SEGMENT = rf"\|?(?:\\angle ?|\\overline ?)?\{{?[A-Z]{{1,4}}{_INDEX}\}}?\|?(?:[/:][A-Z]{{1,4}})?"
_RATIO = r"\\frac\{[A-Z]{2}\}\{[A-Z]{2}\}"
_SUM = r"[a-z](?:[+-]?[a-z]){1,5}"
_IS_NAME = re.compile(rf"{_NAME}|\({_NAME}(?:,{_NAME})+\)|{_SUM}|{_SEGMENT}|{_RATIO}")
_COMMAND_VALUE = re.compile(r"\\(?:pi|infty|emptyset|pm|mp|sqrt|frac)|[ei]")
_CHOICE = re.compile(
    r"(?:\\text\{)?\s*(\()?\s*(?:\\text\{\s*\(?)?([A-Ja-j])\s*([).:])?\s*\}?\s*([).:])?\s*\}?\s*(.*)",
    re.DOTALL,
)
_BASE = re.compile(r"(-?[\dA-F]+)_\{?(\d{1,2})\}?")
_DECIMAL = re.compile(r"-?\s*(\d*)\.(\d+)")
_RELATION = re.compile(r"\\le(?![a-z])|\\ge(?![a-z])|<|>")
_MATRIX = re.compile(r"\\begin\{([pb]?matrix|array)\}(?:\{[^{}]*\})?(.*)\\end\{\1\}", re.DOTALL)
_SEPARATOR = re.compile(
    r"[,;]?+\s*+(?:\\text\{\s*+,?+\s*+(?:and|or)\s*+\}|(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z]))|[,;]"
)
_WORDY = re.compile(r"[a-zA-Z][a-zA-Z\s,.'-]*")
_TEXT = re.compile(r"\\text\{([^{}]*+)\}")
_WORD = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{3,}+")
_SENTENCE = 3
_SHORT_WORDS = frozenset({"yes", "no", "odd", "all", "dne", "one", "two", "six", "ten"})
_APPROXIMATELY = re.compile(r"\\approx")
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
_UPWARD = ("<", r"\le")
_CLOSE = {"(": ")", "[": "]", "{": "}"}


def read(text: str, depth: int = 0) -> Form:
    """Read tidy text."""
    text = unwrap(text.strip())
    if depth > DEEPEST:
        return Term(text)
    return _plain(text) or _several(text, depth) or _related(text, depth) or _leaf(text)


def _plain(text: str) -> Form | None:
    """Choices, words and numbers: what needs no taking apart."""
    if (choice := _choice(text)) is not None:
        return choice
    said = _TEXT.sub(r"\1", text)
    if _TEXT.fullmatch(text) and any(sign.isdigit() for sign in said):
        return read(said, DEEPEST)
    if _WORDY.fullmatch(said) and (
        " " in said.strip() or len(said) > 3 or said.lower() in _SHORT_WORDS or "\\text" in text
    ):
        return Words(" ".join(said.casefold().replace(",", " ").replace(".", " ").split()))
    if len(_WORD.findall(said)) >= _SENTENCE and number(text) is None:
        return Words(" ".join(said.casefold().split()))
    if base := _BASE.fullmatch(bare(text)):
        return _in_base(base[1], int(base[2])) or Words(bare(text))
    return number(text)


def number(text: str) -> Number | None:
    """A number with or without its unit."""
    found = measure(text)
    value = rational(found.text)
    if value is None:
        return None
    decimal = _DECIMAL.fullmatch(found.text.replace(",", ""))
    digits = len((decimal[1] + decimal[2]).lstrip("0")) if decimal else 0
    return Number(value, digits, found.unit, found.percent)


def _in_base(digits: str, base: int) -> Number | None:
    try:
        return Number(Fraction(int(digits, base)), base=base) if len(digits) < 200 and base >= 2 else None
    except ValueError:
        return None


def _choice(text: str) -> Choice | None:
    if len(text) > 300 or not (found := _CHOICE.fullmatch(text)):
        return None
    opening, letter, closing, later, rest = found.groups()
    closed = closing or later
    if rest and (not closed or rest[0] in "=+-*/^_,<>" or not rest.strip()):
        return None
    if letter.islower() and not (opening and closed) and "\\text" not in text:
        return None
    return Choice(letter.upper(), read(rest, DEEPEST) if rest else None)


def _several(text: str, depth: int) -> Form | None:
    """Lists, tuples, sets, intervals, unions, matrices, and both signs of a ±."""
    items = split(text, _SEPARATOR)
    if 1 < len(items) <= MOST_ITEMS:
        return Group(",", tuple(_flat(read(item, depth + 1) for item in items)))
    if text.count(r"\pm") == 1 and len(text) < 500:
        both = (read(text.replace(r"\pm", sign), depth + 1) for sign in "+-")
        return Group(",", tuple(both))
    if 1 < len(parts := split(text, re.compile(r"\\cup(?![a-z])"))) <= MOST_ITEMS:
        return Group("|", tuple(read(part, depth + 1) for part in parts))
    if matrix := _MATRIX.fullmatch(text):
        rows = [row for row in re.split(r"\\\\", matrix[2]) if row.strip()]
        cells = [Group("&", tuple(read(cell, depth + 1) for cell in row.split("&"))) for row in rows]
        return Group("\\", tuple(cells))
    if 1 < len(parts := split(text, re.compile(":"))) <= MOST_ITEMS and all(part.strip() for part in parts):
        ratio = tuple(read(part, depth + 1) for part in parts)
        if all(isinstance(part, Number) for part in ratio):
            return Group(":", ratio)
    return _bracketed(text, depth)


def _bracketed(text: str, depth: int) -> Form | None:
    if text in (r"\emptyset", r"\{\}", r"\{ \}"):
        return Group("{}", ())
    if text.startswith(r"\{") and text.endswith(r"\}") and closes_last(text):
        opening, closing, inner = "{", "}", text[2:-2]
    elif text[:1] in ("(", "[") and text[-1:] in (")", "]") and closes_last(text):
        opening, closing, inner = text[0], text[-1], text[1:-1]
    else:
        return None
    items = [item.strip() for item in split(inner, re.compile("[,;]"))]
    if len(items) > MOST_ITEMS or not all(items):
        return None
    if len(items) == 1 and opening != "{":
        return read(inner, depth + 1) if _CLOSE[opening] == closing else None
    forms = (read(item, depth + 1) for item in items)
    return Group(opening + closing, tuple(_flat(forms) if opening == "{" else forms))


def _related(text: str, depth: int) -> Form | None:
    """Equations and inequalities; `1 < x \\le 3` is the interval it describes."""
    text = _exactly(text)
    if len(parts := split(text, re.compile(r"\\in(?![a-z])"))) == 2 and is_name(parts[0]):
        return Named(bare(parts[0]), read(parts[1], depth + 1), text)
    if len(parts := split(text, re.compile("="))) > 1 and all(part.strip() for part in parts):
        if is_name(parts[0]):
            return Named(bare(parts[0]), read(parts[-1], depth + 1), text)
        if len(parts) > 2 or not re.search("[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", parts[0])):
            return read(parts[-1], depth + 1)
        return Term(text, relation=True)
    parts, signs = split(text, _RELATION), _RELATION.findall(text)
    if len(parts) != len(signs) + 1 or len(parts) not in (2, 3):
        return Term(text, relation=True) if signs or r"\ne " in text else None
    return _interval(text, parts, signs, depth) or Term(text, relation=True)


def _interval(text: str, parts: list[str], signs: list[str], depth: int) -> Named | None:
    """`low < name < high`; one end that is not said is infinite."""
    if len(parts) == 2:
        if is_name(parts[0]):
            parts, signs = parts[::-1], [_FLIPPED[signs[0]]]
        upward = signs[0] in _UPWARD
        parts, signs = [*parts, r"\infty" if upward else r"-\infty"], [signs[0], "<" if upward else ">"]
    if signs[0] not in _UPWARD:
        parts, signs = parts[::-1], [_FLIPPED[sign] for sign in signs[::-1]]
    low, name, high = (part.strip() for part in parts)
    if not set(signs) <= set(_UPWARD) or not is_name(name) or is_name(low) or is_name(high):
        return None
    kind = ("(" if signs[0] == "<" else "[") + (")" if signs[1] == "<" else "]")
    return Named(bare(name), Group(kind, (read(low, depth + 1), read(high, depth + 1))), text)


def _leaf(text: str) -> Form:
    text = measure(_exactly(text)).text or text
    return number(text) or Term(text)


def _exactly(text: str) -> str:
    """What stands before an ≈, or behind it where that is all."""
    return split(text, _APPROXIMATELY)[0].strip() or _APPROXIMATELY.sub("", text).strip()


def is_name(text: str) -> bool:
    """Whether a text names something rather than being worth something."""
    plain = bare(text)
    return len(plain) <= 60 and _IS_NAME.fullmatch(plain) is not None and not _COMMAND_VALUE.fullmatch(plain)


def _flat(forms: Iterator[Form]) -> Iterator[Form]:
    for form in forms:
        inner = form.value if isinstance(form, Named) else form
        yield from inner.items if isinstance(inner, Group) and inner.kind == "," else (form,)
