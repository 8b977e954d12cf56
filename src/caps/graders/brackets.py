"""Where brackets open and close in tidy text; total, whatever is left open."""

import re
from collections.abc import Iterator

DEEPEST = 6


def unwrap(text: str) -> str:
    """Take off braces around everything: TeX does not show them."""
    for _ in range(DEEPEST):
        if not (text.startswith("{") and text.endswith("}") and closes_last(text)):
            break
        text = text[1:-1].strip()
    return text


def closes_last(text: str) -> bool:
    """Whether the bracket that opens the text is the one that closes it."""
    return all(depth > 0 for place, depth in _depths(text) if place < len(text) - 1)


def _depths(text: str) -> Iterator[tuple[int, int]]:
    """How deep in brackets each place is, counted after it; any bracket may close any other."""
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if sign != "\\":
            yield place, depth


def split(text: str, separator: re.Pattern[str]) -> list[str]:
    """Cut at separators outside brackets."""
    if not separator.search(text):
        return [text]
    level = dict(_depths(text))
    cuts = [
        cut for cut in separator.finditer(text) if level.get(cut.start(), level.get(cut.start() + 1, 0)) <= 0
    ]
    places = [0, *(cut.end() for cut in cuts)]
    ends = [*(cut.start() for cut in cuts), len(text)]
    return [text[start:end] for start, end in zip(places, ends, strict=True)]
