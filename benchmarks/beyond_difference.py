"""What asking about differences changes, on labelled pools of programs; all verdicts SIMULATED.

    python benchmarks/beyond_difference.py --data DIR --findings JOURNAL [--accuracy 0.7 0.8]

`posterior` with the usual partial views against `posterior` that shows separating inputs (`code-difference`),
beside `tests-first`, `caps-r`, and `caps-r` with failing programs left out. How well a judge decides about
differences is an assumption: as well as on full views, 5 points better, 5 points worse. `posterior` always
counts such a verdict as one on full views. The programs run once; their results stay in JOURNAL.
"""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from beyond_played import APART, Played, contests, ours, paired, simulated
from beyond_pools import Pools

from caps.building import make_prepare, make_strategy
from caps.core.domains import Finder
from caps.core.types import Case
from caps.datasets.imports import open_cases
from caps.findings.base import Findings
from caps.findings.programs import BehaviourFinder
from caps.journal.store import Journal
from caps.studies.simulation import LabelledPool
from caps.studies.suites import pool_of

POOLS = ("apps150_mapcoder", "humaneval_mapcoder", "humaneval_codegen16b_n100", "mbpp_mapcoder")
ASSUMED = {"equal": 0.0, "5 points better": 0.05, "5 points worse": -0.05}
OURS = "posterior, usual views"


async def known_cases(path: Path, n: int, journal: Path, finder: Finder) -> list[Case]:
    """The labelled cases of a pool with their findings; those without labels are left out."""
    with Journal.open(journal) as store:
        findings = Findings({"code": finder}, store)
        cases = [one for one in open_cases(str(path)) if isinstance(one, Case)]
        found = [await findings.find(replace(one, candidates=one.candidates[:n])) for one in cases]
        await findings.close()
    return [one for one in found if all(each.correct is not None for each in one.candidates)]


def pools_of(name: str, cases: Sequence[Case]) -> tuple[Pools, Pools]:
    """A pool with the usual partial views, and with differences; told apart by behaviour, and by syntax."""

    def prepared(**settings: bool) -> list[LabelledPool]:
        prepare = make_prepare(**settings)
        return [pool_of(prepare(case), place) for place, case in enumerate(cases)]

    usual, apart = prepared(findings=True), prepared()
    return Pools(name, usual, apart), Pools(name, prepared(findings=True, differences=True), apart)


def played(usual: Pools, shown: Pools, accuracy: float, given: argparse.Namespace) -> dict[str, Played]:
    """All strategies on one pool."""
    each = max(1, round(given.contests / len(usual.merged)))
    rivals = {name: make_strategy(name) for name in ("tests-first", "caps-r")}
    everyone = {
        **rivals,
        APART: make_strategy("caps-r", {"shortlist": "tests"}),
        OURS: ours(accuracy, given.shared),
    }
    judge = simulated(accuracy, given.shared)
    found = contests(usual, everyone, judge, given.seeds, each)
    for name, more in ASSUMED.items():
        assumed = replace(judge, accuracy_difference=accuracy + more)
        after = contests(shown, {name: ours(accuracy, given.shared)}, assumed, given.seeds, each)
        found[f"posterior, differences {name}"] = after[name]
    return found


def table(cells: Sequence[dict[str, Played]]) -> list[str]:
    """Means over pools: right, tokens as a part of V1-Infer's and of the rival's, paired difference."""
    lines = []
    rival = [cell[APART] for cell in cells]
    for name in cells[0]:
        own = [cell[name] for cell in cells]
        gaps = [paired(one, other) for one, other in zip(own, rival, strict=True)]
        middle = fmean(gap for gap, *_ in gaps)
        spread = 1.96 * sum(((high - low) / 3.92) ** 2 for _, low, high in gaps) ** 0.5 / len(gaps)
        tokens = fmean(one.share / (other.share or 1) for one, other in zip(own, rival, strict=True))
        lines.append(
            f"  {name}: {fmean(one.right for one in own):.1f} %, {fmean(x.share for x in own):.1f} % of "
            f"V1-Infer, {100 * tokens:.0f} % of the tokens of {APART}; "
            f"{middle:+.1f} [{middle - spread:+.1f}, {middle + spread:+.1f}]"
        )
    return lines


def main() -> None:
    """Print the means over pools, and each pool."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--data", type=Path, required=True, help="folder of labelled pools")
    options.add_argument("--findings", type=Path, required=True, help="journal of what programs did")
    options.add_argument("--pools", nargs="*", default=list(POOLS))
    options.add_argument("--n", type=int, default=16, help="candidates of a problem")
    options.add_argument("--accuracy", type=float, nargs="*", default=[0.7, 0.8])
    options.add_argument("--shared", type=float, default=0.5)
    options.add_argument("--seeds", type=int, default=50)
    options.add_argument("--contests", type=int, default=300, help="of a pool, at least one a problem")
    measure(options.parse_args(), BehaviourFinder())


def measure(given: argparse.Namespace, finder: Finder) -> None:
    """Play and print."""
    both = []
    for name in given.pools:
        path = given.data / f"{name}.jsonl.gz"
        cases = asyncio.run(known_cases(path, given.n, given.findings, finder))
        both.append(pools_of(name, cases))
        separated = [sum(bool(one.differences) for one in pool.entrants) for pool in both[-1][1].merged]
        print(
            f"{name}: {len(cases)} problems, {sum(map(bool, separated))} with a separating input", flush=True
        )
    for accuracy in given.accuracy:
        cells = [played(usual, shown, accuracy, given) for usual, shown in both]
        print(f"simulated judge {100 * accuracy:.0f} %, mean of {len(cells)} pools")
        print("\n".join(table(cells)))
        for (usual, _), cell in zip(both, cells, strict=True):
            print(f"{usual.name}\n" + "\n".join(table([cell])), flush=True)


if __name__ == "__main__":
    main()
