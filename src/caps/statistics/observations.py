"""Single verdicts of a judge on pairs, and how they group by pair and by case."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import NamedTuple

from caps.core.judge_profile import HIGH_WEIGHT
from caps.core.types import Level, Verdict
from caps.statistics.estimates import find_peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One verdict on two candidates of a case, seen from `one`, which is the right one if labels are known.

    An unreadable reply counts as a tie, as it does in strategies.
    """

    case: int
    one: int
    other: int
    level: Level
    first: bool  # `one` was in slot A
    verdict: Verdict
    sizes: tuple[int, int]
    malformed: bool = False
    tokens: int = 0
    output: int = 0  # output tokens of all attempts

    @property
    def outcome(self) -> float:
        """1 if `one` was preferred, ½ for a tie."""
        return self.verdict.outcome

    @property
    def decided(self) -> bool:
        """Whether either candidate was preferred."""
        return self.verdict.a != self.verdict.b

    @property
    def sure(self) -> bool:
        """Whether the verdict was HIGH, or has the weight of a HIGH one."""
        return self.verdict.weight >= HIGH_WEIGHT

    @property
    def pair(self) -> tuple[int, int, int]:
        """Which pair of which case."""
        return self.case, self.one, self.other


def at_level(observations: Iterable[Observation], level: Level) -> list[Observation]:
    """Observations at one level."""
    return [obs for obs in observations if obs.level == level]


def by_case(observations: Iterable[Observation]) -> list[list[Observation]]:
    """Observations grouped by case, in the order in which the cases were judged."""
    grouped: dict[int, list[Observation]] = defaultdict(list)
    for obs in observations:
        grouped[obs.case].append(obs)
    return list(grouped.values())


def case_means(observations: Iterable[Observation], value: Callable[[Observation], float]) -> list[float]:
    """One mean per case, so that cases with many pairs do not dominate."""
    return [fmean(map(value, own)) for own in by_case(observations)]


def swapped(observations: Iterable[Observation]) -> list[tuple[Observation, Observation]]:
    """Both orders of each pair at each level; `one` is in slot A in the first of the two."""
    orders: dict[tuple[tuple[int, int, int], Level], dict[bool, Observation]] = defaultdict(dict)
    for obs in observations:
        orders[obs.pair, obs.level][obs.first] = obs
    return [(both[True], both[False]) for both in orders.values() if len(both) == 2]


def complete(observations: Sequence[Observation], per_pair: int) -> list[Observation]:
    """Only pairs with all their observations, so that all figures are about the same pairs."""
    count = Counter(obs.pair for obs in observations)
    return [obs for obs in observations if count[obs.pair] == per_pair]


# Strengths of votes, tests and a feature, fitted to labels


SPREAD = 1.0  # prior standard deviation of the logarithm of a strength
FEATURE_SPREAD = 0.5  # prior standard deviation of the weight of a feature, in log-odds
MOST_FEATURE = 4.0  # log-odds a standard deviation
SWEEPS = 4


class Strengths(NamedTuple):
    """How much votes, "no answer is right", failed tests and a feature weigh."""

    votes: float
    nobody: float
    tests: float
    feature_weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """The answers of a case: votes, other evidence, and whether each is right.

    `besides` is all evidence in log-odds that no strength weighs. `failed` is the part of the strength of
    tests that each answer loses, `feature` by how many standard deviations it stands out. `power`: an answer
    of n candidates weighs n to this part of the strength of votes. `surer`: log-odds by which a candidate is
    surer in a pool of this size. `exclusive`: at most one answer is right.
    """

    votes: tuple[int, ...]
    besides: tuple[float, ...]
    right: tuple[bool, ...]
    failed: tuple[float, ...]
    feature: tuple[float, ...]
    power: float
    surer: float
    exclusive: bool

    def log_likelihood(self, strengths: Strengths) -> float:
        """Log-probability of the labels; each case counts the same however many answers it has."""
        power = self.power * strengths.votes
        nobody = power * math.log(strengths.nobody) - self.surer
        odds = [
            power * math.log(count) + other - strengths.tests * failed + strengths.feature_weight * feature
            for count, other, failed, feature in zip(
                self.votes, self.besides, self.failed, self.feature, strict=True
            )
        ]
        if self.exclusive:
            return _log_likelihood_of_one(odds, nobody, self.right)
        parts = [
            -count * math.log1p(math.exp(min(700.0, nobody - one if right else one - nobody)))
            for count, one, right in zip(self.votes, odds, self.right, strict=True)
        ]
        return sum(parts) / sum(self.votes)


def fit_strengths(
    ballots: Sequence[Ballot], start: Strengths, fixed: Collection[str] = ()
) -> dict[str, float]:
    """Maximum a posteriori estimates of the strengths that ballots show, with a prior around the start.

    The power of votes is never raised: a larger one saves questions, but loses more right answers than it
    secures. A feature that misleads counts for nothing. What is `fixed` stays as it was.
    """
    found = start
    shown = {
        "votes": start.votes > 0 and any(count > 1 for ballot in ballots for count in ballot.votes),
        "nobody": bool(ballots),
        "tests": start.tests > 0 and any(any(ballot.failed) for ballot in ballots),
        "feature_weight": any(any(ballot.feature) for ballot in ballots),
    }
    fitted = [name for name in Strengths._fields if shown[name] and name not in fixed]
    limits = {
        "votes": (-2.0, 0.0),
        "nobody": (-2.0, 3.5),
        "tests": (-2.0, 1.0),
        "feature_weight": (0.0, MOST_FEATURE),
    }

    def log_posterior(name: str, x: float) -> float:
        tried = _with_strength(found, start, name, x)
        offset = (x - start.feature_weight) / FEATURE_SPREAD if name == "feature_weight" else x / SPREAD
        return sum(ballot.log_likelihood(tried) for ballot in ballots) - offset**2 / 2

    for _ in range(SWEEPS):
        for name in fitted:
            found = _with_strength(found, start, name, find_peak(partial(log_posterior, name), *limits[name]))
    return {name: getattr(found, name) for name in fitted}


def _with_strength(strengths: Strengths, start: Strengths, name: str, x: float) -> Strengths:
    """Change one strength: to the start's times e to the x, the weight of the feature to x."""
    value = x if name == "feature_weight" else getattr(start, name) * math.exp(x)
    return strengths._replace(**{name: value})


def _log_likelihood_of_one(odds: Sequence[float], nobody: float, right: Sequence[bool]) -> float:
    """Log-probability of the answers that are right, if at most one is; several equal ones add up."""
    top = max(nobody, *odds)
    weights, none = [math.exp(one - top) for one in odds], math.exp(nobody - top)
    likely = sum(weight for weight, is_right in zip(weights, right, strict=True) if is_right)
    return math.log(max(1e-12, (likely if any(right) else none) / (sum(weights) + none)))
