"""Calibration of a judge's confidence: accuracy by confidence, Brier score, reliability curve."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from caps.statistics.estimates import Estimate, jackknife
from caps.statistics.observations import Observation, by_case

BINS = 5


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


def smoothed(observations: Sequence[Observation], *, sure: bool) -> float:
    """Accuracy of HIGH or LOW verdicts, with one right and one wrong verdict added (Laplace smoothing)."""
    some = [obs.outcome for obs in observations if obs.decided and obs.sure == sure]
    return (sum(some) + 1) / (len(some) + 2)


def brier(observations: Sequence[Observation]) -> float | None:
    """Brier score: mean squared error of the probability given to the right candidate; 0.25 if always ½."""
    return fmean((1 - _probability(obs)) ** 2 for obs in observations) if observations else None


def curve(observations: Sequence[Observation]) -> tuple[ReliabilityBin, ...]:
    """Reliability curve: accuracy by the probability given to the preferred candidate, in five bins."""
    found = []
    for place, own in enumerate(_bins([obs for obs in observations if obs.decided])):
        cases = [
            [obs for obs in case if obs.decided and _bin(obs) == place] for case in by_case(observations)
        ]
        right = jackknife([case for case in cases if case], _outcome)
        if right is not None:
            found.append(ReliabilityBin(fmean(_stated(obs) for obs in own), right))
    return tuple(found)


def calibration_error(observations: Sequence[Observation]) -> float | None:
    """Expected calibration error (ECE): stated probability against accuracy, in five bins."""
    decided = [obs for obs in observations if obs.decided]
    if not decided:
        return None
    gaps = (abs(sum(obs.outcome for obs in own) - sum(map(_stated, own))) for own in _bins(decided))
    return sum(gaps) / len(decided)


def _bins(decided: Sequence[Observation]) -> list[list[Observation]]:
    bins: list[list[Observation]] = [[] for _ in range(BINS)]
    for obs in decided:
        bins[_bin(obs)].append(obs)
    return bins


def _bin(obs: Observation) -> int:
    return min(BINS - 1, int(obs.verdict.weight * BINS))


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
