"""Verdict tags and what stands in them, read leniently: `<winner> Solution **B** </winner>`, `<rating>8/10`.

All patterns are bounded, so reading stays linear in the text.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

JOINER = "\u2060"  # the word joiner: no width, breaks no line
NOUN = r"(?:solution|candidate|submission|response|answer|option|program|code)"

# What follows a letter that is meant as a label; "A or B or TIE", "A, B" and "A good try" name none.
LABEL_ENDS = (
    r"(?= ?(?:$|[.,;:–—-]|(?:is|wins|because|as|since|with|over|confidence)\b))(?! ?[,;] ?(?:a|b|or|tie)\b)"
)
# A number, perhaps out of another one; "1-10" and "1 to 10" are the question, not an answer.
NUMBER = (
    r"(?<![\w.,/-])([0-9]{1,6}+(?:[.,][0-9]{1,6}+)?)(?:(?: ?/ ?| out of )([0-9]{1,4}+))?"
    r"(?![0-9/])(?! ?(?:-|–|to|or) ?[0-9])"
)
PLACE = r"(?<![\w.-])([0-9]{1,6}+)(?![\w/]|[.,][0-9])(?! ?(?:,|-|–|to|or|and) ?[0-9])"

_TAG = re.compile(
    r"<[ \t]{0,4}(winner|confidence|best|rating[ _-]?[ab]|rating)(?![^\W_])([^<>\n]{0,40}?)[ \t]{0,4}\\?>"
    r"([^<]{0,200})(?=(<)?)",
    re.IGNORECASE,
)
_LATEX = re.compile(r"\\(?:boxed|fbox|text(?:bf|it|tt)?|math(?:rm|bf)) ?\{")
_INERT = re.compile(rf"(?<![^\W_])(?:[^\W_]*+{JOINER})++[^\W_]*+")
_DECORATION = re.compile("[*_`~\"'«»“”„‘’‚‹›)\\[\\]{}$#|<>!\\\\]")
_SIDE = re.compile(
    rf"(?:(?:the|winner|better|is|{NOUN}|[,:=-]) ?){{0,5}}\b([ab])\b{LABEL_ENDS}", re.IGNORECASE
)
_EVEN = re.compile(
    r"(?:it (?:is|s) )?(?:an? )?(?:tied?|draw|equal(?:ly)?|both|neither)\b(?! or\b)", re.IGNORECASE
)
_RATING = re.compile(rf"(?:(?:the|rating|score|is|[,:=]) ?){{0,4}}{NUMBER}", re.IGNORECASE)
_PLACE = re.compile(rf"(?:(?:the|best|is|number|{NOUN}|[,:=]) ?){{0,5}}{PLACE}", re.IGNORECASE)


class Tag(NamedTuple):
    """An opening tag and what follows it: lower-case name, content, where that starts, whether it ends.

    `bound` tells that it carries the code the prompt asked for; the content is then without it.
    """

    name: str
    content: str
    start: int
    closed: bool
    bound: bool = False


def tags(text: str, code: str | None = None) -> Iterator[Tag]:
    """Every verdict tag in order; a closing tag may be missing. Attributes are read for the code only."""
    for found in _TAG.finditer(text):
        name, attributes, content, after = found.groups()
        bound = False
        if code:
            key = re.compile(rf"(?<![^\W_]){re.escape(code)}(?![^\W_])", re.IGNORECASE)
            bound = bool(key.search(attributes) or key.search(content))
            content = key.sub(lambda one: " " * len(one[0]), content)
        if attributes.strip(" \t") and not bound:
            continue
        name = name.lower()
        if name.startswith("rating") and name != "rating":
            name = f"rating_{name[-1]}"
        yield Tag(name, content, found.start(3), after is not None, bound)


def bare(text: str) -> str:
    """The words of a line without emphasis, quotes, brackets and TeX, nor such as a joiner made inert."""
    text = _INERT.sub(JOINER, _LATEX.sub(" ", text))
    return " ".join(_DECORATION.sub(" ", text).replace("(", " , ").split())


def side(content: str) -> str | None:
    """Read `A`, `B` or `TIE`."""
    if content in ("A", "B", "TIE"):
        return content
    words = _first_line(content)
    found = _SIDE.match(words)
    if found:
        return found[1].upper()
    return "TIE" if _EVEN.match(words) else None


def sureness(content: str) -> str | None:
    """Read `HIGH` or `LOW`; whatever lies between them is LOW."""
    if content in ("HIGH", "LOW"):
        return content
    words = _first_line(content).upper()
    if not words or words.startswith(("HIGH OR", "LOW OR", "HIGH/", "LOW/")):
        return None
    return "HIGH" if words.startswith(("HIGH", "VERY HIGH")) else "LOW"


def rating(content: str) -> float | None:
    """Read a number from 1 to 10."""
    found = _RATING.match(_first_line(content))
    return on_scale(found[1], found[2]) if found else None


def place(content: str) -> int | None:
    """Read the number of a candidate."""
    found = _PLACE.match(_first_line(content))
    return int(found[1]) if found else None


def on_scale(number: str, total: str | None) -> float:
    """A number as written, perhaps out of a total, clamped to 1-10."""
    value = float(number.replace(",", "."))
    if total and int(total) > 0:
        value *= 10 / int(total)
    return min(10.0, max(1.0, value))


def _first_line(content: str) -> str:
    return bare(content.strip().partition("\n")[0])
