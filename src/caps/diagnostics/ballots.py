"""How much votes are worth, where labels show which answers were right."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from caps.diagnostics.searching import peak

SPREAD = 0.4  # expected of the logarithm of either strength
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


def _told(ballot: Ballot, power: float, absent: float) -> float:
    """Log-chance of what turned out to be right."""
    logs = [power * math.log(n) + more for n, more in zip(ballot.votes, ballot.besides, strict=True)]
    nobody = power * math.log(absent)
    top = max(nobody, *logs)
    weights, none = [math.exp(x - top) for x in logs], math.exp(nobody - top)
    right = sum(w for w, so in zip(weights, ballot.right, strict=True) if so)
    return math.log(max(1e-12, (right if any(ballot.right) else none) / (sum(weights) + none)))
