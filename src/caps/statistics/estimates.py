"""Estimates with intervals: bootstrap, jackknife, Wilson, McNemar's test, Pareto fronts, root finding."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import comb
from random import Random
from statistics import NormalDist, fmean, variance
from typing import TypeVar

# Paired bootstrap: what a mean or a ratio over problems might have been, had other problems been drawn.


RESAMPLES = 1000


def mean_interval(
    values: Sequence[float], *, resamples: int = RESAMPLES, level: float = 0.95
) -> tuple[float, float]:
    """Percentile interval of a mean, such as that of differences between two methods on the same problems."""
    if not values:
        raise ValueError("a bootstrap needs at least one value")
    rng = Random(len(values))  # a function of its input: the same figures give the same interval
    return _percentiles([fmean(rng.choices(values, k=len(values))) for _ in range(resamples)], level)


def ratio_interval(
    above: Sequence[float], below: Sequence[float], *, resamples: int = RESAMPLES, level: float = 0.95
) -> tuple[float, float] | None:
    """Percentile interval of a ratio of sums over the same problems; none where the divisor may vanish."""
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


# Confidence intervals.


Z95 = 1.959963984540054


def wilson(successes: float, trials: float, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval of a proportion; the whole range where nothing was tried."""
    if trials == 0:
        return 0.0, 1.0
    share, spread = successes / trials, z * z / trials
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / trials + spread / (4 * trials))
    return max(0.0, centre - half), min(1.0, centre + half)


T = TypeVar("T")
GROUPS = 50  # a jackknife leaves out this many groups of cases in turn, at most


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, its interval, and how many cases and looks it comes from."""

    value: float
    low: float
    high: float
    cases: int
    looks: int

    def contains(self, truth: float) -> bool:
        """Whether the interval does."""
        return self.low <= truth <= self.high

    def stretched(self, low: float, high: float) -> "Estimate":
        """The same on another scale: from 0 to 1 becomes from `low` to `high`."""
        wide = high - low
        return Estimate(
            low + wide * self.value, low + wide * self.low, low + wide * self.high, self.cases, self.looks
        )


def mean_estimate(values: Sequence[float], looks: int, level: float = 0.95) -> Estimate | None:
    """The mean of one value from 0 to 1 a case; Wilson's interval, for as many trials as the variance tells.

    Plain Wilson with Student's quantile where each value is 0 or 1; none without cases.
    """
    if not values:
        return None
    spread = variance(values) / len(values) if len(values) > 1 else 0.0
    return _estimate(fmean(values), spread, cases=len(values), units=len(values), looks=looks, level=level)


def jackknife(
    cases: Sequence[Sequence[T]], statistic: Callable[[Sequence[T]], float | None], level: float = 0.95
) -> Estimate | None:
    """Any share of 1 computed from all looks together, its variance from leaving out cases in turn."""
    everything = [look for case in cases for look in case]
    whole = statistic(everything)
    if whole is None:
        return None
    count = min(len(cases), GROUPS)
    left = [
        statistic([look for place, case in enumerate(cases) if place % count != out for look in case])
        for out in range(count if count > 1 else 0)
    ]
    known = [value for value in left if value is not None]
    spread = 0.0
    if len(known) > 1:
        middle = fmean(known)
        spread = (len(known) - 1) / len(known) * sum((value - middle) ** 2 for value in known)
    return _estimate(whole, spread, cases=len(cases), units=count, looks=len(everything), level=level)


def student(freedom: int, level: float = 0.95) -> float:
    """Student's quantile, two-sided, by the expansion in 1/freedom; good to a per cent from 3 degrees on."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    v = max(freedom, 2)
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def _estimate(value: float, spread: float, *, cases: int, units: int, looks: int, level: float) -> Estimate:
    if units < 2:
        return Estimate(value, 0.0, 1.0, cases, looks)
    # Where nothing varies, every case counts as one trial: that is the most caution a share can need.
    trials = value * (1 - value) / spread if spread > 1e-12 and 0 < value < 1 else float(units)
    low, high = wilson(value * trials, trials, student(units - 1, level))
    return Estimate(value, low, high, cases, looks)


# McNemar's exact test: do two methods differ on the problems where only one of them is right?


def discordant(pairs: Iterable[tuple[bool, bool]]) -> tuple[int, int]:
    """How often only the first is right, and how often only the second."""
    listed = list(pairs)
    return sum(a and not b for a, b in listed), sum(b and not a for a, b in listed)


def exact_mcnemar(only_first: int, only_second: int) -> float:
    """Two-sided p under the belief that either is as likely; 1 where they never differ."""
    trials, fewer = only_first + only_second, min(only_first, only_second)
    tail = sum(comb(trials, k) for k in range(fewer + 1)) / 2**trials
    return min(1.0, float(2 * tail))


# Which of several bargains are worth a thought: nothing else is both better and cheaper.


def front(options: Sequence[tuple[float, float]]) -> list[int]:
    """Places of those (cost, value) with more value than all that cost no more, the cheapest first."""
    kept, best = list[int](), float("-inf")
    for place in sorted(range(len(options)), key=lambda one: (options[one][0], -options[one][1])):
        value = options[place][1]
        if value > best:
            kept.append(place)
            best = value
    return kept


# Where a curve has its peak, or takes a value.


GOLDEN = (math.sqrt(5) - 1) / 2


def peak(function: Callable[[float], float], low: float, high: float, *, width: float = 1e-3) -> float:
    """Where a function with one peak has it, by golden section."""
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


def crossing(
    function: Callable[[float], float], wanted: float, low: float, high: float, *, width: float = 1e-3
) -> float:
    """Where a rising function takes a value, by bisection."""
    while high - low > width:
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < wanted else (low, middle)
    return (low + high) / 2
