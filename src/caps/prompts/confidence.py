"""How sure a judge is, from the log-probabilities of its verdict tokens instead of its own word for it.

Total: whatever cannot be read is None, and the verbal verdict stands.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from caps.core.types import Answer, Ask, Group, Pairing, Rating, Solo, TokenLogprob, Verdict
from caps.prompts.own_words import own_words
from caps.prompts.parse import Reply
from caps.prompts.tags import NOUN, Tag, plainly, rating, side

_LEAST_MASS = 0.05  # below this the alternatives are about something else
_LABEL = re.compile(rf"\s*+[\W_]{{0,16}}(?:{NOUN}[\W_]{{1,8}})?(a|b|tie)(?![a-z0-9])", re.IGNORECASE)
_DIGITS = re.compile(r"\s*+[\W_]{0,16}(10|[1-9])(?![0-9])")
_SIDE_TOKEN = re.compile(r"[\W_]*+(?:([ab])(?![a-z0-9])|(?:tie|ti|t)(?![a-z]))", re.IGNORECASE)
_DIGIT_TOKEN = re.compile(r"[\W_]*+(10|[1-9])(?![0-9])")


def weigh(
    ask: Ask,
    tokens: Sequence[TokenLogprob],
    *,
    nonce: str,
    code: str | None = None,
    bound_only: bool = False,
    text: str | None = None,
    said: Answer | None = None,
    fields: bool = False,
) -> Verdict | Rating | None:
    """Read the answer to `ask` from the distribution over its verdict tokens, or None.

    The tag that is weighed is the one `read_reply` reads: one with the code goes before one without. Of a
    model that thinks, servers may give the tokens of its thoughts too: only those of the reply's `text`
    count.
    Where they cannot be told apart, the tag must say what was read from the text (`said`). With `fields`, the
    reply was read as a JSON object, whose fields stand in place of tags.
    """
    if isinstance(ask, Group):
        return None
    if text is not None:
        own = _of_reply(tokens, text)
        if own is None and not _agrees(ask, tokens, said, nonce=nonce, code=code, bound_only=bound_only):
            return None
        tokens = tokens if own is None else own
    words = own_words("".join(one.token for one in tokens), nonce)
    spoken = _Spoken(tokens, plainly(words.text), not words.unfinished, code, bound_only)
    if fields:
        spoken = _Fields(
            tokens, "".join(one.token for one in tokens), whole=True, code=code, bound_only=False
        )
    if isinstance(ask, Solo):
        value = _expected(spoken, "rating")
        return None if value is None else Rating(value)
    if ask.dialect != "ratings":
        return _weigh_winner(spoken)
    a, b = _expected(spoken, "rating_a"), _expected(spoken, "rating_b")
    return None if a is None or b is None else Verdict(a, b)


def _of_reply(tokens: Sequence[TokenLogprob], text: str) -> Sequence[TokenLogprob] | None:
    """The tokens that a reply ends in; None where its text is not what they spell."""
    written = "".join(one.token for one in tokens).rstrip()
    text = text.strip()
    if not text or not written.endswith(text):
        return None
    start, end = len(written) - len(text), 0
    for place, one in enumerate(tokens):
        end += len(one.token)
        if end > start:
            # A token may begin in the thought: the part of it that does is no word of the reply.
            return tokens[place:] if place else tokens
    return tokens


def _agrees(
    ask: Ask,
    tokens: Sequence[TokenLogprob],
    said: Answer | None,
    *,
    nonce: str,
    code: str | None,
    bound_only: bool,
) -> bool:
    """Whether the tag that would be weighed says what was read from the text of the reply."""
    words = own_words("".join(one.token for one in tokens), nonce)
    spoken = _Spoken(tokens, plainly(words.text), not words.unfinished, code, bound_only)

    def labels(name: str, form: re.Pattern[str], read: Callable[[str], object | None]) -> str | None:
        spot = _spot(spoken, name, form, read)
        return None if spot is None else spot.label.upper()

    if isinstance(said, Rating):
        return labels("rating", _DIGITS, rating) == f"{said.value:g}"
    if not isinstance(said, Verdict):
        return False
    if isinstance(ask, Pairing) and ask.dialect == "ratings":
        pair = (labels("rating_a", _DIGITS, rating), labels("rating_b", _DIGITS, rating))
        return pair == (f"{said.a:g}", f"{said.b:g}")
    return labels("winner", _LABEL, side) == {1.0: "A", 0.5: "TIE", 0.0: "B"}.get(said.outcome)


@dataclass(frozen=True, slots=True)
class _Spoken:
    """The tokens of a reply, and the judge's own words among them."""

    tokens: Sequence[TokenLogprob]
    text: str
    whole: bool
    code: str | None
    bound_only: bool

    def decides(self, name: str, read: Callable[[str], object | None]) -> Tag | None:
        """The tag of this name that decides, as `read_reply` has it."""
        if self.code:
            choice = Reply(self.text, self.whole, self.code, bound=True).choose((name,), read)
            if choice is not None or self.bound_only:
                return None if choice is None or choice.value is None else choice.tag
        choice = Reply(self.text, self.whole, self.code, strict=self.bound_only).choose((name,), read)
        return None if choice is None or choice.value is None else choice.tag


class _Fields(_Spoken):
    """The tokens of a reply that is one JSON object: a field occurs once, and quotes in texts are escaped."""

    def decides(self, name: str, read: Callable[[str], object | None]) -> Tag | None:
        """The field of this name as a tag."""
        found = list(
            re.finditer(rf'(?<!\\)"{name}"[ \t\n]{{0,8}}:[ \t\n]{{0,8}}"?', self.text, re.IGNORECASE)
        )
        if len(found) != 1:
            return None
        start = found[0].end()
        content = re.split(r'[",}]', self.text[start : start + 60], maxsplit=1)[0]
        return Tag(name, content, start, closed=True) if read(content) is not None else None


def _weigh_winner(spoken: _Spoken) -> Verdict | None:
    """The verdict whose weight is |pA - pB|, given that one of A, B and TIE is meant."""
    spot = _spot(spoken, "winner", _LABEL, side)
    if spot is None:
        return None
    mass = {"A": 0.0, "B": 0.0, "TIE": 0.0}
    for token, probability in _alternatives(spoken.tokens[spot.index], spot.prefix):
        found = _SIDE_TOKEN.match(token)
        if found:
            mass[(found[1] or "TIE").upper()] += probability
    total = sum(mass.values())
    if total < _LEAST_MASS:
        return None
    lead = (mass["A"] - mass["B"]) / total
    return Verdict(5.5 + 4.5 * lead, 5.5 - 4.5 * lead)


def _expected(spoken: _Spoken, name: str) -> float | None:
    """The mean rating over the digits that might have stood in the deciding tag of this name."""
    spot = _spot(spoken, name, _DIGITS, rating)
    if spot is None:
        return None
    mass: dict[int, float] = {}
    for token, probability in _alternatives(spoken.tokens[spot.index], spot.prefix):
        found = _DIGIT_TOKEN.match(token)
        if found:
            mass[int(found[1])] = mass.get(int(found[1]), 0.0) + probability
    if 10 not in mass and int(spot.label) >= 6:
        # Tokenisers that split digits show 10 as a 1; beside a high rating that is what a 1 means.
        mass[10] = mass.pop(1, 0.0)
    total = sum(mass.values())
    return None if total < _LEAST_MASS else sum(value * p for value, p in mass.items()) / total


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where a label begins: its token, what of that token stands before it, the label."""

    index: int
    prefix: str
    label: str


def _spot(
    spoken: _Spoken, name: str, form: re.Pattern[str], read: Callable[[str], object | None]
) -> _Spot | None:
    tag = spoken.decides(name, read)
    found = form.match(tag.content) if tag is not None else None
    if tag is None or found is None or (name == "winner" and found[1].upper() != read(tag.content)):
        return None
    at = tag.start + found.start(1)
    ends = list(accumulate(len(one.token) for one in spoken.tokens))
    index = bisect_right(ends, at)
    token = spoken.tokens[index].token
    return _Spot(index, token[: at - ends[index] + len(token)], found[1])


def _alternatives(one: TokenLogprob, prefix: str) -> list[tuple[str, float]]:
    """Each token that might have stood there, behind the prefix, with its probability."""
    logprobs = {one.token: one.logprob, **dict(one.top)}
    return [
        (token.removeprefix(prefix), math.exp(min(logprob, 0.0)))
        for token, logprob in logprobs.items()
        if not math.isnan(logprob)
    ]
