"""A judge's answers as evidence: what each adds to the odds of the candidates it shows.

A verdict measures by how much one candidate looks better than another: the true gap, if one is right and the
other wrong, plus the pull of slot A, which is unknown, plus errors. Part of an error belongs to a candidate,
part to all that give its answer, part to two candidates in these slots, so answers about the same ones err
together: of each, only what earlier ones did not say is counted. Swapping the slots replaces the last part;
asking again in the same order repeats nearly everything.

A rating measures one candidate, against a mean rating that is unknown too.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from operator import mul
from statistics import NormalDist
from typing import NamedTuple

from caps.core.judge_profile import HIGH_WEIGHT, JudgeProfile
from caps.core.types import Answer, Ask, Level, Pairing, Rating, Solo, Verdict

NORMAL = NormalDist()
CARRIED = 0.5  # how much of a lasting error at E1 is still there at E2
DIFFERENCE = 3  # beside the levels: E1 that shows what separates two candidates
LEAST_NEWS = 0.02  # of a game's variance, however often its like was seen
LEAST_GAP = 0.01
NO_ANSWER, NEITHER = -1, -2  # no answer's number: nothing is in common with a missing second
MIDDLE_RATING = 6.0
SPREAD_OF_MIDDLE = 1.0  # how far the mean rating of a case departs from that, in spreads of a game


class Scale(NamedTuple):
    """A level in units of a game's spread: right from wrong, a HIGH verdict, a LOW one, the pull of A."""

    gap: float
    high: float
    low: float
    pull: float

    def reading(self, verdict: Verdict) -> float:
        """By how much A looks better than B; nothing after a tie, but for slot A's expected pull."""
        size = self.high if verdict.weight >= HIGH_WEIGHT else self.low
        return (2 * verdict.outcome - 1) * size - self.pull


@lru_cache(maxsize=64)
def scales(judge: JudgeProfile) -> dict[Level, Scale]:
    """A judge's chances as distances: one verdict alone is worth exactly the odds its chance says."""
    pull = NORMAL.inv_cdf(min(0.99, max(0.01, judge.first_slot)))
    found = {}
    wide = 1 + judge.slot_spread**2  # a single verdict has the slot's unknown pull among its errors
    for level, high, low, often in (
        (Level.PARTIAL, judge.e1_high, judge.e1_low, judge.e1_sure),
        (Level.FULL, judge.e2_high, judge.e2_low, judge.e2_sure),
    ):
        gap = NORMAL.inv_cdf(min(0.99, max(0.01, often * high + (1 - often) * low))) * math.sqrt(wide)
        telling = gap if gap >= LEAST_GAP else 0.0
        sure, unsure = (wide * _logit(chance) / (2 * gap) if telling else 0.0 for chance in (high, low))
        found[level] = Scale(telling, sure, unsure, pull)
    return found


@lru_cache(maxsize=64)
def rating_gap(judge: JudgeProfile) -> float:
    """Distance between the ratings of right and wrong, where two of them differ by one spread; 0: unused."""
    gap = NORMAL.inv_cdf(min(0.99, max(0.01, judge.rated)))
    return gap if gap >= LEAST_GAP else 0.0


class NewEvidence(NamedTuple):
    """What one more answer would say beyond the earlier ones.

    `design` maps the units it moves, and the two unknowns behind them, to how far; the rest is `spread`.
    """

    weights: list[float]
    spread: float
    design: dict[int, float]
    surprise: float = 0.0


class Evidence:
    """All answers so far as a quadratic form: log-likelihood `support · q - q · strain · q / 2`.

    `q` holds one number for each unit (1 where it is right), then the pull of slot A and the mean rating.
    """

    def __init__(
        self,
        judge: JudgeProfile,
        unit_of: Mapping[int, int],
        answer_of: Mapping[int, int],
        differences: Mapping[int, Collection[int]] | None = None,
        *,
        difference_as: Level = Level.FULL,
        keep_form: bool = True,
    ) -> None:
        """`differences`: where E1 shows what separates two; the verdict counts as one at `difference_as`.

        Without `keep_form`, `support` and `strain` stay empty: the caller uses what each answer adds.
        """
        known = scales(judge)
        self._scales: Mapping[int, Scale] = dict(known) | {DIFFERENCE: known[difference_as]}
        self._rating_gap = rating_gap(judge)
        self._differences = differences or {}
        self._rating_unit = math.sqrt(2) * judge.rating_spread
        self._unit_of, self._answer_of = unit_of, answer_of
        whole = max(1.0, judge.repeats + judge.shared + judge.order_errors)
        self._own, self._shared = judge.repeats / whole / 2, judge.shared / whole / 2
        self._order = judge.order_errors / whole
        self._pull = max(unit_of.values()) + 1
        self._middle, size = self._pull + 1, self._pull + 2
        self.unknown = {self._pull: judge.slot_spread**2, self._middle: SPREAD_OF_MIDDLE**2}
        self.support = [0.0] * size
        self.strain = [[0.0] * size for _ in range(size)]
        self._keep_form = keep_form
        self._asks: list[tuple[int, int | None, int]] = []  # no second where one candidate was rated
        self._designs: list[tuple[tuple[int, float], ...]] = []
        self._readings: list[float] = []
        self.entered: list[NewEvidence] = []
        self._inverse: list[list[float]] = []  # of the answers' covariance

    @property
    def uses_ratings(self) -> bool:
        """Whether ratings of this judge say anything."""
        return self._rating_gap > 0

    def _kind(self, a: int, b: int | None, level: Level) -> int:
        """The level, or that E1 shows what separates the two."""
        return DIFFERENCE if level is Level.PARTIAL and b in self._differences.get(a, ()) else level

    def news(self, a: int, b: int | None, level: Level) -> NewEvidence:
        """What a game between two candidates would add, `a` in slot A, or a rating of one."""
        return self._news(a, b, self._kind(a, b, level))

    def _news(self, a: int, b: int | None, kind: int) -> NewEvidence:
        common = self._common(a, b, kind)
        if common:  # the inverse is symmetric: its rows are its columns
            shares = [c for _, c in common]
            columns = zip(*(self._inverse[i] for i, _ in common), strict=True)
            weights = [sum(map(mul, shares, column)) for column in columns]
        else:
            weights = [0.0] * len(self._asks)
        whole = 0.5 if b is None else 1.0
        spread = max(LEAST_NEWS, whole - sum(weights[i] * c for i, c in common))
        design: dict[int, float] = {}
        for k, x in self._terms(a, b, kind):
            design[k] = design.get(k, 0.0) + x
        for weight, terms in zip(weights, self._designs, strict=True):
            if weight:
                for k, x in terms:
                    design[k] = design.get(k, 0.0) - weight * x
        return NewEvidence(weights, spread, design)

    def add(self, ask: Ask, answer: Answer) -> NewEvidence | None:
        """Enter an answer; what was new in it, or nothing where it cannot be used."""
        reading = self._reading(ask, answer)
        if reading is None:
            return None
        a, *second = ask.entrants
        b = second[0] if second else None
        kind = self._kind(a, b, ask.level)
        news = self._news(a, b, kind)
        weights, spread, design, _ = news
        surprise = reading - sum(map(mul, weights, self._readings))
        for one, x in design.items() if self._keep_form else ():
            self.support[one] += x * surprise / spread
            row = self.strain[one]
            for other, z in design.items():
                row[other] += x * z / spread
        for row, u in zip(self._inverse, weights, strict=True):
            row[:] = [old + u * w / spread for old, w in zip(row, weights, strict=True)]
            row.append(-u / spread)
        self._inverse.append([*(-w / spread for w in weights), 1 / spread])
        self._asks.append((a, b, kind))
        self._designs.append(self._terms(a, b, kind))
        self._readings.append(reading)
        news = news._replace(surprise=surprise)
        self.entered.append(news)
        return news

    def surprises(self, asks: Sequence[Ask], answers: Sequence[Answer]) -> list[float]:
        """The surprise of each answer entered, had these been given to the same asks instead.

        All else about an answer depends on the asks alone.
        """
        read = (self._reading(ask, answer) for ask, answer in zip(asks, answers, strict=True))
        readings = [one for one in read if one is not None]
        return [
            reading - sum(map(mul, news.weights, readings))
            for reading, news in zip(readings, self.entered, strict=True)
        ]

    def _reading(self, ask: Ask, answer: Answer) -> float | None:
        """An answer as a number; None where it cannot be used."""
        if isinstance(ask, Pairing) and isinstance(answer, Verdict):
            return self._scales[self._kind(ask.a, ask.b, ask.level)].reading(answer)
        if isinstance(ask, Solo) and isinstance(answer, Rating) and self._rating_gap:
            return (answer.value - MIDDLE_RATING) / self._rating_unit
        return None

    def _terms(self, a: int, b: int | None, kind: int) -> tuple[tuple[int, float], ...]:
        """What an answer measures: the units it shows, and the unknown behind it."""
        unit = self._unit_of
        if b is None:
            return (unit[a], self._rating_gap), (self._middle, 1.0)
        gap = self._scales[kind].gap
        return (unit[a], gap), (unit[b], -gap), (self._pull, 1.0)

    def _common(self, a: int, b: int | None, kind: int) -> list[tuple[int, float]]:
        """Which answers err together with one, and how far: by candidates, by answers, by order in common."""
        answer_of, found = self._answer_of, []
        j, k = answer_of[a], NO_ANSWER if b is None else answer_of[b]
        for i, (c, d, then) in enumerate(self._asks):
            m, n = answer_of[c], NEITHER if d is None else answer_of[d]
            alike = (j == m) - (j == n) - (k == m) + (k == n)
            same = (a == c) - (a == d) - (b == c) + (b is not None and b == d)
            covariance = self._own * same + self._shared * alike
            if a == c and b == d:
                covariance += self._order * (0.5 if b is None else 1.0)
            if covariance:
                found.append((i, covariance * (1.0 if kind == then else CARRIED)))
        return found


def _logit(chance: float) -> float:
    chance = min(0.999, max(0.001, chance))
    return math.log(chance / (1 - chance))
