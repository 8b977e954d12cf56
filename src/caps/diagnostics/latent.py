"""What verdicts tell of a judge where the truth is known by its odds only.

Of two candidates, votes (or labels) say how likely it is that only the one, or only the other, is right. A
judge of chance e then prefers the one with ½ + (e - ½) (chance of the one - chance of the other), so the more
the odds differ the more a verdict tells. With labels the odds are certainties and this is counting; without,
e is what agreement with the votes shows, and nothing tells a judge that knows from one that echoes the votes.

Each look counts by itself, so it does not matter how errors of different looks hang together; looks of one
case at one level are merely discounted for repeating each other.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from caps.core.judging import JudgeProfile
from caps.core.types import Level
from caps.diagnostics.looks import Look

SKILL_SPREAD = 0.5  # of the factor on all log-odds of a profile: 0 is a coin, 2 is far better
FIELD_SPREAD = 0.4  # of what one field departs from that, in log-odds
SURE_CASES = 4.0  # imagined cases behind the share of HIGH verdicts
SWEEPS = 12
FIELDS = {
    (Level.PARTIAL, True): "e1_high",
    (Level.PARTIAL, False): "e1_low",
    (Level.FULL, True): "e2_high",
    (Level.FULL, False): "e2_low",
}


@dataclass(frozen=True, slots=True)
class Weighed:
    """A look, and how likely it is beforehand that only its one, or only its other, is right."""

    look: Look
    one: float
    other: float

    @property
    def lead(self) -> float:
        """By how much the one is likelier to be right than the other."""
        return self.one - self.other


def information(weighed: Sequence[Weighed], start: JudgeProfile) -> dict[Level, float]:
    """How many independent verdicts on pairs of known truth the looks of a level are worth."""
    found = dict.fromkeys((Level.PARTIAL, Level.FULL), 0.0)
    for one, weight in _discounted(weighed, start):
        found[one.look.level] += weight * one.lead**2
    return found


def chances(weighed: Sequence[Weighed], start: JudgeProfile) -> dict[str, float]:
    """How often HIGH and LOW verdicts of each level are right: likeliest, with a profile to start from.

    One factor moves all chances of the profile together, and each may depart from it a little.
    """
    terms: dict[str, list[tuple[float, float]]] = {name: [] for name in FIELDS.values()}
    for one, weight in _discounted(weighed, start):
        if one.look.decided and one.lead:
            toward = one.lead * (2 * one.look.outcome - 1)
            terms[FIELDS[one.look.level, one.look.sure]].append((weight, toward))
    before = {name: _logit(getattr(start, name)) for name in terms}
    factor, departures = 1.0, dict.fromkeys(terms, 0.0)
    for _ in range(SWEEPS):
        factor = _best(lambda x: _fit_of_factor(x, departures, before, terms), -2.0, 6.0)  # noqa: B023
        for name, own in terms.items():
            centre = factor * before[name]
            departures[name] = _best(lambda x: _fit(x, centre, own), -3.0, 3.0) if own else 0.0  # noqa: B023
    return {name: _sigmoid(factor * before[name] + departures[name]) for name in terms}


def shares_of_high(weighed: Sequence[Weighed], start: JudgeProfile) -> dict[str, float]:
    """How often decided verdicts of each level are HIGH; every case counts the same."""
    found = {}
    for level, name in ((Level.PARTIAL, "e1_sure"), (Level.FULL, "e2_sure")):
        by_case: dict[int, list[bool]] = defaultdict(list)
        for one in weighed:
            if one.look.level == level and one.look.decided:
                by_case[one.look.case].append(one.look.sure)
        seen = sum(sum(own) / len(own) for own in by_case.values())
        found[name] = (seen + SURE_CASES * getattr(start, name)) / (len(by_case) + SURE_CASES)
    return found


def _discounted(weighed: Sequence[Weighed], start: JudgeProfile) -> list[tuple[Weighed, float]]:
    """Each look with its weight: several of a case at a level repeat each other's errors."""
    common = min(1.0, start.repeats + start.shared)
    count = Counter((one.look.case, one.look.level) for one in weighed)
    return [
        (one, 1 / (1 + (count[one.look.case, one.look.level] - 1) * common)) for one in weighed
    ]


def _fit_of_factor(
    factor: float,
    departures: Mapping[str, float],
    before: Mapping[str, float],
    terms: Mapping[str, Sequence[tuple[float, float]]],
) -> float:
    told = sum(_told(factor * before[name] + departures[name], own) for name, own in terms.items())
    return told - ((factor - 1) / SKILL_SPREAD) ** 2 / 2


def _fit(departure: float, centre: float, terms: Sequence[tuple[float, float]]) -> float:
    return _told(centre + departure, terms) - (departure / FIELD_SPREAD) ** 2 / 2


def _told(log_odds: float, terms: Sequence[tuple[float, float]]) -> float:
    """Log-likelihood of verdicts, each with its weight and the lead of whom it prefers."""
    beyond = _sigmoid(log_odds) - 0.5
    return sum(weight * math.log(max(1e-9, 0.5 + beyond * toward)) for weight, toward in terms)


def _best(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one peak has it, by golden section."""
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > 1e-4:
        if at_left < at_right:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
        else:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
    return (low + high) / 2


def _logit(chance: float) -> float:
    chance = min(0.999, max(0.001, chance))
    return math.log(chance / (1 - chance))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))
