"""What separating inputs and questions about them change, on pools of programs; all verdicts SIMULATED.

    python -m benchmarks.separating --data DIR --against OLD/src --journals FOLDER
    python benchmarks/beyond_difference.py --data DIR --journals FOLDER [--accuracy 0.7 0.8] [--before]

`posterior` with the usual partial views and `posterior` that shows separating inputs (`code-difference`),
beside `tests-first`, `caps-r`, and `caps-r` with failing programs left out. How well a judge decides about
differences is an assumption: as well as on full views, 5 points better, 5 points worse. `posterior` always
counts such a verdict as one on full views. `--before` plays with the findings and settings of the version
before, too. The programs run once, in `benchmarks.separating`. Intervals are paired bootstraps over problems;
`--half` takes every second problem.
"""

import argparse
import asyncio
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean

from beyond_played import APART, Played, contests, ours, paired, simulated
from beyond_pools import Pools
from separating import POOLS, cases_of, find

from caps.building import make_prepare, make_strategy
from caps.core.types import Case
from caps.findings.base import recall
from caps.findings.programs import BehaviourFinder
from caps.journal.store import Journal
from caps.studies.simulation import LabelledPool
from caps.studies.suites import pool_of

ASSUMED = {"equal": 0.0, "5 points better": 0.05, "5 points worse": -0.05}
CASCADES = ("caps-r", APART)
HALVES = {"even": 0, "odd": 1}
BEFORE = "behaviour-2"  # the finder of the version before; the rest of its name is as now
OLD_SETTINGS = {"impure": 0.12}
USUAL = "posterior, usual views"


def pools_of(name: str, cases: Sequence[Case]) -> tuple[Pools, Pools]:
    """A pool with the usual partial views, and with differences; told apart by behaviour, and by syntax."""

    def prepared(**settings: bool) -> list[LabelledPool]:
        prepare = make_prepare(**settings)
        return [pool_of(prepare(case), place) for place, case in enumerate(cases)]

    usual, apart = prepared(findings=True), prepared()
    return Pools(name, usual, apart), Pools(name, prepared(findings=True, differences=True), apart)


def read(name: str, given: argparse.Namespace) -> list[tuple[Pools, Pools]]:
    """A pool with its findings, and with those of the version before."""
    cases = list(cases_of(given.data / f"{POOLS[name]}.jsonl.gz", None))
    if given.half:
        cases = cases[HALVES[given.half] :: 2]
    found, _ = asyncio.run(find(cases, given.journals / f"{name}.sqlite", given.seconds))
    pools = [pools_of(name, found)]
    if given.before:
        version = " ".join([BEFORE, *BehaviourFinder().version.split()[1:4]])
        with Journal.open(given.journals / "before" / f"{name}.sqlite") as journal:
            pools.append(pools_of(name, [recall(journal, {"code": version}, one) for one in cases]))
    return pools


def played(name: str, given: argparse.Namespace) -> list[dict[str, Played]]:
    """All strategies on one pool, for each accuracy."""
    now, *before = read(name, given)
    return [_played(now, before, accuracy, given) for accuracy in given.accuracy]


def _played(
    now: tuple[Pools, Pools],
    before: Sequence[tuple[Pools, Pools]],
    accuracy: float,
    given: argparse.Namespace,
) -> dict[str, Played]:
    usual, shown = now
    each = max(1, round(given.contests / len(usual.merged)))
    judge, believed = simulated(accuracy, given.shared), ours(accuracy, given.shared, **dict(given.set))
    everyone = {name: make_strategy(name) for name in ("tests-first", "caps-r")}
    everyone |= {APART: make_strategy("caps-r", {"shortlist": "tests"}), USUAL: believed}
    found = dict[str, Played]()
    for earlier, _ in before:
        as_before = {USUAL: ours(accuracy, given.shared, **OLD_SETTINGS)}
        old = contests(earlier, everyone | as_before, judge, given.seeds, each, apart=CASCADES)
        found |= {f"{name}, before": one for name, one in old.items()}
    found |= contests(usual, everyone, judge, given.seeds, each, apart=CASCADES)
    for name, more in ASSUMED.items():
        assumed = replace(judge, accuracy_difference=accuracy + more)
        after = contests(shown, {name: believed}, assumed, given.seeds, each)
        found[f"posterior, differences {name}"] = after[name]
    return found


def table(cells: Sequence[dict[str, Played]]) -> list[str]:
    """Means over pools: right, tokens of a case and as a part of the rival's, paired difference."""
    lines = []
    rival = [cell[APART] for cell in cells]
    for name in cells[0]:
        own = [cell[name] for cell in cells]
        gaps = [paired(one, other) for one, other in zip(own, rival, strict=True)]
        middle = fmean(gap for gap, *_ in gaps)
        spread = 1.96 * sum(((high - low) / 3.92) ** 2 for _, low, high in gaps) ** 0.5 / len(gaps)
        tokens = [float(one.column("tokens").mean()) for one in own]
        part = fmean(tokens) / fmean(float(one.column("tokens").mean()) for one in rival)
        interval = f"{middle:+.1f} [{middle - spread:+.1f}, {middle + spread:+.1f}]"
        lines.append(
            f"  {name:40} {fmean(one.right for one in own):5.1f} %  {fmean(tokens):7.0f} tokens a case, "
            f"{100 * part:3.0f} % of {APART}'s  {interval}"
        )
    return lines


def main() -> None:
    """Print the means over pools, and each pool."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--data", type=Path, required=True, help="folder with pools/ and judgments/")
    options.add_argument("--journals", type=Path, required=True, help="what programs did, a file a pool")
    options.add_argument("--pools", default=",".join(POOLS))
    options.add_argument("--before", action="store_true", help="with the findings in FOLDER/before, too")
    options.add_argument("--half", choices=HALVES, help="every second problem")
    options.add_argument("--accuracy", type=float, nargs="*", default=[0.7, 0.8])
    options.add_argument("--shared", type=float, default=0.5)
    options.add_argument("--seeds", type=int, default=50)
    options.add_argument("--contests", type=int, default=300, help="of a pool, at least one a problem")
    options.add_argument("--seconds", type=float, help="the limit of a case that the findings had")
    options.add_argument("--set", type=_setting, nargs="*", default=[], help="NAME=NUMBER of posterior")
    given = options.parse_args()
    names = given.pools.split(",")
    with ProcessPoolExecutor(2) as workers:
        rows = list(workers.map(partial(played, given=given), names))
    for accuracy, cells in zip(given.accuracy, zip(*rows, strict=True), strict=True):
        print(f"SIMULATED judge, {100 * accuracy:.0f} % on full views; mean of {len(cells)} pools")
        print("\n".join(table(cells)))
        for name, cell in zip(names, cells, strict=True) if len(names) > 1 else ():
            print(f"{name}\n" + "\n".join(table([cell])), flush=True)


def _setting(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    return name, float(value)


if __name__ == "__main__":
    main()
