"""McNemar's exact test: do two methods differ on the problems where only one of them is right?"""

from collections.abc import Iterable
from math import comb


def discordant(pairs: Iterable[tuple[bool, bool]]) -> tuple[int, int]:
    """How often only the first is right, and how often only the second."""
    listed = list(pairs)
    return sum(a and not b for a, b in listed), sum(b and not a for a, b in listed)


def exact_mcnemar(only_first: int, only_second: int) -> float:
    """Two-sided p under the belief that either is as likely; 1 where they never differ."""
    trials, fewer = only_first + only_second, min(only_first, only_second)
    tail = sum(comb(trials, k) for k in range(fewer + 1)) / 2**trials
    return min(1.0, float(2 * tail))
