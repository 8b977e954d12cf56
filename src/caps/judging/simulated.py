"""A simulated judge with the errors of measured judges: it knows the labels and adds errors.

In units of the standard deviation of a comparison,

    d = belief(a) - belief(b) + pull + order error + fresh error

A *belief* is the truth at that level plus a lasting error. That error belongs to the candidate, partly to all
candidates with its answer (`shared_bias`), and partly to the case, where it makes all right candidates look
better or worse together (`hardness`). The *order error* belongs to two candidates in these slots: asking
again in the same order repeats it, swapping the slots replaces it. Only the *fresh error* (`noise`) differs
between two calls with the same prompt. The *pull* of a slot has a mean and varies between cases.

`|d|` below `tie_band` is a tie. A verdict is HIGH if `|d|`, blurred by `confidence_noise`, exceeds
`high_band`. The gap between right and wrong is set so that the mean outcome over all pairs of a right and a
wrong candidate, in both orders, is `accuracy` (a tie counts half). The games of a tournament are not a sample
of all pairs, so their accuracy differs.

`docs/explanation/simulated-judge.md` names the data behind each default. Every random number depends only on
the seed and the ask, so answers do not depend on the order of asks or the number of processes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from statistics import NormalDist
from typing import Any

from caps.core.settings import check_settings, setting
from caps.core.types import (
    Answer,
    Ask,
    Entrant,
    Group,
    Level,
    Pairing,
    Pick,
    Rating,
    Verdict,
    shows_difference,
    verdict_of,
)

NORMAL = NormalDist()
PARTIAL_SKILL = 0.7  # the share of the skill above chance at E2 that is left at E1 by default
GOOD_ENOUGH = 0.6  # the accuracy that separates the two default pulls
USUAL_PULL, WEAK_PULL = 0.12, 0.6
MIDDLE_RATING = 7.0
DIFFERENCE = 3  # beside the levels: E1 that shows what separates two candidates
OWN, ANSWER, ORDER, FRESH, SOLO, SOLO_FRESH, SURENESS, CASE, SLOT, SIDE = range(1, 11)  # kinds of draws


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeModel:
    """Accuracy and errors of a simulated judge.

    `noise`, `order_noise` and the rest, which is lasting, are shares of the variance of a comparison.
    """

    accuracy: float = setting(0.8, "mean outcome at E2 over right-wrong pairs", least=0.01, most=0.999)
    accuracy_partial: float = setting(0.71, "the same at E1", least=0.01, most=0.999)
    accuracy_difference: float | None = setting(
        None,
        "the same where E1 shows an input that separates two programs; unset: as at E2",
        least=0.01,
        most=0.999,
    )
    shared_bias: float = setting(
        0.0, "share of a candidate's lasting error that its cluster shares", least=0, most=1
    )
    noise: float = setting(0.02, "share of the variance that is fresh in each call", least=0, most=1)
    order_noise: float = setting(
        0.15, "share of the variance that swapping the slots replaces and redrawing repeats", least=0, most=1
    )
    hardness: float = setting(
        0.15, "share of the variance that all right-wrong pairs of a case have in common", least=0, most=1
    )
    carried: float = setting(
        0.5, "share of all but the fresh error that is the same at E1 and E2", least=0, most=1
    )
    common: float = setting(0.5, "share of lasting error that all judges have in common", least=0, most=1)
    position_bias: float | None = setting(
        None, "mean pull towards slot A, in standard deviations; unset: the usual one", least=-5, most=5
    )
    position_bias_partial: float | None = setting(
        None, "the same at E1; unset: as at E2, or the usual one", least=-5, most=5
    )
    pull_spread: float = setting(
        0.2, "how far the pull varies between cases, in standard deviations", least=0, most=5
    )
    tie_band: float = setting(0.1, "differences below this are ties", least=0, most=5)
    high_band: float = setting(0.5, "differences above this are HIGH", least=0, most=5)
    confidence_noise: float = setting(
        1.4, "error of the judge's own sense of how large a difference is", least=0, most=5
    )
    rating_slope: float = setting(
        0.8, "points of a rating by standard deviation; small is coarse", least=0, most=9
    )

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def in_order(self) -> float:
        """Share of the variance that belongs to the order of the slots."""
        return min(self.order_noise, 1 - self.noise)

    @property
    def lasting(self) -> float:
        """Share of the variance that both orders and all calls have in common."""
        return 1 - self.noise - self.in_order

    def wanted(self, level: int) -> float:
        """The accuracy at a level, or on differences."""
        if level == DIFFERENCE:
            return self.accuracy if self.accuracy_difference is None else self.accuracy_difference
        return self.accuracy if level == Level.FULL else self.accuracy_partial

    def stated_pull(self, level: int) -> float | None:
        """The mean pull at a level, if a setting states one."""
        if level == Level.PARTIAL and self.position_bias_partial is not None:
            return self.position_bias_partial
        return self.position_bias

    def pull(self, level: int) -> float:
        """The mean pull at a level; the sign of the default one depends on the seed."""
        stated = self.stated_pull(level)
        if stated is not None:
            return stated
        return USUAL_PULL if self.wanted(level) >= GOOD_ENOUGH else WEAK_PULL

    @property
    def spread(self) -> float:
        """Standard deviation of a comparison over pairs and cases."""
        return math.sqrt(1 + self.pull_spread**2)

    def gap(self, level: int) -> float:
        """Distance between right and wrong that gives the wanted accuracy."""
        wide = self.spread
        return wide * _calibrated_gap(self.wanted(level), self.tie_band / wide, abs(self.pull(level)) / wide)


def judge_of(accuracy: float, accuracy_partial: float | None = None, **flaws: Any) -> JudgeModel:
    """A judge of this accuracy with default errors; its accuracy at E1 is derived unless it is given."""
    partial = partial_accuracy(accuracy) if accuracy_partial is None else accuracy_partial
    return JudgeModel(accuracy=accuracy, accuracy_partial=partial, **flaws)


def partial_accuracy(accuracy: float) -> float:
    """Default accuracy at E1 of a judge with this accuracy at E2."""
    return round(0.5 + PARTIAL_SKILL * (accuracy - 0.5), 4)


PRESETS = {
    **{str(percent): judge_of(percent / 100) for percent in (60, 70, 80, 90)},
    "strong": judge_of(0.85, noise=0.02, order_noise=0.08, position_bias=0.05, pull_spread=0.1),
    "reasoning": judge_of(0.85, noise=0.1, order_noise=0.1, position_bias=-0.05, pull_spread=0.1),
    "weak": judge_of(0.57, noise=0.04, order_noise=0.2, position_bias=0.6, pull_spread=0.3),
    "biased": judge_of(0.63, noise=0.05, order_noise=0.4, position_bias=0.9, pull_spread=0.35),
}


class SimulatedJudge:
    """The simulated judge of one pool; `judge` numbers several judges with the same seed."""

    def __init__(
        self,
        model: JudgeModel,
        entrants: Sequence[Entrant],
        correct: Sequence[bool],
        *,
        seed: int,
        case: int = 0,
        judge: int = 0,
    ) -> None:
        self._model, self._seed, self._case, self._judge = model, seed, case, judge
        hardness = min(model.hardness, model.lasting)
        self._hardness, self._persistent = math.sqrt(hardness), math.sqrt((model.lasting - hardness) / 2)
        self._in_order, self._fresh = math.sqrt(model.in_order), math.sqrt(model.noise)
        names = {entrant.signature for entrant in entrants if entrant.signature is not None}
        number = {name: i for i, name in enumerate(sorted(names))}
        self._cluster = {e.id: -e.id - 1 if e.signature is None else number[e.signature] for e in entrants}
        self._correct = {e.id: right for e, right in zip(entrants, correct, strict=True)}
        self._entrants = {entrant.id: entrant for entrant in entrants}
        self._beliefs: dict[tuple[int, int], float] = {}
        self._pulls: dict[int, float] = {}

    def answer(self, ask: Ask) -> Answer:
        """Answer an ask."""
        if isinstance(ask, Pairing):
            return self._compare(ask)
        if isinstance(ask, Group):
            return Pick(max(ask.entrants, key=lambda one: self._impression(one, ask, len(ask.entrants))))
        above = self._impression(ask.entrant, ask, 1) - self._model.gap(ask.level) / 2
        return Rating(min(10, max(1, round(MIDDLE_RATING + self._model.rating_slope * above))))

    def belief(self, candidate: int, level: int) -> float:
        """The judge's belief about a candidate at a level or on differences, the same in every call."""
        if (candidate, level) not in self._beliefs:
            share = self._model.shared_bias
            of_candidate = self._lasting(OWN, candidate, level) if share < 1 else 0.0
            shared = self._lasting(ANSWER, self._cluster[candidate], level) if share else 0.0
            worth = self._persistent * (math.sqrt(1 - share) * of_candidate + math.sqrt(share) * shared)
            if self._correct[candidate]:
                worth += self._model.gap(level) + self._hardness * self._lasting(CASE, 0, level)
            self._beliefs[candidate, level] = worth
        return self._beliefs[candidate, level]

    def pull(self, level: int) -> float:
        """The pull towards slot A in this case."""
        if level not in self._pulls:
            mean, spread = self._model.pull(level), self._model.pull_spread
            if self._model.stated_pull(level) is None and _normal(self._seed, self._judge, SIDE) < 0:
                mean = -mean
            self._pulls[level] = mean + (spread * self._error(SLOT, (0,), level) if spread else 0.0)
        return self._pulls[level]

    def _compare(self, ask: Pairing) -> Verdict:
        level = DIFFERENCE if shows_difference(self._entrants, ask) else int(ask.level)
        pair = ask.a, ask.b, level
        lean = self.belief(ask.a, level) - self.belief(ask.b, level) + self.pull(level)
        if self._in_order:
            lean += self._in_order * self._error(ORDER, (ask.a, ask.b), level)
        if self._fresh:
            lean += self._fresh * self._draw(FRESH, *pair, ask.draw)
        size = sense = abs(lean)
        if size < self._model.tie_band:
            return Verdict(5, 5)
        if self._model.confidence_noise:
            sense += self._model.confidence_noise * self._draw(SURENESS, *pair)
        if ask.dialect == "ratings":
            return self._rate_both(lean, sense)
        return verdict_of("A" if lean > 0 else "B", "HIGH" if sense > self._model.high_band else "LOW")

    def _rate_both(self, lean: float, sense: float) -> Verdict:
        """Two ratings with a distance of 1-3 for a LOW verdict, 4-9 for a HIGH one."""
        tie, high = self._model.tie_band, self._model.high_band
        if sense > high:
            margin = min(9, 4 + math.floor(2 * (sense - high)))
        else:
            margin = min(3, max(1, 1 + math.floor(3 * (sense - tie) / max(high - tie, 1e-6))))
        low = min(max(1, 5 - margin // 2), 10 - margin)
        return Verdict(low + margin, low) if lean > 0 else Verdict(low, low + margin)

    def _impression(self, candidate: int, ask: Ask, count: int) -> float:
        """The belief about a candidate shown among `count`, with errors scaled to those of a comparison."""
        error = self._in_order * self._error(SOLO, (candidate, count), ask.level)
        error += self._fresh * self._draw(SOLO_FRESH, candidate, count, ask.level, ask.draw)
        return self.belief(candidate, ask.level) + error / math.sqrt(2)

    def _lasting(self, kind: int, who: int, level: int) -> float:
        """A lasting error, part of which all judges have in common."""
        common = self._model.common
        error = 0.0
        if common:
            error += math.sqrt(common) * self._error(kind, (who,), level, judge=-1)
        if common < 1:
            error += math.sqrt(1 - common) * self._error(kind, (who,), level)
        return error

    def _error(self, kind: int, who: tuple[int, ...], level: int, judge: int | None = None) -> float:
        """An error at a level, part of whose variance is the same at the other level."""
        judge, carried = self._judge if judge is None else judge, self._model.carried
        steady = _normal(self._seed, self._case, judge, kind, *who)
        here = _normal(self._seed, self._case, judge, kind, *who, 10 + level)
        return math.sqrt(carried) * steady + math.sqrt(1 - carried) * here

    def _draw(self, *what: int) -> float:
        return _normal(self._seed, self._case, self._judge, *what)


def _normal(*what: int) -> float:
    """A standard normal number determined by its arguments."""
    key = ",".join(map(str, what)).encode()
    bits = int.from_bytes(blake2b(key, digest_size=8).digest(), "little") >> 12
    return NORMAL.inv_cdf((bits + 0.5) / 2**52)


@lru_cache(maxsize=1024)
def _calibrated_gap(accuracy: float, tie_band: float, position_bias: float) -> float:
    """The gap at which the mean outcome over both orders is `accuracy`, by bisection."""

    def mean_outcome(gap: float) -> float:
        orders = (gap + position_bias, gap - position_bias)
        return sum(1 - (NORMAL.cdf(tie_band - d) + NORMAL.cdf(-tie_band - d)) / 2 for d in orders) / 2

    low, high = -20.0, 20.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if mean_outcome(middle) < accuracy else (low, middle)
    return (low + high) / 2
