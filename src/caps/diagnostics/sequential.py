"""When is enough enough: intervals that hold at every look, so that one may stop whenever they settle it.

The confidence sequence of Waudby-Smith and Ramdas (2024, "Estimating means of bounded random variables by
betting"): against every possible mean m two gamblers bet, one that the values lie above m, one that they
lie below. If m is the true mean neither can grow rich: the chance that a capital *ever* passes 2 / alpha is
at most alpha / 2 (Ville). Every m that was refuted is out for good. All that is assumed is values from 0 to
1, each with the same mean given those before it: here one value a case, cases in random order.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CELLS = 200
BOLDNESS = 0.75  # the largest part of a capital that may be lost in one bet
CHANCE = 0.5
USELESS = 0.6  # a judge shown to be below this is not worth its calls


class ConfidenceSequence:
    """An interval for a mean that may be looked at after every value."""

    def __init__(self, alpha: float = 0.05, cells: int = CELLS) -> None:
        self._means = [(cell + 0.5) / cells for cell in range(cells)]
        self._rising = [0.0] * cells
        self._falling = [0.0] * cells
        self._limit = math.log(2 / alpha)
        self._half = 0.5 / cells
        self._alpha = alpha
        self._first, self._last = 0, cells - 1
        self._count, self._sum, self._squares = 0, 0.5, 0.25

    @property
    def interval(self) -> tuple[float, float]:
        """Every mean that was not refuted so far, to the width of a cell."""
        if self._first > self._last:  # each value was refuted at some time: the values have no common mean
            middle = self._sum / (self._count + 1)
            return middle, middle
        return max(0.0, self._means[self._first] - self._half), min(1.0, self._means[self._last] + self._half)

    def observe(self, value: float) -> None:
        """Settle the bets on the next value."""
        bet = self._bet()
        for cell in range(self._first, self._last + 1):
            mean = self._means[cell]
            edge = value - mean
            self._rising[cell] += math.log1p(min(bet, BOLDNESS / mean) * edge)
            self._falling[cell] += math.log1p(-min(bet, BOLDNESS / (1 - mean)) * edge)
        while self._first <= self._last and self._refuted(self._first):
            self._first += 1
        while self._last >= self._first and self._refuted(self._last):
            self._last -= 1
        self._count += 1
        self._sum += value
        self._squares += (value - self._sum / (self._count + 1)) ** 2

    def _bet(self) -> float:
        """How much to bet on the next value: from the values before it alone."""
        t = self._count + 1
        variance = self._squares / t
        return math.sqrt(2 * math.log(2 / self._alpha) / (max(variance, 1e-4) * t * math.log(t + 1)))

    def _refuted(self, cell: int) -> bool:
        return max(self._rising[cell], self._falling[cell]) >= self._limit


@dataclass(frozen=True, slots=True)
class Sequential:
    """The interval of a sequence at the end, and after how many values it had an answer."""

    low: float
    high: float
    settled_after: int | None


def standing(low: float, high: float) -> str:
    """What an interval of accuracy says of a judge: above, below, chance (or hardly above), undecided."""
    if low > CHANCE:
        return "above"
    if high < CHANCE:
        return "below"
    return "chance" if high < USELESS else "undecided"


def watch(values: Iterable[float], alpha: float) -> Sequential:
    """Run a sequence over values; settled once it says above, below or chance."""
    sequence, settled = ConfidenceSequence(alpha), None
    for count, value in enumerate(values, 1):
        sequence.observe(value)
        if settled is None and standing(*sequence.interval) != "undecided":
            settled = count
    return Sequential(*sequence.interval, settled)


def enough(sequences: Sequence[Sequential]) -> int | None:
    """After how many values all of them had their answer."""
    known = [one.settled_after for one in sequences if one.settled_after is not None]
    return max(known) if known and len(known) == len(sequences) else None
