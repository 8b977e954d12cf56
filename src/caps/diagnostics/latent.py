"""How often a judge is right, where the truth is known by its odds only.

Votes (or labels) say how likely it is that only the one, or only the other, of two candidates is right. A
judge of chance e prefers the one with ½ + (e - ½) (chance of the one - chance of the other): the further
apart the odds, the more a verdict tells. With labels the odds are certainties and this is counting. Without,
e is what going with the votes shows: nothing tells a judge that knows from one that echoes the votes, nor a
coin from a judge that is right where votes mislead. So without labels more cases bring less and less.

Each look is explained by itself (a composite likelihood), so it does not matter how errors of several looks
hang together; that several of a case repeat each other only makes them weigh less.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from caps.core.judging import JudgeProfile
from caps.core.types import Level
from caps.diagnostics.looks import Look
from caps.diagnostics.searching import peak

SKILL_SPREAD = 0.5  # expected of the factor on all log-odds: at 0 the judge is a coin, at 2 far better
FIELD_SPREAD = 0.4  # expected of what one chance departs from that, in log-odds
MOST_BY_VOTES = 100.0  # known verdicts that any number of cases without labels may count for
SURE_CASES = 4.0  # imagined cases behind the share of HIGH verdicts
SWEEPS = 8
LEVELS = (Level.PARTIAL, Level.FULL)
FIELDS = {
    (Level.PARTIAL, True): "e1_high",
    (Level.PARTIAL, False): "e1_low",
    (Level.FULL, True): "e2_high",
    (Level.FULL, False): "e2_low",
}
Terms = Mapping[float, float]  # by the lead of the one a verdict prefers, the weight of such verdicts


@dataclass(frozen=True, slots=True)
class Weighed:
    """A look, and how likely it is beforehand that only its one, or only its other, is right.

    `known` where labels say so.
    """

    look: Look
    one: float
    other: float
    known: bool = False

    @property
    def lead(self) -> float:
        """By how much the one is likelier to be right than the other."""
        return self.one - self.other


def information(weighed: Sequence[Weighed], start: JudgeProfile) -> float:
    """How many independent verdicts on pairs of known truth the looks count for."""
    return sum(weight * one.lead**2 for one, weight in _discounted(weighed, start))


def chances(weighed: Sequence[Weighed], start: JudgeProfile) -> dict[str, float]:
    """How often HIGH and LOW verdicts of each level are right: likeliest, a profile being expected.

    One factor moves all chances of that profile together, and each may depart from it a little.
    """
    terms: dict[str, dict[float, float]] = {name: defaultdict(float) for name in FIELDS.values()}
    for one, weight in _discounted(weighed, start):
        if one.look.decided and one.lead:
            toward = one.lead * (2 * one.look.outcome - 1)
            terms[FIELDS[one.look.level, one.look.sure]][toward] += weight
    before = {name: _logit(getattr(start, name)) for name in terms}
    factor, departures = 1.0, dict.fromkeys(terms, 0.0)
    for _ in range(SWEEPS):
        factor = peak(partial(_fit_all, before, departures, terms), -2.0, 6.0)
        for name, own in terms.items():
            if own:
                departures[name] = peak(partial(_fit_one, factor * before[name], own), -3.0, 3.0)
    return {name: _sigmoid(factor * before[name] + departures[name]) for name in terms}


def shares_of_high(weighed: Sequence[Weighed], start: JudgeProfile) -> dict[str, float]:
    """How often decided verdicts of each level are HIGH; every case counts the same."""
    found = {}
    for level, name in zip(LEVELS, ("e1_sure", "e2_sure"), strict=True):
        by_case: dict[int, list[bool]] = defaultdict(list)
        for one in weighed:
            if one.look.level == level and one.look.decided:
                by_case[one.look.case].append(one.look.sure)
        seen = sum(sum(own) / len(own) for own in by_case.values())
        found[name] = (seen + SURE_CASES * getattr(start, name)) / (len(by_case) + SURE_CASES)
    return found


def _discounted(weighed: Sequence[Weighed], start: JudgeProfile) -> list[tuple[Weighed, float]]:
    """Each look with its weight: several of a case and level repeat each other, and votes are no labels."""
    common = min(1.0, start.repeats + start.shared)
    count = Counter((one.look.case, one.look.level) for one in weighed)
    found = [(one, 1 / (1 + (count[one.look.case, one.look.level] - 1) * common)) for one in weighed]
    guessed = sum(weight * one.lead**2 for one, weight in found if not one.known)
    trust = 1 / (1 + guessed / MOST_BY_VOTES)
    return [(one, weight if one.known else trust * weight) for one, weight in found]


def _fit_all(
    before: Mapping[str, float], departures: Mapping[str, float], terms: Mapping[str, Terms], factor: float
) -> float:
    told = sum(_told(factor * before[name] + departures[name], own) for name, own in terms.items())
    return told - ((factor - 1) / SKILL_SPREAD) ** 2 / 2


def _fit_one(centre: float, terms: Terms, departure: float) -> float:
    return _told(centre + departure, terms) - (departure / FIELD_SPREAD) ** 2 / 2


def _told(log_odds: float, terms: Terms) -> float:
    """Log-likelihood of verdicts that are right with such log-odds."""
    beyond = _sigmoid(log_odds) - 0.5
    return sum(weight * math.log(max(1e-9, 0.5 + beyond * toward)) for toward, weight in terms.items())


def _logit(chance: float) -> float:
    chance = min(0.999, max(0.001, chance))
    return math.log(chance / (1 - chance))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))
