"""Text windows: the start, the end or both of a text, with a marker line for what is left out."""

import re

CHARACTERS_PER_WORD = 16
"""The limit of a window in characters per word, since not all scripts separate words."""
_BLANK_LINES = re.compile(r"(?:[ \t]*+\r?\n)++")


def trim(text: str) -> str:
    """A text without blank lines around it; the indentation of its first line stays."""
    blank = _BLANK_LINES.match(text)
    return text[blank.end() if blank else 0 :].rstrip()


def ends(text: str, words: int, marker: str) -> str:
    """The first and last words around a marker, or the whole text if it is short enough."""
    text, room = trim(text), words * CHARACTERS_PER_WORD
    if len(text) <= 2 * room and len(text.split(None, 2 * words)) <= 2 * words:
        return text
    return f"{_first(text[:room], words)}\n{marker}\n{_last(text[-room:], words)}"


def head(text: str, characters: int, marker: str) -> str:
    """The start of a text, followed by a marker if it was cut."""
    return text if len(text) <= characters else f"{text[:characters].rstrip()}\n{marker}"


def head_lines(text: str, lines: int, characters: int, marker: str) -> str:
    """The first lines of a text, limited in characters, followed by a marker if it was cut."""
    first = text.split("\n", lines)
    start = "\n".join(first[:lines])
    cut = len(first) > lines or len(start) > characters
    return f"{start[:characters].rstrip()}\n{marker}" if cut else text


def around(text: str, end: int, characters: int, marker: str) -> str:
    """The characters of a text before `end`, with a marker on each side that was cut."""
    start = max(0, end - characters)
    before = f"{marker}\n" if text[:start].strip() else ""
    after = f"\n{marker}" if text[end:].strip() else ""
    return f"{before}{trim(text[start:end])}{after}"


def _first(text: str, words: int) -> str:
    parts = text.split(None, words)
    return text[: len(text) - len(parts[-1])].rstrip() if len(parts) > words else text.rstrip()


def _last(text: str, words: int) -> str:
    parts = text.rsplit(None, words)
    return text[len(parts[0]) :].lstrip() if len(parts) > words else text.lstrip()
