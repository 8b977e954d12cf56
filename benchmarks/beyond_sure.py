"""How sure `posterior` is against how often it is right, beside the share of votes; verdicts SIMULATED.

Each pool is cut into two halves. What is fitted, as `--calibrate` does it with labels, is fitted on the first
`--labelled` cases of one half (with `--spread`: on as many spread over it) and measured on the other half,
and the other way round.
"""

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from beyond_played import (
    Played,
    calibration_error,
    contests,
    ours,
    reliability,
    simulated,
    stacked,
    vote_share,
)
from beyond_pools import Pools

from caps.core.contest import Contest
from caps.core.play import Strategy
from caps.core.types import Pairing, Verdict
from caps.judging.simulated import JudgeModel, SimulatedJudge
from caps.reports.charts import Series, Spot, curve
from caps.reports.pictures import svg_text
from caps.strategies.posterior import Posterior
from caps.studies.calibration import Probe, ProbedCase, conclude
from caps.studies.simulation import LabelledPool

LARGE = 150  # problems; smaller pools are also taken together


def calibration(everything: Sequence[Pools], given: argparse.Namespace) -> None:
    """As it stands, and with what labels of other cases of the same pool say."""
    for judge in product(given.accuracy, given.shared):
        print(f"judge {100 * judge[0]:.0f} %, shared bias {judge[1]:g}")
        found: dict[str, list[Played]] = {}
        small: dict[str, list[Played]] = {}
        shares = []
        for pools in everything:
            played = _crossed(pools, judge, given)
            for name, one in played.items():
                found.setdefault(name, []).append(one)
                if len(pools.merged) < LARGE:
                    small.setdefault(name, []).append(one)
            shares.append(vote_share(pools.merged))
            print(f"  {pools.name}, {len(pools.merged)} problems: {_in_words(played)}", flush=True)
        sure, right = (np.concatenate(column) for column in zip(*shares, strict=True))
        error, brier = calibration_error(sure, right), ((sure - right) ** 2).mean()
        print(f"  share of votes, {len(sure)} problems: ECE {error:.3f}, Brier {brier:.3f}")
        for title, some in (("pools below 150 problems", small), ("all", found)):
            together = {name: stacked(rows) for name, rows in some.items()}
            print(f"  {title}: {_in_words(together)}")
            if given.plot and title == "all":
                for name, one in together.items():
                    words = name.replace(" ", "-")
                    _plot(f"{given.plot}-{words}-{100 * judge[0]:.0f}-{judge[1]:g}.svg", one)


def _crossed(pools: Pools, judge: tuple[float, float], given: argparse.Namespace) -> dict[str, Played]:
    """Both halves, each with what was fitted on the other."""
    rows: dict[str, list[Played]] = {}
    for here, there in ((0, 1), (1, 0)):
        strategy, other = ours(*judge), pools.merged[there::2]
        step = max(1, len(other) // given.labelled) if given.spread else 1
        labelled = other[::step][: given.labelled]
        cases = [_probed(pool, strategy, simulated(*judge), given.seeds) for pool in labelled]
        both: dict[str, Strategy] = {
            "as it stands": strategy,
            "fitted": conclude(cases, strategy).inform(strategy, "posterior", {}),
        }
        half = Pools(pools.name, pools.merged[here::2], pools.apart[here::2])
        for name, one in contests(half, both, simulated(*judge), given.seeds, 1).items():
            rows.setdefault(name, []).append(one)
    return {name: stacked(some) for name, some in rows.items()}


def _probed(pool: LabelledPool, believer: Posterior, model: JudgeModel, seeds: int) -> ProbedCase:
    probe, seed = Probe(believer, pool.correct), 7 * pool.number % seeds
    contest = Contest(probe, pool.entrants, seed=f"{seed}/{pool.number}")
    judge = SimulatedJudge(model, pool.entrants, pool.correct, seed=seed, case=pool.number)
    asks = contest.pending.asks if contest.pending else ()
    answers = ((ask, judge.answer(ask)) for ask in asks)
    asked = [(a, v) for a, v in answers if isinstance(a, Pairing) and isinstance(v, Verdict)]
    return ProbedCase(probe, pool.entrants, asked, pool.number)


def _in_words(played: dict[str, Played]) -> str:
    return "; ".join(
        f"{name} {one.right:.1f} %, says {100 * one.column('sure').mean():.1f}, ECE {one.error:.3f}"
        for name, one in played.items()
    )


def _plot(path: str, played: Played) -> None:
    bins = reliability(played.column("sure"), played.column("right"))
    spots = [Spot(at=said, right=so, low=so, high=so) for _, said, so in bins]
    title = f"{len(played.rows)} problems, ECE {played.error:.3f} (simulated judge)"
    stated = [(step / 5, f"{20 * step} %") for step in range(6)]
    series = [Series(name="", spots=spots, full=True)]
    drawn = curve(series, title, [], stated=stated, axis="said", ideal="as said", coin=False)
    Path(path).write_text(svg_text(drawn), "utf-8")
