"""What `--calibrate K` finds out about a judge, and what that does to `posterior`; all verdicts SIMULATED.

    python benchmarks/calibrate.py                 made-up pools
    python benchmarks/calibrate.py --cases FILE    labelled cases

Labels make the judge, and a calibration sees those of its cases. Every row is a mean over `--repeats`
calibrations, each on other cases with another judge seed; all cases are then played with that
judge. `assumed` is the profile built in, `stated` the one that `caps diagnose` gets from 800 labelled pairs
of other problems.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from random import Random
from statistics import fmean, pstdev

import numpy as np
from beyond_played import calibration_error, simulated

from caps.core.contest import Contest
from caps.core.judge_profile import JudgeProfile
from caps.core.settings import settings_of
from caps.core.types import Level, Pairing, Verdict
from caps.datasets.imports import open_cases
from caps.judging.simulated import JudgeModel, SimulatedJudge
from caps.session.parts import make_strategy
from caps.strategies import belief
from caps.strategies.posterior import Posterior
from caps.studies.calibration import Calibration, Probe, ProbedCase, conclude
from caps.studies.diagnosis import estimated
from caps.studies.simulation import LabelledPool, PoolModel, generated_pools, labelled


def judge_of(model: JudgeModel, pool: LabelledPool, seed: int) -> SimulatedJudge:
    """The judge of a pool."""
    return SimulatedJudge(model, pool.entrants, pool.correct, seed=seed, case=pool.number)


def probe(pool: LabelledPool, model: JudgeModel, seed: int, believer: Posterior) -> tuple[ProbedCase, int]:
    """One case of a calibration, and the tokens it took."""
    asker = Probe(believer, pool.correct)
    contest = Contest(asker, pool.entrants, seed=f"{seed}/{pool.number}")
    judge = judge_of(model, pool, seed)
    asked: list[tuple[Pairing, Verdict]] = []
    sizes, tokens = {one.id: one.sizes for one in pool.entrants}, 0
    for ask in contest.pending.asks if contest.pending else ():
        verdict = judge.answer(ask)
        if isinstance(ask, Pairing) and isinstance(verdict, Verdict):
            asked.append((ask, verdict))
        tokens += pool.overhead + sum(sizes[one][ask.level] for one in ask.entrants)
    return ProbedCase(asker, pool.entrants, asked, pool.number), tokens


def calibrated(pools: Sequence[LabelledPool], model: JudgeModel, seed: int) -> tuple[Calibration, int]:
    """A calibration on these cases, and the tokens it took."""
    found = [probe(pool, model, seed, Posterior()) for pool in pools]
    return conclude([one for one, _ in found], Posterior()), sum(tokens for _, tokens in found)


def accuracy(profile: JudgeProfile) -> tuple[float, float]:
    """Chance that a decided verdict is right, at E1 and at E2."""
    return belief.accuracy(profile, Level.PARTIAL), belief.accuracy(profile, Level.FULL)


class Tally:
    """Rows of one way to state the judge."""

    def __init__(self) -> None:
        self.profiles: list[JudgeProfile] = []
        self.strengths: list[tuple[float, float]] = []
        self.rows: list[tuple[float, ...]] = []
        self.silent = self.tokens = 0

    def add(self, pools: Sequence[LabelledPool], model: JudgeModel, seed: int, strategy: Posterior) -> None:
        self.profiles.append(JudgeProfile(**{k: getattr(strategy, k) for k in settings_of(JudgeProfile())}))
        self.strengths.append((strategy.votes, strategy.nobody))
        for pool in pools:
            self.rows.append(_played(pool, strategy, judge_of(model, pool, seed), seed))

    def line(self, name: str, games: float) -> str:
        first, second = zip(*map(accuracy, self.profiles), strict=True)
        rows = np.array(self.rows)
        right, tokens, sure = rows.T
        slot = f"{fmean(one.first_slot for one in self.profiles):.2f}"
        votes, nobody = (fmean(x) for x in zip(*self.strengths, strict=True))
        silent = f"  kept {self.silent}" if self.silent else ""
        return (
            f"  {name:14s} E1 {100 * fmean(first):4.1f}±{100 * pstdev(first):3.1f}"
            f" E2 {100 * fmean(second):4.1f}±{100 * pstdev(second):3.1f}  {slot}  {votes:.2f} {nobody:.2f}"
            f"  | {100 * right.mean():5.1f} %  T% {100 * tokens.sum() / games / len(self.profiles):4.1f}"
            f"  + {100 * self.tokens / games / len(self.profiles):4.1f}"
            f"  ECE {calibration_error(sure, right):.3f}  Brier {((sure - right) ** 2).mean():.3f}{silent}"
        )


def _played(pool: LabelledPool, strategy: Posterior, judge: SimulatedJudge, seed: int) -> tuple[float, ...]:
    """Whether the choice is right, the tokens it took, and how sure it was."""
    contest = Contest(strategy, pool.entrants, seed=f"{seed}/{pool.number}").play(judge.answer)
    tokens = sum(pool.tokens(ask) for turn in contest.transcript for ask in turn.round.asks)
    chosen = contest.selection
    return float(pool.correct[chosen.winner]), tokens, chosen.facts["probability"]


def condition(pools: Sequence[LabelledPool], judge: float, given: argparse.Namespace) -> list[str]:
    """All ways to state one judge."""
    model = replace(simulated(judge, given.shared), noise=given.noise)
    games = sum(3 * len(p.entrants) * (p.overhead + 2 * fmean(x.sizes[2] for x in p.entrants)) for p in pools)
    tallies = {"assumed": Tally()}
    tallies |= {f"K={k}": Tally() for k in given.k}
    tallies["stated"] = Tally()
    stated = Posterior(**settings_of(estimated(model)))
    majority = make_strategy("majority")
    voted = fmean(
        pool.correct[Contest(majority, pool.entrants, seed=pool.number).selection.winner] for pool in pools
    )
    for seed in range(given.repeats):
        tallies["assumed"].add(pools, model, seed, Posterior())
        tallies["stated"].add(pools, model, seed, stated)
        order = Random(seed).sample(list(pools), len(pools))
        for k in given.k:
            tally = tallies[f"K={k}"]
            found, tokens = calibrated(order[:k], model, seed)
            tally.tokens += tokens
            tally.silent += found.learned.silent is not None
            tally.add(pools, model, seed, found.inform(Posterior(), "posterior", {}))
    title = f"SIMULATED judge of {100 * judge:.0f} % at E2, "
    title += f"{100 * model.accuracy_partial:.0f} % at E1; majority {100 * voted:.1f} %"
    return [title, *(tally.line(name, games) for name, tally in tallies.items())]


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--cases", help="labelled cases in place of made-up pools")
    options.add_argument("--kind", default="math", choices=("math", "code"))
    options.add_argument("--problems", type=int, default=400)
    options.add_argument("--n", type=int, default=16)
    options.add_argument("--k", type=int, nargs="*", default=[20, 50, 200])
    options.add_argument("--repeats", type=int, default=4)
    options.add_argument("--accuracy", type=float, nargs="*", default=[0.55, 0.65, 0.8, 0.9])
    options.add_argument("--shared", type=float, default=0.5)
    options.add_argument("--noise", type=float, default=JudgeModel().noise)
    options.add_argument("--processes", type=int, default=2)
    given = options.parse_args()
    if given.cases:
        pools = list(labelled(open_cases(given.cases), n=given.n))[: given.problems]
    else:
        pools = generated_pools(PoolModel(kind=given.kind, n=given.n, full_tokens=1500), given.problems, 7)
    given.k = [k for k in given.k if k <= len(pools)]
    print(
        f"{given.cases or 'made-up ' + given.kind}: {len(pools)} problems, {given.repeats} calibrations each"
    )
    print("  E1 and E2: accuracy the profile states; then first_slot; votes, nobody;")
    print("  | right, tokens of V1-Infer's, + those of the calibration, calibration error of the probability")
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as workers:
        for lines in workers.map(
            condition, [pools] * len(given.accuracy), given.accuracy, [given] * len(given.accuracy)
        ):
            print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
