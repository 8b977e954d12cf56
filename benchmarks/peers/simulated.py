"""Accuracy against rating one by one at equal tokens; pools, verdicts and ratings are SIMULATED.

A rating is the same belief as in a pair, with half of the rest of a comparison's variance, so that the
difference of two ratings is as noisy as one verdict; it is then rounded, one scale for all calls. A real
judge's ratings drift from call to call, which this leaves out: it favours the ratings.

Ratings can be bought in any amount: of the first few candidates only, or of all several times.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from caps.core.contest import Contest
from caps.core.play import Strategy
from caps.judging.simulated import SimulatedJudge
from caps.session.parts import make_strategy
from caps.strategies.pointwise import Pointwise
from caps.studies.simulation import LabelledPool, PoolModel, generated_pools
from peers.answers import JUDGE

STRATEGIES = ("caps-r", "posterior", "sprint", "knockout", "v1-infer")
RATED = (1, 2, 4, 8, 12, 16)
REPEATS = (2, 3, 4, 6)
SEED = 11


def at_equal_tokens(problems: int) -> list[dict[str, Any]]:
    """A row for each kind of pool and strategy: accuracy, tokens, and what as many tokens of ratings buy."""
    rows = []
    for kind in ("math", "code"):
        pools = generated_pools(PoolModel(kind=kind, full_tokens=1500), problems, SEED)
        curve = sorted(
            [_played([_first(pool, count) for pool in pools], Pointwise()) for count in RATED]
            + [_played(pools, Pointwise(repeats=times)) for times in REPEATS],
        )
        for name in STRATEGIES:
            tokens, right = _played(pools, make_strategy(name))
            ratings = _between(curve, tokens)
            rows.append(
                {"pools": kind, "strategy": name, "tokens": tokens, "right": right, "ratings": ratings}
            )
        tokens, right = curve[RATED.index(16)]
        rows.append(
            {"pools": kind, "strategy": "pointwise", "tokens": tokens, "right": right, "ratings": right}
        )
    return rows


def _first(pool: LabelledPool, count: int) -> LabelledPool:
    return replace(pool, entrants=pool.entrants[:count], correct=pool.correct[:count])


def _played(pools: Sequence[LabelledPool], strategy: Strategy) -> tuple[float, float]:
    """Mean tokens a problem, and the share that was chosen rightly."""
    spent = right = 0
    for pool in pools:
        judge = SimulatedJudge(JUDGE, pool.entrants, pool.correct, seed=SEED, case=pool.number)
        contest = Contest(strategy, pool.entrants, seed=f"{SEED}/{pool.number}").play(judge.answer)
        spent += sum(pool.tokens(ask) for turn in contest.transcript for ask in turn.round.asks)
        right += pool.correct[contest.selection.winner]
    return spent / len(pools), right / len(pools)


def _between(curve: Sequence[tuple[float, float]], tokens: float) -> float:
    """Accuracy at so many tokens, in a straight line between the points beside it."""
    lower = max((point for point in curve if point[0] <= tokens), default=curve[0])
    upper = min((point for point in curve if point[0] > tokens), default=curve[-1])
    part = (tokens - lower[0]) / (upper[0] - lower[0]) if upper[0] > lower[0] else 0.0
    return lower[1] + min(1.0, max(0.0, part)) * (upper[1] - lower[1])
