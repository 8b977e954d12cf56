"""The answer of a candidate in a line, the same on pages and in terminals."""

import re

from caps.core.domains import Domain
from caps.core.errors import SettingError
from caps.core.text import plural
from caps.core.types import Candidate, Case
from caps.evidence.anatomy import dissect, final_answer, spoken
from caps.evidence.domains import GENERAL, domain_named

ANSWER_CHARACTERS = 120
MAX_NAME = 40  # characters of an answer that stands for its candidates
FENCES = ("```", "~~~")
_PLAIN = (
    (re.compile(r"\\[dt]?frac\{([\w. ]+)\}\{([\w. ]+)\}"), r"\1/\2"),
    (re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}"), r"(\1)/(\2)"),
    (re.compile(r"\\(?:text|textbf|mathrm|mathbf|operatorname)\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\sqrt\{([^{}]*)\}"), r"√(\1)"),
    (re.compile(r"\^\{?\\circ\}?"), "°"),
    (re.compile(r"\\(?:left|right|displaystyle|[,!;: ])|[$]"), ""),
)
_SIGNS = {
    "pi": "π", "cdot": "·", "times": "×", "infty": "∞", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥",
    "pm": "±", "in": "∈", "cup": "∪", "alpha": "α", "theta": "θ", "%": "%", "{": "{", "}": "}",
}  # fmt: skip
_SIGN = re.compile(r"\\([a-z]+|[%{}])")


def plain_formula(text: str) -> str:
    """An answer in LaTeX as one line of plain signs, as far as that goes: 3/4, √(2), 90°."""
    if "\\" in text or "$" in text:
        for pattern, sign in _PLAIN:
            text = pattern.sub(sign, text)
        text = _SIGN.sub(lambda match: _SIGNS.get(match[1], match[0]), text)
    return " ".join(text.split())


def domain_of(case: Case) -> Domain:
    """The domain of a case; that of any text if it belongs to a package which is not installed here."""
    try:
        return domain_named(case.domain)
    except SettingError:
        return GENERAL


def answer_text(candidate: Candidate, *, short: bool) -> str:
    """The answer of a candidate in a line: its final answer, what is known of its program, or its last words.

    `short`: answers of the domain are short, such as numbers.
    """
    answer = final_answer(candidate) if short else None
    if answer is not None:
        return shortened_words(plain_formula(answer), ANSWER_CHARACTERS)
    program = None if short else dissect(candidate).code
    if program is not None and program.strip():
        return _program_text(candidate, program)
    text = spoken(candidate.text)[-4000:] or candidate.text[-4000:]
    lines = [line.strip() for line in text.splitlines() if not line.strip().startswith(FENCES)]
    words = [line for line in lines if any(map(str.isalnum, line))]
    return shortened_words((words or [""])[-1 if short else 0], ANSWER_CHARACTERS)


def _program_text(candidate: Candidate, program: str) -> str:
    """A program by what is known of it: an arbitrary line of it would say less."""
    lines = plural(sum(bool(line.strip()) for line in program.splitlines()), "line")
    tests = candidate.found
    if tests is None or tests.passed is None:
        return lines
    return f"passes {tests.passed} of {tests.examples}, {lines}"


def short_name(candidate: Candidate) -> str:
    """The answer of a candidate where it is short enough to stand for it; else empty."""
    answer = None if candidate.code else final_answer(candidate)
    if answer is None and len(candidate.text) <= MAX_NAME:
        answer = candidate.text
    name = plain_formula(answer or "")
    return name if len(name) <= MAX_NAME else ""


def shortened_words(text: str, most: int) -> str:
    """A text on one line, shortened between words with an ellipsis."""
    line = " ".join(text[: 2 * most].split())
    if len(line) <= most and len(text) <= 2 * most:
        return line
    head, space, _ = line[: most - 1].rpartition(" ")
    return f"{head if space and len(head) > most // 2 else line[: most - 1]}…"
