"""Grammars (GBNF of llama.cpp) that restrict a reply to the tags of its ask.

With them, even a very small model gives a verdict, in a few tokens.
"""

from collections.abc import Iterator
from itertools import product

from caps.core.types import Ask, Pairing, Solo

_RATINGS = tuple(map(str, range(1, 11)))
_Tags = tuple[tuple[str, tuple[str, ...]], ...]


def grammar_for(ask: Ask, code: str | None = None) -> str:
    """The grammar of replies to an ask: its tags, one per line, and nothing else.

    If the prompt asks for a code, every tag except the confidence contains it.
    """
    lines = [f'"<{name}>" ({_alternatives(words)}) "{_end(name, code)}"' for name, words in _tags(ask)]
    return "root ::= " + r' "\n" '.join(lines)


def sentences(ask: Ask, code: str | None = None) -> Iterator[str]:
    """All replies that the grammar of an ask allows."""
    names, choices = zip(*_tags(ask), strict=True)
    for words in product(*choices):
        lines = zip(names, words, strict=True)
        yield "\n".join(f"<{name}>{word}{_end(name, code)}" for name, word in lines)


def room_for(ask: Ask, code: str | None = None) -> int:
    """An upper bound of the tokens of a reply: one per character, and the end token."""
    longest = ((name, max(map(len, words))) for name, words in _tags(ask))
    return 1 + sum(len(f"<{name}>\n{_end(name, code)}") + most for name, most in longest)


def _tags(ask: Ask) -> _Tags:
    if isinstance(ask, Pairing):
        if ask.dialect == "ratings":
            return (("rating_A", _RATINGS), ("rating_B", _RATINGS))
        return (("winner", ("A", "B", "TIE")), ("confidence", ("HIGH", "LOW")))
    if isinstance(ask, Solo):
        return (("rating", _RATINGS),)
    return (("best", tuple(str(1 + place) for place in range(len(ask.entrants)))),)


def _end(name: str, code: str | None) -> str:
    return f"</{name}>" if code is None or name == "confidence" else f"-{code}</{name}>"


def _alternatives(words: tuple[str, ...]) -> str:
    return " | ".join(f'"{word}"' for word in words)
