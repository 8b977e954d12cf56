r"""Mathematical notation normalised: LaTeX, Unicode and plain text in one spelling; brackets matched.

The result is still LaTeX, with `*` for every product sign, `\text{…}` for every kind of text, no spacing
commands, no `$`, and every argument of `\frac` and `\sqrt` in braces.
"""

import re
from collections.abc import Iterator

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
