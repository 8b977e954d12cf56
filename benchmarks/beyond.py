"""Accuracy, tokens and calibration of `posterior` and `sprint` beside the others; all verdicts SIMULATED.

    python benchmarks/beyond.py                          made-up pools
    python benchmarks/beyond.py --cases FILE --slice 5   labelled cases, each played by every 5th judge seed
    python benchmarks/beyond.py --wrong                  what happens where the assumptions are false

What the judge is worth is estimated from games of other made-up pools with another seed, never given.
Intervals are paired bootstraps over problems.
"""

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from multiprocessing import get_context
from random import Random
from statistics import fmean

import numpy as np

from caps.assemble import make_strategy
from caps.core.contest import Contest
from caps.core.judging import JudgeProfile
from caps.core.settings import settings_of
from caps.core.types import Answer, Ask, Entrant, Level, Pairing, Verdict
from caps.datasets.imports import open_cases
from caps.experiments.pools import LabelledPool, PoolModel, labelled, made_up
from caps.judges.simulated import JudgeModel, SimulatedJudge
from caps.strategies.posterior import Posterior

RIVALS = ("majority", "tests-first", "caps-r", "no-dedup", "sprint", "v1-infer")
TRAINING_SEED = 90210
FRONT = (0.03, 0.01, 0.005, 0.0005)


def simulated(accuracy: float, shared: float, *, position: float = 0.2) -> JudgeModel:
    """A judge as `caps simulate` has them, with errors that persist and a pull towards slot A."""
    partial = round(0.5 + 0.7 * (accuracy - 0.5), 3)
    return JudgeModel(accuracy=accuracy, accuracy_partial=partial, shared_bias=shared, position_bias=position)


@dataclass
class Count:
    """How often something was so."""

    so: int = 0
    of: int = 0

    def add(self, *, so: bool) -> None:
        self.so += so
        self.of += 1

    @property
    def rate(self) -> float:
        return (self.so + 1) / (self.of + 2)

    @property
    def common(self) -> float:
        """The correlation of two normal errors that agree in sign so often."""
        return max(0.0, math.sin(math.pi * (self.rate - 0.5)))


@dataclass
class Sample:
    """Counts from which a judge's profile follows."""

    right: dict[tuple[Level, bool], Count] = field(
        default_factory=lambda: {key: Count() for key in product((Level.PARTIAL, Level.FULL), (True, False))}
    )
    slot: Count = field(default_factory=Count)
    again: Count = field(default_factory=Count)
    alike: Count = field(default_factory=Count)

    def profile(self) -> JudgeProfile:
        fields: dict[str, float] = {
            "first_slot": self.slot.rate,
            "shared": min(self.again.common, self.alike.common),
            "repeats": max(0.0, self.again.common - self.alike.common),
        }
        for level, name in ((Level.PARTIAL, "e1"), (Level.FULL, "e2")):
            high, low = self.right[level, True], self.right[level, False]
            fields |= {f"{name}_high": high.rate, f"{name}_low": low.rate}
            fields[f"{name}_sure"] = (high.of + 1) / (high.of + low.of + 2)
        return JudgeProfile(**fields)


def estimate(model: JudgeModel, problems: int = 200, pairs: int = 20) -> JudgeProfile:
    """What a judge is worth, from games on made-up pools that nobody is measured on.

    Errors that repeat show between candidates of equal label: how often the same pair is ruled alike with its
    seats exchanged, and how often other members of the same two clusters are.
    """
    sample = Sample()
    for pool in made_up(PoolModel(kind="math", solve_rate=0.45), problems, TRAINING_SEED):
        judge = SimulatedJudge(model, pool.entrants, pool.correct, seed=TRAINING_SEED, case=pool.number)
        rng = Random(f"{TRAINING_SEED} {pool.number}")
        for level, (a, b) in product(
            (Level.PARTIAL, Level.FULL), rng.sample(list(combinations(pool.entrants, 2)), pairs)
        ):
            if a.signature != b.signature:
                _observe(sample, judge, pool, rng.sample((a, b), 2), level=level, rng=rng)
    return sample.profile()


def _observe(
    sample: Sample,
    judge: SimulatedJudge,
    pool: LabelledPool,
    pair: Sequence[Entrant],
    *,
    level: Level,
    rng: Random,
) -> None:
    a, b = pair
    verdict = judge.answer(Pairing(a.id, b.id, level))
    if not isinstance(verdict, Verdict) or verdict.outcome == 0.5:
        return
    for_a = verdict.outcome == 1
    if pool.correct[a.id] != pool.correct[b.id]:
        sample.right[level, verdict.weight >= 4 / 9].add(so=for_a == pool.correct[a.id])
        return
    sample.slot.add(so=for_a)
    others = [[c for c in pool.entrants if c.signature == x.signature and c is not x] for x in (a, b)]
    looks = [(sample.again, a, b)]
    if all(others):
        looks.append((sample.alike, rng.choice(others[0]), rng.choice(others[1])))
    for count, c, d in looks:
        back = judge.answer(Pairing(d.id, c.id, level))
        if isinstance(back, Verdict) and back.outcome != 0.5:
            count.add(so=for_a == (back.outcome == 0))


@dataclass(frozen=True)
class Played:
    """Contests of one strategy: problem, right, tokens, asks, rounds, and how sure it was."""

    rows: np.ndarray  # type: ignore[type-arg]

    def column(self, name: str) -> "np.ndarray":  # type: ignore[type-arg]
        return self.rows[:, ("problem", "right", "tokens", "asks", "rounds", "sure").index(name)]

    def by_problem(self) -> "np.ndarray":  # type: ignore[type-arg]
        problem, right = self.column("problem").astype(int), self.column("right")
        _, place = np.unique(problem, return_inverse=True)
        return np.bincount(place, right) / np.bincount(place)


def play(pool: LabelledPool, strategy: object, answer: "SimulatedJudge | Hostile", seed: int) -> list[float]:
    """One contest as a row."""
    contest = Contest(strategy, pool.entrants, seed=f"{seed}/{pool.number}")  # type: ignore[arg-type]
    sizes, tokens, asks = {one.id: one.sizes for one in pool.entrants}, 0, 0
    while round_ := contest.pending:
        asks += len(round_.asks)
        tokens += sum(pool.overhead + sum(sizes[x][ask.level] for x in ask.entrants) for ask in round_.asks)
        contest.answer([answer.answer(ask) for ask in round_.asks])
    chosen = contest.selection
    right = dict(zip(sizes, pool.correct, strict=True))[chosen.winner]
    sure = chosen.facts.get("probability", math.nan)
    return [pool.number, right, tokens, asks, len(contest.transcript), sure]


class Hostile:
    """A judge under the spell of one wrong candidate, which wins every game for sure."""

    def __init__(self, judge: SimulatedJudge, charmer: int | None) -> None:
        self._judge, self._charmer = judge, charmer

    def answer(self, ask: Ask) -> Answer:
        if isinstance(ask, Pairing) and self._charmer in ask.entrants:
            return Verdict(9, 3) if ask.a == self._charmer else Verdict(3, 9)
        return self._judge.answer(ask)


def contests(
    pools: Sequence[LabelledPool],
    strategies: Mapping[str, object],
    model: JudgeModel,
    seeds: int,
    every: int = 1,
    *,
    hostile: bool = False,
) -> dict[str, Played]:
    """Play every strategy; problem i meets the judge seeds s with s = i modulo `every`."""
    rows: dict[str, list[list[float]]] = {name: [] for name in strategies}
    for place, pool in enumerate(pools):
        wrong = [one.id for one, right in zip(pool.entrants, pool.correct, strict=True) if not right]
        for seed in range(place % every, seeds, every):
            judge = SimulatedJudge(model, pool.entrants, pool.correct, seed=seed, case=pool.number)
            charmed = Hostile(judge, wrong[seed % len(wrong)] if hostile and wrong else None)
            for name, strategy in strategies.items():
                rows[name].append(play(pool, strategy, charmed, seed))
    return {name: Played(np.array(found)) for name, found in rows.items()}


def calibration_error(sure: "np.ndarray", right: "np.ndarray") -> float:  # type: ignore[type-arg]
    """Expected calibration error over ten bins of equal width."""
    bins = np.minimum((sure * 10).astype(int), 9)
    return float(
        sum((bins == k).mean() * abs(sure[bins == k].mean() - right[bins == k].mean()) for k in set(bins))
    )


def paired(ours: Played, theirs: Played, rng: "np.random.Generator") -> tuple[float, float, float]:
    """Difference in accuracy and its 95 % interval, over problems."""
    gap = ours.by_problem() - theirs.by_problem()
    draws = rng.choice(gap, (2000, len(gap))).mean(axis=1)
    return float(gap.mean()), *map(float, np.quantile(draws, [0.025, 0.975]))


def report(title: str, pools: Sequence[LabelledPool], played: Mapping[str, Played]) -> list[str]:
    """One block of the table: accuracy, tokens against V1-Infer's, asks, rounds, calibration, differences."""
    games = [
        3 * len(p.entrants) * (p.overhead + 2 * fmean(one.sizes[2] for one in p.entrants)) for p in pools
    ]
    whole = dict(zip((p.number for p in pools), games, strict=True))
    lines, rng = [title], np.random.default_rng(1)
    for name, one in played.items():
        share = one.column("tokens").sum() / sum(whole[int(i)] for i in one.column("problem"))
        line = (
            f"  {name:22s} {100 * one.column('right').mean():5.1f} %  T% {100 * share:5.1f}"
            f"  asks {one.column('asks').mean():4.1f}  rounds {one.column('rounds').mean():4.1f}"
        )
        sure, right = one.column("sure"), one.column("right")
        if not np.isnan(sure).any():
            line += f"  ECE {calibration_error(sure, right):.3f}  Brier {((sure - right) ** 2).mean():.3f}"
        lines.append(line)
    for rival in [name for name in played if name in RIVALS and "posterior" in played]:
        middle, low, high = (100 * x for x in paired(played["posterior"], played[rival], rng))
        lines.append(f"    posterior - {rival:14s} {middle:+5.1f}  [{low:+.1f}, {high:+.1f}]")
    return lines


def vote_share(pools: Iterable[LabelledPool]) -> tuple[float, float]:
    """ECE and Brier score of the share of votes, taken as a probability: what there is without a model."""
    sure, right = [], []
    for pool in pools:
        chosen = Contest(make_strategy("majority"), pool.entrants, seed=pool.number).selection
        sure.append(chosen.scores[chosen.winner])
        right.append(pool.correct[chosen.winner])
    shares, labels = np.array(sure), np.array(right, dtype=float)
    return calibration_error(shares, labels), float(((shares - labels) ** 2).mean())


def condition(
    title: str, pools: Sequence[LabelledPool], judge: tuple[float, float], seeds: int, every: int
) -> list[str]:
    """All strategies against one judge."""
    accuracy, shared = judge
    model = simulated(accuracy, shared)
    worth = settings_of(estimate(model))
    strategies: dict[str, object] = {name: make_strategy(name) for name in RIVALS}
    strategies["posterior"] = Posterior(**worth)
    strategies |= {f"posterior worth={w:g}": Posterior(**worth, worth=w) for w in FRONT}
    played = contests(pools, strategies, model, seeds, every)
    return report(f"{title}: simulated judge {100 * accuracy:.0f} %, shared bias {shared:g}", pools, played)


def wrong_assumptions(pools: Sequence[LabelledPool], seeds: int, every: int) -> list[str]:
    """Judges and pools that are not what the model takes them for."""
    lines: list[str] = []
    for truth, stated in ((0.5, 0.5), (0.65, 0.9), (0.5, 0.8), (0.9, 0.65)):
        model = simulated(truth, 0.5)
        ours = Posterior(**settings_of(estimate(simulated(stated, 0.5))))
        strategies = {"majority": make_strategy("majority"), "posterior": ours}
        title = f"accuracy {100 * truth:.0f} %, stated {100 * stated:.0f} %"
        lines += report(title, pools, contests(pools, strategies, model, seeds, every))
    model = simulated(0.8, 0.5)
    ours = Posterior(**settings_of(estimate(model)))
    strategies = {name: make_strategy(name) for name in ("majority", "caps-r", "v1-infer")} | {
        "posterior": ours
    }
    lines += report(
        "a wrong candidate wins every game",
        pools,
        contests(pools, strategies, model, seeds, every, hostile=True),
    )
    for title, changed in (
        ("two clusters are right", [split for pool in pools if (split := _split(pool))]),
        ("nothing is right", [replace(pool, correct=(False,) * len(pool.correct)) for pool in pools]),
    ):
        lines += report(title, changed, contests(changed, strategies, model, seeds, every))
    return lines


def _split(pool: LabelledPool) -> LabelledPool | None:
    """The right cluster in two halves of different signature, as if equal answers had not been recognised."""
    right = [one.id for one, label in zip(pool.entrants, pool.correct, strict=True) if label]
    if len(right) < 2:
        return None
    entrants = tuple(
        replace(one, signature="other form") if one.id in right[::2] else one for one in pool.entrants
    )
    return replace(pool, entrants=entrants)


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--cases", help="labelled cases in place of made-up pools")
    options.add_argument("--problems", type=int, default=400)
    options.add_argument("--n", type=int, default=16)
    options.add_argument("--seeds", type=int, default=50)
    options.add_argument(
        "--slice", type=int, default=10, help="each problem meets every so-many-th judge seed"
    )
    options.add_argument("--accuracy", type=float, nargs="*", default=[0.6, 0.7, 0.8, 0.9])
    options.add_argument("--shared", type=float, nargs="*", default=[0, 0.5, 1])
    options.add_argument("--wrong", action="store_true", help="false assumptions")
    options.add_argument("--processes", type=int, default=2)
    given = options.parse_args()
    if given.cases:
        kinds = {given.cases: list(labelled(open_cases(given.cases), n=given.n))[: given.problems]}
    else:
        kinds = {
            kind: made_up(PoolModel(kind=kind, n=given.n, full_tokens=1500), given.problems, 7)
            for kind in ("math", "code")
        }
    for kind, pools in kinds.items():
        error, brier = vote_share(pools)
        print(
            f"{kind}: {len(pools)} problems; vote share as a probability: ECE {error:.3f} Brier {brier:.3f}"
        )
        if given.wrong:
            print("\n".join(wrong_assumptions(pools, given.seeds, given.slice)))
            continue
        with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as workers:
            waiting = [
                workers.submit(condition, kind, pools, judge, given.seeds, given.slice)
                for judge in product(given.accuracy, given.shared)
            ]
            for one in waiting:
                print("\n".join(one.result()), flush=True)


if __name__ == "__main__":
    main()
