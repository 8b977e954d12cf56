"""A synthetic judge with known flaws: it reads true labels, blurs them, and answers like a real one.

What it believes of a candidate at a level is the truth plus an error that *persists*: part the candidate's
own, part shared by its cluster (`shared_bias`), half of each carried over from E1 to E2. A comparison adds
noise of its own and a preference for slot A. In units of the standard deviation of a comparison:

    d = belief(a) - belief(b) + position_bias + noise

`|d|` under `tie_band` is a tie, over `high_band` a HIGH verdict. The gap between right and wrong is set so
that over all pairs of one right and one wrong candidate, in both orders, the mean outcome is `accuracy`
(a tie counts half). Games of a tournament are not a sample of all pairs, so accuracy measured there differs.

Every draw is a function of the seed and of what was asked, so answers do not depend on order or processes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from statistics import NormalDist

from caps.core.settings import check_settings, setting
from caps.core.types import Answer, Ask, Entrant, Group, Level, Pairing, Pick, Rating, Verdict
from caps.prompts.tags import verdict_of

NORMAL = NormalDist()
CARRIED = 0.5
MIDDLE_RATING, RATING_SLOPE = 7.0, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeModel:
    """How good the synthetic judge is, and how it errs."""

    accuracy: float = setting(0.8, "mean outcome at E2 over right-wrong pairs", least=0.01, most=0.999)
    accuracy_partial: float = setting(0.71, "the same at E1", least=0.01, most=0.999)
    shared_bias: float = setting(0.0, "share of persistent error that a cluster shares", least=0, most=1)
    noise: float = setting(0.5, "share of the variance that is fresh in each call", least=0, most=1)
    position_bias: float = setting(0.0, "pull towards slot A, in standard deviations", least=-5, most=5)
    tie_band: float = setting(0.1, "differences below this are ties", least=0, most=5)
    high_band: float = setting(0.8, "differences above this are HIGH", least=0, most=5)

    def __post_init__(self) -> None:
        check_settings(self)

    def gap(self, level: Level) -> float:
        """Distance between right and wrong that yields the wanted accuracy."""
        wanted = self.accuracy if level == Level.FULL else self.accuracy_partial
        return _calibrated_gap(wanted, self.tie_band, self.position_bias)


PRESETS = {
    str(percent): JudgeModel(
        accuracy=percent / 100, accuracy_partial=round(0.5 + 0.7 * (percent / 100 - 0.5), 3)
    )
    for percent in (60, 70, 80, 90)
}


class SimulatedJudge:
    """The synthetic judge of one pool."""

    def __init__(
        self,
        model: JudgeModel,
        entrants: Sequence[Entrant],
        correct: Sequence[bool],
        *,
        seed: int,
        case: int = 0,
    ) -> None:
        self._model, self._key = model, (seed, case)
        self._persistent = math.sqrt((1 - model.noise) / 2)
        self._fresh = math.sqrt(model.noise)
        names = {entrant.signature for entrant in entrants if entrant.signature is not None}
        number = {name: i for i, name in enumerate(sorted(names))}
        self._cluster = {e.id: -e.id - 1 if e.signature is None else number[e.signature] for e in entrants}
        self._correct = {e.id: right for e, right in zip(entrants, correct, strict=True)}
        self._beliefs: dict[tuple[int, Level], float] = {}

    def answer(self, ask: Ask) -> Answer:
        """Rule on an ask."""
        if isinstance(ask, Pairing):
            return self._compare(ask)
        if isinstance(ask, Group):
            return Pick(max(ask.entrants, key=lambda one: self._look(one, ask, len(ask.entrants))))
        rating = MIDDLE_RATING + RATING_SLOPE * (
            self._look(ask.entrant, ask, 1) - self._model.gap(ask.level) / 2
        )
        return Rating(min(10, max(1, round(rating))))

    def belief(self, one: int, level: Level) -> float:
        """What the judge takes a candidate to be worth at a level, the same at every look."""
        if (one, level) not in self._beliefs:
            share = self._model.shared_bias
            own = self._error(1, one, level)
            shared = self._error(2, self._cluster[one], level)
            error = math.sqrt(1 - share) * own + math.sqrt(share) * shared
            truth = self._model.gap(level) if self._correct[one] else 0.0
            self._beliefs[one, level] = truth + self._persistent * error
        return self._beliefs[one, level]

    def _error(self, kind: int, who: int, level: Level) -> float:
        steady, fresh = self._draw(kind, who), self._draw(kind, who, level)
        return math.sqrt(CARRIED) * steady + math.sqrt(1 - CARRIED) * fresh

    def _compare(self, ask: Pairing) -> Verdict:
        lean = self.belief(ask.a, ask.level) - self.belief(ask.b, ask.level) + self._model.position_bias
        lean += self._fresh * self._draw(3, ask.a, ask.b, ask.level, ask.draw)
        if ask.dialect == "ratings":
            return self._rate_both(lean)
        size = abs(lean)
        if size < self._model.tie_band:
            return verdict_of("TIE", "LOW")
        return verdict_of("A" if lean > 0 else "B", "HIGH" if size > self._model.high_band else "LOW")

    def _rate_both(self, lean: float) -> Verdict:
        """Two ratings whose distance is 0 in the tie band, 1-3 where a verdict is LOW, 4-9 where HIGH."""
        tie, high = self._model.tie_band, self._model.high_band
        step = max(high - tie, 1e-6) / 3
        margin = 0 if abs(lean) < tie else min(9, 1 + int((abs(lean) - tie) / step))
        low = max(1, 5 - margin // 2)
        low = min(low, 10 - margin)
        return Verdict(low + margin, low) if lean > 0 else Verdict(low, low + margin)

    def _look(self, one: int, ask: Ask, crowd: int) -> float:
        """Belief and the noise of one look at a candidate among `crowd`."""
        noise = self._draw(4, one, crowd, ask.level, ask.draw)
        return self.belief(one, ask.level) + self._fresh / math.sqrt(2) * noise

    def _draw(self, *what: int) -> float:
        """A standard normal number: a function of the seed, the case and what is asked."""
        words = ",".join(map(str, (*self._key, *what))).encode()
        bits = int.from_bytes(blake2b(words, digest_size=8).digest(), "little") >> 12
        return NORMAL.inv_cdf((bits + 0.5) / 2**52)


@lru_cache(maxsize=256)
def _calibrated_gap(accuracy: float, tie_band: float, position_bias: float) -> float:
    """Bisect for the gap at which the mean outcome, over both orders, is `accuracy`."""

    def mean_outcome(gap: float) -> float:
        seated = (gap + position_bias, gap - position_bias)
        return sum(1 - (NORMAL.cdf(tie_band - d) + NORMAL.cdf(-tie_band - d)) / 2 for d in seated) / 2

    low, high = -20.0, 20.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if mean_outcome(middle) < accuracy else (low, middle)
    return (low + high) / 2
