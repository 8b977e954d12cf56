"""How sure `posterior` is against how often it is right, beside the share of votes; verdicts SIMULATED."""

import argparse
from collections.abc import Sequence
from itertools import product

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
from beyond_pools import Pools, fitted

from caps.core.play import Strategy

SEVERAL = 4  # problems of which one is for fitting


def calibration(everything: Sequence[Pools], given: argparse.Namespace) -> None:
    """With `votes` and `nobody` as they stand, and fitted on other problems of each pool."""
    told = {
        pools.name: fitted([pool for pool in pools.merged if pool.number % SEVERAL == 0])
        for pools in everything
    }
    for judge in product(given.accuracy, given.shared):
        found: dict[str, list[Played]] = {"as it stands": [], "fitted": []}
        shares = []
        for pools in everything:
            rest = Pools(pools.name, *([p for p in some if p.number % SEVERAL] for some in pools[1:]))
            both: dict[str, Strategy] = {
                "as it stands": ours(*judge),
                "fitted": ours(*judge, **told[pools.name]),
            }
            played = contests(rest, both, simulated(*judge), given.seeds, 1)
            for name, one in played.items():
                found[name].append(one)
            shares.append(vote_share(rest.merged))
            line = "; ".join(
                f"{n} {one.right:.1f} %, sure {100 * one.column('sure').mean():.1f}, ECE {one.error:.3f}"
                for n, one in played.items()
            )
            print(f"  {pools.name} {told[pools.name]}: {line}", flush=True)
        sure, right = (np.concatenate(column) for column in zip(*shares, strict=True))
        print(f"judge {100 * judge[0]:.0f} %, shared bias {judge[1]:g}, {len(sure)} problems not fitted to")
        error, brier = calibration_error(sure, right), ((sure - right) ** 2).mean()
        print(f"  share of votes: ECE {error:.3f}, Brier {brier:.3f}")
        for name, some in found.items():
            one = stacked(some)
            print(f"  {name}: ECE {one.error:.3f}, Brier {one.brier:.3f}")
            if given.plot:
                _plot(f"{given.plot}-{name.replace(' ', '-')}-{100 * judge[0]:.0f}-{judge[1]:g}.svg", one)


def _plot(path: str, played: Played) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - only where a plot is wanted

    figure = Figure(figsize=(4, 4), layout="tight")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.7")
    bins = reliability(played.column("sure"), played.column("right"))
    axes.scatter([said for _, said, _ in bins], [so for *_, so in bins], [900 * share for share, *_ in bins])
    axes.set(xlabel="said", ylabel="right", xlim=(0, 1), ylim=(0, 1))
    axes.set_title(f"{len(played.rows)} problems, ECE {played.error:.3f} (simulated judge)", fontsize=9)
    figure.savefig(path, metadata={"Date": None})
