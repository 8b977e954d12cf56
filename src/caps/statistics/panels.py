"""Measures of several judges of the same pairs: how their errors correlate, and whether a panel is better."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import correlation, fmean

from caps.statistics.observations import Observation

MOST_CORRELATED = 0.95
LEAST_SHARED = 20  # verdicts of two judges on the same asks


def error_correlation(seen: Mapping[str, Sequence[Observation]]) -> float | None:
    """The mean correlation between the errors of two judges, from 0; None with too few shared verdicts.

    It is that of the readings behind the verdicts, as the discounts of a panel assume: `sin(r * pi / 2)` of
    the correlation r of the verdicts themselves.
    """
    found = []
    for one, other in combinations(seen.values(), 2):
        outcomes = {_ask(obs): obs.outcome for obs in other}
        both = [(obs.outcome, outcomes[_ask(obs)]) for obs in one if _ask(obs) in outcomes]
        first, second = zip(*both, strict=True) if both else ((), ())
        if len(both) >= LEAST_SHARED and len(set(first)) > 1 and len(set(second)) > 1:
            found.append(math.sin(correlation(first, second) * math.pi / 2))
    return min(MOST_CORRELATED, max(0.0, fmean(found))) if found else None


def _ask(obs: Observation) -> tuple[object, ...]:
    return obs.case, obs.one, obs.other, obs.level, obs.first
