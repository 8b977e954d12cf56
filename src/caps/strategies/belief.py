"""What is believed of each answer: votes, findings, scores and verdicts (docs/explanation/posterior.md)."""

import math
from collections.abc import Mapping, Sequence
from operator import mul
from statistics import fmean, pstdev
from typing import NamedTuple

from caps.core.types import Entrant
from caps.strategies.verdicts import Evidence

RATES = (0.03, 0.15, 0.4, 0.7, 0.95)  # shares of right candidates, where several answers may be right
SWEEPS = 6
DULLER = {0.0: 0.4, 0.35: 0.6}  # a judge worse than stated: its gap as a part of that, how likely

Groups = Sequence[Sequence[Entrant]]
Others = tuple[list[int], list[float]]


class Belief(NamedTuple):
    """The chance of each answer, and what a game tells as a part of what the judge's profile promises."""

    chances: list[float]
    sharpness: float


def weigh(
    groups: Groups, *, votes: float, failing: Mapping[str, float], scored: Mapping[str, float]
) -> list[float]:
    """Log-weight of each answer before anyone is asked: its votes, what it fails, how it scores."""
    fallen, risen = _fail(groups, failing), _stand_out(groups, scored)
    return [votes * math.log(len(group)) + fallen[k] + risen[k] for k, group in enumerate(groups)]


def _fail(groups: Groups, strength: Mapping[str, float]) -> list[float]:
    """Log-odds each answer loses by a share below 1: half for falling short at all, half for how far."""
    best = {
        name: [max(one.features.get(name, 1.0) for one in group) for group in groups] for name in strength
    }
    return [
        -sum(strength[name] * ((best[name][k] < 1) + 1 - best[name][k]) / 2 for name in strength)
        for k in range(len(groups))
    ]


def _stand_out(groups: Groups, strength: Mapping[str, float]) -> list[float]:
    """Log-odds each answer gains by what its candidates score above the mean, in standard deviations."""
    gained = [0.0] * len(groups)
    for name in strength:
        known = [one.features[name] for group in groups for one in group if name in one.features]
        if len(set(known)) > 1:
            middle, spread = fmean(known), pstdev(known)
            for k, group in enumerate(groups):
                typical = fmean(one.features.get(name, middle) for one in group)
                gained[k] += strength[name] * (typical - middle) / spread
    return gained


def one_right(prior: Sequence[float], nobody: float, evidence: Evidence, doubt: float) -> Belief:
    """Chance of each answer if at most one is right; `prior` and `nobody` are log-weights.

    How sharp the judge is, is not taken on trust: with a chance of `doubt` it is one of the duller ones, and
    whichever explains the games better counts for more.
    """
    strain = (row[k] for k, row in enumerate(evidence.strain))
    games = list(zip(prior, evidence.support, strain, strict=True))
    worlds = []
    for factor, weight in ((1.0, 1 - doubt), *((dull, doubt * part) for dull, part in DULLER.items())):
        if weight > 0:
            told = [p + factor * g - factor**2 * a / 2 for p, g, a in games]
            worlds.append((factor, [math.log(weight) + x for x in (*told, nobody)]))
    top = max(max(logs) for _, logs in worlds)
    found = [(factor, [math.exp(x - top) for x in logs]) for factor, logs in worlds]
    total = sum(sum(weights) for _, weights in found)
    sharpness = sum(factor**2 * sum(weights) for factor, weights in found) / total
    chances = [sum(row) / total for row in zip(*(weights for _, weights in found), strict=True)]
    return Belief(chances[:-1], sharpness)


def several_right(prior: Sequence[float], nobody: float, evidence: Evidence) -> Belief:
    """Chance of each answer if any number may be right: mean field, mixed over shares of right ones.

    `nobody` is the log-odds that none is, the share of 0 among them.
    """
    worlds = [([0.0] * len(prior), nobody)]
    met = [_others(row, k) for k, row in enumerate(evidence.strain)]
    for rate in RATES:
        odds = [math.log(rate / (1 - rate)) + p for p in prior]
        belief, fit = _mean_field(odds, evidence, met)
        worlds.append((belief, fit - math.log(len(RATES))))
    best = max(fit for _, fit in worlds)
    weights = [math.exp(fit - best) for _, fit in worlds]
    mixed = zip(*(belief for belief, _ in worlds), strict=True)
    return Belief(
        [sum(w * q for w, q in zip(weights, row, strict=True)) / sum(weights) for row in mixed], 1.0
    )


def _others(row: Sequence[float], k: int) -> Others:
    """Whom an answer has met, and how much they hold each other back."""
    who = [j for j, x in enumerate(row) if x and j != k]
    return who, [row[j] for j in who]


def _mean_field(
    odds: Sequence[float], evidence: Evidence, met: Sequence[Others]
) -> tuple[list[float], float]:
    """Chances that agree with one another, and how well they explain the games (a lower bound)."""
    strain = evidence.strain
    alone = [h + g - strain[k][k] / 2 for k, (h, g) in enumerate(zip(odds, evidence.support, strict=True))]
    q = [_sigmoid(h) for h in alone]
    chance = q.__getitem__
    for _ in range(SWEEPS):
        for k, (who, strains) in enumerate(met):
            if who:
                q[k] = _sigmoid(alone[k] - sum(map(mul, strains, map(chance, who))))
    fit = -sum(math.log1p(math.exp(h)) for h in odds)
    for k, (p, (who, strains)) in enumerate(zip(q, met, strict=True)):
        fit += p * alone[k] - sum(map(mul, strains, map(chance, who))) * p / 2
        fit -= sum(x * math.log(x) for x in (p, 1 - p) if x > 0)
    return q, fit


def exchange(kept: float, gained: float, sharpness: float) -> float:
    """What may be won by asking before one answer is kept or exchanged for another (Margrabe's option).

    `kept`: chance that only the first is right; `gained`: that only the second is.
    """
    if gained <= 0 or sharpness <= 0:
        return 0.0
    if kept <= 0:
        return gained
    spread = math.sqrt(sharpness)
    middle = math.log(gained / kept) / spread
    return gained * _phi(middle + spread / 2) - kept * _phi(middle - spread / 2) - max(0.0, gained - kept)


def _phi(x: float) -> float:
    return math.erfc(-x * math.sqrt(0.5)) / 2


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -500 else 0.0
