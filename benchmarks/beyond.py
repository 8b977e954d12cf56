"""Accuracy, calls, tokens and rounds of `posterior` beside other strategies; all verdicts SIMULATED.

    python benchmarks/beyond.py POOL... --findings found.sqlite    strategies, by pool and judge
    python benchmarks/beyond.py POOL... --effort         what each effort buys, by number of candidates

POOL is a file of labelled cases. With `--findings JOURNAL` programs are run and values compared before, as
`caps select` does; the journal answers the next time. `posterior` is not told how accurate the judge is;
`posterior, judge measured` has the profile that `caps diagnose` estimates from other problems. Intervals are
paired bootstraps over problems. What `--keep DIR` holds is not played again.
"""

import argparse
import asyncio
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, product
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import fmean
from typing import ClassVar, NamedTuple

import numpy as np

from caps.core.contest import Contest
from caps.core.errors import InputError
from caps.core.play import Play, Strategy
from caps.core.settings import settings_of
from caps.core.types import Case, Entrant, Selection
from caps.datasets.imports import open_cases
from caps.findings.answers import AnswerFinder
from caps.findings.base import Findings
from caps.findings.programs import BehaviourFinder
from caps.grading.math import MathGrader
from caps.journal.store import Journal
from caps.judging.simulated import JudgeModel, SimulatedJudge, judge_of
from caps.session.parts import make_prepare, make_strategy
from caps.strategies.dedup import enter
from caps.strategies.listwise import Listwise
from caps.strategies.posterior import EFFORTS, Posterior
from caps.studies.diagnosis import estimated
from caps.studies.simulation import LabelledPool
from caps.studies.suites import pool_of

SEEDS = 50  # judges: a problem meets one of so many
APART = "caps-r --skip-failing"  # as `caps select` runs it on programs: not merged by behaviour
VOTES = "votes and tests alone"
AGAINST = ("v1-infer", "tests, then listwise", VOTES)
OTHERS = (
    "majority", "tests-first", "pointwise", "caps-r", "sprint", "knockout", "listwise", "naive", "v1-infer",
)  # fmt: skip
ROUNDS = (2, 4)
COUNTS = (2, 4, 8, 16)
COLUMNS = ("problem", "right", "tokens", "v1", "asks", "rounds", "probability")
Array = np.ndarray


class Pools(NamedTuple):
    """Problems under a name; `apart` are the same without findings."""

    name: str
    merged: Sequence[LabelledPool]
    apart: Sequence[LabelledPool]


def read(given: argparse.Namespace) -> list[Pools]:
    """All pools of the command line, at most `--limit` problems of each, spread evenly."""
    pools = [read_pool(path, given.n, given.findings) for path in given.pools]
    if given.all_differ:
        programs = [read_pool(path, given.n, None).merged for path in given.all_differ]
        every = [replace(pool, number=number) for number, pool in enumerate(chain(*programs))]
        pools.append(Pools("all differ", every, every))
    return [at_most(one, given.limit) for one in pools]


def read_pool(path: str, n: int, journal: str | None) -> Pools:
    """Labelled cases, the first `n` candidates of each; with a journal, with their findings."""
    cases = asyncio.run(_with_findings(path, n, journal))
    merged, apart = make_prepare(findings=journal is not None), make_prepare()
    both = [(pool_of(merged(case), place), pool_of(apart(case), place)) for place, case in enumerate(cases)]
    return Pools(Path(path).name.partition(".")[0], [one for one, _ in both], [other for _, other in both])


async def _with_findings(path: str, n: int, journal: str | None) -> list[Case]:
    cases = []
    for case in open_cases(path):
        if isinstance(case, InputError):
            raise case
        cases.append(replace(case, candidates=case.candidates[:n]))
    if journal is None:
        return cases
    finders = {"code": BehaviourFinder(), "math": AnswerFinder(MathGrader())}
    findings = Findings(finders, Journal.open(journal))
    try:
        return [await findings.find(case) for case in cases]
    finally:
        await findings.close()


def at_most(pools: Pools, limit: int) -> Pools:
    """So many problems of a pool, or all."""
    step = max(1, math.ceil(len(pools.merged) / limit))
    return Pools(pools.name, pools.merged[::step], pools.apart[::step])


def simulated(accuracy: float, shared: float) -> JudgeModel:
    """The usual judge of this accuracy; `shared` is the part of its errors that an answer shares."""
    return judge_of(accuracy, shared_bias=shared)


def rivals() -> dict[str, Strategy]:
    """The other strategies."""
    return {
        **{name: make_strategy(name) for name in OTHERS},
        APART: make_strategy("caps-r", {"shortlist": "tests"}),
        "tests, then listwise": TestsThenListwise(),
        VOTES: Posterior(e1_high=0.5, e1_low=0.5, e2_high=0.5, e2_low=0.5),
    }


class TestsThenListwise:
    """`listwise` among those that pass every public example; among all where none does."""

    capabilities: ClassVar = Listwise.capabilities

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Play `listwise` and append the others to its rankings."""
        players, others = enter(entrants, "tests")
        play, answers = Listwise().play(players, rng), None
        while True:
            try:
                round_ = play.send(answers) if answers else next(play)
            except StopIteration as end:
                chosen: Selection = end.value
                return replace(chosen, order=(*chosen.order, *others), scores={})
            answers = yield replace(round_, ranking=(*round_.ranking, *others))


@dataclass(frozen=True)
class Played:
    """Contests of one strategy, a row each."""

    rows: Array

    def column(self, name: str) -> Array:
        return self.rows[:, COLUMNS.index(name)]

    @property
    def right(self) -> float:
        return 100 * float(self.column("right").mean())

    @property
    def share(self) -> float:
        """Tokens in per cent of V1-Infer's."""
        return 100 * float(self.column("tokens").sum() / self.column("v1").sum())

    def by_problem(self) -> Array:
        _, place = np.unique(self.column("problem"), return_inverse=True)
        return np.bincount(place, self.column("right")) / np.bincount(place)


def contests(
    pools: Pools, strategies: Mapping[str, Strategy], model: JudgeModel, turns: int
) -> dict[str, Played]:
    """Play every strategy; each problem meets `turns` judges, all strategies the same ones."""
    rows: dict[str, list[list[float]]] = {name: [] for name in strategies}
    for merged, apart in zip(pools.merged, pools.apart, strict=True):
        for turn in range(turns):
            seed = (7 * merged.number + turn * max(1, SEEDS // turns)) % SEEDS
            for name, strategy in strategies.items():
                rows[name].append(play(apart if name == APART else merged, strategy, model, seed))
    return {name: Played(np.array(found)) for name, found in rows.items()}


def play(pool: LabelledPool, strategy: Strategy, model: JudgeModel, seed: int) -> list[float]:
    """The row of one contest."""
    judge = SimulatedJudge(model, pool.entrants, pool.correct, seed=seed, case=pool.number)
    contest = Contest(strategy, pool.entrants, seed=f"{seed}/{pool.number}").play(judge.answer)
    asks = [ask for turn in contest.transcript for ask in turn.round.asks]
    chosen, tokens = contest.selection, sum(map(pool.tokens, asks))
    whole = 3 * len(pool.entrants) * (pool.overhead + 2 * fmean(one.sizes[2] for one in pool.entrants))
    probability, rounds = chosen.facts.get("probability", math.nan), len(contest.transcript)
    return [pool.number, pool.correct[chosen.winner], tokens, whole, len(asks), rounds, probability]


def paired(ours: Played, theirs: Played) -> tuple[float, float]:
    """Difference in points and half of its 95 % interval, over problems."""
    gap = 100 * (ours.by_problem() - theirs.by_problem())
    draws = np.random.default_rng(1).choice(gap, (2000, len(gap))).mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(gap.mean()), float(high - low) / 2


def cell(pools: Pools, accuracy: float, given: argparse.Namespace) -> dict[str, Played]:
    """All strategies on one pool against one judge, played once."""
    file = given.keep and Path(given.keep) / f"{pools.name}-{accuracy:g}-{given.shared:g}.npz"
    if file and file.exists():
        with np.load(file) as kept:
            return {name: Played(kept[name]) for name in kept.files}
    model = simulated(accuracy, given.shared)
    strategies: dict[str, Strategy] = {"posterior": Posterior()}
    if not given.only_posterior:
        others = sorted(set(EFFORTS) - {Posterior().effort})
        strategies |= {f"posterior, {effort}": Posterior(effort=effort) for effort in others}
        strategies |= {f"posterior, {most} rounds": Posterior(max_rounds=most) for most in ROUNDS}
        strategies["posterior, judge measured"] = Posterior(**settings_of(estimated(model)))
        strategies |= rivals()
    played = contests(pools, strategies, model, given.turns)
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(file, **{name: one.rows for name, one in played.items()})
    return played


def grid(everything: Sequence[Pools], given: argparse.Namespace) -> None:
    """Right in per cent by pool for each judge, then means over pools for all judges."""
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as workers:
        waiting = {
            (accuracy, pools.name): workers.submit(cell, pools, accuracy, given)
            for accuracy, pools in product(given.accuracy, everything)
        }
        by_judge = {}
        for accuracy in given.accuracy:
            cells = {pools.name: waiting[accuracy, pools.name].result() for pools in everything}
            print(f"\nSIMULATED judge right in {100 * accuracy:.0f} %, right answers in %\n")
            print_table(by_pool(cells), flush=True)
            by_judge[accuracy] = cells
    usual = min(by_judge, key=lambda accuracy: abs(accuracy - 0.8))
    print(f"\nMean over pools; calls, tokens in % of V1-Infer's and rounds with {100 * usual:.0f} %\n")
    print_table(means(by_judge, usual))


def by_pool(cells: Mapping[str, Mapping[str, Played]]) -> list[list[str]]:
    """Right in per cent by pool, and `posterior` less others with 95 % intervals."""
    pools = [f"{name} ({len(cell['posterior'].by_problem())})" for name, cell in cells.items()]
    rows = [["strategy", *pools, "mean"]]
    for name in next(iter(cells.values())):
        right = [cell[name].right for cell in cells.values()]
        rows.append([name, *(f"{figure:.1f}" for figure in [*right, fmean(right)])])
    for rival in AGAINST:
        if rival in next(iter(cells.values())):
            gaps = [paired(cell["posterior"], cell[rival]) for cell in cells.values()]
            mean = fmean(gap for gap, _ in gaps), math.hypot(*(half for _, half in gaps)) / len(gaps)
            rows.append(
                [f"posterior less {rival}", *(f"{gap:+.1f} ±{half:.1f}" for gap, half in [*gaps, mean])]
            )
    return rows


def means(by_judge: Mapping[float, Mapping[str, Mapping[str, Played]]], usual: float) -> list[list[str]]:
    """Means over pools, a strategy a line."""
    rows = [
        [
            "strategy",
            *(f"judge {100 * accuracy:.0f} %" for accuracy in by_judge),
            "calls",
            "tokens, %",
            "rounds",
        ]
    ]
    for name in next(iter(by_judge[usual].values())):
        figures = [fmean(cell[name].right for cell in cells.values()) for cells in by_judge.values()]
        played = [cell[name] for cell in by_judge[usual].values()]
        figures.append(fmean(one.column("asks").mean() for one in played))
        figures += [fmean(one.share for one in played), fmean(one.column("rounds").mean() for one in played)]
        rows.append([name, *(f"{figure:.1f}" for figure in figures)])
    return rows


def efforts(everything: Sequence[Pools], given: argparse.Namespace) -> None:
    """Means over pools for the first N candidates and each effort."""
    judges = [simulated(accuracy, given.shared) for accuracy in given.accuracy]
    strategies: dict[str, Strategy] = {name: Posterior(effort=name) for name in EFFORTS}
    strategies["votes, tests"] = rivals()[VOTES]
    rows = [["N", "effort", *(f"judge {100 * accuracy:.0f} %" for accuracy in given.accuracy)]]
    rows[0] += ["calls", "tokens, %", "rounds"]
    for count in COUNTS:
        pools = [first(count, one) for one in everything]
        played = [[contests(one, strategies, judge, given.turns) for one in pools] for judge in judges]
        usual = played[min(range(len(judges)), key=lambda k: abs(given.accuracy[k] - 0.8))]
        for name in strategies:
            right = [fmean(cell[name].right for cell in cells) for cells in played]
            figures = [fmean(cell[name].column("asks").mean() for cell in usual)]
            figures += [fmean(cell[name].share for cell in usual)]
            figures += [fmean(cell[name].column("rounds").mean() for cell in usual)]
            rows.append([str(count), name, *(f"{figure:.1f}" for figure in [*right, *figures])])
    print("SIMULATED, right answers in %; calls, tokens in % of V1-Infer's and rounds at 80 %\n")
    print_table(rows)


def first(count: int, pools: Pools) -> Pools:
    """The pools with their first candidates alone."""
    cut = [
        replace(pool, entrants=pool.entrants[:count], correct=pool.correct[:count]) for pool in pools.merged
    ]
    return Pools(pools.name, cut, cut)


def print_table(rows: Sequence[Sequence[str]], *, flush: bool = False) -> None:
    """Print a table in Markdown."""
    heads, *others = rows
    for row in [heads, ["---"] * len(heads), *others]:
        print("| " + " | ".join(row) + " |", flush=flush)


def options_of(about: str | None) -> argparse.ArgumentParser:
    """The options that say which pools and judges there are."""
    options = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("pools", nargs="*", metavar="POOL", help="labelled cases")
    options.add_argument("--findings", metavar="JOURNAL", help="run programs and compare values before")
    options.add_argument(
        "--all-differ", nargs="*", default=[], metavar="POOL",
        help="one more pool: the programs of these files, which are not run",
    )  # fmt: skip
    options.add_argument("--n", type=int, default=16, help="candidates of a problem at most")
    options.add_argument(
        "--limit", type=int, default=10_000, help="problems of a pool at most, spread evenly"
    )
    options.add_argument("--accuracy", type=float, nargs="*", default=[0.5, 0.7, 0.8, 0.9, 0.97])
    options.add_argument("--shared", type=float, default=0.5, help="share of errors that an answer shares")
    return options


def main() -> None:
    """Print what is asked for."""
    options = options_of(__doc__)
    options.add_argument("--effort", action="store_true", help="print the table of efforts")
    options.add_argument("--only-posterior", action="store_true", help="no other strategies")
    options.add_argument("--turns", type=int, default=1, help="contests of a problem")
    options.add_argument("--keep", metavar="DIR", help="folder for what was played")
    options.add_argument("--processes", type=int, default=1)
    given = options.parse_args()
    (efforts if given.effort else grid)(read(given), given)


if __name__ == "__main__":
    main()
