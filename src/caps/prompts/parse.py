"""A judge's reply becomes an answer and a note on how it was read. Total and linear: it never raises.

A wrong reading is far worse than none, because a reply that cannot be read is asked for again. So:

* tags and structured forms are read generously, whatever their brackets and decoration;
* plain words count only in an unmistakable final statement of a whole reply (see `statements`);
* what contradicts itself, is doubted, quoted, or stands in a thought that was cut, is no answer;
* where the prompt asked for a code, a verdict that carries it goes before all others.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Literal, NamedTuple, TypeVar, cast

from caps.core.types import Ask, Group, Pairing, Pick, Rating, Solo, Verdict
from caps.prompts import statements
from caps.prompts.own_words import Line, OwnWords, fields, lines_of, own_words
from caps.prompts.statements import PLACE, RATING, SIDE, Forms, readable
from caps.prompts.tags import (
    MIDDLE,
    Tag,
    bare,
    place,
    plainly,
    rating,
    side,
    sureness,
    tags,
    verdict_of,
    without_code,
)

T = TypeVar("T")

# Text before a tag that marks it as a quotation, or as doubtful.
_QUOTING = re.compile(
    r"\b(?:contains?|includes?|says?|said|claims?|claimed|prints?|returned|injects?|injected|writes?|wrote"
    r"|ends? with|outputs?|embeds?"
    r"|the (?:line|text|comment|string)|tries|e\.g|for example|for instance|such as|like)\b",
    re.IGNORECASE,
)
_UNSURE = re.compile(
    r"\b(?:maybe|perhaps|possibly|if|whether|might|could|would not|not|never|n['’]t|cannot|neither|so far"
    r"|leaning)\b[^.;!\n]{0,60}$",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"[\s*_`.\"'”)]{0,8}(?:\?|(?:would be|would have been|is|was|seems|cannot be|can['’]t be|isn['’]t"
    r"|must be) (?:\w+ )?(?:wrong|incorrect|not|a mistake|right)\b|(?:cannot|can['’]t|isn['’]t)\b)",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"\b(?:wait|hmm+|but|however|actually|let me|let['’]s|alternatively|though|although|check|verify"
    r"|maybe|perhaps|hold on|no,)\b|\?",
    re.IGNORECASE,
)
_THINKING = re.compile(
    r"\s{0,20}(?:okay|ok|alright|all right|hmm+|so,|well,|let me|let['’]s|first, (?:i|let)|i need to"
    r"|we need to|i should)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w")
_ANY_TAG = re.compile(r"(?:<|&lt;|\[)/?[^<>\[\]\n]{0,80}(?:>|&gt;|\])")
_PARTIAL_TAG = re.compile(r"<[^<>\n]{0,40}$")
_LINE = 300


@dataclass(frozen=True)
class Reply:
    """The readable parts of a reply: its tags and, if it is whole, its lines and fields.

    `bound` keeps only what carries the code, `strict` only tags in the very form that prompts ask for:
    quoting keeps candidates from having that form, whatever the prompt.
    """

    text: str
    whole: bool
    code: str | None = None
    bound: bool = False
    strict: bool = False

    @cached_property
    def tags(self) -> Sequence[Tag]:
        """The tags that are closed or at the end of a whole reply."""
        found = [tag for tag in tags(self.text, self.code) if tag.closed or self.whole]
        return [tag for tag in found if tag.asked] if self.strict else found

    @cached_property
    def all_lines(self) -> Sequence[Line]:
        """The lines of a whole reply without tags."""
        if not self.whole or self.strict:
            return ()
        found = list(tags(self.text, self.code))
        starts = [tag.opens for tag in found]
        return [line for line in lines_of(self.text) if not _touched(line, found, starts)]

    @cached_property
    def lines(self) -> Sequence[Line]:
        """The lines that may state an answer; of a bound reply, those with the code, which is removed."""
        lines = self.all_lines
        if not self.bound:
            return lines
        stripped = [(line, *without_code(line.words, self.code)) for line in lines]
        return [line._replace(words=_tidy(words)) for line, words, bound in stripped if bound]

    @cached_property
    def fields(self) -> Sequence[tuple[str, str]]:
        """The JSON-like fields that state a verdict; together they count as one statement."""
        if self.strict:
            return ()
        found = [
            (name, *without_code(value, self.code))
            for name, value, start in fields(self.text)
            if self.bound or not _QUOTING.search(self.introducing(start))
        ]
        return [
            (name, value) for name, value, bound in found if bound or name == "confidence" or not self.bound
        ]

    def introducing(self, start: int) -> str:
        """The text on a line before the object of a field."""
        return self.text[max(0, start - _LINE) : start].rpartition("\n")[2].partition("{")[0]

    def counting(self, *names: str) -> list[Tag]:
        """The tags of these names that may be the verdict."""
        found = [tag for tag in self.tags if tag.name in names and (tag.bound or not self.bound)]
        return found if self.bound else [tag for tag in found if not self.quoted(tag)]

    def quoted(self, tag: Tag) -> bool:
        """Whether the line of a tag attributes it to someone else."""
        before, after = self.around(tag)
        mark = before[-1:]
        if mark in "`\"'“”‘«" and mark and (_WORD.search(before[:-1]) or _WORD.search(after)):
            return True
        return bool(_QUOTING.search(before))

    @cached_property
    def prose(self) -> str:
        """The text with all tags and their contents blanked; positions do not change."""
        pieces, at = list[str](), 0
        for tag in tags(self.text, self.code):
            pieces += self.text[at : tag.opens], " " * (tag.ends - tag.opens)
            at = tag.ends
        return _ANY_TAG.sub(lambda found: " " * len(found[0]), "".join([*pieces, self.text[at:]]))

    def around(self, tag: Tag) -> tuple[str, str]:
        """The text before and after a tag on its line, without tags."""
        before = self.prose[max(0, tag.opens - _LINE) : tag.opens].rpartition("\n")[2]
        return before, self.prose[tag.ends : tag.ends + _LINE].partition("\n")[0]

    def said_between(self, first: Tag, second: Tag) -> bool:
        """Whether there is a word outside of tags between two tags."""
        between = self.prose[first.ends : min(second.opens, first.ends + _LINE)]
        return second.opens - first.ends > _LINE or bool(_WORD.search(between))

    def settled(self, tag: Tag) -> bool:
        """Whether a verdict in a truncated reply is final, not a draft in a thought."""
        rest = _PARTIAL_TAG.sub("", self.prose[tag.ends :])
        if not _WORD.search(rest):
            return True
        before, _ = self.around(tag)
        if _WORD.search(before) or _THINKING.match(self.text):
            return False
        return not _GOES_ON.search(rest)

    def choose(self, names: tuple[str, ...], read: Callable[[str], T | None]) -> "Choice[T] | None":
        """The last readable tag of these names; without a value if tags contradict each other."""
        found = [(tag, value) for tag in self.counting(*names) if (value := read(tag.content)) is not None]
        if not found:
            return None
        tag, value = found[-1]
        before, after = self.around(tag)
        doubted = _UNSURE.search(before) or _DENIED.match(after.strip())
        if doubted or not (self.whole or self.settled(tag)):
            return Choice(tag, None)
        differing = next((one for one, other in reversed(found[:-1]) if other != value), None)
        if differing is not None and not self.said_between(differing, tag):
            return Choice(tag, None)
        return Choice(tag, value)


class Choice(NamedTuple, Generic[T]):
    """The deciding tag and its value; None if it is doubted or contradicted."""

    tag: Tag
    value: T | None


def _touched(line: Line, found: Sequence[Tag], starts: Sequence[int]) -> bool:
    """Whether a line contains a tag or is inside one; text in an unreadable tag does not count either."""
    at = bisect_left(starts, line.start)
    if at < len(found) and found[at].opens < line.start + line.length:
        return True
    return at > 0 and found[at - 1].ends > line.start


def _tidy(words: str) -> str:
    """Remove the punctuation and the word "code" left over after the code was removed."""
    return re.sub(r"[ ,;:]*(?:\bcode\b)?[ ,;:]*$", "", " ".join(words.split()), flags=re.IGNORECASE)


_NEAR = 300  # characters before a tag in which words may contradict it

__all__ = ["Reading", "read_bound", "read_reply", "read_terse", "readable"]

How = Literal["tags", "json", "plain", "none"]

_REFUSAL = re.compile(
    r"\b(?:i|we)(?: am|['’]m| are)? (?:(?:really )?sorry\b|must decline\b"
    r"|(?:can ?not|can['’]t|won['’]t|will not|unable to|not able to) "
    r"(?:assist|help|comply|provide|answer|judge|evaluate|compare|do|rate|fulfill|continue|engage)\b)",
    re.IGNORECASE,
)


# A terse reply: the two requested tags, after at most one sentence without a judgement.
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
    """The answer read from a reply, and how; `cause` says why there is none.

    Causes: `truncated`, `refused`, `empty`, `unbound` for a verdict without the code where only one with it
    counts, and `no-tag` for anything unreadable. `bound`: the answer carries the code.
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
    """Read the judge's answer to `ask`; reasoning, quotations and echoes do not count.

    Where the prompt asked for a `code` inside the verdict, one that carries it goes before any other. With
    `bound_only` (a text shown is `readable`) no other counts; if the prompt asked for no code, then only tags
    in the form that quoting keeps from candidates.
    """
    if not truncated and (terse := read_terse(ask, text, code)) is not None:
        return terse
    words, own, whole = _own_part(text, nonce, truncated=truncated)
    reading = None
    if code:
        reading = _read(ask, Reply(own, whole, code, bound=True), bound_only=bound_only)
    elif bound_only:
        reading = _read(ask, Reply(words.text, whole, strict=True))
    if reading is not None and reading.answer is not None:
        return reading._replace(bound=bool(code))
    if reading is None:  # a contradictory bound verdict is not replaced by another
        other = _read(ask, Reply(own, whole, code))
        if other is not None and other.answer is not None:
            return Reading(None, "none", "unbound") if bound_only else other
    if truncated:
        return Reading(None, "none", "truncated")
    if not words.text.strip():
        return Reading(None, "none", "no-tag" if words.unfinished else "empty")
    return Reading(None, "none", "refused" if _REFUSAL.search(words.text) else "no-tag")


def read_bound(ask: Ask, text: str, *, truncated: bool, nonce: str, code: str) -> Reading | None:
    """What `read_reply` reads if the verdict carries the code, whatever `bound_only` is; None if unknown.

    Then it does not matter whether a text shown is `readable`, which takes longer to find out.
    """
    if code not in text.lower():
        return None
    _, own, whole = _own_part(text, nonce, truncated=truncated)
    reading = _read(ask, Reply(own, whole, code, bound=True), bound_only=None)
    return None if reading is None or reading.answer is None else reading._replace(bound=True)


def _own_part(text: str, nonce: str, *, truncated: bool) -> tuple[OwnWords, str, bool]:
    """The judge's own words, the same in plain letters, and whether they are complete."""
    words = own_words(text, nonce)
    own = plainly(words.text.lstrip("\n"))  # little is left if most of a long reply is blanked
    return words, own, not truncated and not words.unfinished


_CONTRADICTED = Reading(None, "none", "no-tag")


def read_terse(ask: Ask, text: str, code: str | None) -> Reading | None:
    """Read a terse reply at a tenth of the cost, with the same result."""
    if len(text) > 250 or not isinstance(ask, Pairing) or ask.dialect != "verdicts":
        return None
    found = _TERSE.fullmatch(text)
    if found is None or found[3] != code or (found[1] and _OF_THE_MATTER.search(found[1])):
        return None
    return Reading(verdict_of(found[2], found[4]), "tags", None, found[2], found[4], code is not None)


def _read(ask: Ask, reply: Reply, *, bound_only: bool | None = False) -> Reading | None:
    """Read a reply; without an answer if it contradicts itself, None if it has none.

    With `bound_only` None, also if the answer depends on it.
    """
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
    """The value of the fields of these names; no value if they differ."""
    values = [value for name, text in reply.fields if name in names and (value := read(text)) is not None]
    if not values:
        return None
    return Found(values[0] if all(value == values[0] for value in values) else None)


class Found(NamedTuple, Generic[T]):
    """A value read from a reply; none if it is contradictory."""

    value: T | None
    how: How = "plain"
    tag: Tag | None = None


def _find(
    reply: Reply, forms: Forms, names: Sequence[tuple[str, ...]], read: Callable[[str], T | None]
) -> Found[T] | None:
    """Search for an answer in tags, then in fields, then in prose."""
    choice = _first_choice(reply, names, read)
    if choice is not None:
        return Found(choice.value, "tags", choice.tag)
    found = _field(reply, tuple(name for some in names for name in some), read)
    if found is not None:
        return found
    value = statements.stated(forms, reply.lines)
    return None if value is None else Found(cast("T", value))


def _read_winner(reply: Reply, *, bound_only: bool | None) -> Reading | None:
    found = _find(reply, SIDE, (("winner",), ("verdict", "answer", "best")), side) or _by_ratings(reply)
    if found is None:
        return None
    winner = found.value
    if winner is None or (found.tag and not reply.bound and _contradicted(reply, found.tag, winner)):
        return _CONTRADICTED
    either = (True, False) if bound_only is None else (bound_only,)
    sure, *other = {_sureness(reply, found.tag, winner, bound_only=one) for one in either}
    return None if other else Reading(verdict_of(winner, sure), found.how, None, winner, sure)


def _by_ratings(reply: Reply) -> Found[str] | None:
    """The winner by two ratings, if the reply has these instead."""
    found = _ratings(reply)
    if found is None:
        return None
    a, b = found.value
    if a is None or b is None:
        return None
    return Found("TIE" if a == b else "A" if a > b else "B", found.how)


def _contradicted(reply: Reply, tag: Tag, winner: str) -> bool:
    """Whether the text just before a verdict, or after it, names another winner or retracts it."""
    after = [line for line in reply.lines if line.start >= tag.ends]
    before = [line for line in reply.lines if tag.opens - _NEAR <= line.start < tag.opens][-2:]
    if statements.retracted(after):
        return True
    return bool((statements.statements(SIDE, before) | statements.statements(SIDE, after)) - {winner})


def _sureness(reply: Reply, chosen: Tag | None, winner: str, *, bound_only: bool) -> str:
    """The confidence in this winner; a confidence belongs to the last winner named before it."""
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
    """Both ratings, if one carries the code and the other is right next to it."""
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
