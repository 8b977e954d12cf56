"""Final answers parsed into forms: numbers, words, choices, groups, measures, named values."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from caps.core.types import Candidate
from caps.evidence.anatomy import concluded, last_boxed, spoken
from caps.graders.latex import MAX_DEPTH, closes_last, split, strip_braces, without_spaces
from caps.graders.rationals import rational


@dataclass(frozen=True, slots=True)
class Number:
    """An exact value; `digits` counts the significant digits of a decimal fraction, 0 for other numbers."""

    value: Fraction
    digits: int = 0
    unit: tuple[str, Fraction] | None = None
    percent: bool = False
    base: int | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """Plain language, lowercase."""

    text: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A letter of a multiple choice, with its meaning if stated."""

    letter: str
    meaning: "Form | None" = None


@dataclass(frozen=True, slots=True)
class Group:
    r"""Several forms; `kind` says how they are grouped.

    `()` `[]` `[)` `(]` are tuples and intervals, `{}` a set, `,` a bare list, `:` a ratio, `|` a union,
    `\` a matrix and `&` a row of it.
    """

    kind: str
    items: tuple["Form", ...]


@dataclass(frozen=True, slots=True)
class Named:
    """`x = 3` or `x > 3`: a value with its name, and the whole text as written."""

    name: str
    value: "Form"
    text: str


@dataclass(frozen=True, slots=True)
class Term:
    """Any other expression, for algebra; a relation has `=`, `<` or similar at its top level."""

    text: str
    relation: bool = False


Form: TypeAlias = Number | Words | Choice | Group | Named | Term


# --- Units, currencies and percent signs around a number ---

UNIT_CHARS = 80
_UNIT_TEXT = re.compile(r"\\text\{[^{}\d]*+\}")
_TAIL = re.compile(
    rf"\s*+(?:(?:{_UNIT_TEXT.pattern}|[a-zA-Z]{{2,}}+\.?+)(?:\s*+\^\s*+\{{?+[23]\}}?+)?+[/\s.-]*+)++$"
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
    """A text without its unit; the unit if it is known, and whether it was a percentage."""

    text: str
    unit: tuple[str, Fraction] | None = None
    percent: bool = False


def strip_unit(text: str) -> Measure:
    """Remove a unit from the end of normalized text, and a currency sign from its start."""
    text = _MONEY.sub(r"\1", text.strip()).strip()
    if text.endswith("%"):
        return Measure(text[:-1].strip(), percent=True)
    start = max(len(text) - UNIT_CHARS, 0)
    tail = _TAIL.search(text, start)
    if tail is None or tail.start() == 0 or not _ends_a_value(text[: tail.start()]):
        return Measure(text)
    head, unit = text[: tail.start()].rstrip(" /"), tail.group()
    words = _LETTERS.findall(unit.replace("\\text", " "))
    if (
        not _is_unit(
            _LETTERS.findall(_UNIT_TEXT.sub(" ", unit)),
            glued=unit[0].isalpha() and text[tail.start() - 1] != "/",
        )
        or words in _CONSTANTS
    ):
        return Measure(text)
    if "percent" in (word.lower() for word in words):
        return Measure(head, percent=True)
    return Measure(head, _known(words, unit))


def _is_unit(plain: list[str], *, glued: bool) -> bool:
    """Whether words name a unit: `5 miles per hour` and `5cm` do, `5xy` and `5 or more` do not."""
    if glued and _scale(plain[0]) is None:
        return False
    wanted = all(len(word) > 2 or _scale(word) is not None for word in plain)
    return wanted and len(plain) <= 6 and not any(word.lower() in _STOP for word in plain)


def _ends_a_value(head: str) -> bool:
    """Whether a unit can follow: after a digit, a closing brace or bracket; letters mean a sentence."""
    return head.rstrip()[-1:].isdigit() or head.rstrip()[-1:] in ("}", ")", "%", "/")


def _known(words: list[str], tail: str) -> tuple[str, Fraction] | None:
    if len(words) != 1 or "^" in tail or "/" in tail:
        return None  # areas, speeds and phrases: most likely the unit that the problem asked for
    return _scale(words[0])


def _scale(word: str) -> tuple[str, Fraction] | None:
    name = word.lower()
    singular = name[:-1] if len(name) > 2 and name.endswith("s") else name
    for one in (name, singular):
        if (known := _KNOWN.get(_NAMES.get(one, one))) is not None:
            return known
    return None


# --- Parsing normalized text into a form; pure, total, and at most `MAX_DEPTH` levels deep ---

MAX_ITEMS = 60
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


def parse(text: str, depth: int = 0) -> Form:
    """Parse normalized text."""
    text = strip_braces(text.strip())
    if depth > MAX_DEPTH:
        return Term(text)
    return (
        _parse_simple(text) or _parse_group(text, depth) or _parse_relation(text, depth) or _parse_leaf(text)
    )


def _parse_simple(text: str) -> Form | None:
    """Choices, words and numbers, which have no parts."""
    if (choice := _parse_choice(text)) is not None:
        return choice
    plain = _TEXT.sub(r"\1", text)
    if _TEXT.fullmatch(text) and any(sign.isdigit() for sign in plain):
        return parse(plain, MAX_DEPTH)
    if _WORDY.fullmatch(plain) and (
        " " in plain.strip() or len(plain) > 3 or plain.lower() in _SHORT_WORDS or "\\text" in text
    ):
        return Words(" ".join(plain.casefold().replace(",", " ").replace(".", " ").split()))
    if len(_WORD.findall(plain)) >= _SENTENCE and parse_number(text) is None:
        return Words(" ".join(plain.casefold().split()))
    if base := _BASE.fullmatch(without_spaces(text)):
        return _parse_in_base(base[1], int(base[2])) or Words(without_spaces(text))
    return parse_number(text)


def parse_number(text: str) -> Number | None:
    """Parse a number with or without a unit."""
    found = strip_unit(text)
    value = rational(found.text)
    if value is None:
        return None
    decimal = _DECIMAL.fullmatch(found.text.replace(",", ""))
    digits = len((decimal[1] + decimal[2]).lstrip("0")) if decimal else 0
    return Number(value, digits, found.unit, found.percent)


def _parse_in_base(digits: str, base: int) -> Number | None:
    try:
        return Number(Fraction(int(digits, base)), base=base) if len(digits) < 200 and base >= 2 else None
    except ValueError:
        return None


def _parse_choice(text: str) -> Choice | None:
    if len(text) > 300 or not (found := _CHOICE.fullmatch(text)):
        return None
    opening, letter, closing, later, rest = found.groups()
    closed = closing or later
    if rest and (not closed or rest[0] in "=+-*/^_,<>" or not rest.strip()):
        return None
    if letter.islower() and not (opening and closed) and "\\text" not in text:
        return None
    return Choice(letter.upper(), parse(rest, MAX_DEPTH) if rest else None)


def _parse_group(text: str, depth: int) -> Form | None:
    """Lists, tuples, sets, intervals, unions, matrices, and both values of a ±."""
    items = split(text, _SEPARATOR)
    if 1 < len(items) <= MAX_ITEMS:
        return Group(",", tuple(_flatten(parse(item, depth + 1) for item in items)))
    if text.count(r"\pm") == 1 and len(text) < 500:
        both = (parse(text.replace(r"\pm", sign), depth + 1) for sign in "+-")
        return Group(",", tuple(both))
    if 1 < len(parts := split(text, re.compile(r"\\cup(?![a-z])"))) <= MAX_ITEMS:
        return Group("|", tuple(parse(part, depth + 1) for part in parts))
    if matrix := _MATRIX.fullmatch(text):
        rows = [row for row in re.split(r"\\\\", matrix[2]) if row.strip()]
        cells = [Group("&", tuple(parse(cell, depth + 1) for cell in row.split("&"))) for row in rows]
        return Group("\\", tuple(cells))
    if 1 < len(parts := split(text, re.compile(":"))) <= MAX_ITEMS and all(part.strip() for part in parts):
        ratio = tuple(parse(part, depth + 1) for part in parts)
        if all(isinstance(part, Number) for part in ratio):
            return Group(":", ratio)
    return _parse_brackets(text, depth)


def _parse_brackets(text: str, depth: int) -> Form | None:
    if text in (r"\emptyset", r"\{\}", r"\{ \}"):
        return Group("{}", ())
    if text.startswith(r"\{") and text.endswith(r"\}") and closes_last(text):
        opening, closing, inner = "{", "}", text[2:-2]
    elif text[:1] in ("(", "[") and text[-1:] in (")", "]") and closes_last(text):
        opening, closing, inner = text[0], text[-1], text[1:-1]
    else:
        return None
    items = [item.strip() for item in split(inner, re.compile("[,;]"))]
    if len(items) > MAX_ITEMS or not all(items):
        return None
    if len(items) == 1 and opening != "{":
        return parse(inner, depth + 1) if _CLOSE[opening] == closing else None
    forms = (parse(item, depth + 1) for item in items)
    return Group(opening + closing, tuple(_flatten(forms) if opening == "{" else forms))


def _parse_relation(text: str, depth: int) -> Form | None:
    """Equations and inequalities; `1 < x \\le 3` is the interval it describes."""
    text = _before_approx(text)
    if len(parts := split(text, re.compile(r"\\in(?![a-z])"))) == 2 and is_name(parts[0]):
        return Named(without_spaces(parts[0]), parse(parts[1], depth + 1), text)
    if len(parts := split(text, re.compile("="))) > 1 and all(part.strip() for part in parts):
        if is_name(parts[0]):
            return Named(without_spaces(parts[0]), parse(parts[-1], depth + 1), text)
        if len(parts) > 2 or not re.search("[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", parts[0])):
            return parse(parts[-1], depth + 1)
        return Term(text, relation=True)
    parts, signs = split(text, _RELATION), _RELATION.findall(text)
    if len(parts) != len(signs) + 1 or len(parts) not in (2, 3):
        return Term(text, relation=True) if signs or r"\ne " in text else None
    return _parse_interval(text, parts, signs, depth) or Term(text, relation=True)


def _parse_interval(text: str, parts: list[str], signs: list[str], depth: int) -> Named | None:
    """`low < name < high`; a missing end is infinite."""
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
    return Named(without_spaces(name), Group(kind, (parse(low, depth + 1), parse(high, depth + 1))), text)


def _parse_leaf(text: str) -> Form:
    text = strip_unit(_before_approx(text)).text or text
    return parse_number(text) or Term(text)


def _before_approx(text: str) -> str:
    """The part before an ≈, or the part after it if there is no other."""
    return split(text, _APPROXIMATELY)[0].strip() or _APPROXIMATELY.sub("", text).strip()


def is_name(text: str) -> bool:
    """Whether a text is a name rather than a value."""
    plain = without_spaces(text)
    return len(plain) <= 60 and _IS_NAME.fullmatch(plain) is not None and not _COMMAND_VALUE.fullmatch(plain)


def _flatten(forms: Iterator[Form]) -> Iterator[Form]:
    for form in forms:
        inner = form.value if isinstance(form, Named) else form
        yield from inner.items if isinstance(inner, Group) and inner.kind == "," else (form,)


# --- Extracting the answer of a candidate from boxes, JSON and sentences; pure, total, linear ---

SHORT_CHARS = 200
MAX_CHARS = 20_000
LAST_SENTENCES = 3
_FEW_WORDS, _MANY_WORDS = 2, 4
_TURN = re.compile(r"<\|(?:im_start|im_end|eot_id|endoftext|end)\|>")
_BLANK_BOX = re.compile(r"\\boxed\s*+\{\s*+\}")
_JSON_END = re.compile(r"\"?[`\",]{0,5}\s{0,20}\n\s{0,20}[}\]]|\"\s{0,20}[`}\]]")
_MATH_WORDS = r"sqrt|sin|cos|tan|cot|sec|csc|log|ln|pi|infinity|and|or"
_PROSE_WORD = re.compile(rf"(?<![\\a-zA-Z{{])(?!(?:{_MATH_WORDS})\b)[a-zA-Z]{{2,}}+")
_NEGATION = re.compile(
    r"\b(?:no|not|none|cannot|can't|without|undefined|incorrect|unable|un\w+able)\b", re.IGNORECASE
)
_QUANTITY = re.compile(
    r"-?\\?\$?(?<![\w.])(?:\d{1,3}(?:,\d{3})++|\d++)(?:\.\d++)?(?:/\d++|\s?\\?%)?(?![\w^(\\])"
)
_MATH = re.compile(r"\$([^$]{1,300})\$|\\\((.{1,300}?)\\\)")
_IS = re.compile(
    r"\b(?:is|are|equals|be|makes?|=)\s+(?:equal to |approximately |about |exactly )?", re.IGNORECASE
)
_PROSE_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def candidate_answer(candidate: Candidate) -> str | None:
    """The stated answer, else the last boxed or announced one, a whole short text, or the conclusion."""
    stated = (candidate.answer or "").strip()
    if stated:
        return extract_answer(stated)
    text = _TURN.split(spoken(candidate.text) or candidate.text, maxsplit=1)[0].strip()
    found = last_boxed(candidate.text) or concluded(text)
    if found:
        return extract_answer(found)
    return extract_answer(text) if len(text) <= SHORT_CHARS else _conclusion(text)


def extract_answer(text: str) -> str:
    """Extract an answer from its wrapping: a box, a broken JSON object, a sentence."""
    text = _BLANK_BOX.sub("", text).strip()
    boxed = last_boxed(text)
    if boxed is not None:
        return boxed
    text = _TURN.split(text, maxsplit=1)[0].strip()
    announced = concluded(text)
    if announced:
        return _balanced(announced) if announced == text else extract_answer(announced)
    if cut := _JSON_END.search(text):
        text = text[: cut.start()].strip() or text
    words = len(_PROSE_WORD.findall(_MATH.sub(" ", text[:MAX_CHARS])))
    prose = words >= (_FEW_WORDS if _MATH.search(text) else _MANY_WORDS)
    return (_conclusion(text) if prose else None) or _balanced(text)


def _balanced(text: str) -> str:
    """Remove unmatched closing braces, which a wrapper left behind."""
    excess = text.count("}") - text.count("{")
    while excess > 0 and text.endswith("}"):
        text, excess = text[:-1].rstrip(), excess - 1
    return text


def _conclusion(text: str) -> str | None:
    """The one value a whole text states, else that of one of its last sentences."""
    text = text[-MAX_CHARS:]
    sentences = [part for part in _PROSE_SENTENCE.split(text) if part.strip()]
    for prose in [text, *reversed(sentences[-LAST_SENTENCES:])]:
        found = _quantity(prose)
        if found:
            return found
    return None


def _quantity(prose: str) -> str | None:
    """The only number of a text, or what a sentence says something *is*; None if it contains a negation."""
    if _NEGATION.search(prose):
        return None
    formulas = [one or other for one, other in _MATH.findall(prose)]
    numbers = {found.group().replace("\\", "") for found in _QUANTITY.finditer(_MATH.sub(" ", prose))}
    if len(formulas) + len(numbers) == 1:
        return str(next(iter([*formulas, *numbers])))
    if _PROSE_SENTENCE.search(prose):
        return None
    for verb in _IS.finditer(prose):
        if found := _MATH.match(prose, verb.end()):
            return str(found[1] or found[2])
        if found := _QUANTITY.match(prose, verb.end()):
            return found.group()
    return None
