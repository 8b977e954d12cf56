"""Why a candidate is wrong, in a word, and texts cut to what a person reads."""

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
