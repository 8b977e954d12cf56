"""Safe printing and parsing of untrusted text, estimated token counts, and number formats.

A terminal executes control characters: ESC and the C1 controls move the cursor, set the title or the
clipboard, a carriage return hides the text before it, and direction marks reorder text. Candidates, cases,
replies and file names may contain all of these, so they are printed only through this module.
"""

import ast
import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

REPLACEMENT = "\ufffd"
_TAB = " " * 4
_SUSPECT = re.compile(rb"[^\x20-\x7e\t\n]")
_ESCAPED = re.compile(r"[^\x20-\x7e\t\n]")


def printable(text: str) -> str:
    """The text without control characters; line breaks stay, tabs and other spaces become spaces."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(map(_shown, text.replace("\r\n", "\n")))


def printable_line(text: str) -> str:
    """The same on one line, so that the text cannot imitate a line of our output."""
    return printable(text).replace("\n", REPLACEMENT)


def shortened(text: str, most: int) -> str:
    """The beginning of a text, of at most `most` characters; an ellipsis says that more follows."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def shortened_line(text: str, most: int) -> str:
    """The beginning of an untrusted text on one line of at most `most` characters."""
    return shortened(printable(" ".join(text[: 4 * most].split())), most)


def without_middle(text: str, most: int = 400) -> str:
    """A text of at most `most` characters: what is too long loses its middle."""
    half = (most - 3) // 2
    return text if len(text) <= most else f"{text[:half]} … {text[-half:]}"


def short_repr(value: object, most: int = 80) -> str:
    """The representation of any object, shortened; one that fails is replaced by the type."""
    try:
        return shortened(repr(value), most)
    except Exception:  # a class may raise anything here, and Python itself refuses very long integers
        return f"an object of type {type(value).__name__}"


def escaped(text: str) -> str:
    """The text on one line with control characters as escapes, and surrogates replaced."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def _escape(letter: str) -> str:
    return REPLACEMENT if "\ud800" <= letter <= "\udfff" else letter.encode("unicode_escape").decode()


def printable_json(data: bytes) -> bytes:
    """JSON with control and direction characters written as escapes.

    Outside its strings JSON is plain ASCII, so only characters inside strings change, and values stay equal.
    """
    if _SUSPECT.search(data) is None:
        return data
    return _ESCAPED.sub(_escaped, data.decode("utf-8", "replace")).encode()


def _shown(letter: str) -> str:
    if letter.isprintable() or letter == "\n":
        return letter
    if letter == "\t":
        return _TAB
    return " " if unicodedata.category(letter) == "Zs" else REPLACEMENT


def _escaped(found: re.Match[str]) -> str:
    letter = found[0]
    if letter.isprintable() or unicodedata.category(letter) == "Zs":
        return letter
    units = letter.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


#: What the parsers of Python and of JSON raise on hostile text: also on deep nesting and very long numbers.
UNPARSABLE = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)


def syntax_tree(source: str, name: str = "<unknown>") -> ast.Module | None:
    """The syntax tree of a Python program; None if it does not parse. `name` is for warnings."""
    try:
        return ast.parse(source, filename=name)
    except UNPARSABLE:
        return None


def parse_json(text: str | bytes, otherwise: Any = None, **options: Any) -> Any:
    """The JSON value of an untrusted text; `otherwise` if there is none. The options are of `json.loads`."""
    try:
        return json.loads(text, **options)
    except UNPARSABLE:
        return otherwise


CHARACTERS_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Estimated tokens of a text: four characters per token, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def number(value: float | None, digits: int = 2) -> str:
    """A number with thousands separators and without trailing zeros; a dash for None."""
    if value is None:
        return "–"
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(seconds: float) -> str:
    """A time span in its two largest units: 4.5 s, 45 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 10:
        return f"{number(seconds, 1)} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    larger, larger_unit, smaller, smaller_unit = (
        (hours, "h", minutes_left, "min") if hours else (minutes, "min", rest, "s")
    )
    if not larger:
        return f"{smaller} {smaller_unit}"
    return f"{number(larger, 0)} {larger_unit}" + (f" {smaller} {smaller_unit}" if smaller else "")


def plural(count: int, noun: str, many: str | None = None) -> str:
    """A count with its noun: 1 case, 1,200 cases."""
    return f"{number(count, 0)} {noun if count == 1 else many or noun + 's'}"


def percent(share: float | None, interval: Sequence[float] | None = None) -> str:
    """A share in per cent, with its interval; a dash for None."""
    if share is None:
        return "–"
    tail = "" if interval is None else f"  [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"
    return f"{100 * share:.1f}{tail}"
