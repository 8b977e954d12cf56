"""Single verdicts of a judge on pairs, and how they group by pair and by case."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from caps.core.types import Level, Verdict
from caps.statistics.estimates import peak

SURE = 4 / 9  # between the weights of LOW (2/9) and HIGH (6/9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One verdict on two candidates of a case, seen from `one`; where labels are known, `one` is right.

    An unreadable reply is the tie that strategies take it for.
    """

    case: int
    one: int
    other: int
    level: Level
    first: bool  # `one` sat in slot A
    verdict: Verdict
    sizes: tuple[int, int]
    clusters: tuple[str | int, str | int]
    malformed: bool = False
    attempts: int = 1
    tokens: int = 0
    output: int = 0  # tokens written in all attempts

    @property
    def outcome(self) -> float:
        """1 where `one` was preferred, ½ after a tie."""
        return self.verdict.outcome

    @property
    def decided(self) -> bool:
        """Whether anyone was preferred."""
        return self.verdict.a != self.verdict.b

    @property
    def sure(self) -> bool:
        """Whether the verdict was a HIGH one, or weighs as much as one."""
        return self.verdict.weight >= SURE

    @property
    def pair(self) -> tuple[int, int, int]:
        """Which pair of which case."""
        return self.case, self.one, self.other


@dataclass(frozen=True, slots=True)
class Rated:
    """Ratings of the two candidates of a pair, each from a call of its own; where known, `one` is right."""

    case: int
    one: float
    other: float


def at(looks: Iterable[Observation], level: Level) -> list[Observation]:
    """The looks of one level."""
    return [look for look in looks if look.level == level]


def by_case(looks: Iterable[Observation]) -> list[list[Observation]]:
    """The looks of each case, in the order in which cases were asked."""
    grouped: dict[int, list[Observation]] = defaultdict(list)
    for look in looks:
        grouped[look.case].append(look)
    return list(grouped.values())


def case_means(looks: Iterable[Observation], value: Callable[[Observation], float]) -> list[float]:
    """One number a case, so that cases with many pairs do not outvote the others."""
    return [fmean(map(value, own)) for own in by_case(looks)]


def swapped(looks: Iterable[Observation]) -> list[tuple[Observation, Observation]]:
    """Both orders of each pair at each level, slot A first for `one` in the first."""
    seats: dict[tuple[tuple[int, int, int], Level], dict[bool, Observation]] = defaultdict(dict)
    for look in looks:
        seats[look.pair, look.level][look.first] = look
    return [(seat[True], seat[False]) for seat in seats.values() if len(seat) == 2]


def complete(looks: Sequence[Observation], per_pair: int) -> list[Observation]:
    """Only pairs of which every look was answered, so that all figures are about the same pairs."""
    count: dict[tuple[int, int, int], int] = defaultdict(int)
    for look in looks:
        count[look.pair] += 1
    return [look for look in looks if count[look.pair] == per_pair]


# How much votes are worth, where labels show which answers were right.


SPREAD = 0.8  # expected of the logarithm of either strength
LOOSE_SPREAD = 1.0  # expected of the log-odds added where several may be right
SWEEPS = 6


@dataclass(frozen=True, slots=True)
class Ballot:
    """The answers of a case: how many gave each, what else speaks for it in log-odds, whether it is right."""

    votes: tuple[int, ...]
    besides: tuple[float, ...]
    right: tuple[bool, ...]


def strengths(ballots: Sequence[Ballot], votes: float, nobody: float) -> tuple[float, float]:
    """The power votes are raised to, and the votes of no right answer: likeliest, two being expected.

    An answer of n weighs n to that power; several right answers weigh together. The power only falls: votes
    taken for more than was assumed spare questions, and that costs more answers than it makes sure.
    """
    factors = [0.0, 0.0]

    def fit(place: int, x: float) -> float:
        tried = [x if i == place else old for i, old in enumerate(factors)]
        power, absent = votes * math.exp(tried[0]), nobody * math.exp(tried[1])
        told = sum(_told(ballot, power, absent) for ballot in ballots)
        return told - sum((y / SPREAD) ** 2 for y in tried) / 2

    for _ in range(SWEEPS if ballots and votes > 0 else 0):
        for place in range(2):
            factors[place] = peak(partial(fit, place), -2.0, (0.0, 2.0)[place])
    return votes * math.exp(factors[0]), nobody * math.exp(factors[1])


def loose_odds(ballots: Sequence[Ballot], power: float, base: Sequence[float]) -> float:
    """Log-odds to add where several answers may be right: likeliest, none being expected.

    `base` holds, for each ballot, the log-odds of a candidate that stands alone. Each case counts the same.
    """

    def fit(x: float) -> float:
        told = -((x / LOOSE_SPREAD) ** 2) / 2
        for ballot, start in zip(ballots, base, strict=True):
            everyone = sum(ballot.votes)
            for n, more, right in zip(ballot.votes, ballot.besides, ballot.right, strict=True):
                odds = start + x + power * math.log(n) + more
                told -= n / everyone * math.log1p(math.exp(min(700.0, -odds if right else odds)))
        return told

    return peak(fit, -4.0, 4.0) if ballots else 0.0


def _told(ballot: Ballot, power: float, absent: float) -> float:
    """Log-chance of what turned out to be right."""
    logs = [power * math.log(n) + more for n, more in zip(ballot.votes, ballot.besides, strict=True)]
    nobody = power * math.log(absent)
    top = max(nobody, *logs)
    weights, none = [math.exp(x - top) for x in logs], math.exp(nobody - top)
    right = sum(w for w, so in zip(weights, ballot.right, strict=True) if so)
    return math.log(max(1e-12, (right if any(ballot.right) else none) / (sum(weights) + none)))
