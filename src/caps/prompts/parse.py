"""A judge's reply becomes an answer and a word on how well it was read. Total and linear: it never raises.

Tags first; plain words only on the last lines of a whole reply, since a cut one stops in mid-thought.
"""

import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeVar

from caps.core.types import Ask, Group, Pairing, Pick, Rating, Solo, Verdict
from caps.prompts import plain
from caps.prompts.said import said
from caps.prompts.scale import MIDDLE, verdict_of
from caps.prompts.tags import Tag, bare, place, rating, side, sureness, tags

T = TypeVar("T")
How = Literal["tags", "plain", "none"]

_LAST_LINES = 4
_REFUSAL = re.compile(
    r"\b(?:i|we)(?: am|['’]m| are)? (?:(?:really )?sorry\b|must decline\b"
    r"|(?:can ?not|can['’]t|won['’]t|will not|unable to|not able to) "
    r"(?:assist|help|comply|provide|answer|judge|evaluate|compare|do|rate|fulfill|continue|engage)\b)",
    re.IGNORECASE,
)


class Reading(NamedTuple):
    """What was read from a reply and how; `cause` says why there is no answer.

    Causes: `truncated`, `refused`, `empty`, `unbound` for a verdict without the code where only one with it
    counts, and `no-tag` for whatever says nothing readable. `bound` tells that the answer carries the code.
    """

    answer: Verdict | Rating | Pick | None
    how: How
    cause: str | None = None
    winner: str | None = None
    confidence: str | None = None
    bound: bool = False


class _Reply(NamedTuple):
    """What of a reply may be read: its tags, and its last lines where it is whole."""

    tags: Sequence[Tag]
    text: str
    whole: bool

    @property
    def lines(self) -> Sequence[str]:
        return _last_lines(self.text) if self.whole else ()

    def tagged(self, name: str, read: Callable[[str], T | None]) -> T | None:
        for tag in reversed(self.tags):
            if tag.name == name and (value := read(tag.content)) is not None:
                return value
        return None

    def stated(self, read: Callable[[str], T | None]) -> T | None:
        return next((value for value in map(read, reversed(self.lines)) if value is not None), None)


def read_reply(
    ask: Ask,
    text: str,
    *,
    truncated: bool,
    nonce: str,
    code: str | None = None,
    bound_only: bool = False,
) -> Reading:
    """Read the judge's answer to `ask`; what it thought, quoted or echoed does not count.

    Where the prompt asked for a `code` inside the verdict, one that carries it goes before any other, and with
    `bound_only` no other counts.
    """
    words = said(text, nonce)
    whole = not truncated and not words.unfinished
    found = [tag for tag in tags(words.text, code) if tag.closed or whole]
    if code:
        reading = _read(ask, _Reply([tag for tag in found if tag.bound or tag.name == "confidence"], "", whole))
        if reading is not None:
            return reading._replace(bound=True)
    reading = _read(ask, _Reply(found, words.text, whole))
    if reading is not None:
        return Reading(None, "none", "unbound") if code and bound_only else reading
    if truncated:
        return Reading(None, "none", "truncated")
    if not words.text.strip():
        return Reading(None, "none", "no-tag" if words.unfinished else "empty")
    return Reading(None, "none", "refused" if _REFUSAL.search(words.text) else "no-tag")


def readable(text: str) -> bool:
    """Whether any part of a text, repeated by a judge without its fence, may be read as an answer.

    In doubt it is true. Linear in the text.
    """
    return any(True for _ in tags(text)) or any(map(plain.reads_plain, text.split("\n")))


def _read(ask: Ask, reply: _Reply) -> Reading | None:
    if isinstance(ask, Pairing):
        return _read_ratings(reply) if ask.dialect == "ratings" else _read_winner(reply)
    return _read_solo(reply) if isinstance(ask, Solo) else _read_best(ask, reply)


def _read_winner(reply: _Reply) -> Reading | None:
    tagged = reply.tagged("winner", side)
    winner = tagged or reply.stated(plain.plain_side)
    if winner is None:
        return None
    sure = _last_sureness(reply.tags) or reply.stated(plain.plain_sureness) or "LOW"
    return Reading(verdict_of(winner, sure), "tags" if tagged else "plain", None, winner, sure)


def _last_sureness(found: Sequence[Tag]) -> str | None:
    """The last confidence said; one said of a winner that was then taken back does not carry over."""
    sure = winner = None
    for tag in found:
        if tag.name == "confidence":
            sure = sureness(tag.content) or sure
        elif tag.name == "winner" and (named := side(tag.content)) is not None:
            sure = sure if winner in (None, named) else None
            winner = named
    return sure


def _read_ratings(reply: _Reply) -> Reading | None:
    a, b = reply.tagged("rating_a", rating), reply.tagged("rating_b", rating)
    how: How = "tags"
    if a is None and b is None:
        stated = {name: value for line in reply.lines for name, value in plain.plain_ratings(line).items()}
        a, b, how = stated.get("A"), stated.get("B"), "plain"
    if (a is None and b is None) or (not reply.whole and None in (a, b)):
        return None
    return Reading(Verdict(MIDDLE if a is None else a, MIDDLE if b is None else b), how)


def _read_solo(reply: _Reply) -> Reading | None:
    tagged = reply.tagged("rating", rating)
    value = reply.stated(plain.plain_rating) if tagged is None else tagged
    return None if value is None else Reading(Rating(value), "plain" if tagged is None else "tags")


def _read_best(ask: Group, reply: _Reply) -> Reading | None:
    tagged = reply.tagged("best", place)
    number = reply.stated(plain.plain_place) if tagged is None else tagged
    if number is None or not 1 <= number <= len(ask.entrants):
        return None
    return Reading(Pick(ask.entrants[number - 1]), "plain" if tagged is None else "tags")


def _last_lines(text: str) -> list[str]:
    """Bare, without lines that hold tags: what stands in an unreadable tag is not plain words either."""
    lines = [line for line in text.split("\n") if line.strip() and not any(tags(line))]
    return [bare(line) for line in lines[-_LAST_LINES:]]
