"""Running a study: missing contests are played, live or simulated, and each result is stored at once."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from msgspec.structs import replace

from caps.core.errors import InputError
from caps.core.types import Case
from caps.engines.base import Outcome
from caps.judging.recorded import NOT_RECORDED, OTHER_TEXT, RecordedJudge, places_of
from caps.session.resolve import Resolved
from caps.session.session import Session, open_session
from caps.studies.play import WORTH_PROCESSES, AnsweredAsk, Played, Step, Task, chunks_of, measure, play_task
from caps.studies.results import AskedLine, Result, ResultFile, Unit, slug
from caps.studies.suites import Shard, case_digest, pool_of, shuffled, suite_cases
from caps.studies.tables import Book
from caps.workers.child_python import map_in_processes

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


async def play_live(
    resolved: Resolved,
    cases: Sequence[Case],
    steps: Iterable[Step],
    done: Container[Unit],
    *,
    shuffle: bool = False,
) -> AsyncGenerator[Result | str, None]:
    """Play contests that are not `done`; yields results as they finish, or a message for a case that failed.

    With `shuffle`, every seed gives another order of the candidates.
    """
    digests = {case.id: case_digest(case) for case in cases}
    waiting = [
        (step, [case for case in cases if step.unit(case.id, digests[case.id]) not in done]) for step in steps
    ]
    waiting = [(step, some) for step, some in waiting if some]
    if not waiting:
        return
    waiting = [(step, [_applied(resolved, case) for case in some]) for step, some in waiting]
    if shuffle:
        waiting = [(step, [shuffled(case, step.seed) for case in some]) for step, some in waiting]
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
    step: Step,
    cases: list[Case],
    *,
    digests: Mapping[str, str],
    news: "asyncio.Queue[Result | str | None]",
) -> None:
    recorded = isinstance(ready.resolved.judges[0].judge, RecordedJudge)
    try:
        async with places:
            run = ready.engine.run(cases, step.strategy, seed=step.seed)
            async with aclosing(run) as outcomes:  # a stop ends its calls before the connection is closed
                async for outcome in outcomes:
                    news.put_nowait(result_of(step, outcome, digests, recorded=recorded))
    finally:
        news.put_nowait(None)


def result_of(step: Step, outcome: Outcome, digests: Mapping[str, str], *, recorded: bool) -> Result | str:
    """Measure an outcome; a message if it failed or lacks an answer, so that it is tried again.

    `digests` are those of the cases in their file.
    """
    prepared, contest = outcome.prepared, outcome.contest
    if outcome.failure is not None or prepared is None or contest is None:
        return f"{step.method}, case {outcome.name!r}: {outcome.failure}"
    passing = {cause: count for cause, count in outcome.ledger.unanswered.items() if cause not in LASTING}
    if passing:
        causes = ", ".join(f"{cause} ({count})" for cause, count in sorted(passing.items()))
        return f"{step.method}, case {outcome.name!r}: some calls were not answered: {causes}"
    answered = []
    for judged in outcome.judged:
        read = [attempt.usage.prompt for attempt in judged.ruling.attempts]
        answered.append(AnsweredAsk(judged.ask, judged.ruling.answer, sum(read), read[0] if read else 0))
    case = prepared.case
    pool = pool_of(prepared, outcome.number, digests[case.id])
    played = Played(contest.selection, answered, len(contest.transcript), 0)
    result = measure(step, pool, played, malformed=outcome.ledger.malformed.total())
    result = replace(result, v1_characters=outcome.v1_characters, v1_tokens=outcome.v1_tokens)
    if not recorded:
        lines = [AskedLine.of(judged.ask, judged.ruling) for judged in outcome.judged]
        return replace(result, asked=tuple(line for line in lines if line is not None))
    return replace(
        result,
        winner=places_of(case)[result.winner],
        substituted=dict(outcome.ledger.substituted),
        silent=dict(outcome.ledger.unanswered),
    )


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

    def missing(self, shard: Shard, step: Step) -> int:
        """How many cases of a shard are not played yet in one step."""
        found = self._files[shard.suite.name].found
        return sum(step.unit(name, own) not in found for name, own in shard.cases)

    def play(self, *, limit: int | None, processes: int, hear: Hear) -> None:
        """Play all missing contests; `hear` is called with the number of new results."""
        tasks = [
            task for shard in self.shards if shard.recipe is not None for task in self._tasks(shard, limit)
        ]
        contests = sum(len(task.steps) * len(task.pools) for task in tasks)
        several = processes if contests >= WORTH_PROCESSES else 1
        for task, results in map_in_processes(play_task, tasks, processes=several):
            self._keep(task.suite, results, hear)
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
            assert shard.resolved is not None  # noqa: S101
            playing = play_live(shard.resolved, cases, shard.steps, found, shuffle=shard.suite.shuffle)
            async with aclosing(playing) as items:
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

    def _tasks(self, shard: Shard, limit: int | None) -> Iterator[Task]:
        """A shard in chunks of pools, with the steps that lack a result for any of a chunk."""
        found, recipe = self._files[shard.suite.name].found, shard.recipe
        assert recipe is not None  # noqa: S101
        for pools in chunks_of(shard.pools(limit)):
            steps = tuple(
                step
                for step in shard.steps
                if any(step.unit(pool.name, pool.digest) not in found for pool in pools)
            )
            if steps:
                yield Task(pools, steps, recipe.judge, recipe.seed, shard.suite.name)
