"""Measures of several judges of the same pairs: how their errors correlate, and whether a panel is better."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean

from caps.statistics.judge_errors import tetrachoric
from caps.statistics.observations import Observation

MOST_CORRELATED = 0.95
LEAST_SHARED = 20  # verdicts of two judges on the same asks


def error_correlation(seen: Mapping[str, Sequence[Observation]]) -> float | None:
    """The mean correlation between the errors of two judges, from 0; None with too few shared verdicts.

    It is the tetrachoric one: that of the readings behind the verdicts, as the discounts of a panel assume.
    """
    found = []
    for one, other in combinations(seen.values(), 2):
        outcomes = {_ask(obs): obs.outcome for obs in other}
        both = [(obs.outcome, outcomes[_ask(obs)]) for obs in one if _ask(obs) in outcomes]
        if len(both) >= LEAST_SHARED:
            first, second = zip(*both, strict=True)
            found.append(tetrachoric(first, second))
    return min(MOST_CORRELATED, max(0.0, fmean(found))) if found else None


def _ask(obs: Observation) -> tuple[object, ...]:
    return obs.case, obs.one, obs.other, obs.level, obs.first
