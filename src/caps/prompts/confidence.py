"""How sure a judge is, from the log-probabilities of its verdict tokens instead of its own word for it.

Total: whatever cannot be read is None, and the verbal verdict stands.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from caps.core.types import Ask, Group, Pairing, Rating, Solo, TokenLogprob, Verdict
from caps.prompts.read import Reading

_LEAST_MASS = 0.05  # below this the alternatives are about something else
_SIDE_TOKEN = re.compile(r"[\W_]*+(?:([ab])(?![a-z0-9])|(?:tie|ti|t)(?![a-z]))", re.IGNORECASE)
_DIGIT_TOKEN = re.compile(r"[\W_]*+(10|[1-9])(?![0-9])")


def weigh(
    ask: Ask, tokens: Sequence[TokenLogprob], text: str, reading: Reading, read: Callable[[str], Reading]
) -> Verdict | Rating | None:
    """The answer to `ask` by the distribution over the tokens of its labels, or None.

    `reading` is what was read from the `text` of the reply. Of a model that thinks, servers may give the
    tokens of its thoughts too: only those of the text count. Where the tokens do not spell the text, they are
    read themselves (`read`) and must say the same.
    """
    if isinstance(ask, Group) or reading.answer is None:
        return None
    spelled = "".join(token.token for token in tokens)
    start = len(spelled.rstrip()) - len(text.rstrip())
    if not text.strip() or not spelled.rstrip().endswith(text.strip()):
        start, reading, answer = 0, read(spelled), reading.answer
        if reading.answer != answer:
            return None
    ends = list(accumulate(len(token.token) for token in tokens))
    places = [start + place for place in reading.places]
    if not places or not 0 <= min(places) <= max(places) < len(spelled):
        return None
    if isinstance(ask, Pairing) and ask.dialect != "ratings":
        return _weigh_winner(*_alternatives_at(tokens, ends, places[0]))
    values = [_expected(spelled, place, _alternatives_at(tokens, ends, place)) for place in places]
    if None in values:
        return None
    rated = [value for value in values if value is not None]
    return Rating(rated[0]) if isinstance(ask, Solo) else Verdict(*rated)


def _weigh_winner(*alternatives: tuple[str, float]) -> Verdict | None:
    """The verdict whose weight is |pA - pB|, given that one of A, B and TIE is meant."""
    mass = {"A": 0.0, "B": 0.0, "TIE": 0.0}
    for token, probability in alternatives:
        side = _SIDE_TOKEN.match(token)
        if side:
            mass[(side[1] or "TIE").upper()] += probability
    total = sum(mass.values())
    if total < _LEAST_MASS:
        return None
    lead = (mass["A"] - mass["B"]) / total
    return Verdict(5.5 + 4.5 * lead, 5.5 - 4.5 * lead)


def _expected(spelled: str, place: int, alternatives: Sequence[tuple[str, float]]) -> float | None:
    """The mean rating over the digits that might have stood there."""
    mass: dict[int, float] = {}
    for token, probability in alternatives:
        digit = _DIGIT_TOKEN.match(token)
        if digit:
            mass[int(digit[1])] = mass.get(int(digit[1]), 0.0) + probability
    written = _DIGIT_TOKEN.match(spelled, place)
    if written and 10 not in mass and int(written[1]) >= 6:
        # Tokenisers that split digits show 10 as a 1; beside a high rating that is what a 1 means.
        mass[10] = mass.pop(1, 0.0)
    total = sum(mass.values())
    return None if total < _LEAST_MASS else sum(value * p for value, p in mass.items()) / total


def _alternatives_at(
    tokens: Sequence[TokenLogprob], ends: Sequence[int], place: int
) -> list[tuple[str, float]]:
    """Each token that might have stood at a place, from there on, with its probability."""
    index = bisect_right(ends, place)
    chosen = tokens[index]
    prefix = chosen.token[: place - ends[index] + len(chosen.token)]
    logprobs = {chosen.token: chosen.logprob, **dict(chosen.top)}
    return [
        (token.removeprefix(prefix), math.exp(min(logprob, 0.0)))
        for token, logprob in logprobs.items()
        if not math.isnan(logprob)
    ]
