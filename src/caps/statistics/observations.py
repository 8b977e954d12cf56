"""Single verdicts of a judge on pairs, and how they group by pair and by case."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

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


@dataclass(frozen=True, slots=True)
class Rated:
    """Ratings of the two candidates of a pair, from separate calls; `one` is right if labels are known."""

    case: int
    one: float
    other: float


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


# Strength of votes, fitted to labels


SPREAD = 1.0  # prior standard deviation of the logarithm of either strength
LOOSE_SPREAD = 0.3  # scale of the prior (Cauchy) of the log-odds added where several may be right
FEATURE_SPREAD = 0.5  # prior standard deviation of the weight of a feature, in log-odds
MOST_FEATURE = 4.0  # log-odds a standard deviation
SWEEPS = 6


@dataclass(frozen=True, slots=True)
class Ballot:
    """The answers of a case: votes for each, other evidence for it in log-odds, and whether it is right.

    `feature` says by how many standard deviations each stands out by the feature of the strategy, if it has
    one. It is not part of `besides`.
    """

    votes: tuple[int, ...]
    besides: tuple[float, ...]
    right: tuple[bool, ...]
    feature: tuple[float, ...] = ()

    def weighed(self, weight: float) -> "Ballot":
        """The ballot with its feature, at this weight, among the other evidence."""
        besides = tuple(x + weight * y for x, y in zip(self.besides, self.feature, strict=True))
        return Ballot(self.votes, besides, self.right)


def fit_vote_strengths(ballots: Sequence[Ballot], votes: float, none_right: float) -> tuple[float, float]:
    """Maximum a posteriori estimates of the power of votes and of the votes for "no answer is right".

    An answer with n votes has the weight n to that power; the weights of several right answers add up. The
    power is never raised: a larger one saves questions, but loses more right answers than it secures.
    """
    factors = [0.0, 0.0]

    def log_posterior(index: int, x: float) -> float:
        tried = [x if i == index else old for i, old in enumerate(factors)]
        power, absent = votes * math.exp(tried[0]), none_right * math.exp(tried[1])
        likelihood = sum(_log_likelihood(ballot, power, absent) for ballot in ballots)
        return likelihood - sum((y / SPREAD) ** 2 for y in tried) / 2

    for _ in range(SWEEPS if ballots and votes > 0 else 0):
        for index in range(2):
            factors[index] = find_peak(partial(log_posterior, index), -2.0, (0.0, 3.5)[index])
    return votes * math.exp(factors[0]), none_right * math.exp(factors[1])


def fit_loose_odds(ballots: Sequence[Ballot], power: float, base: Sequence[float]) -> float:
    """Fit the log-odds to add to each candidate where several answers may be right.

    The prior is Cauchy's around 0: few labels hardly move it unless they contradict it plainly. `base` holds,
    for each ballot, the log-odds of a candidate that stands alone. Each case counts the same.
    """

    def log_posterior(x: float) -> float:
        likelihood = sum(
            _loose_likelihood(ballot, power, start + x) for ballot, start in zip(ballots, base, strict=True)
        )
        return likelihood - math.log1p((x / LOOSE_SPREAD) ** 2)

    return find_peak(log_posterior, -4.0, 4.0) if ballots else 0.0


def fit_feature_weight(
    ballots: Sequence[Ballot], loose: Sequence[Ballot], assumed: float, *, strengths: tuple[float, float],
    loose_power: float, base: Sequence[float],
) -> float:  # fmt: skip
    """Fit the log-odds that a standard deviation of a feature is worth, with a prior around the assumed ones.

    `loose` are cases in which several answers may be right, with their `base` as in `fit_loose_odds`. The
    weight is never negative: a feature that misleads counts for nothing.
    """

    def log_posterior(x: float) -> float:
        likelihood = sum(_log_likelihood(ballot.weighed(x), *strengths) for ballot in ballots)
        likelihood += sum(
            _loose_likelihood(ballot.weighed(x), loose_power, start)
            for ballot, start in zip(loose, base, strict=True)
        )
        return likelihood - ((x - assumed) / FEATURE_SPREAD) ** 2 / 2

    return find_peak(log_posterior, 0.0, MOST_FEATURE)


def _loose_likelihood(ballot: Ballot, power: float, start: float) -> float:
    """Mean log-probability of the labels of a case in which each answer is right or wrong for itself."""
    total, everyone = 0.0, sum(ballot.votes)
    for n, more, right in zip(ballot.votes, ballot.besides, ballot.right, strict=True):
        odds = start + power * math.log(n) + more
        total -= n / everyone * math.log1p(math.exp(min(700.0, -odds if right else odds)))
    return total


def _log_likelihood(ballot: Ballot, power: float, absent: float) -> float:
    """Log-probability of the answers that are right."""
    logs = [power * math.log(n) + more for n, more in zip(ballot.votes, ballot.besides, strict=True)]
    absent_log = power * math.log(absent)
    top = max(absent_log, *logs)
    weights, none = [math.exp(x - top) for x in logs], math.exp(absent_log - top)
    right = sum(w for w, is_right in zip(weights, ballot.right, strict=True) if is_right)
    return math.log(max(1e-12, (right if any(ballot.right) else none) / (sum(weights) + none)))
