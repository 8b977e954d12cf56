"""What a judge profile without labels is worth to `posterior`; all verdicts SIMULATED.

    python benchmarks/unlabelled.py POOLS... [--findings JOURNAL]

The judge is diagnosed on one half of the problems of a pool, with and without their labels, and `posterior`
plays the other half with each profile and with none. Intervals are paired bootstraps over problems.
"""

import argparse
from collections.abc import Sequence

import numpy as np
from beyond import VOTES, Played, Pools, contests, paired, read_pool, rivals, simulated

from caps.core.judge_profile import JudgeProfile
from caps.core.play import Strategy
from caps.core.settings import settings_of
from caps.core.types import Level
from caps.judging.simulated import JudgeModel
from caps.statistics.judge_measures import fit_profile
from caps.strategies.belief import accuracy
from caps.strategies.posterior import Posterior
from caps.studies.diagnosis import Plan, of_pools, schedule, simulate
from caps.studies.nearly_known import corrected, with_presumed_labels
from caps.studies.simulation import LabelledPool

DIAGNOSES = 3  # of each half, with other pairs
NAMES = ("votes and tests", "unmeasured", "without labels", "with labels", "v1-infer")


def profiles(pools: Sequence[LabelledPool], judge: JudgeModel, seed: int) -> dict[str, JudgeProfile]:
    """The profile that `caps diagnose` saves, without and with labels."""
    subjects, plan = list(of_pools(pools)), Plan(seed=seed)
    presumed = list(map(with_presumed_labels, subjects))
    labelled, unlabelled = (
        fit_profile(simulate(schedule(some, plan), plan, judge).observations, JudgeProfile())[0]
        for some in (subjects, presumed)
    )
    return {"without labels": corrected(unlabelled), "with labels": labelled}


def play(pools: Pools, judge: JudgeModel, wanted: int) -> tuple[dict[str, Played], dict[str, float]]:
    """Contests on each half with profiles from the other one; and the mean accuracy in the profiles."""
    rows: dict[str, list[Played]] = {name: [] for name in NAMES}
    stated: dict[str, list[float]] = {}
    each = max(1, round(wanted / len(pools.merged) / DIAGNOSES))
    for half in (0, 1):
        own = Pools(pools.name, pools.merged[half::2], pools.merged[half::2])
        for seed in range(DIAGNOSES):
            found = profiles(pools.merged[1 - half :: 2], judge, seed)
            strategies: dict[str, Strategy] = {"unmeasured": Posterior(), NAMES[0]: rivals()[VOTES]}
            strategies |= {name: Posterior(**settings_of(profile)) for name, profile in found.items()}
            strategies |= {"v1-infer": rivals()["v1-infer"]} if seed == 0 else {}
            for name, played in contests(own, strategies, judge, each).items():
                rows[name].append(played)
            for name, profile in found.items():
                stated.setdefault(name, []).append(accuracy(profile, Level.FULL))
    joined = {name: Played(np.concatenate([one.rows for one in some])) for name, some in rows.items()}
    return joined, {name: float(np.mean(values)) for name, values in stated.items()}


def main() -> None:
    """Print a row for each pool and judge."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("pools", nargs="+")
    options.add_argument("--findings", help="journal: run programs before, once")
    options.add_argument("--contests", type=int, default=600, help="of a pool, at least three a problem")
    options.add_argument("--accuracy", type=float, nargs="*", default=[0.5, 0.6, 0.7, 0.8, 0.9, 0.97])
    given = options.parse_args()
    print("| pool | judge | stated without, with labels |", " | ".join(NAMES), "| without less unmeasured |")
    for path in given.pools:
        pools = read_pool(path, 16, given.findings)
        for level in given.accuracy:
            played, stated = play(pools, simulated(level, 0.5), given.contests)
            right = " | ".join(f"{played[name].right:.1f}" for name in NAMES)
            gap, half = paired(played["without labels"], played["unmeasured"])
            figures = f"{stated['without labels']:.2f}, {stated['with labels']:.2f}"
            difference = f"{gap:+.1f} ±{half:.1f}"
            print(f"| {pools.name} | {level:g} | {figures} | {right} | {difference} |", flush=True)


if __name__ == "__main__":
    main()
