"""Estimates with intervals, where the cases are the sample: pairs of one case err alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance
from typing import TypeVar

from caps.diagnostics.intervals import wilson

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
