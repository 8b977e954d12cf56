"""When two outputs are the same: line by line, whitespace aside, and numbers by their value.

As LiveCodeBench compares: texts are stripped and split into lines; lines that differ as texts are the same if
all their words are numbers of equal value.
"""

from collections.abc import Iterator
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


def spell(value: Any) -> str:
    """A value as Python would write it, the same for equal values: sets sorted, whatever an iterator held."""
    if isinstance(value, list | tuple):
        inner = ", ".join(map(spell, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}({{{', '.join(sorted(map(spell, value)))}}})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{spell(key)}: {spell(item)}' for key, item in value.items())}}}"
    if isinstance(value, int) and value.bit_length() > 10_000:
        return hex(value)  # Python will not write very long ones in decimals
    return f"iterator{spell(list(value))}" if isinstance(value, Iterator) else repr(value)


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
