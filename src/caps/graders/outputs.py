"""When two outputs are the same: line by line, whitespace aside, and numbers by their value.

As LiveCodeBench compares: texts are stripped and split into lines; lines that differ as texts are the same if
all their words are numbers of equal value.
"""

from decimal import Decimal, InvalidOperation


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


def _same_line(a: str, b: str) -> bool:
    if a == b:
        return True
    words, others = a.split(" "), b.split(" ")
    try:
        return len(words) == len(others) and all(
            Decimal(word) == Decimal(other) for word, other in zip(words, others, strict=True)
        )
    except InvalidOperation:
        return False
