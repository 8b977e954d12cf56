"""The live engine: all contests at once under one limit on calls, in one event loop.

Rules that must not be broken:

* Work-conserving: while a call may start and any case has something to ask, a call starts.
* Later rounds go first, so cases finish instead of piling up; calls that share slot A go out together.
* Cases are read only as far as they are needed, and forgotten once they are over and handed on.
* One failed case does not stop the others.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sized
from functools import partial
from typing import Any, TypeAlias

from caps.core.errors import CapsError, InputError
from caps.core.play import Strategy
from caps.core.types import Case
from caps.costs.prices import Price
from caps.engines.base import Outcome, PerCase, Play, Prepare
from caps.engines.budget import Budget, CasePurse, Pot, Total
from caps.engines.hall import Hall
from caps.judges.base import Judge, Ruling

Find: TypeAlias = Callable[[Case], Coroutine[Any, Any, Case]]


class LocalEngine:
    """Plays a stream of cases with one judge.

    `capacity` tells how many calls may be under way now; it is asked again after every call. The total budget
    holds for all its runs together, from the start of the first.
    `find` looks into a case before its contest and returns it with what it found. `watch` hears every ruling
    as it comes in. `pot` is what a run pays from where it is one of several with a budget in common.
    """

    def __init__(
        self,
        judge: Judge,
        prepare: Prepare,
        *,
        capacity: Callable[[], int],
        case_budget: Budget | None = None,
        total_budget: Budget | None = None,
        price: Price | None = None,
        grace: float = 0.0,
        find: Find | None = None,
        pot: Pot | None = None,
    ) -> None:
        self._judge, self._prepare, self._capacity = judge, prepare, capacity
        self._case_budget, self._total_budget = case_budget or Budget(), total_budget or Budget()
        self._price, self._grace, self._find = price, grace, find
        self._total = pot or Total(self._total_budget, price)
        self._started: float | None = None
        self.watch: Callable[[Ruling], object] = lambda _: None

    async def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase, *, seed: int
    ) -> AsyncGenerator[Outcome, None]:
        """Play all cases and yield what became of each as it is known."""
        hall = Hall(iter(cases), self._opener(strategy, seed), self._judge, looks=self._find is not None)
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
                admitted = hall.admit(room)
                while self._find is not None and (arrived := hall.next_arrival()) is not None:
                    start(looking, self._look(hall, *arrived))
                while len(flying) < room and (ready := hall.next_ask()) is not None:
                    start(flying, self._fly(hall, ready, flying, news))
                for outcome in hall.leave():
                    yield outcome
                if admitted:
                    await asyncio.sleep(0)
                    continue
                if not flying and not looking and not failed:
                    if hall.empty:
                        return
                    continue
                await news.wait()
                news.clear()
        finally:
            hall.shut()
            if flying and self._grace:
                await asyncio.wait(set(flying), timeout=self._grace)  # what comes in now is paid and kept
            for left in (*flying, *looking):
                left.cancel()
            await asyncio.gather(*flying, *looking, return_exceptions=True)

    async def _fly(
        self, hall: Hall, ready: tuple[Play, int] | None, flying: Sized, news: asyncio.Event
    ) -> None:
        """Make one call after the other while there is something to ask and room for it.

        A judge that breaks fails its case; what would break every other call too is raised.
        """
        while ready is not None:
            play, place = ready
            ruling: Ruling | Exception
            try:
                ruling = await self._judge.rule(play.bout, play.ask_at(place), play.purse)
            except CapsError:
                raise
            except Exception as error:
                ruling = error
            else:
                self.watch(ruling)
            hall.tell(play, place, ruling)
            news.set()
            ready = hall.next_ask() if len(flying) <= self._capacity() else None

    async def _look(self, hall: Hall, number: int, case: Case) -> None:
        """Look into a case; one that cannot be looked into fails."""
        assert self._find is not None  # noqa: S101
        found: Case | Exception
        try:
            found = await self._find(case)
        except CapsError:
            raise
        except Exception as error:
            found = error
        hall.looked_into(number, case, found)

    def _opener(self, strategy: Strategy | PerCase, seed: int) -> "Callable[[int, Case], Play]":
        """How a case enters: made ready, with a purse of its own."""
        clock = asyncio.get_running_loop().time
        if self._started is None:
            self._started = clock()
        start, own, whole = self._started, self._case_budget.seconds, self._total_budget.seconds

        def enter(number: int, case: Case) -> Play:
            ends = [] if whole is None else [start + whole]
            ends += [] if own is None else [clock() + own]
            purse = CasePurse(self._case_budget, self._price, self._total, deadline=min(ends, default=None))
            chosen = strategy.strategies[number] if isinstance(strategy, PerCase) else strategy
            return Play(number, self._prepare(case), chosen, seed, purse)

        return enter
