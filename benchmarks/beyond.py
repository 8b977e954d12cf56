"""Accuracy and tokens of `posterior` beside the others, and how sure it is; all verdicts SIMULATED.

    python benchmarks/beyond.py                        made-up pools: the front, and where it loses
    python benchmarks/beyond.py --cases A.jsonl B.gz   labelled cases; --findings J looks into them first
    python benchmarks/beyond.py --calibration          how sure, how right; fitted on the other half

`posterior` is not told what the judge is worth; `measured` has it estimated from other problems, as `caps
diagnose` does. Intervals are paired bootstraps over problems. What `--keep DIR` holds is not played again.
"""

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

import numpy as np
from beyond_played import VOTES, Played, contests, ours, paired, rivals, simulated, worse_by_chance
from beyond_pools import Pools, imagined, read
from beyond_sure import calibration

from caps.core.play import Strategy
from caps.strategies.posterior import Posterior

EFFORTS = ("low", "high")
ROUNDS = (2, 4)
AGAINST = ("v1-infer", "tests, listwise", VOTES)


def cell(pools: Pools, judge: tuple[float, float], given: argparse.Namespace) -> dict[str, Played]:
    """Everyone on one pool against one judge, played once."""
    file = given.keep and Path(given.keep) / f"{pools.name}-{judge[0]:g}-{judge[1]:g}.npz"
    if file and file.exists():
        with np.load(file) as kept:
            return {name: Played(kept[name]) for name in kept.files}
    everyone: dict[str, Strategy] = rivals() | {"posterior": Posterior(), "measured": ours(*judge)}
    if given.limits:
        everyone |= {f"posterior {effort}": Posterior(effort=effort) for effort in EFFORTS}
        everyone |= {f"posterior {most} rounds": Posterior(max_rounds=most) for most in ROUNDS}
    each = max(1, round(given.contests / len(pools.merged)))
    played = contests(pools, everyone, simulated(*judge), given.seeds, each)
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(file, **{name: one.rows for name, one in played.items()})
    return played


def table(cells: Mapping[str, Mapping[str, Played]]) -> list[str]:
    """Right in per cent by pool, then means over pools; and `posterior` less others with 95 % intervals."""
    pools = [f"{name} ({len(set(cell['posterior'].column('problem')))})" for name, cell in cells.items()]
    heads = ["strategy", *pools, "mean", "calls", "tokens %", "rounds"]
    rows = [heads, ["---"] * len(heads)]
    for name in next(iter(cells.values())):
        played = [cell[name] for cell in cells.values()]
        right = [one.right for one in played]
        means = [fmean(right), *(fmean(one.column(x).mean() for one in played) for x in ("asks", "rounds"))]
        share = fmean(one.share for one in played)
        figures = [*right, means[0], means[1], share, means[2]]
        rows.append([f"`{name}`", *(f"{figure:.1f}" for figure in figures)])
    for rival in AGAINST:
        gaps = [paired(cell["posterior"], cell[rival]) for cell in cells.values()]
        half = sum(((high - low) / 2) ** 2 for _, low, high in gaps) ** 0.5 / len(gaps)
        shown = [f"{gap:+.1f} ±{(high - low) / 2:.1f}" for gap, low, high in gaps]
        shown.append(f"{fmean(gap for gap, *_ in gaps):+.1f} ±{half:.1f}")
        rows.append([f"less `{rival}`", *shown, "", "", ""])
    return ["| " + " | ".join(row) + " |" for row in rows]


def max_usage(cells: Mapping[tuple[str, str], Mapping[str, Played]]) -> list[str]:
    """Pools on which `posterior` is worse than a rival that takes no more tokens, and by how much.

    `p` is one-sided, of a paired permutation of signs over problems; `Holm` is p corrected for all
    comparisons of this run. Only differences with p below .05 are listed.
    """
    found = []
    for (judge, name), cell in cells.items():
        for rival in rivals():
            if cell[rival].share <= cell["posterior"].share:
                chance = worse_by_chance(cell["posterior"], cell[rival])
                found.append((chance, judge, name, rival, paired(cell["posterior"], cell[rival])))
    found.sort()
    lines, corrected = [f"{len(found)} comparisons with rivals that take no more tokens"], 0.0
    for place, (chance, judge, name, rival, (middle, low, high)) in enumerate(found):
        corrected = max(corrected, min(1.0, chance * (len(found) - place)))
        if chance < 0.05:
            lines.append(
                f"  {judge}, {name}: - {rival} {middle:+.1f} [{low:+.1f}, {high:+.1f}], p {chance:.4f}, "
                f"Holm {corrected:.2f}"
            )
    return lines


def grid(everything: Sequence[Pools], given: argparse.Namespace) -> None:
    """All pools against all judges."""
    judges = list(product(given.accuracy, given.shared))
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as workers:
        waiting = {
            (pools.name, judge): workers.submit(cell, pools, judge, given)
            for judge, pools in product(judges, everything)
        }
        everyone: dict[tuple[str, str], dict[str, Played]] = {}
        for judge in judges:
            cells = {pools.name: waiting[pools.name, judge].result() for pools in everything}
            print(f"simulated judge {100 * judge[0]:.0f} %, shared bias {judge[1]:g}")
            print("\n".join(table(cells)), flush=True)
            everyone |= {(f"{100 * judge[0]:.0f} %, {judge[1]:g}", name): one for name, one in cells.items()}
        print("\n".join(max_usage(everyone)))


def _at_most(pools: Pools, limit: int) -> Pools:
    step = max(1, -(-len(pools.merged) // limit))
    return Pools(pools.name, pools.merged[::step], pools.apart[::step])


def main() -> None:
    """Print what is asked for."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--cases", nargs="*", default=[], help="labelled cases in place of made-up pools")
    options.add_argument("--plain", nargs="*", default=[], help="the same, never looked into")
    options.add_argument(
        "--odd", action="store_true", help="every second problem, on which nothing was chosen"
    )
    options.add_argument("--findings", help="journal: run programs and compare values before, once")
    options.add_argument("--problems", type=int, default=200, help="made-up problems of a kind")
    options.add_argument("--n", type=int, default=16)
    options.add_argument("--seeds", type=int, default=50, help="judge seeds")
    options.add_argument("--contests", type=int, default=300, help="of a pool, at least one a problem")
    options.add_argument("--accuracy", type=float, nargs="*", default=[0.6, 0.7, 0.8, 0.9])
    options.add_argument("--shared", type=float, nargs="*", default=[0, 0.5, 1])
    options.add_argument("--calibration", action="store_true", help="how sure against how often right")
    options.add_argument("--labelled", type=int, default=40, help="calibration: cases fitted on")
    options.add_argument(
        "--spread", action="store_true", help="calibration: spread over the file, not its first"
    )
    options.add_argument("--plot", help="calibration: begin of the names of reliability plots")
    options.add_argument("--limits", action="store_true", help="also other efforts and few rounds")
    options.add_argument(
        "--limit", type=int, default=10_000, help="problems of a pool at most, spread evenly"
    )
    options.add_argument("--keep", help="folder for what was played")
    options.add_argument("--processes", type=int, default=2)
    given = options.parse_args()
    pools = [read(one, given.n, given.findings) for one in given.cases]
    pools += [read(one, given.n, None) for one in given.plain]
    pools = pools or imagined(given.problems, given.n)
    pools = [_at_most(one, given.limit) for one in pools]
    if given.odd:
        pools = [Pools(one.name, one.merged[1::2], one.apart[1::2]) for one in pools]
    run = calibration if given.calibration else grid
    run(pools, given)


if __name__ == "__main__":
    main()
