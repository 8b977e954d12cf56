"""Why a candidate is wrong, in a word, and texts made fit for a person to read."""

from types import MappingProxyType

REASONS = MappingProxyType(
    {
        "ok": "wrong answer",
        "crashed": "runtime error",
        "timeout": "time limit",
        "memory": "memory limit",
        "output": "output limit",
        "unparsed": "does not parse",
    }
)
_MOST = 400


def shorten(text: str, most: int = _MOST) -> str:
    """A text of at most so many characters, the middle left out."""
    half = (most - 3) // 2
    return text if len(text) <= most else f"{text[:half]} … {text[-half:]}"


def printable(text: str) -> str:
    """A text as valid Unicode that no terminal obeys: surrogates replaced, controls escaped.

    What a candidate says reaches the journal, which stores UTF-8, and the terminal.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    if "\ud800" <= character <= "\udfff":
        return "\ufffd"
    return character.encode("unicode_escape").decode()
