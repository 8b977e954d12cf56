"""Contests of `beyond.py`, played against the SIMULATED judge, and what is made of their rows."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean
from typing import ClassVar

import numpy as np
from beyond_pools import Pools

from caps.core.contest import Contest
from caps.core.play import Play, Strategy
from caps.core.settings import settings_of
from caps.core.types import Entrant, Selection
from caps.judging.simulated import JudgeModel, SimulatedJudge, judge_of
from caps.session.parts import make_strategy
from caps.strategies.dedup import enter
from caps.strategies.listwise import Listwise
from caps.strategies.posterior import Posterior
from caps.studies.diagnosis import estimated
from caps.studies.simulation import LabelledPool

COLUMNS = ("problem", "right", "tokens", "v1", "asks", "sure", "rounds")
APART = "caps-r, tests"  # as `caps select` runs it on programs: told apart by syntax, failing ones left out
VOTES = "votes and tests"
Array = np.ndarray  # type: ignore[type-arg]


def simulated(accuracy: float, shared: float) -> JudgeModel:
    """The usual judge of this accuracy; `shared` is the part of its errors that an answer shares."""
    return judge_of(accuracy, shared_bias=shared)


def ours(accuracy: float, shared: float) -> Posterior:
    """`posterior` with what was measured of a judge."""
    return Posterior(**settings_of(estimated(simulated(accuracy, shared))))


def rivals() -> dict[str, Strategy]:
    """Everyone else."""
    names = (
        "majority",
        "tests-first",
        "pointwise",
        "caps-r",
        "sprint",
        "knockout",
        "listwise",
        "naive",
        "v1-infer",
    )
    return {
        **{name: make_strategy(name) for name in names},
        APART: make_strategy("caps-r", {"shortlist": "tests"}),
        "tests, listwise": TestsThenListwise(),
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

    @property
    def error(self) -> float:
        return calibration_error(self.column("sure"), self.column("right"))

    @property
    def brier(self) -> float:
        return float(((self.column("sure") - self.column("right")) ** 2).mean())

    def by_problem(self) -> Array:
        _, place = np.unique(self.column("problem"), return_inverse=True)
        return np.bincount(place, self.column("right")) / np.bincount(place)

    def where(self, *, odd: bool) -> "Played":
        """Every second problem."""
        return Played(self.rows[self.column("problem") % 2 == odd])


def contests(
    pools: Pools,
    strategies: Mapping[str, Strategy],
    model: JudgeModel,
    seeds: int,
    each: int,
    *,
    apart: Collection[str] = (APART,),
) -> dict[str, Played]:
    """Play every strategy; each problem meets `each` of the judge seeds, other problems other ones.

    Those named in `apart` do not merge what behaves alike.
    """
    rows: dict[str, list[list[float]]] = {name: [] for name in strategies}
    for merged, by_syntax in zip(pools.merged, pools.apart, strict=True):
        for turn in range(each):
            seed = (7 * merged.number + turn * max(1, seeds // each)) % seeds
            judge = SimulatedJudge(model, merged.entrants, merged.correct, seed=seed, case=merged.number)
            for name, strategy in strategies.items():
                rows[name].append(_play(by_syntax if name in apart else merged, strategy, judge, seed))
    return {name: Played(np.array(found)) for name, found in rows.items()}


def _play(pool: LabelledPool, strategy: Strategy, judge: SimulatedJudge, seed: int) -> list[float]:
    contest = Contest(strategy, pool.entrants, seed=f"{seed}/{pool.number}").play(judge.answer)
    asks = [ask for turn in contest.transcript for ask in turn.round.asks]
    chosen, tokens = contest.selection, sum(map(pool.tokens, asks))
    right = {one.id: right for one, right in zip(pool.entrants, pool.correct, strict=True)}[chosen.winner]
    whole = 3 * len(pool.entrants) * (pool.overhead + 2 * fmean(one.sizes[2] for one in pool.entrants))
    sure, rounds = chosen.facts.get("probability", math.nan), len(contest.transcript)
    return [pool.number, right, tokens, whole, len(asks), sure, rounds]


def calibration_error(sure: Array, right: Array) -> float:
    """Expected calibration error over ten bins of equal width."""
    return sum(share * abs(said - found) for share, said, found in reliability(sure, right))


def reliability(sure: Array, right: Array) -> list[tuple[float, float, float]]:
    """Of each bin its share of all, how sure it was, how often right."""
    bins = np.minimum((sure * 10).astype(int), 9)
    return [
        (float((bins == k).mean()), float(sure[bins == k].mean()), float(right[bins == k].mean()))
        for k in sorted(set(bins))
    ]


def paired(ours: Played, theirs: Played) -> tuple[float, float, float]:
    """Difference in points and its 95 % interval, over problems."""
    gap = 100 * (ours.by_problem() - theirs.by_problem())
    draws = np.random.default_rng(1).choice(gap, (2000, len(gap))).mean(axis=1)
    return float(gap.mean()), *map(float, np.quantile(draws, [0.025, 0.975]))


def worse_by_chance(ours: Played, theirs: Played) -> float:
    """Chance of so low a difference if neither were better: signs of problems exchanged at random."""
    gap = ours.by_problem() - theirs.by_problem()
    signs = np.random.default_rng(2).choice([-1.0, 1.0], (20_000, len(gap)))
    return float(((signs @ gap) <= gap.sum() + 1e-9).mean())


def vote_share(pools: Iterable[LabelledPool]) -> tuple[Array, Array]:
    """The share of votes taken as a probability, which is what there is without a model, and the truth."""
    sure, right = [], []
    for pool in pools:
        chosen = Contest(make_strategy("majority"), pool.entrants, seed=pool.number).selection
        sure.append(chosen.scores[chosen.winner])
        right.append(dict(zip((one.id for one in pool.entrants), pool.correct, strict=True))[chosen.winner])
    return np.array(sure), np.array(right, dtype=float)


def stacked(some: Sequence[Played]) -> Played:
    """All rows of several."""
    return Played(np.concatenate([one.rows for one in some]))
