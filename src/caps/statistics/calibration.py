"""Calibration of a judge's confidence: accuracy by confidence, Brier score, reliability curve."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from caps.statistics.estimates import (
    Estimate,
    brier_score,
    calibration_bin,
    expected_calibration_error,
    jackknife,
)
from caps.statistics.observations import Observation, by_case


@dataclass(frozen=True, slots=True)
class Confidence:
    """Decided verdicts at a level: the share that is HIGH, and the accuracy of HIGH and of LOW ones."""

    sure: Estimate | None
    high: Estimate | None
    low: Estimate | None


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """A bin of the reliability curve: the mean stated probability, and how often the verdicts are right."""

    stated: float
    right: Estimate


def by_confidence(observations: Sequence[Observation]) -> Confidence:
    """Split decided verdicts by their confidence."""
    decided = [[obs for obs in own if obs.decided] for own in by_case(observations)]
    decided = [own for own in decided if own]
    return Confidence(
        jackknife(decided, lambda some: fmean(obs.sure for obs in some) if some else None),
        jackknife(decided, lambda some: _right(some, sure=True)),
        jackknife(decided, lambda some: _right(some, sure=False)),
    )


def brier(observations: Sequence[Observation]) -> float | None:
    """Brier score of the probability given to the right candidate."""
    return brier_score([(_probability(obs), 1.0) for obs in observations])


def curve(observations: Sequence[Observation]) -> tuple[ReliabilityBin, ...]:
    """Reliability curve: accuracy by the probability given to the preferred candidate."""
    bins: dict[int, list[Observation]] = {}
    for obs in observations:
        if obs.decided:
            bins.setdefault(calibration_bin(_stated(obs)), []).append(obs)
    points = []
    for _, binned in sorted(bins.items()):
        right = jackknife(by_case(binned), _outcome)
        if right is not None:
            points.append(ReliabilityBin(fmean(_stated(obs) for obs in binned), right))
    return tuple(points)


def calibration_error(observations: Sequence[Observation]) -> float | None:
    """Expected calibration error of the probability given to the preferred candidate."""
    return expected_calibration_error([(_stated(obs), obs.outcome) for obs in observations if obs.decided])


def _stated(obs: Observation) -> float:
    """The probability given to the preferred candidate."""
    return (1 + obs.verdict.weight) / 2


def _outcome(observations: Sequence[Observation]) -> float | None:
    return fmean(obs.outcome for obs in observations) if observations else None


def _probability(obs: Observation) -> float:
    return (1 + (obs.verdict.a - obs.verdict.b) / 9) / 2


def _right(observations: Sequence[Observation], *, sure: bool) -> float | None:
    some = [obs.outcome for obs in observations if obs.sure == sure]
    return fmean(some) if some else None
