"""Verdict tags and their contents, read leniently; ratings from the paper's verdict scale.

A tag may carry the code the prompt asked for; it is then *bound*. All patterns are limited in length, so that
reading stays linear.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from caps.core.types import Verdict

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

# The requested names, and those that models use instead of `winner`, `rating` and `best`.
_ASKED = r"winner|confidence|best|rating[ _-]?[ab]|rating"
_ALIASES = (
    r"final[ _-]?(?:answer|verdict|choice|decision)|verdict|answer|choice|preference|preferred|decision"
    r"|judge?ment"
    r"|better|result|scores?[ _-]?[ab]|score|grade|(?:rating|score)[ _-](?:candidate|solution)[ _-][ab]"
    r"|certainty"
)
_NAMES = rf"({_ASKED}|{_ALIASES})(?![^\W_])"
_TAG = re.compile(
    rf"(?:<|&lt;)[ \t]{{0,4}}{_NAMES}([^<>&\n]{{0,60}}?)[ \t]{{0,4}}\\?(?:/?>"
    rf"|&gt;)((?:(?!&lt;)[^<]){{0,200}})(?=(<|&lt;)?)",
    re.IGNORECASE,
)
_SQUARE = re.compile(
    rf"\[[ \t]{{0,4}}{_NAMES}([^\[\]\n]{{0,60}}?)[ \t]{{0,4}}\]([^\[]{{0,200}})(?=(\[)[ \t]{{0,4}}/)",
    re.IGNORECASE,
)
# `=A`, `: A`, ` value="A"`, ` A`: the value is in the tag itself.
_VALUE = re.compile(
    r"[ \t]{0,4}(?:[=:]|[ \t](?:value|is|winner|rating|best|answer)[ \t]{0,4}[=:])[ \t]{0,4}([^ \t].{0,60})"
    r"|[ \t]{1,4}((?-i:A|B|TIE))[ \t]{0,4}$",
    re.IGNORECASE,
)
_KEY_ATTRIBUTE = re.compile(
    r"[ \t]{0,4}(?:(?:code|key|id|nonce|check)[ \t]{0,4}[=:]?)?[ \t\"'=:,;()\[\]-]{0,12}$", re.IGNORECASE
)
_OTHER_ATTRIBUTE = re.compile(r"[ \t]{1,4}\w{1,20}=[\"'][^\"']{0,40}[\"']$")
_CODE_WORD = re.compile(r"\b(?:code|key)\b", re.IGNORECASE)

# Letters and digits that only look different: full width, mathematical, circled, squared. One for one.
_LOOKS = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)} | dict.fromkeys(
    (0x3000, 0xA0, 0x202F, 0xFE0F), " "
)
for _first, _letters in ((0x24B6, "A"), (0x1F130, "A"), (0x1F170, "A"), (0x24D0, "a")):
    _LOOKS |= {_first + at: chr(ord(_letters) + at) for at in range(26)}
for _block in range(13):  # bold, italic, script ... mathematical capitals and small letters
    _LOOKS |= {0x1D400 + 52 * _block + at: chr(65 + at) for at in range(26)}
    _LOOKS |= {0x1D41A + 52 * _block + at: chr(97 + at) for at in range(26)}
_LOOKS |= {0x1D7CE + at: chr(48 + at % 10) for at in range(50)}

_LATEX = re.compile(r"\\(?:boxed|fbox|text(?:bf|it|tt)?|math(?:rm|bf)) ?\{")
_INERT = re.compile(rf"(?<![^\W_])(?:[^\W_]*+{JOINER})++[^\W_]*+")
_DECORATION = re.compile("[*_`~\"'«»“”„‘’‚‹›)\\[\\]{}$#|<>!\\\\]")

_BEFORE_LABEL = (
    rf"(?:(?:the|winner|verdict|better|one|is|{NOUN}|assistant|model|kandidat|candidat[oe]?"
    r"|候选|方案|[,:=-]) ?){0,5}"
)
_SIDE = re.compile(rf"{_BEFORE_LABEL}(?<![^\W_])([ab])(?![^\W_])(?! s\b)(.*)", re.IGNORECASE)
# What may follow a label: nothing, a reason or praise. Anything else might mean the opposite.
_SIDE_REST = re.compile(
    r" ?(?:[.,;:–—-].*|(?:wins|because|since|as|with|over|due to|confidence|high|low)\b.*"
    r"|(?:is|seems|looks)(?: (?:the|a|more|much|clearly|slightly|far|likely|also)){0,3}"
    r" (?:better|best|winner|superior|stronger|preferred|correct|right|robust|accurate|complete"
    r"|likely)\b.*)?",
    re.IGNORECASE,
)
_NEGATED = re.compile(
    r"\b(?:not|isn t|n t|never|neither|nor|wrong|incorrect|worse|loses|fails)\b", re.IGNORECASE
)
_TURNED = re.compile(
    r"\b(?:but|however|although|though|yet|while|whereas|unless|except|rather|instead)\b", re.IGNORECASE
)
_EITHER = re.compile(
    r"^ ?(?:or|and|vs|versus|[/&|,;])? ?(?:or |and )?(?:(?:the|candidate|solution) ){0,2}(?:[ab]|tie"
    r"|draw)\b",
    re.IGNORECASE,
)
_OTHER_IS = re.compile(
    r"^is not (?:the )?(?:winner|better|best|correct"
    r"|right)(?: one)? ?[;,.–—-]{1,2} ?(?:but )?(?:candidate |solution )?([ab]) is(?: the (?:winner"
    r"|better one|best))? ?\.?$",
    re.IGNORECASE,
)
_MORE = re.compile(
    r"(?:candidate |solution )?([ab]) ?(>{1,3}|<{1,3}|=|≈|≻) ?(?:candidate |solution )?([ab])\W*$",
    re.IGNORECASE,
)
_EVEN = re.compile(
    r"(?:it (?:is|s) )?(?:an? )?(?:tied?|draw|equal(?:ly)?|both|neither|平局|平手|引き分け|동점|unentschieden"
    r"|empate|égalité|egalité"
    r"|pareggio|ничья|gelijkspel|berabere|remis)(?![^\W_])(?! or\b| ?/)",
    re.IGNORECASE,
)
_RATING = re.compile(
    rf"(?:(?:the|rating|score|is|[,:=]) ?){{0,4}}{NUMBER}( ?%)?(?! ?(?:or|to|–|-) ?[0-9])", re.IGNORECASE
)
_PLACE = re.compile(rf"(?:(?:the|best|is|number|no|{NOUN}|[.,:=]) ?){{0,5}}{PLACE}(.*)", re.IGNORECASE)
WORDS = {
    name: at
    for at, name in enumerate(
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"], 1
    )
}
_WORD = re.compile(
    rf"(?:(?:the|best|is|number|rating|score|{NOUN}|[,:=]) ?){{0,5}}({'|'.join(WORDS)})\b ?[.,;]?$",
    re.IGNORECASE,
)

# How sure: a number counts as HIGH from four fifths of its scale (80 %, 8/10, 4/5, 0.8) upwards. A bare
# number up to 1 with a decimal point is a share, one up to 10 is out of ten, and a greater one a percentage.
HIGH_SHARE = 0.8
_SHARE = re.compile(
    r"(?:(?:about|around|roughly|approximately|confidence|is"
    r"|[~≈:=>]) ?){0,3}([0-9]{1,3}(?:[.,][0-9]{1,4})?) ?(%|percent|/ ?([0-9]{1,3})"
    r"|out of ([0-9]{1,3}))?(?![0-9])",
    re.IGNORECASE,
)
_HIGH = re.compile(
    r"\b(?:high(?:ly|est)?|certain(?:ly)?|sure|confident|absolute(?:ly)?|definite(?:ly)?|strong|hoch"
    r"|sehr hoch|alt[ao]|haute?|élevée?"
    r"|elevad[ao]|высок\w{1,3}|wysok[ai]|hoog|yüksek)\b|高|높음",
    re.IGNORECASE,
)
_LOWERED = re.compile(
    r"\b(?:not|no|n t|isn t|less|low|medium|moderate(?:ly)?|mid|somewhat|fairly|quite|rather|un\w+|nicht"
    r"|niedrig|mittel\w*|baj[ao]|baix[ao]"
    r"|medi[ao]|faible|moyenne?|низк\w{1,3}|средн\w{1,3})\b|低|中|不",
    re.IGNORECASE,
)
_CHOICE = re.compile(r"(?:high|low)\W{0,3}(?:or|/|\|)\W{0,3}(?:high|low)", re.IGNORECASE)


_OTHER = {"A": "B", "B": "A"}


class Tag(NamedTuple):
    """A tag and its value: lower-case name, value, where that starts, whether the tag is closed.

    `bound` tells that it carries the code (the value is then without it), `asked` that it has the very form
    the prompts ask for. `opens` and `ends` are the places of the whole tag in the text.
    """

    name: str
    content: str
    start: int
    closed: bool
    bound: bool = False
    asked: bool = True
    opens: int = 0
    ends: int = 0


def plainly(text: str) -> str:
    """The text with full-width and look-alike letters as plain ones; positions do not change."""
    return text if text.isascii() else text.translate(_LOOKS)


def without_code(text: str, code: str | None) -> tuple[str, bool]:
    """The text with the code blanked wherever it is a word, and whether it occurred."""
    if not code or code not in text.lower():
        return text, False
    blanked, count = re.subn(
        rf"(?<![^\W_]){re.escape(code)}(?![^\W_])", " " * len(code), text, flags=re.IGNORECASE
    )
    return blanked, count > 0


def tags(text: str, code: str | None = None) -> Iterator[Tag]:
    """All verdict tags in order; the closing tag may be missing for angle brackets."""
    found = [*_TAG.finditer(text)] if "<" in text or "&lt;" in text else []
    if "[" in text:
        found = sorted([*found, *_SQUARE.finditer(text)], key=lambda one: one.start())
    for one in found:
        tag = _tag(one, code)
        if tag is not None:
            yield tag


def _tag(found: re.Match[str], code: str | None) -> Tag | None:
    name, attributes, content, after = found.groups()
    start, closed = found.start(3), after is not None
    asked = found.re is _TAG and found[0][0] == "<" and not attributes and bool(_PLAIN_NAME.fullmatch(name))
    ends = start + len(content) - len(content.lstrip().partition("\n")[2])  # the first line is what is read
    bare_attributes, in_attributes = without_code(attributes, code)
    blanked, in_content = without_code(content, code)
    if in_content:
        # "A, code 7f3k": the word that introduces the code goes with it.
        blanked = _CODE_WORD.sub(lambda one: " " * len(one[0]), blanked)
    if not _KEY_ATTRIBUTE.match(bare_attributes):
        value = _VALUE.match(bare_attributes)
        if value is None and not _OTHER_ATTRIBUTE.match(bare_attributes):
            return None
        if value is not None:
            group = 1 if value[1] is not None else 2
            blanked, start, closed = value[group], found.start(2) + value.start(group), True
            ends = found.start(3)
    return Tag(
        canonical(name), blanked, start, closed, in_attributes or in_content, asked, found.start(), ends
    )


_PLAIN_NAME = re.compile(_ASKED, re.IGNORECASE)


def canonical(name: str) -> str:
    """The canonical name of a tag or field; `verdict` for a name that may mean any of them.

    `answer` stands for a winner only: a number in it may be the judge's own solution of the problem.
    """
    name = name.lower()
    if name.startswith(("rating", "score")) and name[-1] in "ab" and len(name) > len("rating"):
        return f"rating_{name[-1]}"
    if name in ("winner", "confidence", "best", "rating"):
        return name
    if name in ("score", "scores", "grade"):
        return "rating"
    if name.startswith(("answer", "result")) or name.endswith("answer"):
        return "answer"
    return "confidence" if name == "certainty" else "verdict"


def bare(text: str) -> str:
    """The words of a line without emphasis, quotes, brackets and TeX, nor such as a joiner made inert."""
    text = _INERT.sub(JOINER, _LATEX.sub(" ", text))
    return " ".join(_DECORATION.sub(" ", text).replace("(", " , ").split())


def side(content: str) -> str | None:
    """Read `A`, `B` or `TIE`; None if it is ambiguous."""
    if content in ("A", "B", "TIE"):
        return content
    more = _MORE.match(content.strip(" \t\n*_`\"'"))
    if more:
        return compared(more)
    words = _first_line(content)
    if _EVEN.match(words):
        return "TIE"
    found = _SIDE.match(words)
    if found:
        label, rest = found[1].upper(), found[2]
        turned = _OTHER_IS.match(rest.strip())
        if turned and turned[1].upper() != label:
            return turned[1].upper()
        return None if _EITHER.match(rest) or not unopposed(label, rest) else label
    return None


def compared(more: re.Match[str]) -> str | None:
    """The side a comparison such as `B > A` puts first."""
    first, sign, second = more[1].upper(), more[2][0], more[3].upper()
    if first == second:
        return None
    if sign in "=≈":
        return "TIE"
    return second if sign == "<" else first


def unopposed(label: str, rest: str) -> bool:
    """Whether the text after a label keeps it the winner: a reason or praise, not the other label."""
    if not _SIDE_REST.fullmatch(rest):
        return False
    before = re.split(rf"(?<![^\W_]){_OTHER[label]}(?![^\W_])|[.,;]", rest, maxsplit=1)[0]
    if re.match(r" ?(?:is|seems|looks)\b", rest) and _NEGATED.search(before):
        return False
    return not opposed(label, rest)


def opposed(label: str, rest: str) -> bool:
    """Whether words turn from a label to the other one."""
    other = _OTHER.get(label)
    if other is None or not re.search(rf"(?<![^\W_]){other}(?![^\W_])", rest):
        return False
    return bool(_TURNED.search(rest)) or praised(other, rest)


def praised(label: str, words: str) -> bool:
    """Whether words say that a candidate wins or is right."""
    return bool(
        re.search(
            rf"(?<![^\W_]){label} (?:wins|passes|is(?: (?:the|a|more|much|clearly|actually|slightly"
            rf"|far)){{0,3}} (?:better|best|winner|superior"
            r"|stronger|correct|right|preferred|one)\b)",
            words,
        )
    )


def sureness(content: str) -> str | None:
    """Read `HIGH` or `LOW`; anything in between is LOW, and both together are None."""
    if content in ("HIGH", "LOW"):
        return content
    line = content.strip().partition("\n")[0]
    words = bare(line)
    if not re.search(r"[\w★]", words) or _CHOICE.search(line):
        return None
    if stars := line.count("★"):
        return "HIGH" if stars / (stars + line.count("☆")) >= HIGH_SHARE else "LOW"
    number = _SHARE.match(words)
    if number:
        return "HIGH" if _share(number) >= HIGH_SHARE else "LOW"
    first = re.split(r"[.,;:–—]| - |\bbecause\b|\bsince\b", words)[0]
    return "HIGH" if _HIGH.search(first) and not _LOWERED.search(first) else "LOW"


def _share(number: re.Match[str]) -> float:
    value = float(number[1].replace(",", "."))
    total = number[3] or number[4]
    if total:
        return value / max(1, int(total))
    if number[2]:
        return value / 100
    if value <= 1:
        return value if re.search("[.,]", number[1]) else value / 10
    return value / 10 if value <= 10 else value / 100


def rating(content: str) -> float | None:
    """Read a number from 1 to 10."""
    words = _first_line(content).replace("分", " ").replace("점", " ").replace("点", " ").strip()
    found = _RATING.match(words)
    if found:
        return on_scale(found[1], "100" if found[3] else found[2])
    word = _WORD.match(words)
    return float(WORDS[word[1].lower()]) if word else None


def place(content: str) -> int | None:
    """Read the number of a candidate."""
    words = _first_line(content)
    found = _PLACE.match(words)
    if found:
        also = re.match(r" ?(?:,|;|and|or|&|/) ?(?:candidate )?[0-9]", found[2])
        return None if also else int(found[1])
    word = _WORD.match(words)
    return WORDS[word[1].lower()] if word else None


def on_scale(number: str, total: str | None) -> float:
    """A number as written, perhaps out of a total, clamped to 1-10."""
    value = float(number.replace(",", "."))
    if total and int(total) > 0:
        value *= 10 / int(total)
    return min(10.0, max(1.0, value))


def _first_line(content: str) -> str:
    return bare(content.strip().partition("\n")[0])


# The paper's verdict-to-rating table: a winner and a confidence become two ratings from 1 to 10.


MIDDLE = 5.0  # the value of V1 for a missing rating

RATINGS = {
    ("A", "HIGH"): Verdict(9, 3),
    ("A", "LOW"): Verdict(7, 5),
    ("B", "HIGH"): Verdict(3, 9),
    ("B", "LOW"): Verdict(5, 7),
    ("TIE", "HIGH"): Verdict(5, 5),
    ("TIE", "LOW"): Verdict(5, 5),
}


def verdict_of(winner: str, confidence: str) -> Verdict:
    """Read `A`, `B` or `TIE` with `HIGH` or `LOW` as a verdict."""
    return RATINGS[winner, confidence]
