"""Observations of a judge whose flaws are known exactly, drawn straight from its equation; and the figures that follow.

The equation is that of `caps.judging.simulated`: d = belief(a) - belief(b) + pull + order error + fresh error, where
a belief is the truth plus an error that stays with the candidate, partly with its answer, partly with the case.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from statistics import NormalDist

from caps.core.types import Level, verdict_of
from caps.judging.simulated import JudgeModel
from caps.statistics.observations import Observation

NORMAL = NormalDist()
LADDER = ((0, 10), (0, 11), (1, 11))
LEVELS = (Level.PARTIAL, Level.FULL)


@dataclass(frozen=True)
class Truth:
    accuracy: float
    flips: float
    first_slot: float


def truth(model: JudgeModel, level: Level) -> Truth:
    """What an endless diagnosis would find, integrated over the errors that stay."""
    gap, pull, band = model.gap(level), model.pull(level), model.tie_band
    lasting, fresh = math.sqrt(model.lasting), math.sqrt(1 - model.lasting)
    flips = total = 0.0
    for z, here in product(_steps(120), _steps(40 if model.pull_spread else 1)):
        weight = NORMAL.pdf(z) * NORMAL.pdf(here)
        lean, slot = gap + lasting * z, pull + model.pull_spread * here
        seats = [_chances(lean + side * slot, band, fresh) for side in (1, -1)]
        flips += weight * sum(
            p * q * abs(x - y) for x, p in zip((1, 0.5, 0), seats[0], strict=True)
            for y, q in zip((1, 0.5, 0), seats[1], strict=True)
        )  # fmt: skip
        total += weight
    return Truth(model.wanted(level), flips / total, NORMAL.cdf(pull / model.spread))


def _steps(count: int) -> list[float]:
    return [-6 + 12 * (step + 0.5) / count for step in range(count)]


def _chances(lean: float, band: float, fresh: float) -> tuple[float, float, float]:
    win, lose = NORMAL.cdf((lean - band) / fresh), NORMAL.cdf((-lean - band) / fresh)
    return win, 1 - win - lose, lose


def observations_of(
    model: JudgeModel, cases: int, rng: Random, levels: Sequence[Level] = LEVELS
) -> list[Observation]:
    """Three pairs a case, neighbours sharing a candidate; right candidates share an answer, wrong ones do not."""
    hardness = min(model.hardness, model.lasting)
    scale, fresh = math.sqrt((model.lasting - hardness) / 2), math.sqrt(1 - model.lasting)
    own, shared = math.sqrt(1 - model.shared_bias), math.sqrt(model.shared_bias)
    found = []
    for case in range(cases):
        for level in levels:
            common, hard = rng.gauss(0, 1), math.sqrt(hardness) * rng.gauss(0, 1)
            slot = model.pull(level) + model.pull_spread * rng.gauss(0, 1)
            belief = {
                one: scale * (own * rng.gauss(0, 1) + shared * (common if one < 10 else rng.gauss(0, 1)))
                for one in (0, 1, 10, 11)
            }
            for right, wrong in LADDER:
                for first in (True, False):
                    lean = (
                        model.gap(level) + hard + belief[right] - belief[wrong] + (slot if first else -slot)
                    )
                    lean += fresh * rng.gauss(0, 1)
                    sense = abs(lean) + model.confidence_noise * rng.gauss(0, 1)
                    found.append(_look(case, right, wrong, level, lean, sense, model, first=first))
    return found


def _look(case, right, wrong, level, lean, sense, model, *, first):
    winner = "TIE" if abs(lean) < model.tie_band else "A" if lean > 0 else "B"
    return Observation(
        case=case, one=right, other=wrong, level=level, first=first, sizes=(10, 20),
        verdict=verdict_of(winner, "HIGH" if sense > model.high_band else "LOW"),
    )  # fmt: skip
