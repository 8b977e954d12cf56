"""A run in several processes: the coordinator with journal and budget, its workers, and what they exchange.

Rules that must not be broken:

* A worker is answered only after the commit that holds its row.
* What a dead worker had set aside counts as spent: its calls may have been billed.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from caps.core.errors import CapsError, JournalError
from caps.core.play import Strategy
from caps.core.types import Case, Found, Usage
from caps.costs.prices import Price
from caps.engines.base import CaseRun, Outcome, Prepare, prepare_case
from caps.engines.budget import BudgetLimits, BudgetPool, RunBudget
from caps.engines.local import LocalEngine
from caps.findings.base import Findings
from caps.journal.records import Reply, ReplyStore
from caps.journal.store import Journal
from caps.judging.base import NOTHING, Ruling
from caps.text_workers import TextWorkers

# A case played in another process: what is sent, what is told of it, and its outcome made of that.
#
# A contest is a function of its answers, so the rulings are enough: nothing that plays has to travel.


@dataclass(frozen=True, slots=True)
class Job:
    """A case to be played; `ends` is a time of the clock on the wall, where the run's time is limited."""

    number: int
    case: Case
    strategy: Strategy
    seed: int
    ends: float | None = None


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What there is to say of a played case: the facts found first, the rulings in order, why it failed.

    `found` is None where the case did not come to a contest. `unusable` counts, since the last case that was
    told, why nothing was looked into.
    """

    found: tuple[Found | None, ...] | None = None
    rulings: tuple[Ruling, ...] = ()
    failure: str | None = None
    unusable: Mapping[str, int] = field(default_factory=Counter)

    @classmethod
    def of(cls, outcome: Outcome, unusable: Mapping[str, int]) -> "CaseResult":
        """Tell of an outcome."""
        found = None
        if outcome.prepared is not None:
            found = tuple(one.found for one in outcome.prepared.case.candidates)
        rulings = tuple(one.ruling for one in outcome.judged)
        return cls(found, rulings, outcome.failure, unusable)


async def rebuild(job: Job, told: CaseResult, prepare: Prepare, texts: TextWorkers | None = None) -> Outcome:
    """Make the outcome of a case anew from what was told of it."""
    case = job.case
    if told.found is None:
        return Outcome(job.number, case.id, failure=told.failure)
    pairs = zip(case.candidates, told.found, strict=True)
    known = replace(case, candidates=tuple(replace(one, found=found) for one, found in pairs))
    try:
        prepared = await prepare_case(known, prepare, texts)
    except CapsError as error:
        return Outcome(job.number, case.id, failure=str(error))
    play = CaseRun(job.number, prepared, job.strategy, job.seed)
    left = iter(told.rulings)
    while (round_ := play.round) is not None:
        rulings = [ruling for _, ruling in zip(round_.asks, left, strict=False)]
        if len(rulings) < len(round_.asks):
            break  # the case failed in this round
        for place, ruling in enumerate(rulings):
            play.tell(place, ruling)
    play.outcome.failure = told.failure
    return play.outcome


# What a worker in another process works with, and how it gets it.


class WorkerContext(NamedTuple):
    """An engine for so many seconds (or without a limit), and who looks into cases first."""

    engine: Callable[[float | None], LocalEngine]
    findings: Findings | None


Equip: TypeAlias = Callable[
    [ReplyStore | None, BudgetPool | None], AbstractAsyncContextManager[WorkerContext]
]


T = TypeVar("T")


@dataclass(slots=True)
class WorkerLease:
    """A worker from its start to its end, and what it has set aside."""

    number: int
    held: Counter[Usage] = field(default_factory=Counter)


class WorkerTerms(NamedTuple):
    """What a worker is told when it enters: which life this is, how to equip its bench, what is kept."""

    life: int
    equip: Equip
    journaled: bool
    limited: bool


class Coordinator:
    """Keeps journal and account on the machine where the journal's file lies, and the terms of work."""

    def __init__(
        self, equip: Equip, path: Path | None, budget: BudgetLimits, price: Price | None, *, durable: bool
    ) -> None:
        self._equip, self._limited = equip, budget.spends
        self._journal = None if path is None else Journal.open(path, durable=durable)
        self._total = RunBudget(budget, price)
        self._lives: dict[str, WorkerLease] = {}

    async def enter(self, worker: str) -> WorkerTerms:
        """Begin a worker's life; whatever it held in an earlier one is spent."""
        number = 0
        if worker in self._lives:
            earlier = self._lives[worker]
            number = earlier.number + 1
            for most in earlier.held.elements():
                self._total.settle(most, most)
        self._lives[worker] = WorkerLease(number)
        return WorkerTerms(number, self._equip, self._journal is not None, self._limited)

    async def recall(self, key: str) -> Reply | None:
        """The reply under a key."""
        return self._kept.get(key)

    async def append(self, reply: Reply) -> Reply:
        """Store a reply."""
        return await self._kept.append(reply)

    async def recall_fact(self, kind: str, key: str) -> Any:
        """The fact under a kind and key."""
        return self._kept.fact(kind, key)

    async def record(self, kind: str, key: str, value: object) -> Any:
        """Store a fact."""
        return await self._kept.record(kind, key, value)

    async def reserve(self, worker: str, life: int, most: Usage) -> bool:
        """Set aside what a call may cost; a worker that died while it waited gets nothing."""
        if not await self._total.reserve(most):
            return False
        if self._lives[worker].number != life:
            self._total.settle(most, NOTHING)
            return False
        self._lives[worker].held[most] += 1
        return True

    async def settle(self, worker: str, life: int, most: Usage, spent: Usage) -> None:
        """Close a call, unless it was closed when its worker died."""
        if self._lives[worker].number == life:
            self._lives[worker].held[most] -= 1
            self._total.settle(most, spent)

    async def leave(self) -> None:
        """Store what was handed in and let go of the journal."""
        if self._journal is not None:
            self._journal.close()

    @property
    def _kept(self) -> Journal:
        if self._journal is None:
            raise JournalError("no journal is kept in this run")
        return self._journal


async def heard(reply: Awaitable[T]) -> T:
    """What a call in another process returned; an error of ours is raised as it was there."""
    try:
        return await reply
    except Exception as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, CapsError):
            raise cause from None
        raise


class RemoteJournal:
    """A journal that a clerk keeps."""

    def __init__(self, coordinator: Any) -> None:
        self._clerk = coordinator

    async def recall(self, key: str) -> Reply | None:
        """The reply under a key."""
        return await _kept(self._clerk.recall.remote(key))

    async def append(self, reply: Reply) -> Reply:
        """Store a reply and return, after the commit that holds it, the one that stands under its key."""
        return await _kept(self._clerk.append.remote(reply))

    async def recall_fact(self, kind: str, key: str) -> Any:
        """The fact under a kind and key, or None."""
        return await _kept(self._clerk.recall_fact.remote(kind, key))

    async def record(self, kind: str, key: str, value: object) -> Any:
        """Store a fact and return, after its commit, the one that stands."""
        return await _kept(self._clerk.record.remote(kind, key, value))


class RemoteBudget:
    """An account that a clerk keeps for several workers.

    Only the first in line asks: were all to wait with the clerk, whoever gives back could not get through.
    """

    limited = True

    def __init__(self, coordinator: Any, worker: str, life: int) -> None:
        self._clerk, self._worker, self._life = coordinator, worker, life
        self._line = asyncio.Lock()

    async def reserve(self, most: Usage) -> bool:
        """Set aside what a call may cost, waiting while others may give back enough."""
        async with self._line:
            return await _kept(self._clerk.reserve.remote(self._worker, self._life, most))

    def settle(self, most: Usage, spent: Usage) -> None:
        """Close a call."""
        self._clerk.settle.remote(self._worker, self._life, most, spent)


async def _kept(reply: Awaitable[T]) -> T:
    """What the clerk says; without one nothing may be paid for."""
    try:
        return await heard(reply)
    except CapsError:
        raise
    except Exception as error:
        raise JournalError(
            f"whoever keeps the journal cannot be reached ({type(error).__name__}): run the same command "
            "again; what was stored is safe"
        ) from None


# A worker: plays cases in a process of its own with the local engine, and holds the connections for them.
#
# It knows nothing that would be missed: replies and findings are with the clerk, cases with whoever sent
# them.


class Worker:
    """Plays one case a call, many at once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stack = AsyncExitStack()
        self._bench: WorkerContext | None = None
        self._opening = asyncio.Lock()
        self._playing: set[asyncio.Task[CaseResult]] = set()

    async def ready(self, coordinator: Any) -> int:
        """Make ready to work for a clerk; the number of this process."""
        await self._equipped(coordinator)
        return os.getpid()

    async def play(self, coordinator: Any, job: Job) -> CaseResult:
        """Play a case and tell of it; the clerk comes along each time, for whoever has just been replaced."""
        task = asyncio.ensure_future(self._play(coordinator, job))
        self._playing.add(task)
        task.add_done_callback(self._playing.discard)
        return await task

    async def leave(self) -> None:
        """End what is under way, with its time of grace, and close the connections."""
        playing = list(self._playing)
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)
        await self._stack.aclose()

    async def _play(self, coordinator: Any, job: Job) -> CaseResult:
        bench = await self._equipped(coordinator)
        left = None if job.ends is None else max(0.0, job.ends - time.time())
        run = bench.engine(left).run([job.case], job.strategy, seed=job.seed)
        (outcome,) = [one async for one in run]
        return CaseResult.of(outcome, _taken(bench.findings))

    async def _equipped(self, coordinator: Any) -> WorkerContext:
        """The bench, equipped once in a life: after a death it is another, and the clerk must know."""
        async with self._opening:
            if self._bench is None:
                terms: WorkerTerms = await heard(coordinator.enter.remote(self._name))
                journal = RemoteJournal(coordinator) if terms.journaled else None
                budget_pool = RemoteBudget(coordinator, self._name, terms.life) if terms.limited else None
                self._bench = await self._stack.enter_async_context(terms.equip(journal, budget_pool))
            return self._bench


def _taken(findings: Findings | None) -> Counter[str]:
    """What could not be looked into since it was last asked."""
    if findings is None:
        return Counter()
    taken, findings.unusable = findings.unusable, Counter()
    return taken
