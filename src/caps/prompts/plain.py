"""Verdicts stated in plain words on one line: `parse` falls back on them, `fence` makes them inert.

Both use these readers, so they cannot drift. Every form needs one of `KEYWORDS`, and `bare` drops a word that
has a joiner in it, so breaking those words silences the line. `score = 7` is code, not a verdict.
"""

import re

from caps.prompts.tags import LABEL_ENDS, NOUN, NUMBER, PLACE, bare, on_scale

# The commonest first letters first: most words are no keyword, and that is to be seen soon.
_WORDS = (
    r"(?:s(?:uperior|tronger|cores?)|tie|c(?:hoice|hoose|orrect|onfidence)|be(?:tter|st)|p(?:refer|ick)"
    r"|win(?:ner|s)|draw|ratings?|verdict)"
)
KEYWORDS = re.compile(rf"(?<![^\W_]){_WORDS}(?![^\W_])", re.IGNORECASE)
# The same where every word stands between spaces: to begin with a sign makes it twice as quick.
_SPACED = re.compile(rf" {_WORDS}(?= )".encode())
_SPACES = bytes(ord(chr(code).lower()) if chr(code).isalnum() and code < 128 else 32 for code in range(256))
# Where case is ignored, these too are taken for an i, an s or a k.
_ALIKE = re.compile("[\u0130\u0131\u017f\u212a]")
# The readers take a `bare` line. Labels are capital letters here: in prose a small "a" is an article.
_NAMED = re.compile(
    r"\b(?:winner|verdict|better|best|choice|choose|prefer|pick)\b"
    rf"(?: (?:{NOUN}|one|overall|is|goes to|the|my)\b){{0,4}} ?[:–—-]{{0,3}} ?(?:(?:the|{NOUN}) ){{0,2}}"
    rf"\b(?:(?-i:([AB]))\b{LABEL_ENDS}|(?:an? )?(?:tie|draw)\b(?! or\b))",
    re.IGNORECASE,
)
_STATED = re.compile(
    r"(?<!\w)(?-i:([AB])) (?:wins\b"
    r"|(?:is|seems|appears|looks)(?: (?!not\b|no\b|never\b|neither\b)\w{1,15}){0,3}?"
    r" (?:better|superior|stronger|winner|best|more correct)\b)",
    re.IGNORECASE,
)
_DRAWN = re.compile(r"\b(?:is|s|call it|declare|as) a (?:tie|draw)\b", re.IGNORECASE)
_DOUBT = re.compile(
    r"\b(?:if|whether|not|t|unless|cannot|claims?|says?|would|either|neither|nor)\b[^.;]{0,60}$",
    re.IGNORECASE,
)
_SURENESS = re.compile(
    r"\bconfidence\b(?: (?:is|level)\b){0,2} ?[:–—-]{0,2} ?(high|low)\b(?! or\b)|\b(high|low) confidence\b",
    re.IGNORECASE,
)
_RATED = re.compile(r"\b(?:ratings?|scores?)\b", re.IGNORECASE)
_RATED_ONE = re.compile(rf"\b(?:rating|score)(?: (?:is|of)| ?[:–—])(?: ?[:–—])? ?{NUMBER}", re.IGNORECASE)
_RATED_SIDE = re.compile(rf"\b(?-i:([AB])) ?(?:is|:|=|–|—|-) ?{NUMBER}", re.IGNORECASE)
_BEST = re.compile(
    rf"\b(?:best|winner|verdict)(?: (?:one|overall|the|{NOUN})\b){{0,3}}"
    rf"(?: is\b| ?[:–—]| (?:{NOUN}|number)\b)(?: ?[:–—]| (?:is|the|{NOUN}|number)\b){{0,4}} ?{PLACE}"
    rf"|\b{NOUN} ([0-9]{{1,6}}+) (?:wins\b|is (?:the )?best\b)",
    re.IGNORECASE,
)


def keyword_lines(text: str) -> set[int]:
    """The numbers of the lines that may hold one of the words; quick, and no other line does."""
    if not text.isascii() and _ALIKE.search(text):
        found = [word.start() for word in KEYWORDS.finditer(text)]
    else:
        # Places stay the same: the space before a word is where the word is in the text.
        spaced = b" %b " % text.encode("ascii", "replace").translate(_SPACES)
        found = [word.start() for word in _SPACED.finditer(spaced)]
    lines, line, at = set[int](), 0, 0
    for place in found:
        line += text.count("\n", at, place)
        lines.add(line)
        at = place
    return lines


def plain_side(words: str) -> str | None:
    """The last winner a line names; a doubted one is none."""
    found = [one for form in (_NAMED, _STATED, _DRAWN) for one in form.finditer(words)]
    sure = [one for one in found if not _DOUBT.search(words[max(0, one.start() - 60) : one.start()])]
    last = max(sure, key=lambda one: one.end(), default=None)
    return None if last is None else (last[1] if last.re.groups else None) or "TIE"


def plain_sureness(words: str) -> str | None:
    """`HIGH` or `LOW` where a line states its confidence."""
    found = list(_SURENESS.finditer(words))
    return (found[-1][1] or found[-1][2]).upper() if found else None


def plain_rating(words: str) -> float | None:
    """The last rating a line states."""
    found = list(_RATED_ONE.finditer(words))
    return on_scale(found[-1][1], found[-1][2]) if found else None


def plain_ratings(words: str) -> dict[str, float]:
    """The ratings for A and B in a line that speaks of ratings."""
    if not _RATED.search(words):
        return {}
    return {one[1]: on_scale(one[2], one[3]) for one in _RATED_SIDE.finditer(words)}


def plain_place(words: str) -> int | None:
    """The last candidate number a line calls the best."""
    found = list(_BEST.finditer(words))
    return int(found[-1][1] or found[-1][2]) if found else None


def reads_plain(line: str) -> bool:
    """Whether any of these readers takes something from the line."""
    if not KEYWORDS.search(line):
        return False
    words = bare(line)
    readers = (plain_side, plain_sureness, plain_rating, plain_place)
    return bool(plain_ratings(words)) or any(read(words) is not None for read in readers)
