"""Estimates with intervals: bootstrap, jackknife, Wilson, McNemar's test, Pareto fronts, root finding."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import comb
from random import Random
from statistics import NormalDist, fmean, quantiles, variance
from typing import TypeVar

# Bootstrap over problems


RESAMPLES = 1000


def mean_interval(
    values: Sequence[float], *, resamples: int = RESAMPLES, level: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean, such as a mean paired difference between two methods."""
    if not values:
        raise ValueError("a bootstrap needs at least one value")
    rng = Random(len(values))  # seeded by the input: the same figures give the same interval
    return _percentiles([fmean(rng.choices(values, k=len(values))) for _ in range(resamples)], level)


def ratio_interval(
    above: Sequence[float], below: Sequence[float], *, resamples: int = RESAMPLES, level: float = 0.95
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of a ratio of sums; None if a resample has a zero denominator."""
    if len(above) != len(below):
        raise ValueError(f"{len(above)} numerators for {len(below)} denominators")
    pairs, rng = list(zip(above, below, strict=True)), Random(len(above))
    ratios = []
    for _ in range(resamples):
        drawn = rng.choices(pairs, k=len(pairs)) if pairs else []
        divisor = sum(pair[1] for pair in drawn)
        if not divisor:
            return None
        ratios.append(sum(pair[0] for pair in drawn) / divisor)
    return _percentiles(ratios, level)


def _percentiles(found: list[float], level: float) -> tuple[float, float]:
    found.sort()
    last, tail = len(found) - 1, (1 - level) / 2
    return found[round(tail * last)], found[round((1 - tail) * last)]


@dataclass(frozen=True, slots=True)
class Range:
    """A mean, and the range of nine in ten."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Range":
        """The mean and the range of simulated values."""
        cuts = quantiles(values, n=20)
        return cls(fmean(values), cuts[0], cuts[-1])

    def times(self, count: float) -> "Range":
        """The range if every problem of many were like this one: all easy, or all hard."""
        return Range(self.mean * count, self.low * count, self.high * count)


# Confidence intervals.


Z95 = 1.959963984540054


def wilson(successes: float, trials: float, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval of a proportion; 0 to 1 without trials."""
    if trials == 0:
        return 0.0, 1.0
    share, spread = successes / trials, z * z / trials
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / trials + spread / (4 * trials))
    return max(0.0, centre - half), min(1.0, centre + half)


T = TypeVar("T")
GROUPS = 50  # a jackknife divides the cases into at most this many groups


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, its interval, and the number of cases and observations (`looks`) behind it."""

    value: float
    low: float
    high: float
    cases: int
    looks: int

    def contains(self, truth: float) -> bool:
        """Whether a value lies in the interval."""
        return self.low <= truth <= self.high

    def stretched(self, low: float, high: float) -> "Estimate":
        """The estimate with the scale 0 to 1 mapped to `low` to `high`."""
        wide = high - low
        return Estimate(
            low + wide * self.value, low + wide * self.low, low + wide * self.high, self.cases, self.looks
        )


def mean_estimate(values: Sequence[float], looks: int, level: float = 0.95) -> Estimate | None:
    """Mean of one value from 0 to 1 per case, with Wilson's interval; None without cases.

    The number of trials follows from the variance; with values of 0 and 1 only it is the number of cases.
    """
    if not values:
        return None
    spread = variance(values) / len(values) if len(values) > 1 else 0.0
    return _estimate(fmean(values), spread, cases=len(values), units=len(values), looks=looks, level=level)


def jackknife(
    cases: Sequence[Sequence[T]], statistic: Callable[[Sequence[T]], float | None], level: float = 0.95
) -> Estimate | None:
    """Jackknife over cases of a statistic from 0 to 1 that is computed from all observations together."""
    everything = [obs for case in cases for obs in case]
    whole = statistic(everything)
    if whole is None:
        return None
    count = min(len(cases), GROUPS)
    left = [
        statistic([obs for index, case in enumerate(cases) if index % count != group for obs in case])
        for group in range(count if count > 1 else 0)
    ]
    known = [value for value in left if value is not None]
    spread = 0.0
    if len(known) > 1:
        middle = fmean(known)
        spread = (len(known) - 1) / len(known) * sum((value - middle) ** 2 for value in known)
    return _estimate(whole, spread, cases=len(cases), units=count, looks=len(everything), level=level)


def student(freedom: int, level: float = 0.95) -> float:
    """Two-sided quantile of Student's t: exact for 1 and 2 degrees of freedom, else within 1 %."""
    if freedom <= 1:
        return math.tan(math.pi / 2 * level)
    if freedom == 2:
        return level * math.sqrt(2 / (1 - level**2))
    z, v = NormalDist().inv_cdf((1 + level) / 2), freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def _estimate(value: float, spread: float, *, cases: int, units: int, looks: int, level: float) -> Estimate:
    if units < 2:
        return Estimate(value, 0.0, 1.0, cases, looks)
    # Without variance every case counts as one trial, the most cautious choice.
    trials = value * (1 - value) / spread if spread > 1e-12 and 0 < value < 1 else float(units)
    low, high = wilson(value * trials, trials, student(units - 1, level))
    return Estimate(value, low, high, cases, looks)


# Whether stated probabilities hold


CALIBRATION_BINS = 10


def brier_score(stated: Sequence[tuple[float, float]]) -> float | None:
    """Mean squared distance of stated probabilities from the outcomes; 0.25 if they are always ½."""
    return fmean((probability - outcome) ** 2 for probability, outcome in stated) if stated else None


def expected_calibration_error(stated: Sequence[tuple[float, float]]) -> float | None:
    """Mean distance of stated probabilities from the share of right outcomes, in ten bins of equal width."""
    gaps = [0.0] * CALIBRATION_BINS
    for probability, outcome in stated:
        gaps[calibration_bin(probability)] += probability - outcome
    return sum(map(abs, gaps)) / len(stated) if stated else None


def calibration_bin(probability: float) -> int:
    """The bin of a stated probability."""
    return min(CALIBRATION_BINS - 1, int(CALIBRATION_BINS * probability))


# McNemar's exact test


def discordant(pairs: Iterable[tuple[bool, bool]]) -> tuple[int, int]:
    """Counts of pairs in which only the first is right, and only the second."""
    listed = list(pairs)
    return sum(a and not b for a, b in listed), sum(b and not a for a, b in listed)


def exact_mcnemar(only_first: int, only_second: int) -> float:
    """Two-sided p-value of McNemar's exact test; 1 if the two never differ."""
    trials, fewer = only_first + only_second, min(only_first, only_second)
    tail = sum(comb(trials, k) for k in range(fewer + 1)) / 2**trials
    return min(1.0, float(2 * tail))


def pareto_front(options: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the (cost, value) options on the Pareto front, cheapest first."""
    front, best = list[int](), float("-inf")
    for index in sorted(range(len(options)), key=lambda one: (options[one][0], -options[one][1])):
        if options[index][1] > best:
            front.append(index)
            best = options[index][1]
    return front


GOLDEN = (math.sqrt(5) - 1) / 2


def find_peak(function: Callable[[float], float], low: float, high: float, *, width: float = 1e-3) -> float:
    """Argument at which a function with a single maximum takes it, by golden-section search."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > width:
        if at_left < at_right:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = function(right)
        else:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = function(left)
    return (low + high) / 2


def find_crossing(
    function: Callable[[float], float], wanted: float, low: float, high: float, *, width: float = 1e-3
) -> float:
    """Argument at which an increasing function takes a value, by bisection."""
    while high - low > width:
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < wanted else (low, middle)
    return (low + high) / 2
