"""What runs on a cluster: a coordinator with the journal and the total budget, and workers that play cases.

Rules that must not be broken:

* A worker gets an answer only after the commit of its row.
* What a dead worker had reserved counts as spent: its calls may have been billed.
* A stored reply that this run paid for is reported as paid by exactly one result. If its worker died first,
  the worker that plays the case again reports it.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import uuid4

from msgspec.structs import replace

from caps.core.errors import CapsError, JournalError
from caps.core.play import Strategy
from caps.core.types import Case, Usage
from caps.costs.budget import Shortage
from caps.costs.prices import Price
from caps.engines.base import CaseRun, Outcome
from caps.engines.budget import BudgetLimits, BudgetPool, RunBudget
from caps.engines.local import LocalEngine
from caps.journal.records import Reply, ReplyStore
from caps.journal.store import Journal
from caps.judging.base import NOTHING, Ruling
from caps.judging.preparation import CasePreparation, PreparedTexts

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
    """What a worker returns for a case: a contest depends on its answers only, so they are enough.

    `case` has the findings, and `texts` what it was prepared to; both are None if no contest took place.
    `unusable` counts why findings were not possible since the last result.
    """

    rulings: list[Ruling]
    case: Case | None
    texts: PreparedTexts | None
    failure: str | None
    unusable: Counter[str]

    @property
    def paid_keys(self) -> list[str]:
        """The keys of the stored replies that this result reports as paid."""
        attempts = (attempt for ruling in self.rulings for attempt in ruling.attempts)
        return [attempt.key for attempt in attempts if not attempt.replayed]

    def rebuild(self, job: Job, prepare: CasePreparation) -> Outcome:
        """The outcome of the case."""
        if self.case is None or self.texts is None:
            return Outcome(job.number, job.case.id, failure=self.failure)
        case_run = CaseRun(job.number, prepare.restore(self.case, self.texts), job.strategy, job.seed)
        rulings = iter(self.rulings)
        while (round_ := case_run.round) is not None:
            answered = list(islice(rulings, len(round_.asks)))
            if len(answered) < len(round_.asks):
                break  # the case failed in this round
            for index, ruling in enumerate(answered):
                case_run.record_ruling(index, ruling)
        case_run.outcome.failure = self.failure
        return case_run.outcome


class Coordinator:
    """Owns the journal and the total budget of a run, on the machine of the journal's file.

    A worker that is started again has a new life; calls say which one they come from.
    """

    def __init__(
        self, path: Path | None, budget: BudgetLimits, price: Price | None, *, durable: bool
    ) -> None:
        self._journal = None if path is None else Journal.open(path, durable=durable)
        self._total = RunBudget(budget, price)
        self._lives: dict[str, str] = {}  # by worker
        self._reserved: dict[str, Counter[Usage]] = {}  # by life that has not ended
        self._payers: dict[str, str] = {}  # lives by the key of a reply that no result has reported as paid

    async def register(self, worker: str, life: str) -> None:
        """Begin a life of a worker; what was reserved in its earlier one is spent."""
        for max_usage in self._reserved.pop(self._lives.get(worker, ""), Counter()).elements():
            self._total.settle(max_usage, max_usage)
        self._lives[worker], self._reserved[life] = life, Counter()

    async def recall(self, life: str, key: str) -> tuple[Reply | None, bool]:
        """The reply under a key, and whether this life must report its payment in place of one that ended."""
        reply, payer = self._open_journal.get(key), self._payers.get(key)
        inherits = reply is not None and payer is not None and payer not in self._reserved
        if inherits:
            self._payers[key] = life
        return reply, inherits

    async def append(self, life: str, reply: Reply) -> Reply:
        """Store a reply."""
        self._payers[reply.key] = life
        return await self._open_journal.append(reply)

    async def mark_reported(self, keys: list[str]) -> None:
        """Note that the driver has a result which reports these replies as paid."""
        for key in keys:
            self._payers.pop(key, None)

    async def recall_fact(self, kind: str, key: str) -> Any:
        """The fact under a kind and key."""
        return self._open_journal.fact(kind, key)

    async def record(self, kind: str, key: str, value: object) -> Any:
        """Store a fact."""
        return await self._open_journal.record(kind, key, value)

    async def reserve(self, life: str, max_usage: Usage) -> Shortage | None:
        """Reserve the maximum usage of a call; a life that ended meanwhile gets nothing."""
        shortage = await self._total.reserve(max_usage)
        if shortage is not None:
            return shortage
        if life not in self._reserved:
            self._total.settle(max_usage, NOTHING)
            return Shortage("", 0, 0)
        self._reserved[life][max_usage] += 1
        return None

    async def settle(self, life: str, max_usage: Usage, spent: Usage) -> None:
        """Settle a call, unless that was done when its life ended."""
        if life in self._reserved:
            self._reserved[life][max_usage] -= 1
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


class RemoteCoordinator:
    """The coordinator as one life of a worker uses it: a store of replies, and a pool of budget.

    Only one reservation waits at a time: if all waited at the coordinator, settlements could not get through.
    """

    claims = None
    limited = True

    def __init__(self, coordinator: Any, life: str) -> None:
        self._coordinator, self._life = coordinator, life
        self._inherited: set[str] = set()  # keys of replies whose payment is to be reported here
        self._reserving = asyncio.Lock()

    async def recall(self, key: str) -> Reply | None:
        """The reply under a key."""
        reply: Reply | None
        reply, inherits = await self._ask(self._coordinator.recall.remote(self._life, key))
        if inherits:
            self._inherited.add(key)
        return reply

    async def append(self, reply: Reply) -> Reply:
        """Store a reply and return, after the commit that holds it, the one that stands under its key."""
        return await self._ask(self._coordinator.append.remote(self._life, reply))

    async def recall_fact(self, kind: str, key: str) -> Any:
        """The fact under a kind and key, or None."""
        return await self._ask(self._coordinator.recall_fact.remote(kind, key))

    async def record(self, kind: str, key: str, value: object) -> Any:
        """Store a fact and return, after its commit, the one that stands."""
        return await self._ask(self._coordinator.record.remote(kind, key, value))

    async def reserve(self, max_usage: Usage) -> Shortage | None:
        """Reserve the maximum usage of a call; wait while open reservations may free enough."""
        async with self._reserving:
            return await self._ask(self._coordinator.reserve.remote(self._life, max_usage))

    def settle(self, max_usage: Usage, spent: Usage) -> None:
        """Settle a call."""
        self._coordinator.settle.remote(self._life, max_usage, spent)

    def report_payments(self, ruling: Ruling) -> Ruling:
        """The ruling as it is sent, with the replies that another life paid for as paid, each once."""
        attempts = list(ruling.attempts)
        for place, attempt in enumerate(attempts):
            if attempt.replayed and attempt.key in self._inherited:
                self._inherited.remove(attempt.key)
                attempts[place] = replace(attempt, replayed=False)
        return replace(ruling, attempts=tuple(attempts), error=None)  # it may be one that cannot be sent

    @staticmethod
    async def _ask(reply: Awaitable[T]) -> T:
        """The coordinator's reply; without one nothing may be paid for."""
        try:
            return await remote_result(reply)
        except CapsError:
            raise
        except Exception as error:
            raise JournalError(
                f"the process that keeps the journal cannot be reached ({type(error).__name__}): run the "
                "same command again; what was stored is safe"
            ) from None


class WorkerContext(NamedTuple):
    """What a worker runs cases with: an engine for at most N seconds (None: no limit).

    `unusable` counts why findings were not possible.
    """

    engine: Callable[[float | None], LocalEngine]
    unusable: Counter[str]


OpenContext: TypeAlias = Callable[
    [ReplyStore | None, BudgetPool | None], AbstractAsyncContextManager[WorkerContext]
]


class Worker:
    """Runs cases in its process with the local engine, many at once.

    It can be lost at any time: the coordinator has its replies and findings, the driver its cases.
    """

    def __init__(
        self, name: str, coordinator: Any, open_context: OpenContext, *, journaled: bool, limited: bool
    ) -> None:
        self._name, self._life, self._coordinator = name, uuid4().hex, coordinator
        self._shared = shared = RemoteCoordinator(coordinator, self._life)
        self._opened = open_context(shared if journaled else None, shared if limited else None)
        self._stack, self._opening = AsyncExitStack(), asyncio.Lock()
        self._context: WorkerContext | None = None
        self._running: set[asyncio.Task[CaseResult]] = set()

    async def ready(self) -> int:
        """Open the connections and return the id of this process."""
        await self._open()
        return os.getpid()

    async def run(self, job: Job) -> CaseResult:
        """Run a case."""
        task = asyncio.ensure_future(self._run(job))
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

    async def _run(self, job: Job) -> CaseResult:
        context = await self._open()
        left = None if job.deadline is None else max(0.0, job.deadline - time.time())
        run = context.engine(left).run([job.case], job.strategy, seed=job.seed)
        (outcome,) = [outcome async for outcome in run]
        unusable = context.unusable.copy()
        context.unusable.clear()
        rulings = [self._shared.report_payments(judged.ruling) for judged in outcome.judged]
        case, texts = None, None
        if outcome.prepared is not None:
            case, texts = outcome.prepared.case, PreparedTexts.of(outcome.prepared)
        return CaseResult(rulings, case, texts, outcome.failure, unusable)

    async def _open(self) -> WorkerContext:
        """The context, opened by the first call of each process: a replacement must register too."""
        async with self._opening:
            if self._context is None:
                await remote_result(self._coordinator.register.remote(self._name, self._life))
                self._context = await self._stack.enter_async_context(self._opened)
            return self._context
