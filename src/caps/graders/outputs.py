"""When two outputs are the same: line by line, whitespace aside, and numbers by their value.

As LiveCodeBench compares: texts are stripped and split into lines; lines that differ as texts are the same if
all their words are numbers of equal value.
"""

from decimal import Decimal, InvalidOperation
from typing import Any


def same_text(expected: str, got: str) -> bool:
    """Compare two outputs."""
    wanted, found = normalised(expected), normalised(got)
    if wanted == found:
        return True
    lines = list(zip(wanted.split("\n"), found.split("\n"), strict=False))
    return wanted.count("\n") == found.count("\n") and all(_same_line(a, b) for a, b in lines)


def normalised(text: str) -> str:
    """A text without what does not count: space at the ends of lines, and runs of it between words."""
    return "\n".join(" ".join(line.split()) for line in text.strip().split("\n"))


def same_value(expected: Any, got: Any) -> bool:
    """Compare two results; a tuple is as good as a list."""
    return bool(_plain(expected) == _plain(got))


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}  # JSON knows no other keys
    return value


def _same_line(a: str, b: str) -> bool:
    if a == b:
        return True
    try:
        return [Decimal(word) for word in a.split(" ")] == [Decimal(word) for word in b.split(" ")]
    except InvalidOperation:
        return False
