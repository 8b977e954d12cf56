"""Text from outside made safe to print, and its size in tokens estimated.

A terminal obeys what it is sent: ESC and the C1 controls move the cursor, set the title or the clipboard, a
carriage return hides what stands before it, and direction marks reorder what is read. Candidates, cases,
replies and file names may hold all of these, so nothing of theirs is printed except through this module.
"""

import re
import unicodedata
from collections.abc import Sequence

REPLACEMENT = "\ufffd"
_TAB = " " * 4
_SUSPECT = re.compile(rb"[^\x20-\x7e\t\n]")
_ESCAPED = re.compile(r"[^\x20-\x7e\t\n]")


def printable(text: str) -> str:
    """The text without what a terminal would obey; line breaks stay, tabs and odd spaces become spaces."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(map(_shown, text.replace("\r\n", "\n")))


def printable_line(text: str) -> str:
    """The same on one line: a line break inside it cannot begin a line that looks like ours."""
    return printable(text).replace("\n", REPLACEMENT)


def printable_json(data: bytes) -> bytes:
    """JSON whose texts hold no raw control or direction characters: they are written as escapes instead.

    Outside its texts JSON is plain ASCII, so what is escaped here stands inside one: values stay the same.
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


# Tokens of a text when nobody has counted them: an estimate, said to be one.


CHARACTERS_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Four characters a token, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def number(value: float | None, digits: int = 2) -> str:
    """A number for reading: grouped, without idle zeros, a dash where there is none."""
    if value is None:
        return "–"
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def plural(count: int, noun: str, many: str | None = None) -> str:
    """A count with its noun: 1 case, 1,200 cases."""
    return f"{number(count, 0)} {noun if count == 1 else many or noun + 's'}"


def percent(share: float | None, interval: Sequence[float] | None = None) -> str:
    """A share as per cent, with its interval."""
    if share is None:
        return "–"
    tail = "" if interval is None else f"  [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"
    return f"{100 * share:.1f}{tail}"
