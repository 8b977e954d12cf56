"""Can the votes alone say how far to trust them? Labelled pools of answers, no judge.

    python benchmarks/label_free.py POOL.jsonl...

Each line: how the votes of a pool are spread (all that is known without labels), how often the leading answer
is right, how sure `posterior` is of it before any verdict, and the calibration error (ten bins) of its
default strengths and of strengths fitted to the *other* pools. Pools with a like spread and unlike truth
cannot be told apart without labels.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from beyond_played import calibration_error
from beyond_pools import Pools, read

from caps.statistics.observations import Ballot, fit_vote_strengths
from caps.strategies.dedup import clusters
from caps.strategies.posterior import Posterior, beliefs
from caps.studies.calibration import Probe, ballot_of
from caps.studies.simulation import LabelledPool

EACH = 50  # problems of every other pool that strengths are fitted to, so that all weigh the same


def ballots(pools: Pools) -> list[Ballot]:
    """The votes of each problem, and which answers are right."""
    found = (ballot_of(Probe(Posterior(), pool.correct), pool.entrants) for pool in pools.merged)
    return [one for one in found if one is not None]


def leading(strategy: Posterior, pool: LabelledPool) -> tuple[float, bool]:
    """How sure the strategy is of the leading answer before any verdict, and whether it is right."""
    chances = beliefs(strategy, pool.entrants, ())[0]
    best = max(chances, key=lambda one: chances[one])
    return chances[best], bool(pool.correct[best])


def error(strategy: Posterior, pools: Sequence[LabelledPool]) -> tuple[float, float, float]:
    """How sure and how often right in the mean, and the calibration error."""
    sure, right = (
        np.array(column, float) for column in zip(*(leading(strategy, pool) for pool in pools), strict=True)
    )
    return sure.mean(), right.mean(), calibration_error(sure, right)


def main() -> None:
    """Print a line for each pool."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("pools", nargs="+", help="labelled cases whose answers are compared by value")
    options.add_argument("--n", type=int, default=16, help="candidates of a problem")
    given = options.parse_args()
    everything = [read(one, given.n, None) for one in given.pools]
    default = Posterior()
    print("pool, problems: votes of the leading answer, unanimous; right, said; ECE: default, from others")
    for pools in everything:
        others = [one for other in everything if other is not pools for one in ballots(other)[:EACH]]
        votes, nobody = fit_vote_strengths(others, default.votes, default.nobody)
        sizes = [sorted(map(len, clusters(pool.entrants))) for pool in pools.merged]
        share = np.mean([own[-1] / sum(own) for own in sizes])
        unanimous = np.mean([len(own) == 1 for own in sizes])
        said, right, before = error(default, pools.merged)
        *_, after = error(replace(default, votes=votes, nobody=nobody), pools.merged)
        print(
            f"{pools.name}, {len(pools.merged)}: {share:.2f}, {unanimous:.2f}; {right:.2f}, {said:.2f}; "
            f"{before:.3f}, {after:.3f}"
        )


if __name__ == "__main__":
    main()
