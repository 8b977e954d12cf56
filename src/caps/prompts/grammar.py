"""Grammars (GBNF, as llama.cpp reads them) that hold a reply to the bare tags its ask wants; pure.

A model that is too small to come to a verdict by itself gives one with these, in a few tokens.
"""

from collections.abc import Iterator
from itertools import product

from caps.core.types import Ask, Pairing, Solo

WORD = 'root ::= "OK"'  # what the first tiny call to a server is held to
_RATINGS = tuple(map(str, range(1, 11)))
_Tags = tuple[tuple[str, tuple[str, ...]], ...]


def grammar_for(ask: Ask, code: str | None = None) -> str:
    """The grammar whose sentences are the replies to an ask: its tags, a line each, and nothing else.

    Where the prompt asks for a code, it stands in every tag but that of the confidence.
    """
    lines = [f'"<{name}>" ({_either(words)}) "{_end(name, code)}"' for name, words in _tags(ask)]
    return "root ::= " + r' "\n" '.join(lines)


def sentences(ask: Ask, code: str | None = None) -> Iterator[str]:
    """Every reply the grammar of an ask allows."""
    names, choices = zip(*_tags(ask), strict=True)
    for words in product(*choices):
        lines = zip(names, words, strict=True)
        yield "\n".join(f"<{name}>{word}{_end(name, code)}" for name, word in lines)


def room_for(ask: Ask, code: str | None = None) -> int:
    """Tokens that hold the longest reply, even one letter each, and the token that ends it."""
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


def _either(words: tuple[str, ...]) -> str:
    return " | ".join(f'"{word}"' for word in words)
