"""The live engine: all contests at once under one limit on calls, in one event loop.

Rules that must not be broken:

* Work-conserving: while a call may start and any case has something to ask, a call starts.
* Later rounds go first, so cases finish instead of piling up; calls that share slot A go out together.
* Cases are read only as far as they are needed, and forgotten once they are over and handed on.
* One failed case does not stop the others.
* No text, however long, is read in the event loop.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sized
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from caps.core.errors import CapsError, InputError, NotRecordedError
from caps.core.play import Strategy
from caps.core.types import Case
from caps.costs.prices import Price
from caps.engines.base import CaseRun, Outcome, PerCase, Prepare, is_long, prepare_case
from caps.engines.budget import BudgetLimits, BudgetPool, CaseBudget, RunBudget
from caps.engines.scheduler import Scheduler
from caps.judging.base import Judge, PreparedCase, Ruling
from caps.text_workers import TextWorkers

FINDING_SHARE = 0.5  # of a case's time: what is left belongs to the judge


class FindFacts(Protocol):
    """Whatever looks into a case before its contest, until a time of the loop's clock."""

    def __call__(self, case: Case, until: float | None, /) -> Coroutine[Any, Any, Case]:
        """The case with what was found."""
        ...


class LocalEngine:
    """Plays a stream of cases with one judge.

    `capacity` tells how many calls may be under way now; it is asked again after every call. The total budget
    holds for all its runs together, from the start of the first.
    `find` looks into a case before its contest and returns it with what it found. `watch` hears every ruling
    as it comes in. `pot` is what a run pays from where it is one of several with a budget in common.
    Long cases are prepared by `texts`, in other processes, if there are any. The time of a case begins when
    it is admitted, and covers what is found and prepared.
    """

    def __init__(
        self,
        judge: Judge,
        prepare: Prepare,
        *,
        capacity: Callable[[], int],
        case_budget: BudgetLimits | None = None,
        total_budget: BudgetLimits | None = None,
        price: Price | None = None,
        grace: float = 0.0,
        find: FindFacts | None = None,
        budget_pool: BudgetPool | None = None,
        texts: TextWorkers | None = None,
    ) -> None:
        self._judge, self._prepare, self._capacity = judge, prepare, capacity
        self._case_budget, self._total_budget = case_budget or BudgetLimits(), total_budget or BudgetLimits()
        self._price, self._grace, self._find = price, grace, find
        self._total, self._texts = budget_pool or RunBudget(self._total_budget, price), texts
        self._started: float | None = None
        self.watch: Callable[[Ruling], object] = lambda _: None

    async def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase, *, seed: int
    ) -> AsyncGenerator[Outcome, None]:
        """Play all cases and yield what became of each as it is known."""
        opening = self._opening(strategy, seed)
        scheduler = Scheduler(iter(cases), opening.open, self._judge, looks=self._looks)
        flying: set[asyncio.Task[None]] = set()
        looking: set[asyncio.Task[None]] = set()
        failed: list[asyncio.Task[None]] = []
        news = asyncio.Event()

        def land(among: set[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
            among.discard(task)
            if task.cancelled() or task.exception() is not None:
                failed.append(task)
            news.set()

        def start(among: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
            task = asyncio.get_running_loop().create_task(work)
            among.add(task)
            task.add_done_callback(partial(land, among))

        try:
            while True:
                if failed:
                    failed[0].result()  # raises
                room = self._capacity()
                admitted = scheduler.admit(room)
                while (arrived := scheduler.next_arrival()) is not None:
                    start(looking, self._look(scheduler, opening, *arrived))
                while len(flying) < room and (ready := scheduler.next_ask()) is not None:
                    start(flying, self._fly(scheduler, ready, flying, news))
                for outcome in scheduler.leave():
                    yield outcome
                if admitted:
                    await asyncio.sleep(0)
                    continue
                if not flying and not looking and not failed:
                    if scheduler.empty:
                        return
                    continue
                await news.wait()
                news.clear()
        finally:
            scheduler.shut()
            await self._end(flying, looking)

    async def _end(self, flying: set[asyncio.Task[None]], looking: set[asyncio.Task[None]]) -> None:
        """End what is under way; calls have some time, because what comes in now is paid and kept."""
        for one in looking:
            one.cancel()
        try:
            if flying and self._grace:
                await asyncio.wait(set(flying), timeout=self._grace)
        finally:  # a second interrupt ends the grace; a call that went on would outlive its connection
            for one in (*flying, *looking):
                one.cancel()
            await asyncio.gather(*flying, *looking, return_exceptions=True)

    async def _fly(
        self, scheduler: Scheduler, ready: tuple[CaseRun, int] | None, flying: Sized, news: asyncio.Event
    ) -> None:
        """Make one call after the other while there is something to ask and room for it.

        A judge that breaks fails its case; what would break every other call too is raised.
        """
        while ready is not None:
            play, place = ready
            ruling: Ruling | Exception
            try:
                ruling = await self._judge.rule(play.prepared, play.ask_at(place), play.budget)
            except CapsError:
                raise
            except Exception as error:
                ruling = error
            else:
                self.watch(ruling)
            scheduler.tell(play, place, ruling)
            news.set()
            ready = scheduler.next_ask() if len(flying) <= self._capacity() else None

    def _looks(self, case: Case) -> bool:
        """Whether a case has to be looked into, or is too long to be prepared in the event loop."""
        return self._find is not None or is_long(case, self._prepare, self._texts)

    async def _look(self, scheduler: Scheduler, opening: "_Opening", number: int, case: Case) -> None:
        """Look into a case and prepare it; one of which either cannot be done fails."""
        budget = opening.budget()
        ready: CaseRun | Exception
        try:
            found = case if self._find is None else await self._find(case, _part_of(budget.deadline))
        except CapsError:
            raise
        except Exception as error:
            scheduler.looked_into(number, case, error)
            return
        try:
            prepared = await prepare_case(found, self._prepare, self._texts, budget.deadline)
            ready = opening.play(number, prepared, budget)
        except CapsError as error:
            ready = error
        scheduler.looked_into(number, case, ready)

    def _opening(self, strategy: Strategy | PerCase, seed: int) -> "_Opening":
        """How the cases of a run enter; its time begins with the first run."""
        clock = asyncio.get_running_loop().time
        if self._started is None:
            self._started = clock()

        def budget() -> CaseBudget:
            own, whole = self._case_budget.seconds, self._total_budget.seconds
            ends = [] if whole is None or self._started is None else [self._started + whole]
            ends += [] if own is None else [clock() + own]
            return CaseBudget(self._case_budget, self._price, self._total, deadline=min(ends, default=None))

        return _Opening(budget, self._prepare, strategy, seed)


@dataclass(frozen=True, slots=True)
class _Opening:
    """How a case enters: prepared, and with a purse of its own."""

    budget: Callable[[], CaseBudget]
    prepare: Prepare
    strategy: Strategy | PerCase
    seed: int

    def open(self, number: int, case: Case) -> CaseRun:
        """Open a case here and now."""
        budget = self.budget()
        return self.play(number, self.prepare(case), budget)

    def play(self, number: int, prepared: PreparedCase, budget: CaseBudget) -> CaseRun:
        """Open a case that was prepared."""
        own = self.strategy
        chosen = own.strategies[number] if isinstance(own, PerCase) else own
        return CaseRun(number, prepared, chosen, self.seed, budget)


def _part_of(deadline: float | None) -> float | None:
    """When whoever looks into a case has to be done, so that a judge can still be asked."""
    if deadline is None:
        return None
    now = asyncio.get_running_loop().time()
    return now + FINDING_SHARE * max(0.0, deadline - now)


# Fast-forward: play a contest as far as what is recorded reaches, and say what is open.
#
# Resume, replay and batch files are this one function over a judge that answers from the journal.


T = TypeVar("T")


def fast_forward(play: CaseRun, judge: Judge) -> list[int]:
    """Play on with what is recorded; the places of the pending round that are open, none when it is over."""
    while round_ := play.round:
        open_places, ready = [], play.begin(judge)
        while ready:
            place = ready.pop(0)
            try:
                ruling = _at_once(judge.rule(play.prepared, round_.asks[place], play.budget))
            except NotRecordedError:
                open_places.append(place)
                continue
            if play.tell(place, ruling):
                break
            ready += play.follow()
        else:
            return open_places
    return []


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run what never waits without an event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        work.close()
    raise RuntimeError("a judge that answers from records waited for something")
