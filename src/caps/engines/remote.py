"""Runs in several processes: a coordinator with journal and budget, workers, and their messages.

Rules that must not be broken:

* A worker gets an answer only after the commit of its row.
* What a dead worker had reserved counts as spent: its calls may have been billed.
"""

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from caps.core.errors import CapsError, InputError, JournalError
from caps.core.play import Strategy
from caps.core.types import Case, Found, Usage
from caps.costs.prices import Price
from caps.engines.base import CaseRun, Outcome, PerCase, Prepare, prepare_case, strategy_for, unreadable_case
from caps.engines.budget import BudgetLimits, BudgetPool, RunBudget
from caps.engines.local import LocalEngine
from caps.engines.readability import ReplyCheck
from caps.findings.base import Findings
from caps.journal.records import Reply, ReplyStore
from caps.journal.store import Journal
from caps.judging.base import NOTHING, Ruling, Shortage
from caps.judging.preparation import CasePreparation, ViewTexts
from caps.workers.texts import TextWorkers

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    """A case to run; `deadline` is in wall-clock time."""

    number: int
    case: Case
    strategy: Strategy
    seed: int
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What a worker returns for a case: its findings, its rulings in order, and why it failed.

    A contest is a function of its answers, so this is enough to rebuild the outcome. `found` is None if no
    contest took place. `unusable` counts why findings were not possible since the last result. `texts` is
    what the case was prepared to, so that this is done once.
    """

    found: tuple[Found | None, ...] | None = None
    rulings: tuple[Ruling, ...] = ()
    failure: str | None = None
    unusable: Mapping[str, int] = field(default_factory=Counter)
    texts: ViewTexts | None = None

    @classmethod
    def of(cls, outcome: Outcome, unusable: Mapping[str, int]) -> "CaseResult":
        """Reduce an outcome to what must be sent."""
        found = None
        if outcome.prepared is not None:
            found = tuple(one.found for one in outcome.prepared.case.candidates)
        rulings = tuple(one.ruling for one in outcome.judged)
        texts = None if outcome.prepared is None else ViewTexts.of(outcome.prepared)
        return cls(found, rulings, outcome.failure, unusable, texts)


async def rebuild(
    job: Job, result: CaseResult, prepare: Prepare, texts: TextWorkers | None = None
) -> Outcome:
    """Rebuild the outcome of a case from a worker's result."""
    case = job.case
    if result.found is None:
        return Outcome(job.number, case.id, failure=result.failure)
    known = case
    if any(result.found):
        pairs = zip(case.candidates, result.found, strict=True)
        known = replace(case, candidates=tuple(replace(one, found=found) for one, found in pairs))
    try:
        if result.texts is not None and isinstance(prepare, CasePreparation):
            prepared = prepare.restore(known, result.texts)
        else:
            prepared = await prepare_case(known, prepare, texts)
    except CapsError as error:
        return Outcome(job.number, case.id, failure=str(error))
    case_run = CaseRun(job.number, prepared, job.strategy, job.seed)
    left = iter(result.rulings)
    while (round_ := case_run.round) is not None:
        rulings = [ruling for _, ruling in zip(round_.asks, left, strict=False)]
        if len(rulings) < len(round_.asks):
            break  # the case failed in this round
        for index, ruling in enumerate(rulings):
            case_run.record_ruling(index, ruling)
    case_run.outcome.failure = result.failure
    return case_run.outcome


class WorkerContext(NamedTuple):
    """What a worker runs cases with: an engine for at most N seconds (None: no limit), and findings."""

    engine: Callable[[float | None], LocalEngine]
    findings: Findings | None


MakeContext: TypeAlias = Callable[
    [ReplyStore | None, BudgetPool | None], AbstractAsyncContextManager[WorkerContext]
]


@dataclass(slots=True)
class WorkerLease:
    """One lifetime of a worker process, and what it has reserved."""

    number: int
    reserved: Counter[Usage] = field(default_factory=Counter)


class WorkerSetup(NamedTuple):
    """What a worker gets when it registers; `lease` numbers its lifetimes.

    `journal` is a file that it opens itself; else it uses the journal of the coordinator, if there is one.
    """

    lease: int
    make_context: MakeContext
    journaled: bool
    limited: bool
    journal: Path | None = None
    durable: bool = False


class Coordinator:
    """Owns the journal and the budget, on the machine of the journal's file, and sets workers up.

    With `on_this_machine`, workers open the file of the journal themselves, which saves a message per row.
    """

    def __init__(
        self,
        make_context: MakeContext,
        path: Path | None,
        budget: BudgetLimits,
        price: Price | None,
        *,
        durable: bool,
        on_this_machine: bool = False,
    ) -> None:
        self._make_context, self._limited = make_context, budget.spends
        self._shared, self._durable = path if on_this_machine else None, durable
        self._journal = None
        if path is not None and not on_this_machine:
            self._journal = Journal.open(path, durable=durable)
        self._total = RunBudget(budget, price)
        self._leases: dict[str, WorkerLease] = {}

    async def register(self, worker: str) -> WorkerSetup:
        """Register a new or restarted worker; what its earlier process had reserved is spent."""
        number = 0
        if worker in self._leases:
            earlier = self._leases[worker]
            number = earlier.number + 1
            for max_usage in earlier.reserved.elements():
                self._total.settle(max_usage, max_usage)
        self._leases[worker] = WorkerLease(number)
        journaled = self._journal is not None
        return WorkerSetup(number, self._make_context, journaled, self._limited, self._shared, self._durable)

    async def recall(self, key: str) -> Reply | None:
        """The reply under a key."""
        return self._open_journal.get(key)

    async def append(self, reply: Reply) -> Reply:
        """Store a reply."""
        return await self._open_journal.append(reply)

    async def recall_fact(self, kind: str, key: str) -> Any:
        """The fact under a kind and key."""
        return self._open_journal.fact(kind, key)

    async def record(self, kind: str, key: str, value: object) -> Any:
        """Store a fact."""
        return await self._open_journal.record(kind, key, value)

    async def reserve(self, worker: str, lease: int, max_usage: Usage) -> Shortage | None:
        """Reserve the maximum usage of a call; a worker that died meanwhile gets nothing."""
        shortage = await self._total.reserve(max_usage)
        if shortage is not None:
            return shortage
        if self._leases[worker].number != lease:
            self._total.settle(max_usage, NOTHING)
            return Shortage("", 0, 0)
        self._leases[worker].reserved[max_usage] += 1
        return None

    async def settle(self, worker: str, lease: int, max_usage: Usage, spent: Usage) -> None:
        """Settle a call, unless that was done when its worker died."""
        if self._leases[worker].number == lease:
            self._leases[worker].reserved[max_usage] -= 1
            self._total.settle(max_usage, spent)

    async def close(self) -> None:
        """Commit and close the journal."""
        if self._journal is not None:
            self._journal.close()

    @property
    def _open_journal(self) -> Journal:
        if self._journal is None:
            raise JournalError("this run has no journal")
        return self._journal


async def remote_result(reply: Awaitable[T]) -> T:
    """The result of a call in another process; a `CapsError` is raised as it was there."""
    try:
        return await reply
    except Exception as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, CapsError):
            raise cause from None
        raise


class RemoteJournal:
    """The coordinator's journal, used by a worker."""

    claims = None

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator

    async def recall(self, key: str) -> Reply | None:
        """The reply under a key."""
        return await _ask(self._coordinator.recall.remote(key))

    async def append(self, reply: Reply) -> Reply:
        """Store a reply and return, after the commit that holds it, the one that stands under its key."""
        return await _ask(self._coordinator.append.remote(reply))

    async def recall_fact(self, kind: str, key: str) -> Any:
        """The fact under a kind and key, or None."""
        return await _ask(self._coordinator.recall_fact.remote(kind, key))

    async def record(self, kind: str, key: str, value: object) -> Any:
        """Store a fact and return, after its commit, the one that stands."""
        return await _ask(self._coordinator.record.remote(kind, key, value))


class RemoteBudget:
    """The coordinator's budget, used by a worker.

    Only one reservation waits at a time: if all waited at the coordinator, settlements could not get through.
    """

    limited = True

    def __init__(self, coordinator: Any, worker: str, lease: int) -> None:
        self._coordinator, self._worker, self._lease = coordinator, worker, lease
        self._waiting = asyncio.Lock()

    async def reserve(self, max_usage: Usage) -> Shortage | None:
        """Reserve the maximum usage of a call; wait while open reservations may free enough."""
        async with self._waiting:
            return await _ask(self._coordinator.reserve.remote(self._worker, self._lease, max_usage))

    def settle(self, max_usage: Usage, spent: Usage) -> None:
        """Settle a call."""
        self._coordinator.settle.remote(self._worker, self._lease, max_usage, spent)


async def _ask(reply: Awaitable[T]) -> T:
    """The coordinator's reply; without one nothing may be paid for."""
    try:
        return await remote_result(reply)
    except CapsError:
        raise
    except Exception as error:
        raise JournalError(
            f"the process that keeps the journal cannot be reached ({type(error).__name__}): run the same "
            "command again; what was stored is safe"
        ) from None


class Worker:
    """Runs cases in its process with the local engine, many at once.

    It can be lost at any time: the coordinator has its replies and findings, the driver its cases.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._stack = AsyncExitStack()
        self._context: WorkerContext | None = None
        self._opening = asyncio.Lock()
        self._running: set[asyncio.Task[CaseResult]] = set()

    async def ready(self, coordinator: Any) -> int:
        """Set this worker up and return its process id."""
        await self._set_up(coordinator)
        return os.getpid()

    async def run(self, coordinator: Any, job: Job) -> CaseResult:
        """Run a case; each call passes the coordinator, because this process may be a replacement."""
        task = asyncio.ensure_future(self._run(coordinator, job))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await task

    async def close(self) -> None:
        """End running cases, with their grace period, and close the connections."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._stack.aclose()

    async def _run(self, coordinator: Any, job: Job) -> CaseResult:
        context = await self._set_up(coordinator)
        left = None if job.deadline is None else max(0.0, job.deadline - time.time())
        run = context.engine(left).run([job.case], job.strategy, seed=job.seed)
        (outcome,) = [one async for one in run]
        unusable: Counter[str] = Counter()
        if context.findings is not None:
            unusable, context.findings.unusable = context.findings.unusable, unusable
        return CaseResult.of(outcome, unusable)

    async def _set_up(self, coordinator: Any) -> WorkerContext:
        """The context, made once in each process: a replacement must register again."""
        async with self._opening:
            if self._context is None:
                setup: WorkerSetup = await remote_result(coordinator.register.remote(self._name))
                journal: ReplyStore | None = RemoteJournal(coordinator) if setup.journaled else None
                if setup.journal is not None:
                    opened = await asyncio.to_thread(
                        Journal.open, setup.journal, durable=setup.durable, checked=0
                    )
                    journal = self._stack.enter_context(opened)
                budget_pool = RemoteBudget(coordinator, self._name, setup.lease) if setup.limited else None
                self._context = await self._stack.enter_async_context(
                    setup.make_context(journal, budget_pool)
                )
            return self._context


MAX_DEATHS = 3  # of its worker before a case counts as failed
READ_AHEAD = 4  # cases read, as a multiple of those running: one slow case holds up no worker


class WorkerPool:
    """Workers with their coordinator; the worker with the fewest cases gets the next.

    `fatal` gets the error that ends the run, if there is one.
    """

    def __init__(self, coordinator: Any, workers: Sequence[Any], capacity: int) -> None:
        self.fatal: asyncio.Future[CapsError] = asyncio.get_running_loop().create_future()
        self._coordinator, self._workers, self._running = coordinator, workers, [0] * len(workers)
        self._slots = asyncio.Semaphore(capacity * len(workers))

    async def run(self, job: Job) -> CaseResult:
        """Run a case as soon as a worker has capacity for it."""
        async with self._slots:
            index = self._running.index(min(self._running))
            self._running[index] += 1
            try:
                return await remote_result(self._workers[index].run.remote(self._coordinator, job))
            finally:
                self._running[index] -= 1


class RemoteEngine(ABC):
    """Runs a stream of cases with several workers, each of which runs up to `capacity` at once.

    `unusable` counts why findings were not possible. Without `keep_going`, a run stops if most replies of the
    judge cannot be read.
    """

    def __init__(
        self,
        prepare: Prepare,
        *,
        workers: int,
        capacity: int,
        total_budget: BudgetLimits | None = None,
        unusable: Counter[str] | None = None,
        texts: TextWorkers | None = None,
        keep_going: bool = True,
    ) -> None:
        self._keep_going = keep_going
        self._prepare, self._count, self._capacity = prepare, workers, capacity
        self._budget = total_budget or BudgetLimits()
        self._unusable, self._texts = Counter() if unusable is None else unusable, texts
        self.watch: Callable[[Ruling], object] = lambda _: None

    @abstractmethod
    def _start_workers(self) -> AbstractAsyncContextManager[WorkerPool]:
        """Start the workers; end all after the run."""

    async def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase, *, seed: int
    ) -> AsyncGenerator[Outcome, None]:
        """Run all cases and yield each outcome, in input order."""
        max_tasks = READ_AHEAD * self._capacity * self._count
        seconds = self._budget.seconds
        async with self._start_workers() as worker_pool:
            deadline = None if seconds is None else time.time() + seconds
            fatal = worker_pool.fatal
            jobs = enumerate(_jobs(cases, strategy, seed, deadline))
            tasks: deque[asyncio.Task[Outcome]] = deque()
            check = ReplyCheck(keep_going=self._keep_going)
            try:
                while True:
                    for number, job in islice(jobs, max_tasks - len(tasks)):
                        tasks.append(asyncio.ensure_future(self._run_job(worker_pool, number, job)))
                    if not tasks or check.error is not None:
                        check.finish()
                        return
                    await asyncio.wait((tasks[0], fatal), return_when=asyncio.FIRST_COMPLETED)
                    if fatal.done():
                        raise fatal.result()
                    outcome = tasks.popleft().result()
                    check.add_outcome(outcome)
                    yield outcome
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_job(self, worker_pool: WorkerPool, number: int, job: Job | InputError) -> Outcome:
        """The outcome of a case; an error that would stop all others too ends the run."""
        if isinstance(job, InputError):
            return unreadable_case(number, job)
        try:
            result = await worker_pool.run(job)
        except CapsError as error:
            if not worker_pool.fatal.done():
                worker_pool.fatal.set_result(error)
            raise
        except Exception as error:  # the worker died repeatedly
            reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            return Outcome(number, job.case.id, failure=f"its worker failed repeatedly: {reason}")
        self._unusable.update(result.unusable)
        for ruling in result.rulings:
            self.watch(ruling)
        return await rebuild(job, result, self._prepare, self._texts)


def _jobs(
    cases: Iterable[Case | InputError], strategy: Strategy | PerCase, seed: int, deadline: float | None
) -> Iterator[Job | InputError]:
    """The jobs of a source; one that breaks off ends with the reason as its last item."""
    try:
        for number, case in enumerate(cases):
            if isinstance(case, InputError):
                yield case
                continue
            yield Job(number, case, strategy_for(number, strategy), seed, deadline)
    except InputError as error:
        yield error
