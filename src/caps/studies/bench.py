"""Running a study: missing contests are played, live or simulated, and each result is stored at once."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass
from multiprocessing import parent_process
from pathlib import Path
from threading import Thread

from msgspec.structs import replace

from caps.core.contest import Contest
from caps.core.errors import InputError
from caps.core.text import CHARACTERS_PER_TOKEN
from caps.core.types import Case
from caps.engines.base import Outcome
from caps.judging.recorded import NOT_RECORDED, OTHER_TEXT, RecordedJudge, places_of
from caps.judging.simulated import SimulatedJudge
from caps.session.parts import make_prepare
from caps.session.resolve import Resolved
from caps.session.session import Session, open_session
from caps.studies.results import AnsweredAsk, Result, ResultFile, Step, Truth, measure, slug
from caps.studies.simulation import LabelledPool
from caps.studies.study import Recipe
from caps.studies.suites import Shard, case_digest, difficulty, grades, labels, pool_of, shuffled, suite_cases
from caps.studies.tables import Book
from caps.workers.child_python import process_pool

# Studies with a real judge: all methods and seeds of a suite share one connection and one journal


LASTING = (
    "malformed",
    "too-long",
    "refused",
    NOT_RECORDED,
    OTHER_TEXT,
)  # a repetition would not change these; they are counted
AT_ONCE = (
    4  # methods and seeds that run in parallel, so that the last cases of one do not leave a server idle
)

Missing = Callable[[Step, Case], bool]


async def play_live(
    resolved: Resolved,
    cases: Sequence[Case],
    turns: Iterable[Step],
    missing: Missing,
    *,
    shuffle: bool = False,
) -> AsyncGenerator[Result | str, None]:
    """Play missing contests; yields results as they finish, or a message for a case that failed.

    With `shuffle`, every seed gives another order of the candidates.
    """
    waiting = [(turn, [case for case in cases if missing(turn, case)]) for turn in turns]
    waiting = [(turn, some) for turn, some in waiting if some]
    if not waiting:
        return
    digests = {case.id: case_digest(case) for case in cases}
    waiting = [(turn, [_applied(resolved, case) for case in some]) for turn, some in waiting]
    if shuffle:
        waiting = [(turn, [shuffled(case, turn.seed) for case in some]) for turn, some in waiting]
    news: asyncio.Queue[Result | str | None] = asyncio.Queue()
    async with open_session(resolved) as ready:
        places = asyncio.Semaphore(AT_ONCE)
        tasks = [
            asyncio.ensure_future(_play(ready, places, *each, digests=digests, news=news)) for each in waiting
        ]
        try:
            left = len(tasks)
            while left:
                item = await news.get()
                if item is None:
                    left -= 1
                else:
                    yield item
            for task in tasks:
                await task  # raises errors that every other call would have too
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _applied(resolved: Resolved, case: Case) -> Case:
    """The case with what the settings add to it, as in every other run: criteria, and computed fields."""
    applied = resolved.cases.apply(case)
    if isinstance(applied, InputError):
        raise applied
    return applied


async def _play(
    ready: Session,
    places: asyncio.Semaphore,
    turn: Step,
    cases: list[Case],
    *,
    digests: Mapping[str, str],
    news: "asyncio.Queue[Result | str | None]",
) -> None:
    recorded = isinstance(ready.resolved.judges[0].judge, RecordedJudge)
    try:
        async with places:
            run = ready.engine.run(cases, turn.strategy, seed=turn.seed)
            async with aclosing(run) as outcomes:  # a stop ends its calls before the connection is closed
                async for outcome in outcomes:
                    news.put_nowait(result_of(turn, outcome, digests, recorded=recorded))
    finally:
        news.put_nowait(None)


def result_of(turn: Step, outcome: Outcome, digests: Mapping[str, str], *, recorded: bool) -> Result | str:
    """Measure an outcome; a message if it failed or lacks an answer, so that it is tried again.

    `digests` are those of the cases in their file.
    """
    prepared, contest = outcome.prepared, outcome.contest
    if outcome.failure is not None or prepared is None or contest is None:
        return f"{turn.method}, case {outcome.name!r}: {outcome.failure}"
    passing = {cause: count for cause, count in outcome.ledger.unanswered.items() if cause not in LASTING}
    if passing:
        causes = ", ".join(f"{cause} ({count})" for cause, count in sorted(passing.items()))
        return f"{turn.method}, case {outcome.name!r}: some calls were not answered: {causes}"
    answered = []
    for judged in outcome.judged:
        read = [attempt.usage.prompt for attempt in judged.ruling.attempts]
        answered.append(AnsweredAsk(judged.ask, judged.ruling.answer, sum(read), read[0] if read else 0))
    case = prepared.case
    result = measure(
        turn,
        turn.made_of_case(digests[case.id]),
        Truth(case.id, prepared.evidence.entrants, labels(case), difficulty(case), grades(case)),
        contest.selection,
        answered,
        depth=len(contest.transcript),
        malformed=outcome.ledger.malformed.total(),
    )
    result = replace(result, v1_characters=outcome.v1_characters, v1_tokens=outcome.v1_tokens)
    if not recorded:
        return result
    return replace(
        result,
        winner=places_of(case)[result.winner],
        substituted=dict(outcome.ledger.substituted),
        silent=dict(outcome.ledger.unanswered),
    )


# Studies with the simulated judge, on generated or real pools, in several processes if worthwhile


CHUNK = 32
WORTH_PROCESSES = 1500  # contests; with fewer, starting a second process takes longer than it saves
Labelled = tuple[LabelledPool, str, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Task:
    """Some pools of a suite and the steps to play on them; generated pools are generated by the worker."""

    suite: str
    recipe: Recipe
    numbers: range
    turns: tuple[Step, ...]
    pools: tuple[Labelled, ...] = ()


def run_task(task: Task) -> tuple[str, list[Result]]:
    """Play every step on every pool; the results depend only on the task."""
    made_up = () if task.pools else task.recipe.make(task.numbers)
    pools = task.pools or [(pool, str(pool.number), stratum, None) for pool, stratum in made_up]
    results = []
    for pool, name, level, own in pools:
        judge = SimulatedJudge(
            task.recipe.judge, pool.entrants, pool.correct, seed=task.recipe.seed, case=pool.number
        )
        facts = Truth(name, pool.entrants, pool.correct, level)
        results += [play_turn(turn, pool, facts, judge, own) for turn in task.turns]
    return task.suite, results


def play_turn(
    turn: Step, pool: LabelledPool, facts: Truth, judge: SimulatedJudge, own: str | None = None
) -> Result:
    """Play one contest. The judge is the same for every seed, like a model at temperature 0."""
    contest = Contest(turn.strategy, pool.entrants, seed=f"{turn.seed}/{facts.case}").play(judge.answer)
    answered = [
        AnsweredAsk(ask, answer, tokens, tokens)
        for played in contest.transcript
        for ask, answer in zip(played.round.asks, played.answers, strict=True)
        for tokens in (pool.tokens(ask),)
    ]
    result = measure(
        turn, turn.made_of_case(own), facts, contest.selection, answered, depth=len(contest.transcript)
    )
    return replace(result, v1_characters=CHARACTERS_PER_TOKEN * pool.v1_infer)


def run_tasks(tasks: Sequence[Task], *, processes: int) -> Iterator[tuple[str, list[Result]]]:
    """Run all tasks in order; only a few are in progress at once."""
    contests = sum(len(task.turns) * len(task.pools or task.numbers) for task in tasks)
    if processes <= 1 or contests < WORTH_PROCESSES:
        yield from map(run_task, tasks)
        return
    with process_pool(processes, leave_with_parent) as workers:
        under_way: list[Future[tuple[str, list[Result]]]] = []
        for task in tasks:
            under_way.append(workers.submit(run_task, task))
            if len(under_way) > 2 * processes:
                yield under_way.pop(0).result()
        while under_way:
            yield under_way.pop(0).result()


def leave_with_parent() -> None:
    """End this worker when its parent ends: a killed parent would leave it waiting for ever."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, daemon=True).start()


Hear = Callable[[int], object]


class Bench:
    """A study's results in a folder; a context manager."""

    def __init__(self, shards: Sequence[Shard], folder: Path) -> None:
        self.shards = shards
        names = dict.fromkeys(shard.suite.name for shard in shards)
        self._files = {name: ResultFile(folder / "results" / f"{slug(name)}.jsonl") for name in names}
        self.failures: list[str] = []

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    @property
    def unreadable(self) -> int:
        """Lines that could not be read; their contests are played again."""
        return sum(file.unreadable for file in self._files.values())

    def progress(self, shard: Shard) -> tuple[int, int]:
        """The number of finished results of a shard, and of all its results."""
        units, found = list(shard.units()), self._files[shard.suite.name].found
        return sum(unit in found for unit in units), len(units)

    def missing(self, shard: Shard, turn: Step) -> int:
        """How many cases of a lot are not played yet in one turn."""
        found = self._files[shard.suite.name].found
        return sum(
            (turn.method, turn.seed, name, turn.made_of_case(own)) not in found for name, own in shard.cases
        )

    def play(self, *, limit: int | None, processes: int, hear: Hear) -> None:
        """Play all missing contests; `hear` is called with the number of new results."""
        tasks = [
            task for shard in self.shards if shard.recipe is not None for task in self._tasks(shard, limit)
        ]
        for suite, results in run_tasks(tasks, processes=processes):
            self._keep(suite, results, hear)
        live = [shard for shard in self.shards if shard.resolved is not None]
        if live:
            asyncio.run(self.play_live(live, limit=limit, hear=hear))

    async def play_live(self, shards: Iterable[Shard], *, limit: int | None, hear: Hear) -> None:
        """Play shards against real judges, one after another, each as parallel as its endpoint allows."""
        for shard in shards:
            found = self._files[shard.suite.name].found
            if all(unit in found for unit in shard.units()):
                continue
            cases = list(suite_cases(shard.suite, limit))
            async with aclosing(self._live(shard, cases)) as items:
                async for item in items:
                    if isinstance(item, Result):
                        self._keep(shard.suite.name, [item], hear)
                    else:
                        self.failures.append(f"{shard.suite.name}, {item}")

    def book(self) -> Book:
        """The results of this study alone, by suite and method, in the order it plays them."""
        book: dict[str, dict[str, list[Result]]] = {}
        for shard in self.shards:
            found = self._files[shard.suite.name].found
            for unit in shard.units():
                if unit in found:
                    book.setdefault(shard.suite.name, {}).setdefault(unit[0], []).append(found[unit])
        return book

    def _keep(self, suite: str, results: list[Result], hear: Hear) -> None:
        file = self._files[suite]
        before = len(file.found)
        file.add(results)
        hear(len(file.found) - before)

    def _live(self, shard: Shard, cases: Sequence[Case]) -> AsyncGenerator[Result | str, None]:
        assert shard.resolved is not None  # noqa: S101
        found, digests = self._files[shard.suite.name].found, {case.id: case_digest(case) for case in cases}

        def missing(turn: Step, case: Case) -> bool:
            return (turn.method, turn.seed, case.id, turn.made_of_case(digests[case.id])) not in found

        return play_live(shard.resolved, cases, shard.turns, missing, shuffle=shard.suite.shuffle)

    def _tasks(self, shard: Shard, limit: int | None) -> Iterable[Task]:
        """A shard in chunks of pools, with the steps that lack a result for any of a chunk."""
        found, recipe = self._files[shard.suite.name].found, shard.recipe
        assert recipe is not None  # noqa: S101
        pools = []
        if not shard.made_up:
            prepare = make_prepare(shard.suite.profile, dict(shard.views))
            for number, case in enumerate(suite_cases(shard.suite, limit)):
                pool = pool_of(prepare(case), number)
                pools.append((pool, case.id, difficulty(case), case_digest(case)))
        for start in range(0, len(shard.cases), CHUNK):
            chunk = shard.cases[start : start + CHUNK]
            turns = tuple(
                turn
                for turn in shard.turns
                if any(
                    (turn.method, turn.seed, name, turn.made_of_case(own)) not in found for name, own in chunk
                )
            )
            numbers = range(start, start + len(chunk))
            if turns:
                yield Task(shard.suite.name, recipe, numbers, turns, tuple(pools[start : start + CHUNK]))
