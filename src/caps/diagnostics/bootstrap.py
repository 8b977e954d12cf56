"""Paired bootstrap: what a mean or a ratio over problems might have been, had other problems been drawn."""

from collections.abc import Sequence
from random import Random
from statistics import fmean

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
