"""How often a judge prefers the right one of two candidates, at each evidence level, on the same pairs."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from caps.core.types import Level
from caps.diagnostics.estimates import Estimate, mean_estimate
from caps.diagnostics.looks import Look, at, by_case, case_means


def outcomes(looks: Iterable[Look], level: Level) -> list[float]:
    """The mean outcome of each case at a level, a tie counting half."""
    return case_means(at(looks, level), lambda look: look.outcome)


def accuracy(looks: Sequence[Look], level: Level) -> Estimate | None:
    """Per-pair accuracy at a level: over both orders, every case counting the same."""
    return mean_estimate(outcomes(looks, level), len(at(looks, level)))


def difference(looks: Sequence[Look]) -> Estimate | None:
    """Accuracy at E1 less that at E2, with the interval of the difference on the same pairs."""
    values = [
        0.5 + (fmean(one.outcome for one in partial) - fmean(one.outcome for one in full)) / 2
        for own in by_case(looks)
        if (partial := at(own, Level.PARTIAL)) and (full := at(own, Level.FULL))
    ]
    found = mean_estimate(values, len(looks))
    return None if found is None else found.stretched(-1, 1)


def agreement(looks: Sequence[Look]) -> Estimate | None:
    """How often E1 prefers whom E2 prefers, in the same order; a tie on one side is half an agreement."""
    seats = {(look.pair, look.first, look.level): look for look in looks}
    values: dict[int, list[float]] = {}
    for (pair, first, level), look in seats.items():
        full = seats.get((pair, first, Level.FULL))
        if level == Level.PARTIAL and full is not None:
            values.setdefault(look.case, []).append(1 - abs(look.outcome - full.outcome))
    return mean_estimate([fmean(own) for own in values.values()], len(looks))
