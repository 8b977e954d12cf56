"""A judge's verdicts as evidence: what each adds to the odds of the answers it compares.

A verdict measures by how much one candidate looks better than another: the true gap, if one is right and the
other wrong, plus errors. Part of an error belongs to a candidate, part to all who give its answer, so games
that show the same ones err together: of each, only what earlier ones did not tell is counted.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from operator import mul
from statistics import NormalDist
from typing import NamedTuple

from caps.core.judge_profile import JudgeProfile
from caps.core.types import Level, Verdict

NORMAL = NormalDist()
HIGH_WEIGHT = 4 / 9  # ratings this far apart are a HIGH verdict
CARRIED = 0.5  # how much of a lasting error at E1 is still there at E2
LEAST_NEWS = 0.02  # of a game's variance, however often its like was seen
LEAST_GAP = 0.01


class Scale(NamedTuple):
    """A level in units of a game's spread: right from wrong, a HIGH verdict, a LOW one, the pull of A."""

    gap: float
    high: float
    low: float
    pull: float

    def reading(self, verdict: Verdict) -> float:
        """By how much A looks better than B; nothing after a tie, but for slot A's pull."""
        size = self.high if verdict.weight >= HIGH_WEIGHT else self.low
        return (2 * verdict.outcome - 1) * size - self.pull


@lru_cache(maxsize=64)
def scales(judge: JudgeProfile) -> dict[Level, Scale]:
    """A judge's chances as distances: one verdict alone is worth exactly the odds its chance says."""
    pull = NORMAL.inv_cdf(min(0.99, max(0.01, judge.first_slot)))
    found = {}
    for level, high, low, often in (
        (Level.PARTIAL, judge.e1_high, judge.e1_low, judge.e1_sure),
        (Level.FULL, judge.e2_high, judge.e2_low, judge.e2_sure),
    ):
        gap = NORMAL.inv_cdf(min(0.99, max(0.01, often * high + (1 - often) * low)))
        telling = gap if gap >= LEAST_GAP else 0.0
        sure, unsure = (_logit(chance) / (2 * gap) if telling else 0.0 for chance in (high, low))
        found[level] = Scale(telling, sure, unsure, pull)
    return found


class News(NamedTuple):
    """What one more game would tell beyond the earlier ones: its weights on them, its spread, its design."""

    weights: list[float]
    spread: float
    design: dict[int, float]

    def sharpness(self, one: int, other: int) -> float:
        """Squared distance, in its own spread, between `one` is right and `other` is right."""
        return (self.design.get(one, 0.0) - self.design.get(other, 0.0)) ** 2 / self.spread


class Evidence:
    """All games so far, as support g and strain A of each answer: log-likelihood g·q - q·A·q / 2."""

    def __init__(self, judge: JudgeProfile, answer_of: Mapping[int, int]) -> None:
        self._scales, self._answer_of = scales(judge), answer_of
        lasting = max(1.0, judge.repeats + judge.shared)
        self._own, self._shared = judge.repeats / lasting / 2, judge.shared / lasting / 2
        count = max(answer_of.values()) + 1
        self.support = [0.0] * count
        self.strain = [[0.0] * count for _ in range(count)]
        self._games: list[tuple[int, int, Level]] = []
        self._readings: list[float] = []
        self._inverse: list[list[float]] = []  # of the games' covariance

    def news(self, a: int, b: int, level: Level) -> News:
        """What a game between two would add."""
        common = self._common(a, b, level)
        if common:  # the inverse is symmetric: its rows are its columns
            shares = [c for _, c in common]
            columns = zip(*(self._inverse[i] for i, _ in common), strict=True)
            weights = [sum(map(mul, shares, column)) for column in columns]
        else:
            weights = [0.0] * len(self._games)
        spread = max(LEAST_NEWS, 1.0 - sum(weights[i] * c for i, c in common))
        gap, answer_of = self._scales[level].gap, self._answer_of
        design = {answer_of[a]: gap, answer_of[b]: -gap}
        for weight, (c, d, then) in zip(weights, self._games, strict=True):
            if weight:
                known = weight * self._scales[then].gap
                design[answer_of[c]] = design.get(answer_of[c], 0.0) - known
                design[answer_of[d]] = design.get(answer_of[d], 0.0) + known
        return News(weights, spread, design)

    def add(self, a: int, b: int, level: Level, verdict: Verdict) -> None:
        """Enter a game."""
        weights, spread, design = self.news(a, b, level)
        reading = self._scales[level].reading(verdict)
        surprise = reading - sum(w * known for w, known in zip(weights, self._readings, strict=True))
        for one, x in design.items():
            self.support[one] += x * surprise / spread
            for other, z in design.items():
                self.strain[one][other] += x * z / spread
        for row, u in zip(self._inverse, weights, strict=True):
            row[:] = [old + u * w / spread for old, w in zip(row, weights, strict=True)]
            row.append(-u / spread)
        self._inverse.append([*(-w / spread for w in weights), 1 / spread])
        self._games.append((a, b, level))
        self._readings.append(reading)

    def _common(self, a: int, b: int, level: Level) -> list[tuple[int, float]]:
        """Which games err together with one, and how far: by candidates, and by answers, in common."""
        j, k, found = self._answer_of[a], self._answer_of[b], []
        for i, (c, d, then) in enumerate(self._games):
            m, n = self._answer_of[c], self._answer_of[d]
            alike = (j == m) - (j == n) - (k == m) + (k == n)
            if alike:
                same = (a == c) - (a == d) - (b == c) + (b == d)
                covariance = self._own * same + self._shared * alike
                if covariance:
                    found.append((i, covariance * (1.0 if level == then else CARRIED)))
        return found


def _logit(chance: float) -> float:
    chance = min(0.999, max(0.001, chance))
    return math.log(chance / (1 - chance))
