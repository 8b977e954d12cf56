"""A judge's reply becomes an answer and a word on how well it was read. Total and linear: it never raises.

A wrong reading is far worse than none, because a reply that cannot be read is asked for again. So:

* tags and structured forms are read generously, whatever their brackets and decoration;
* plain words count only in an unmistakable final statement of a whole reply (see `statements`);
* what contradicts itself, is doubted, quoted, or stands in a thought that was cut, is no answer;
* where the prompt asked for a code, a verdict that carries it goes before all others.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar, cast

from caps.core.types import Ask, Group, Pairing, Pick, Rating, Solo, Verdict
from caps.prompts import statements
from caps.prompts.reply import Choice, Reply
from caps.prompts.resemblance import readable
from caps.prompts.said import said
from caps.prompts.scale import MIDDLE, verdict_of
from caps.prompts.statements import PLACE, RATING, SIDE, Forms
from caps.prompts.tags import Tag, bare, place, plainly, rating, side, sureness

_NEAR = 300  # how far from a tag words may stand that go against it

__all__ = ["Reading", "read_reply", "read_terse", "readable"]

T = TypeVar("T")
How = Literal["tags", "plain", "none"]

_REFUSAL = re.compile(
    r"\b(?:i|we)(?: am|['’]m| are)? (?:(?:really )?sorry\b|must decline\b"
    r"|(?:can ?not|can['’]t|won['’]t|will not|unable to|not able to) "
    r"(?:assist|help|comply|provide|answer|judge|evaluate|compare|do|rate|fulfill|continue|engage)\b)",
    re.IGNORECASE,
)


# A terse reply: the two tags as they were asked for, after at most one sentence that judges nothing.
_TERSE = re.compile(
    r"\s*+(?:([A-Za-z][A-Za-z ,]{0,120}+)\.[ \t]*+\n\s*+)?"
    r"<winner>(A|B|TIE)(?:-([0-9a-z]{1,40}))?</winner>\s*+<confidence>(HIGH|LOW)</confidence>\s*+"
)
_OF_THE_MATTER = re.compile(
    r"\b(?:[ab]|tie[sd]?|draws?|win\w*|bett?er|best|prefer\w*|choose|chose\w*|choice|pick\w*|verdict|judg\w*"
    r"|correct\w*|incorrect\w*|wrong\w*|right\w*|superior|strong\w*|confiden\w*|answers?|candidates?"
    r"|solutions?|not|no|however|but|actually|wait|instead|neither|both are|high|low|certain\w*|sure|unsure"
    r"|one|two|first|second|think\w*)\b",
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

    Where the prompt asked for a `code` inside the verdict, one that carries it goes before any other. With
    `bound_only` (a text shown is `readable`) no other counts; if the prompt asked for no code, then only tags
    in the form that quoting keeps from candidates.
    """
    if not truncated and (terse := read_terse(ask, text, code)) is not None:
        return terse
    words = said(text, nonce)
    whole = not truncated and not words.unfinished
    own = plainly(words.text.lstrip("\n"))  # where most of a long reply is blanked, little is left
    reading = None
    if code:
        reading = _read(ask, Reply(own, whole, code, bound=True), bound_only=bound_only)
    elif bound_only:
        reading = _read(ask, Reply(words.text, whole, strict=True))
    if reading is not None and reading.answer is not None:
        return reading._replace(bound=bool(code))
    if reading is None:  # a bound verdict that contradicts itself gives way to no other
        other = _read(ask, Reply(own, whole, code))
        if other is not None and other.answer is not None:
            return Reading(None, "none", "unbound") if bound_only else other
    if truncated:
        return Reading(None, "none", "truncated")
    if not words.text.strip():
        return Reading(None, "none", "no-tag" if words.unfinished else "empty")
    return Reading(None, "none", "refused" if _REFUSAL.search(words.text) else "no-tag")


_CONTRADICTED = Reading(None, "none", "no-tag")


def read_terse(ask: Ask, text: str, code: str | None) -> Reading | None:
    """The reading of a terse reply, at a tenth of the cost; the same as the full reading would give."""
    if len(text) > 250 or not isinstance(ask, Pairing) or ask.dialect != "verdicts":
        return None
    found = _TERSE.fullmatch(text)
    if found is None or found[3] != code or (found[1] and _OF_THE_MATTER.search(found[1])):
        return None
    return Reading(verdict_of(found[2], found[4]), "tags", None, found[2], found[4], code is not None)


def _read(ask: Ask, reply: Reply, *, bound_only: bool = False) -> Reading | None:
    """The reading of a reply; without an answer where it contradicts itself, None where it says nothing."""
    if isinstance(ask, Pairing):
        if ask.dialect == "ratings":
            return _read_ratings(reply)
        return _read_winner(reply, bound_only=bound_only)
    return _read_value(reply) if isinstance(ask, Solo) else _read_best(ask, reply)


def _first_choice(
    reply: Reply, names: Sequence[tuple[str, ...]], read: Callable[[str], T | None]
) -> Choice[T] | None:
    choices = (reply.choose(some, read) for some in names)
    return next((choice for choice in choices if choice is not None), None)


def _field(reply: Reply, names: tuple[str, ...], read: Callable[[str], T | None]) -> "Found[T] | None":
    """What the fields of these names say; no value where they differ."""
    values = [value for name, text in reply.fields if name in names and (value := read(text)) is not None]
    if not values:
        return None
    return Found(values[0] if all(value == values[0] for value in values) else None)


class Found(NamedTuple, Generic[T]):
    """What was found; no value where it contradicts itself."""

    value: T | None
    how: How = "plain"
    tag: Tag | None = None


def _find(
    reply: Reply, forms: Forms, names: Sequence[tuple[str, ...]], read: Callable[[str], T | None]
) -> Found[T] | None:
    """Look for an answer in the tags, then in fields, then in words."""
    choice = _first_choice(reply, names, read)
    if choice is not None:
        return Found(choice.value, "tags", choice.tag)
    found = _field(reply, tuple(name for some in names for name in some), read)
    if found is not None:
        return found
    value = statements.stated(forms, reply.lines)
    return None if value is None else Found(cast("T", value))


def _read_winner(reply: Reply, *, bound_only: bool) -> Reading | None:
    found = _find(reply, SIDE, (("winner",), ("verdict", "answer", "best")), side) or _by_ratings(reply)
    if found is None:
        return None
    winner = found.value
    if winner is None or (found.tag and not reply.bound and _contradicted(reply, found.tag, winner)):
        return _CONTRADICTED
    sure = _sureness(reply, found.tag, winner, bound_only=bound_only)
    return Reading(verdict_of(winner, sure), found.how, None, winner, sure)


def _by_ratings(reply: Reply) -> Found[str] | None:
    """The winner by two ratings, where the reply rates instead."""
    found = _ratings(reply)
    if found is None:
        return None
    a, b = found.value
    if a is None or b is None:
        return None
    return Found("TIE" if a == b else "A" if a > b else "B", found.how)


def _contradicted(reply: Reply, tag: Tag, winner: str) -> bool:
    """Whether the words right before a verdict, or any after it, name another winner or take it back."""
    after = [line for line in reply.lines if line.start >= tag.ends]
    before = [line for line in reply.lines if tag.opens - _NEAR <= line.start < tag.opens][-2:]
    if statements.retracted(after):
        return True
    return bool((statements.statements(SIDE, before) | statements.statements(SIDE, after)) - {winner})


def _sureness(reply: Reply, chosen: Tag | None, winner: str, *, bound_only: bool) -> str:
    """How sure the judge is of this winner: a confidence belongs to the winner named last before it."""
    sure = _tagged_sureness(reply, chosen, winner, bound_only=bound_only)
    if sure is None and not reply.strict:
        found = _field(reply, ("confidence",), sureness)
        sure = found.value if found else None
    if sure is None and reply.whole:
        lines = reply.all_lines if chosen is not None or not bound_only else reply.lines
        start = chosen.ends if chosen is not None and bound_only else 0
        beside = [bare(reply.around(chosen)[1])] if chosen is not None else []
        after = [line.words for line in lines if line.start >= start]
        sure = statements.stated_sureness(beside) or statements.stated_sureness(after)
    return sure or "LOW"


def _tagged_sureness(reply: Reply, chosen: Tag | None, winner: str, *, bound_only: bool) -> str | None:
    named = [
        tag
        for tag in reply.tags
        if tag.name in ("winner", "verdict", "answer") and side(tag.content) is not None
    ]
    places = [one.opens for one in named]
    sure = None
    for tag in reply.tags:
        if tag.name != "confidence" or reply.quoted(tag) or (value := sureness(tag.content)) is None:
            continue
        before = bisect_left(places, tag.opens)
        owner = named[max(0, before - 1)] if named else None
        if owner is not None:
            ours = (
                side(owner.content) == winner
                and not (reply.bound and not owner.bound)
                and not reply.quoted(owner)
            )
            beside = before or not bound_only or not reply.said_between(tag, owner)
            if not ours or not beside:
                continue
        sure = value
        if bound_only and chosen is not None and tag.opens > chosen.opens:
            break
    return sure


def _read_ratings(reply: Reply) -> Reading | None:
    found = _ratings(reply)
    if found is None:
        return None
    a, b = found.value
    if (a is None and b is None) or (None in (a, b) and (not reply.whole or reply.bound)):
        return None
    return Reading(Verdict(MIDDLE if a is None else a, MIDDLE if b is None else b), found.how)


def _ratings(reply: Reply) -> "_Ratings | None":
    a, b = reply.choose(("rating_a",), rating), reply.choose(("rating_b",), rating)
    if a is None and b is None:
        stated = statements.stated_ratings(reply.lines)
        return _Ratings((stated.get("A"), stated.get("B")), "plain") if stated else None
    if reply.bound and (a is None or b is None):
        return _completed(reply, a, b)
    if (a and a.value is None) or (b and b.value is None):
        return _Ratings((None, None), "tags")
    return _Ratings((a.value if a else None, b.value if b else None), "tags")


class _Ratings(NamedTuple):
    value: tuple[float | None, float | None]
    how: How


def _completed(reply: Reply, a: Choice[float] | None, b: Choice[float] | None) -> _Ratings | None:
    """Both ratings where only one carries the code and the other stands right beside it."""
    bound, name = (a, "rating_b") if a else (b, "rating_a")
    if bound is None:
        return None
    for tag in reply.tags:
        first, second = (tag, bound.tag) if tag.opens < bound.tag.opens else (bound.tag, tag)
        if tag.name == name and not reply.said_between(first, second):
            value = rating(tag.content)
            return _Ratings((bound.value, value) if a else (value, bound.value), "tags")
    return None


def _read_value(reply: Reply) -> Reading | None:
    found = _find(reply, RATING, (("rating",), ("verdict",)), rating)
    if found is None:
        return None
    return _CONTRADICTED if found.value is None else Reading(Rating(found.value), found.how)


def _read_best(ask: Group, reply: Reply) -> Reading | None:
    found = _find(reply, PLACE, (("best",), ("winner",), ("verdict",)), place)
    if found is None:
        return None
    number = found.value
    if number is None or not 1 <= number <= len(ask.entrants):
        return _CONTRADICTED
    return Reading(Pick(ask.entrants[number - 1]), found.how)
