"""A study against the synthetic judge, on made-up pools or real ones, in several processes where it pays."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from threading import Thread

from caps.core.contest import Contest
from caps.experiments.measure import Heard, Pool, Turn, measure
from caps.experiments.pools import LabelledPool
from caps.experiments.recipes import Recipe
from caps.experiments.results import Result
from caps.judges.simulated import SimulatedJudge

CHUNK = 32
WORTH_PROCESSES = 1500  # contests; below that starting a second process takes longer than it saves
Labelled = tuple[LabelledPool, str, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Errand:
    """Some pools of a suite and who plays on them; made-up pools are made on the spot."""

    suite: str
    recipe: Recipe
    numbers: range
    turns: tuple[Turn, ...]
    pools: tuple[Labelled, ...] = ()


def run_errand(errand: Errand) -> tuple[str, list[Result]]:
    """Play every turn on every pool; a function of the errand alone."""
    made_up = () if errand.pools else errand.recipe.make(errand.numbers)
    pools = errand.pools or [(pool, str(pool.number), stratum, None) for pool, stratum in made_up]
    results = []
    for pool, name, difficulty, own in pools:
        judge = SimulatedJudge(
            errand.recipe.judge, pool.entrants, pool.correct, seed=errand.recipe.seed, case=pool.number
        )
        facts = Pool(name, pool.entrants, pool.correct, difficulty)
        results += [play_turn(turn, pool, facts, judge, own) for turn in errand.turns]
    return errand.suite, results


def play_turn(
    turn: Turn, pool: LabelledPool, facts: Pool, judge: SimulatedJudge, own: str | None = None
) -> Result:
    """One contest. The judge is the same for every seed, as a model at temperature 0 is; pairings differ."""
    contest = Contest(turn.strategy, pool.entrants, seed=f"{turn.seed}/{facts.case}")
    sizes = {entrant.id: entrant.sizes for entrant in pool.entrants}
    heard = []
    while round_ := contest.pending:
        answers = [judge.answer(ask) for ask in round_.asks]
        for ask, answer in zip(round_.asks, answers, strict=True):
            tokens = pool.overhead + sum(sizes[one][ask.level] for one in ask.entrants)
            heard.append(Heard(ask, answer, tokens, tokens))
        contest.answer(answers)
    return measure(
        turn, turn.made_of_case(own), facts, contest.selection, heard, depth=len(contest.transcript)
    )


def run_errands(errands: Sequence[Errand], *, processes: int) -> Iterator[tuple[str, list[Result]]]:
    """Run all, as they get done; only a few are under way at once."""
    contests = sum(len(errand.turns) * len(errand.pools or errand.numbers) for errand in errands)
    if processes <= 1 or contests < WORTH_PROCESSES:
        yield from map(run_errand, errands)
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=leave_with_parent) as workers:
        under_way: list[Future[tuple[str, list[Result]]]] = []
        for errand in errands:
            under_way.append(workers.submit(run_errand, errand))
            if len(under_way) > 2 * processes:
                yield under_way.pop(0).result()
        while under_way:
            yield under_way.pop(0).result()


def leave_with_parent() -> None:
    """End this worker when its parent is gone: one that was killed would leave it waiting for ever."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, daemon=True).start()
