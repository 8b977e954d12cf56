"""Whether a judge's confidence means what it says: accuracy by confidence, scores, reliability curve."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from caps.statistics.estimates import Estimate, jackknife
from caps.statistics.observations import Observation, by_case

BINS = 5


@dataclass(frozen=True, slots=True)
class Confidence:
    """Of the decided verdicts at a level: how many are HIGH, and how often HIGH and LOW ones are right."""

    sure: Estimate | None
    high: Estimate | None
    low: Estimate | None


@dataclass(frozen=True, slots=True)
class Stated:
    """Verdicts of about one probability: what they state on the average, and how often they are right."""

    stated: float
    right: Estimate


def by_confidence(looks: Sequence[Observation]) -> Confidence:
    """Split decided verdicts by their confidence."""
    decided = [[look for look in own if look.decided] for own in by_case(looks)]
    decided = [own for own in decided if own]
    return Confidence(
        jackknife(decided, lambda some: fmean(look.sure for look in some) if some else None),
        jackknife(decided, lambda some: _right(some, sure=True)),
        jackknife(decided, lambda some: _right(some, sure=False)),
    )


def smoothed(looks: Sequence[Observation], *, sure: bool) -> float:
    """How often such verdicts are right, with one more right and one more wrong: few looks prove little."""
    some = [look.outcome for look in looks if look.decided and look.sure == sure]
    return (sum(some) + 1) / (len(some) + 2)


def brier(looks: Sequence[Observation]) -> float | None:
    """Mean squared error of the probability given to the right one; 0.25 if that is always half."""
    return fmean((1 - _probability(look)) ** 2 for look in looks) if looks else None


def curve(looks: Sequence[Observation]) -> tuple[Stated, ...]:
    """How often the preferred one is right, by the probability it was given, in five bins."""
    found = []
    for place, own in enumerate(_bins([look for look in looks if look.decided])):
        cases = [[look for look in case if look.decided and _bin(look) == place] for case in by_case(looks)]
        right = jackknife([case for case in cases if case], _outcome)
        if right is not None:
            found.append(Stated(fmean(_stated(look) for look in own), right))
    return tuple(found)


def calibration_error(looks: Sequence[Observation]) -> float | None:
    """ECE: how far the probability of the preferred one lies from how often it is right, in five bins."""
    decided = [look for look in looks if look.decided]
    if not decided:
        return None
    gaps = (abs(sum(look.outcome for look in own) - sum(map(_stated, own))) for own in _bins(decided))
    return sum(gaps) / len(decided)


def _bins(decided: Sequence[Observation]) -> list[list[Observation]]:
    bins: list[list[Observation]] = [[] for _ in range(BINS)]
    for look in decided:
        bins[_bin(look)].append(look)
    return bins


def _bin(look: Observation) -> int:
    return min(BINS - 1, int(look.verdict.weight * BINS))


def _stated(look: Observation) -> float:
    """The probability given to the preferred one."""
    return (1 + look.verdict.weight) / 2


def _outcome(looks: Sequence[Observation]) -> float | None:
    return fmean(look.outcome for look in looks) if looks else None


def _probability(look: Observation) -> float:
    return (1 + (look.verdict.a - look.verdict.b) / 9) / 2


def _right(looks: Sequence[Observation], *, sure: bool) -> float | None:
    some = [look.outcome for look in looks if look.sure == sure]
    return fmean(some) if some else None
