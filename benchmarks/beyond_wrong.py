"""Judges and pools that are not what `posterior` takes them for; verdicts SIMULATED."""

import argparse
from collections.abc import Mapping, Sequence

import numpy as np
from beyond_played import Played, contests, ours, rivals, simulated
from beyond_pools import Pools, hopeless, split

from caps.core.play import Strategy
from caps.strategies.posterior import Posterior


def wrong(everything: Sequence[Pools], given: argparse.Namespace) -> None:
    """Judges and pools that are not what the model takes them for."""
    for pools in everything:
        each = max(1, round(given.contests / len(pools.merged)))
        some = {name: one for name, one in rivals().items() if name in ("tests-first", "caps-r", "v1-infer")}
        for truth, stated in ((0.5, 0.5), (0.65, 0.9), (0.5, 0.9), (0.9, 0.65)):
            told: dict[str, Strategy] = {"told": ours(stated, 0.5), "not told": Posterior()}
            played = contests(pools, some | told, simulated(truth, 0.5), given.seeds, each)
            title = f"judge of {100 * truth:.0f} % stated as {100 * stated:.0f} %"
            print(f"{pools.name}: {title}: {_in_words(played)}", flush=True)
        known: dict[str, Strategy] = some | {"posterior": ours(0.8, 0.5)}
        halves = [pool for one in pools.merged if (pool := split(one))]
        for title, changed, hostile in (
            ("as assumed", pools.merged, False),
            ("a wrong candidate wins every game", pools.merged, True),
            ("two answers are right", halves, False),
            ("nothing is right", [hopeless(one) for one in pools.merged], False),
        ):
            other = Pools(pools.name, changed, changed)
            played = contests(other, known, simulated(0.8, 0.5), given.seeds, each, hostile=hostile)
            print(f"{pools.name}: {title}: {_in_words(played)}", flush=True)


def _in_words(played: Mapping[str, Played]) -> str:
    return "; ".join(
        f"{name} {one.right:.1f} at {one.share:.0f} %"
        + (
            ""
            if np.isnan(one.column("sure")).any()
            else f" (sure {100 * one.column('sure').mean():.0f}, ECE {one.error:.2f})"
        )
        for name, one in played.items()
    )
