"""Text windows: the start, the end or both of a text, with a marker line for what is left out."""

import re

CHARACTERS_PER_WORD = 16
"""No window of `ends` of n words is longer than n times this, even where that cuts a word."""
LONGEST_WORDS = 100
"""The same for `ends_in_words`: formulas are long words; not all scripts put spaces between words."""
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


def ends_in_words(text: str, words: int, marker: str) -> str:
    """The first and the last whole words around a marker; words are cut only beyond a generous size."""
    text, room = trim(text), words * LONGEST_WORDS
    if len(text) <= 2 * room and len(text.split(None, 2 * words)) <= 2 * words:
        return text
    return f"{_first_whole(text, words, room)}\n{marker}\n{_last_whole(text, words, room)}"


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


def fit(text: str, characters: int) -> str:
    """A text of at most about so many characters: its start and, twice as long, its end around a mark.

    The mark says how much was left out. What a text concludes stands at its end, so more of that is kept.
    """
    if len(text) <= characters:
        return text
    first = characters // 3
    last = characters - first
    gone = len(text) - characters
    cut = f"[...{gone:,} of {len(text):,} characters left out here to fit the context of the judge...]"
    return f"{text[:first].rstrip()}\n{cut}\n{text[-last:].lstrip()}"


def _first(text: str, words: int) -> str:
    parts = text.split(None, words)
    return text[: len(text) - len(parts[-1])].rstrip() if len(parts) > words else text.rstrip()


def _first_whole(text: str, words: int, room: int) -> str:
    """The first words that fit; a word that the room would cut is left out unless it is the only one."""
    first = _first(text[: room + 1], words)
    if len(first) <= room:
        return first
    whole = first.rsplit(None, 1)
    return whole[0] if len(whole) > 1 else first[:room]


def _last_whole(text: str, words: int, room: int) -> str:
    last = _last(text[-room - 1 :], words)
    if len(last) <= room:
        return last
    whole = last.split(None, 1)
    return whole[1] if len(whole) > 1 else last[-room:]


def _last(text: str, words: int) -> str:
    parts = text.rsplit(None, words)
    return text[len(parts[0]) :].lstrip() if len(parts) > words else text.lstrip()
