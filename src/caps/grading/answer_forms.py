"""Final answers parsed into forms: numbers, words, choices, groups, named values."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from caps.core.types import Candidate
from caps.evidence.anatomy import announced_answer, last_boxed, spoken
from caps.grading.notation import (
    MAX_DEPTH,
    closes_last,
    rational,
    split,
    strip_braces,
    strip_unit,
    without_spaces,
)


@dataclass(frozen=True, slots=True)
class Number:
    """An exact value as written, with its unit and the factor of a percent sign or of *million*.

    Of a decimal fraction, `digits` counts the significant digits, and `last` is what one unit of the last
    digit is worth; both are 0 for other numbers.
    """

    value: Fraction
    digits: int = 0
    last: Fraction = Fraction(0)
    unit: tuple[str, ...] = ()
    factor: Fraction = Fraction(1)


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
    """Several forms; `kind` says how they are grouped.

    `()` `[]` `[)` `(]` are tuples and intervals, `{}` is a set, `,` a bare list and `:` a ratio.
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
class Equation:
    """`3 * 4 = 12`: a calculation with its result, which is the last side."""

    sides: frozenset[str]
    value: "Form"


@dataclass(frozen=True, slots=True)
class Term:
    """Any other expression, for algebra; a relation has `=`, `<` or similar at its top level."""

    text: str
    relation: bool = False


Form: TypeAlias = Number | Words | Choice | Group | Named | Equation | Term


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
    r"(?:(?:[Oo]ption|[Cc]hoice)\s+)?(?:\\text\{)?\s*(\()?\s*(?:\\text\{\s*\(?)?([A-Ja-j])\s*([).:])?\s*\}?\s*([).:])?\s*\}?\s*(.*)",
    re.DOTALL,
)
_BASE = re.compile(r"(-?[\dA-F]+)_\{?(\d{1,2})\}?")
_DECIMAL = re.compile(
    r"[-+]?\s*(\d*)\.(\d+)(?:\s*\*\s*10\s*\^\s*\{?\s*(-?\d{1,4})\s*\}?|[eE]([-+]?\d{1,4}))?"
)
_FLOAT_DIGITS = 15  # up to three more may be noise of floating-point arithmetic
_MODULUS = re.compile(r"\\(?:pmod|bmod|equiv)(?![a-z])|\(\s*+\\?(?:text\{\s*+)?mod(?![a-z])")
_ANGLE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z]).*\\text\{ degrees\}$", re.DOTALL)
_RELATION = re.compile(r"\\le(?![a-z])|\\ge(?![a-z])|<|>")
_ELEMENT = re.compile(r"\\in(?![a-z])")
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
    if base := _BASE.fullmatch(without_spaces(text)):
        digits, unit = base[1], (f"base {base[2]}",)
        value = rational(digits)
        return Words(without_spaces(text)) if value is None else Number(value, unit=unit)
    said = _WORD.findall(plain.replace(" degrees", ""))
    if _MODULUS.search(text) or (len(said) >= _SENTENCE and parse_number(text) is None):
        return Words(" ".join(plain.casefold().split()))
    return parse_number(text)


def parse_number(text: str) -> Number | None:
    """Parse a number with or without a unit."""
    measure = strip_unit(text)
    value = rational(measure.text)
    return None if value is None else Number(value, *_precision(measure.text), measure.unit, measure.factor)


def _precision(text: str) -> tuple[int, Fraction]:
    """The significant digits of a decimal fraction, and what one unit of the last one is worth."""
    decimal = _DECIMAL.fullmatch(text.replace(",", ""))
    if decimal is None:
        return 0, Fraction(0)
    whole, part, *exponents = decimal.groups()
    exponent = int(next((written for written in exponents if written), 0)) - len(part)
    digits = len((whole + part).lstrip("0"))
    noisy = _FLOAT_DIGITS < digits <= _FLOAT_DIGITS + 3
    excess = min(digits - _FLOAT_DIGITS, len(part) - 1) if noisy else 0
    return digits - excess, Fraction(10) ** (exponent + excess)


def _parse_choice(text: str) -> Choice | None:
    if len(text) > 300 or not (choice := _CHOICE.fullmatch(text)):
        return None
    opening, letter, closing, later, rest = choice.groups()
    closed = closing or later
    if rest and (not closed or rest[0] in "=+-*/^_,<>" or not rest.strip()):
        return None
    if letter.islower() and not (opening and closed) and "\\text" not in text:
        return None
    return Choice(letter.upper(), parse(rest, MAX_DEPTH) if rest else None)


def _parse_group(text: str, depth: int) -> Form | None:
    """Lists, tuples, sets, intervals, and both values of a ±."""
    items = split(text, _SEPARATOR)
    if 1 < len(items) <= MAX_ITEMS:
        return Group(",", tuple(_flatten(parse(item, depth + 1) for item in items)))
    if text.count(r"\pm") == 1 and len(text) < 500:
        return Group(",", tuple(parse(text.replace(r"\pm", sign), depth + 1) for sign in "+-"))
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
    if len(parts := split(text, _ELEMENT)) == 2 and is_name(parts[0]):
        return Named(without_spaces(parts[0]), parse(parts[1], depth + 1), text)
    if len(parts := split(text, re.compile("="))) > 1 and all(part.strip() for part in parts):
        if is_name(parts[0]):
            return Named(without_spaces(parts[0]), parse(parts[-1], depth + 1), text)
        if len(parts) == 2 and is_name(parts[1]):
            return Named(without_spaces(parts[1]), parse(parts[0], depth + 1), text)
        if len(parts) > 2 or not (_has_letters(parts[0]) or _has_letters(strip_unit(parts[1]).text)):
            return Equation(frozenset(map(without_spaces, parts)), parse(parts[-1], depth + 1))
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


def _has_letters(text: str) -> bool:
    """Whether a text has letters outside commands, that is, variables."""
    return re.search("[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", text)) is not None


def _parse_leaf(text: str) -> Form:
    text = _before_approx(text)
    if not _ANGLE.search(text):  # the degrees of \\sin 30° belong to the angle
        text = strip_unit(text).text or text
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
_ITS = re.compile(
    r"(?:(?:so|thus|hence|therefore),?\s+)?(?:it|that|this)(?:'s|’s|\s+is)\s+(?=[\d\\$-])", re.IGNORECASE
)
# The result of the calculation that a text ends with: 24 of `So it is 84 - 60 = 24.`
_CALCULATED = re.compile(
    r"(?:\d[\d.,)%]*+\s*+(?:[a-z]{2,9}\)?\s*+)?[-+*/×÷·^]\s*+[\d(\\$€£-]|\\(?:times|cdot|div|d?frac))[^=]*="
    r"\s*+(?:\\?[$€£]\s*+)?+(?P<result>-?\d[\d,]*+(?:\.\d++)?+%?+)[^=\d]{0,30}$",
    re.IGNORECASE,
)
_LAST_EQUALS = re.compile(r"=\s*([^=]{1,60}?)[\s.]*$")
_PROSE_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def candidate_answer(candidate: Candidate) -> str | None:
    """The stated answer, else the last boxed or announced one, a whole short text, or the conclusion."""
    stated = (candidate.answer or "").strip()
    if stated:
        return extract_answer(stated)
    text = _TURN.split(spoken(candidate.text) or candidate.text, maxsplit=1)[0].strip()
    announced = last_boxed(candidate.text) or announced_answer(text)
    if announced:
        return extract_answer(announced)
    calculated = _CALCULATED.search(text, max(len(text) - SHORT_CHARS, 0))
    if calculated and _PROSE_WORD.search(text):  # without words, the calculation itself may be the answer
        return calculated["result"].rstrip(",")
    return extract_answer(text) if len(text) <= SHORT_CHARS else _conclusion(text)


def extract_answer(text: str) -> str:
    """Extract an answer from its wrapping: a box, a broken JSON object, a sentence."""
    text = _BLANK_BOX.sub("", text).strip()
    boxed = last_boxed(text)
    if boxed is not None:
        return boxed
    announced = announced_answer(text)
    if announced:
        return _balanced(announced) if announced == text else extract_answer(announced)
    if cut := _JSON_END.search(text):
        text = text[: cut.start()].strip() or text
    text = _ITS.sub("", text, count=1) if _ITS.match(text) else text
    words = len(_PROSE_WORD.findall(_MATH.sub(" ", text[:MAX_CHARS])))
    prose = words >= (_FEW_WORDS if _MATH.search(text) else _MANY_WORDS)
    value = _conclusion(text) if prose else _formula(text) if words >= _FEW_WORDS else None
    return value or _balanced(text)


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
        quantity = _quantity(prose)
        if quantity:
            return quantity
    return None


def _quantity(prose: str) -> str | None:
    """The only number of a text, or what a sentence says something *is*; None if it contains a negation."""
    if _NEGATION.search(prose):
        return None
    formulas = [dollars or brackets for dollars, brackets in _MATH.findall(prose)]
    numbers = {number.group().replace("\\", "") for number in _QUANTITY.finditer(_MATH.sub(" ", prose))}
    if len(formulas) + len(numbers) == 1:
        return str(next(iter([*formulas, *numbers])))
    if _PROSE_SENTENCE.search(prose):
        return None
    for verb in _IS.finditer(prose):
        if formula := _MATH.match(prose, verb.end()):
            return str(formula[1] or formula[2])
        if number := _QUANTITY.match(prose, verb.end()):
            return number.group()
    return _formula(prose)


def _formula(prose: str) -> str | None:
    """The formula or number with which a sentence ends, after `is` or after the last equals sign."""
    if _NEGATION.search(prose) or _PROSE_SENTENCE.search(prose.strip()):
        return None
    rests = [prose[verb.end() :] for verb in _IS.finditer(prose)]
    rests += [last[1] for last in [_LAST_EQUALS.search(prose)] if last]
    for rest in rests:
        formula = rest.strip().rstrip(".")
        if len(formula) > SHORT_CHARS or _PROSE_WORD.search(formula):
            continue
        if any(sign.isdigit() for sign in formula):
            return formula
    return None
