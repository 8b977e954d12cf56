"""The live engine: all contests at once in one event loop, under one limit on concurrent calls.

Rules that must not be broken:

* Work-conserving: while a call may start and any case has something to ask, a call starts.
* Later rounds go first, so that cases finish, until the last case was read; see `Scheduler`.
* Calls that share slot A go out together.
* Cases are read only as far as they are needed, and forgotten once their outcome is handed on.
* One failed case does not stop the others.
* No long text is processed in the event loop.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeAlias, TypeVar

import msgspec

from caps.core.errors import CapsError, InputError, NotRecordedError
from caps.core.play import Play, Strategy
from caps.core.types import Answer, Ask, Case, Entrant, Level, Round, Selection, Usage
from caps.costs.budget import Budget
from caps.costs.prices import Price
from caps.engines.base import CaseRun, Outcome, PerCase, prepare_case, strategy_for
from caps.engines.budget import BudgetLimits, BudgetPool, CaseBudget, RunBudget
from caps.engines.readability import ReplyCheck
from caps.engines.scheduler import Scheduler
from caps.judging.base import LOST, Attempt, Judge, PreparedCase, Ruling
from caps.judging.preparation import CasePreparation
from caps.workers.texts import TextWorkers

PAID_SECONDS = 10.0  # that calls on their way get to bring their replies in, if another fails for all
CACHED_FROM = 1024  # tokens of a shared beginning that hosted servers cache
FINDING_SHARE = 0.5  # of a case's time: the rest is left for the judge

T = TypeVar("T")


FindFacts: TypeAlias = Callable[[Case, float | None], Awaitable[Case]]
"""Returns a case with its findings, which are computed until a time of the event loop's clock."""


class LocalEngine:
    """Runs a stream of cases with one judge.

    `capacity` returns the current limit on concurrent calls. The total budget covers all runs of this engine,
    from the start of the first. `find` computes the findings of a case before its contest. `watch` is called
    with every ruling. `budget_pool` replaces the total budget if several engines share one. `texts` prepares
    long cases in worker processes. `warm_prefix` says of a case whether its first calls go ahead, so that the
    others find the beginning of their prompts in the server's cache. A case's time starts when it is
    admitted, and includes finding and preparing. Without `keep_going`, a run stops if most replies of the
    judge cannot be read (`engines.readability`).
    """

    def __init__(
        self,
        judge: Judge,
        prepare: CasePreparation,
        *,
        capacity: Callable[[], int],
        case_budget: BudgetLimits | None = None,
        total_budget: BudgetLimits | None = None,
        price: Price | None = None,
        grace: float = 0.0,
        find: FindFacts | None = None,
        budget_pool: BudgetPool | None = None,
        texts: TextWorkers | None = None,
        warm_prefix: Callable[[PreparedCase], bool] = lambda _: False,
        keep_going: bool = True,
    ) -> None:
        self._warm_prefix, self._keep_going = warm_prefix, keep_going
        self._judge, self._prepare, self._capacity = judge, prepare, capacity
        self._case_budget, self._total_budget = case_budget or BudgetLimits(), total_budget or BudgetLimits()
        self._price, self._grace, self._find = price, grace, find
        self._budget_pool, self._texts = budget_pool or RunBudget(self._total_budget, price), texts
        # If the total may run out, what it no longer covers should be whole cases; and the time of a case, if
        # it is limited, should be spent on that case.
        timed = self._case_budget.seconds is not None
        self._finish_first = timed or budget_pool is not None or self._total_budget != BudgetLimits()
        self._started: float | None = None
        self.watch: Callable[[Ruling], object] = lambda _: None

    async def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase, *, seed: int
    ) -> AsyncGenerator[Outcome, None]:
        """Run all cases and yield each outcome when it is known."""
        if self._started is None:
            self._started = asyncio.get_running_loop().time()
        start_case = partial(self._start_case, strategy, seed)

        def open_case(number: int, case: Case) -> CaseRun:
            return start_case(number, self.new_budget(), self._prepare(case))

        check = ReplyCheck(keep_going=self._keep_going)
        scheduler = Scheduler(
            iter(cases), open_case, self._judge, prepares=self._prepares, finish_first=self._finish_first,
            trial=not check.passed,
        )  # fmt: skip
        calling: set[asyncio.Task[None]] = set()
        preparing: set[asyncio.Task[None]] = set()
        failed: list[asyncio.Task[None]] = []
        changed, grace = asyncio.Event(), self._grace

        def end(group: set[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
            group.discard(task)
            if task.cancelled() or task.exception() is not None:
                failed.append(task)
            changed.set()

        def start(group: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
            task = asyncio.get_running_loop().create_task(work)
            group.add(task)
            task.add_done_callback(partial(end, group))

        try:
            while True:
                if failed or check.error is not None:
                    scheduler.close()
                    for outcome in scheduler.take_finished():
                        yield outcome
                    grace = max(grace, PAID_SECONDS)
                    raise check.error or _error_of(failed[0])
                if check.passed:
                    scheduler.end_trial()
                capacity = self._capacity()
                admitted = scheduler.admit(capacity)
                while (unprepared := scheduler.next_unprepared()) is not None:
                    start(preparing, self._open(scheduler, start_case, *unprepared))
                while len(calling) < capacity and (ready := scheduler.next_ask()) is not None:
                    start(calling, self._call(scheduler, ready, calling, changed, check))
                for outcome in scheduler.take_finished():
                    check.add_outcome(outcome)
                    yield outcome
                if admitted:
                    await asyncio.sleep(0)
                    continue
                if not calling and not preparing and not failed:
                    if scheduler.empty:
                        check.finish()
                        return
                    continue
                await changed.wait()
                changed.clear()
        finally:
            scheduler.close()
            await self._stop(calling, preparing, grace)

    def _start_case(
        self, strategy: Strategy | PerCase, seed: int, number: int, budget: CaseBudget, prepared: PreparedCase
    ) -> CaseRun:
        warm = self._warm_prefix(prepared)
        return CaseRun(number, prepared, strategy_for(number, strategy), seed, budget, warm_prefix=warm)

    async def _stop(
        self, calling: set[asyncio.Task[None]], preparing: set[asyncio.Task[None]], grace: float
    ) -> None:
        """End all tasks; calls get a grace period, because their replies are paid for and journaled."""
        for task in preparing:
            task.cancel()
        try:
            if calling and grace:
                await asyncio.wait(set(calling), timeout=grace)
        finally:  # a second interrupt ends the grace period; no call may outlive its connection
            for task in (*calling, *preparing):
                task.cancel()
            await asyncio.gather(*calling, *preparing, return_exceptions=True)

    async def _call(
        self,
        scheduler: Scheduler,
        ready: tuple[CaseRun, int] | None,
        calling: Sized,
        changed: asyncio.Event,
        check: ReplyCheck,
    ) -> None:
        """Make one call after the other while there is something to ask and capacity for it.

        An exception of the judge fails its case; a `CapsError`, which every other call would meet, is raised.
        """
        while ready is not None:
            case_run, index = ready
            ruling: Ruling | Exception
            try:
                ruling = await self._judge.rule(case_run.prepared, case_run.ask_at(index), case_run.budget)
            except CapsError:
                raise
            except Exception as error:
                ruling = error
            else:
                self.watch(ruling)
            scheduler.record_ruling(case_run, index, ruling)
            if case_run.outcome.judged:
                check.add_first_round(case_run.outcome)
            changed.set()
            may_go_on = check.error is None and len(calling) <= self._capacity()
            ready = scheduler.next_ask() if may_go_on else None

    def check_replies(self, outcome: Outcome) -> None:
        """Raise `UnreadableJudgeError` if most replies about a case that was asked about are unreadable."""
        check = ReplyCheck(keep_going=self._keep_going)
        check.add_outcome(outcome)
        check.finish()

    async def prepare_case(self, case: Case, budget: Budget) -> PreparedCase:
        """Compute the findings of a case, and prepare it."""
        return await prepare_case(
            await self._with_findings(case, budget), self._prepare, self._texts, budget.deadline
        )

    async def _with_findings(self, case: Case, budget: Budget) -> Case:
        """The case with its findings, which leave time for the judge."""
        if self._find is None:
            return case
        until, now = budget.deadline, asyncio.get_running_loop().time()
        if until is not None:
            until = now + FINDING_SHARE * max(0.0, until - now)
        return await self._find(case, until)

    async def ask(
        self, prepared: PreparedCase, round_: Round, budget: Budget, patience: float | None = None
    ) -> tuple[Outcome, tuple[Answer, ...]]:
        """Ask one round about a prepared case; its outcome has the rulings and what they cost.

        A question that takes longer than `patience` seconds is cancelled and asked once more.
        """
        case_run = CaseRun(0, prepared, OneRound(round_), 0, budget)
        ready = case_run.start_round(self._judge)
        while ready:
            asks = [round_.asks[index] for index in ready]
            rulings = await asyncio.gather(*(self._rule(prepared, ask, budget, patience) for ask in asks))
            for ruling in rulings:
                self.watch(ruling)
            ended = [case_run.record_ruling(*one) for one in zip(ready, rulings, strict=True)]
            ready = [] if any(ended) else case_run.next_asks()
        judged = case_run.outcome.judged
        return case_run.outcome, tuple(one.ruling.answer for one in judged)

    async def _rule(self, prepared: PreparedCase, ask: Ask, budget: Budget, patience: float | None) -> Ruling:
        """Ask the judge; what was cancelled for being late is in the ruling, with an estimate of its cost."""
        if patience is None:
            return await self._judge.rule(prepared, ask, budget)
        try:
            async with asyncio.timeout(patience):
                return await self._judge.rule(prepared, ask, budget)
        except TimeoutError:
            sizes = (prepared.evidence.entrants[one].sizes[ask.level] for one in ask.entrants)
            spent = Usage(prepared.statement + sum(sizes), 0, estimated=True)
        ruling = await self._judge.rule(prepared, ask, budget)
        late = Attempt("", spent, "", LOST, "late", patience, replayed=False, requests=1)
        return msgspec.structs.replace(ruling, attempts=(late, *ruling.attempts))

    def _prepares(self, case: Case) -> bool:
        """Whether a case needs findings, or is too long to be prepared in the event loop."""
        return self._find is not None or (self._texts is not None and self._prepare.is_long(case))

    async def _open(
        self,
        scheduler: Scheduler,
        start_case: Callable[[int, CaseBudget, PreparedCase], CaseRun],
        number: int,
        case: Case,
    ) -> None:
        """Compute the findings of a case and prepare it; if either fails, the case fails."""
        budget = self.new_budget()
        result: CaseRun | Exception
        try:
            with_findings = await self._with_findings(case, budget)
        except CapsError:
            raise
        except Exception as error:
            scheduler.add_prepared(number, case, error)
            return
        try:
            prepared = await prepare_case(with_findings, self._prepare, self._texts, budget.deadline)
            result = start_case(number, budget, prepared)
        except CapsError as error:
            result = error
        scheduler.add_prepared(number, case, result)

    def new_budget(self) -> CaseBudget:
        """The budget of a case that is admitted now."""
        if self._started is None:
            self._started = asyncio.get_running_loop().time()
        per_case, total = self._case_budget.seconds, self._total_budget.seconds
        ends = [] if total is None else [self._started + total]
        ends += [] if per_case is None else [asyncio.get_running_loop().time() + per_case]
        deadline = min(ends, default=None)
        return CaseBudget(self._case_budget, self._price, self._budget_pool, deadline=deadline)


@dataclass(frozen=True, slots=True)
class OneRound:
    """A strategy that asks one given round."""

    round: Round

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:  # noqa: ARG002
        """Ask the round; its ranking stands."""
        yield self.round
        return Selection(self.round.ranking[0], self.round.ranking)


def warms_prefix(prepared: PreparedCase, *, mode: str, price: Price | None, timed: bool) -> bool:
    """Whether the first calls of a case go ahead of the others that share the beginning of their prompts.

    The mode `auto` weighs the wave against the price: cached tokens are cheaper, there are enough of them
    that hosted servers cache them at all, and no time limit of the case is at stake (`timed`).
    """
    if mode != "auto":
        return mode == "on"
    if price is None or price.cached is None or price.cached >= price.input:
        return False
    sizes = [entrant.sizes[Level.FULL] for entrant in prepared.evidence.entrants]
    shared = prepared.statement + min(sizes, default=0)
    return shared >= CACHED_FROM and not timed


def _error_of(task: "asyncio.Task[None]") -> BaseException:
    """What ended a task that failed or was cancelled."""
    return asyncio.CancelledError() if task.cancelled() else task.exception() or asyncio.CancelledError()


def fast_forward(case_run: CaseRun, judge: Judge) -> list[int]:
    """Run a contest as far as records reach; indices of the asks still open, empty when it is over.

    Resume, replay and batch files are this function with a judge that answers from the journal.
    """
    while round_ := case_run.round:
        missing, ready = [], case_run.start_round(judge)
        while ready:
            index = ready.pop(0)
            try:
                ruling = _run_sync(judge.rule(case_run.prepared, round_.asks[index], case_run.budget))
            except NotRecordedError:
                missing.append(index)
                continue
            if case_run.record_ruling(index, ruling):
                break
            ready += case_run.next_asks()
        else:
            return missing
    return []


def _run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, without an event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        work.close()
    raise RuntimeError("a judge that answers from records waited for something")
