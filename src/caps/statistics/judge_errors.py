"""Errors of a judge: accuracy by level, slot, order and length bias."""

from collections.abc import Callable, Iterable, Sequence
from statistics import NormalDist, fmean

from caps.core.types import Level
from caps.statistics.estimates import Estimate, find_crossing, jackknife, mean_estimate
from caps.statistics.observations import Observation, at_level, by_case, case_means, swapped

NORMAL = NormalDist()
WIDEST = 6.0
Sway = Callable[[Observation], bool | None]


def flips(observations: Sequence[Observation]) -> Estimate | None:
    """How often the preference changes when the slots are swapped; a change from or to a tie counts half."""
    changed: dict[int, list[float]] = {}
    for first, second in swapped(observations):
        changed.setdefault(first.case, []).append(abs(first.outcome - second.outcome))
    return mean_estimate([fmean(own) for own in changed.values()], len(observations))


def in_first_slot(obs: Observation) -> bool | None:
    """Whether `one` was in slot A."""
    return obs.first


def longer(obs: Observation) -> bool | None:
    """Whether `one` is longer; None if both have the same length."""
    one, other = obs.sizes
    return None if one == other else one > other


def preferred(observations: Sequence[Observation], sway: Sway) -> Estimate | None:
    """Share of verdicts for the favoured side, if it were right half of the time; a tie counts half."""
    return jackknife(by_case(observations), lambda some: _middle(_split(some, sway)))


def between_equals(observations: Sequence[Observation], sway: Sway) -> Estimate | None:
    """The same share if both candidates were equally good, by signal detection theory.

    The more accurate a judge, the less a bias shows in its verdicts. The share is therefore corrected with
    two normal distributions whose distance is the sensitivity of this judge.
    """
    share = preferred(observations, sway)
    sides = _split(observations, sway)
    if share is None or sides is None:
        return None
    right, wrong = sides
    gap = (_quantile(right) - _quantile(wrong)) / 2
    value, low, high = (_pull(part, gap) for part in (share.value, share.low, share.high))
    return Estimate(NORMAL.cdf(value), NORMAL.cdf(low), NORMAL.cdf(high), share.cases, share.looks)


def ties(observations: Sequence[Observation]) -> Estimate | None:
    """Share of ties."""
    return jackknife(by_case(observations), lambda some: _share(some, lambda obs: not obs.decided))


def unreadable(observations: Sequence[Observation]) -> Estimate | None:
    """Share of replies that could not be read after all retries."""
    return jackknife(by_case(observations), lambda some: _share(some, lambda obs: obs.malformed))


def _split(observations: Sequence[Observation], sway: Sway) -> tuple[list[float], list[float]] | None:
    """Outcomes for the favoured side when it is right and when it is wrong; None unless there are both."""
    right = [obs.outcome for obs in observations if sway(obs) is True]
    wrong = [1 - obs.outcome for obs in observations if sway(obs) is False]
    return (right, wrong) if right and wrong else None


def _middle(sides: tuple[list[float], list[float]] | None) -> float | None:
    return None if sides is None else (fmean(sides[0]) + fmean(sides[1])) / 2


def _pull(share: float, gap: float) -> float:
    """The pull, in standard deviations, at which the favoured side gets this share of the verdicts."""
    return find_crossing(
        lambda pull: (NORMAL.cdf(pull + gap) + NORMAL.cdf(pull - gap)) / 2, share, -WIDEST, WIDEST, width=1e-6
    )


def _quantile(outcomes: Sequence[float]) -> float:
    """The normal quantile of a mean, kept finite by one added tie."""
    return NORMAL.inv_cdf((sum(outcomes) + 0.5) / (len(outcomes) + 1))


def _share(observations: Sequence[Observation], holds: Callable[[Observation], bool]) -> float | None:
    return fmean(map(holds, observations)) if observations else None


# Accuracy at each evidence level


def outcomes(observations: Iterable[Observation], level: Level) -> list[float]:
    """Mean outcome of each case at a level; a tie counts half."""
    return case_means(at_level(observations, level), lambda obs: obs.outcome)


def accuracy(observations: Sequence[Observation], level: Level) -> Estimate | None:
    """Per-pair accuracy at a level over both orders; every case has the same weight."""
    return mean_estimate(outcomes(observations, level), len(at_level(observations, level)))


def difference(observations: Sequence[Observation]) -> Estimate | None:
    """Accuracy at E1 minus accuracy at E2, as a paired difference."""
    values = [
        0.5 + (fmean(one.outcome for one in partial) - fmean(one.outcome for one in full)) / 2
        for own in by_case(observations)
        if (partial := at_level(own, Level.PARTIAL)) and (full := at_level(own, Level.FULL))
    ]
    found = mean_estimate(values, len(observations))
    return None if found is None else found.stretched(-1, 1)
