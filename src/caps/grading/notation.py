r"""The notation of answers: LaTeX and plain text in one spelling, exact values of arithmetic, and units.

Normalized text is still LaTeX, with `*` for every product sign, `\text{…}` for every kind of text, no spacing
commands, no `$`, and every argument of `\frac` and `\sqrt` in braces.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import comb, factorial, isqrt
from typing import NamedTuple

from caps.core.text import UNPARSABLE

_SIGNS = {
    "−": "-", "–": "-", "—": "-", "×": "*", "·": "*", "⋅": "*", "∗": "*", "÷": "/", "⁄": "/", "∕": "/",
    "√": r"\sqrt ", "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ",
    "≠": r"\ne ", "±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ",
    "≈": r"\approx ", "°": r"^\circ ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "½": " 1/2",
    "¼": " 1/4", "¾": " 3/4", "⅓": " 1/3", "⅔": " 2/3", "\u00a0": " ", "\u2009": " ", "\u202f": " ",
    "“": '"', "”": '"', "’": "'", "ℝ": r"\mathbb{R}", "∖": r"\setminus ", "→": r"\to ", "↦": r"\mapsto ",
    "\f": r"\f", "\b": r"\b",  # a \frac or \binom that went through JSON with a single backslash
}  # fmt: skip
_TABLE = str.maketrans(_SIGNS)
_UPPER, _LOWER = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "₀₁₂₃₄₅₆₇₈₉₋"
_RAISED = re.compile(f"[{_UPPER}]+")
_LOWERED = re.compile(f"[{_LOWER}]+")
_TEXTS = r"text|textbf|textit|textrm|textup|mbox|hbox|mathrm|mathbf|mathit|mathsf|operatorname\*?"

# Applied in this order.
_RULES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r",\\!\s*+(?=\d)|\{,\}", ","),
        (r"(?<=\d)\\,(?=\d{3}(?!\d))", ""),
        (r"(?<!\\)\\[()\[\]]|\$", " "),
        (r"(?<!\\)\\[,;:! ]|~|\\q?quad(?![a-zA-Z])|\\(?:thin|med|thick)space(?![a-zA-Z])", " "),
        (r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|limits|bf|rm)(?![a-zA-Z])\.?", " "),
        (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        (r"\\math(?:rm|bf|it|sf)\s*+\{\s*+([eidA-Z])\s*+\}", r"\1"),
        (rf"\\(?:{_TEXTS})\s*+\{{", r"\\text{"),
        (r"\\text\{\s*+([a-zA-Z])\s*+\}(?=\s*+\S)", r"\1"),
        (r"\\(?:lbrace|\{)(?![a-zA-Z])", r"\\{"),
        (r"\\(?:rbrace|\})(?![a-zA-Z])", r"\\}"),
        (r"(?<=[\w)}])(?:\*\*| \*\* )(?=[\w({-])", "^"),
        (r"\\(?:cdot|times|ast)(?![a-zA-Z])\s*+", "*"),
        (r"\\(?:setminus|smallsetminus|backslash)(?![a-zA-Z])", r"\\setminus "),
        (r"\\mathbb\s*+(?:R(?![a-zA-Z])|\{\s*+R\s*+\})|\\Reals?(?![a-zA-Z])", r"\\mathbb{R}"),
        (r"\\[dt]binom(?![a-zA-Z])", r"\\binom"),
        (r"\\(?:leq?|leqslant|leqq)(?![a-zA-Z])|<=|=<", r"\\le "),
        (r"\\(?:geq?|geqslant|geqq)(?![a-zA-Z])|>=", r"\\ge "),
        (r"\\neq?(?![a-zA-Z])|!=", r"\\ne "),
        (r"\\lt(?![a-zA-Z])", "<"),
        (r"\\gt(?![a-zA-Z])", ">"),
        (r"\\varnothing(?![a-zA-Z])", r"\\emptyset"),
        (r"\\approxeq?(?![a-zA-Z])|\\simeq(?![a-zA-Z])", r"\\approx "),
        (r"\^\s*+(?:\{\s*+\\circ\s*+\}|\\circ(?![a-zA-Z]))|\\degree(?![a-zA-Z])", r"\\text{ degrees}"),
        (r"(?<![a-zA-Z\\])[+]?\s*+(?:\\infty|infinity|Infinity|inf)(?![a-zA-Z])", r"\\infty "),
        (r"(?<![a-zA-Z\\])pi(?![a-zA-Z])", r"\\pi "),
        (r"\\%|(?<=[\d}\s])(?:percent(?:age)?(?: points?)?|pct)\b", "%"),
        (r"(?<![a-zA-Z\\])(sqrt|sin|cos|tan|cot|sec|csc|log|ln|arcsin|arccos|arctan)(?![a-zA-Z])", r"\\\1"),
        (r"\\sqrt\s*+(\w)", r"\\sqrt{\1}"),
        (r"\\frac\s*+(\d)\s*+(\d)", r"\\frac{\1}{\2}"),
        (r"\\frac\s*+(\w)\s*+\{", r"\\frac{\1}{"),
        (r"(\\frac\s*+\{[^{}]*+\})\s*+(\w)", r"\1{\2}"),
        (r"\\frac\s++", r"\\frac"),
        (r"\s++", " "),
    )
)
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
_DOUBLED = re.compile(r"\\\\(?=[a-zA-Z,;:!()\[\]{}])")
_ROOT = re.compile(r"√\s*+(\d++(?:\.\d++)?|[a-zA-Z])")
_CALL = re.compile(r"(\\sqrt|\^)\s*+\(")
_ENDLESS = re.compile(r"(\d++\.)(\d{1,60}+)\s*+(?:\.\.\.|…|\\[lc]?dots(?![a-zA-Z]))")
_PERIOD = re.compile(r"(\d*?)(\d{1,20}?)\2+")
_LEAST_REPEATED = 3  # digits: 0.333... and 0.2727... repeat, 0.3... does not say what follows
_EDGES = " \t\n`\"'*_;:,?"


def normalize(text: str) -> str:
    """Write an answer in the canonical notation; unknown notation stays unchanged."""
    text = _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), text)
    text = _LOWERED.sub(lambda run: _script("_", run, _LOWER), text)
    text = _RAISED.sub(lambda run: _script("^", run, _UPPER), text)
    text = _ROOT.sub(r"\\sqrt{\1}", text).translate(_TABLE)
    if r"\begin" not in text:  # there, two backslashes end a row
        text = _DOUBLED.sub(r"\\", text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return _trimmed(_ENDLESS.sub(_repeating, _braced(text)))


def without_spaces(text: str) -> str:
    """The text without any spaces, for comparison."""
    return "".join(text.split())


def _script(sign: str, run: re.Match[str], digits: str) -> str:
    plain = "".join("-" if one in "⁻₋" else str(digits.index(one)) for one in run.group())
    return f"{sign}{{{plain}}}"


def _repeating(number: re.Match[str]) -> str:
    r"""Write `0.333...` as `0.\overline{3}`; digits without a visible period stay an approximation."""
    period = _PERIOD.fullmatch(number[2])
    if period is None or len(number[2]) - len(period[1]) < _LEAST_REPEATED:
        return number[1] + number[2]
    return rf"{number[1]}{period[1]}\overline{{{period[2]}}}"


def _braced(text: str) -> str:
    r"""Write `sqrt(2)` as `\sqrt{2}` and `^(1/3)` as `^{1/3}`, where the parentheses close."""
    opened: list[tuple[int, bool]] = []
    letters = list(text)
    starts = {call.end() - 1 for call in _CALL.finditer(text)}
    for index, sign in enumerate(text):
        if sign == "(":
            opened.append((index, index in starts))
        elif sign == ")" and opened:
            start, call = opened.pop()
            if call:
                letters[start], letters[index] = "{", "}"
    return "".join(letters)


def _trimmed(text: str) -> str:
    while True:
        shorter = text.strip(_EDGES)
        if shorter.endswith((".", "\\")):
            shorter = shorter[:-1]
        if shorter == text:
            return text
        text = shorter


# --- Brackets in normalized text; unmatched ones are tolerated ---

MAX_DEPTH = 6


def strip_braces(text: str) -> str:
    """Remove braces around the whole text, which TeX does not show."""
    for _ in range(MAX_DEPTH):
        if not (text.startswith("{") and text.endswith("}") and closes_last(text)):
            break
        text = text[1:-1].strip()
    return text


def closes_last(text: str) -> bool:
    """Whether the first bracket of the text is closed by the last character."""
    return all(depth > 0 for index, depth in _depths(text) if index < len(text) - 1)


def _depths(text: str) -> Iterator[tuple[int, int]]:
    """The bracket depth after each character; any bracket may close any other."""
    depth = 0
    for index, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if sign != "\\":
            yield index, depth


def split(text: str, separator: re.Pattern[str]) -> list[str]:
    """Split at separators outside brackets."""
    if not separator.search(text):
        return [text]
    level = dict(_depths(text))
    cuts = [
        cut for cut in separator.finditer(text) if level.get(cut.start(), level.get(cut.start() + 1, 0)) <= 0
    ]
    starts = [0, *(cut.end() for cut in cuts)]
    ends = [*(cut.start() for cut in cuts), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


# --- Exact values of plain arithmetic with bounded size; None for any other text ---
#
# Normalized LaTeX is rewritten as Python, of which the syntax tree is read: `2\frac{1}{3}^2` is
# `2*frac(1,3)**2`. A number may be mixed (2 1/3), in groups of thousands (1,234) or repeating
# (0.\overline{3}). Adjacent factors are multiplied if the second is in brackets or a command; "3 4" is none.


MAX_CHARS = 400
MAX_BITS = 4096
MAX_NESTED = 100
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
    except (ArithmeticError, KeyError, *UNPARSABLE):
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
    if depth > MAX_NESTED:
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


# --- Units, currencies, per cent and words such as *million* around a number ---
#
# A unit is known if all its words are: `km/h`, `square meters`, `kg\cdot m/s^2`. Any other words behind a
# number (`8 pieces of wire`) are removed and not compared. Units are compared by name and never converted.


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
