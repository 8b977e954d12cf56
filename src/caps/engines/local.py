"""The live engine: all contests at once under one limit on calls, in one event loop.

Rules that must not be broken:

* Work-conserving: while a call may start and any case has something to ask, a call starts.
* Later rounds go first, so cases finish instead of piling up; calls that share slot A go out together.
* Cases are read only as far as they are needed, and forgotten once they are over and handed on.
* One failed case does not stop the others.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeAlias

from caps.core.errors import InputError
from caps.core.play import Strategy
from caps.core.types import Case
from caps.costs.prices import Price
from caps.engines.base import Outcome, PerCase, Play, Prepare
from caps.engines.budget import Budget, CasePurse, Pot, Total
from caps.engines.hall import Hall, result_of
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
        flying: dict[asyncio.Task[Ruling], tuple[Play, int]] = {}
        looking: dict[asyncio.Task[Case], tuple[int, Case]] = {}
        landed: deque[asyncio.Task[Ruling]] = deque()
        looked: deque[asyncio.Task[Case]] = deque()
        news, start = asyncio.Event(), asyncio.get_running_loop().create_task

        def land(among: deque[Any], task: "asyncio.Task[Any]") -> None:
            if not task.cancelled():
                task.exception()  # taken note of: a run that ends for another's says nothing of this one
            among.append(task)
            news.set()

        land_call, land_look = partial(land, landed), partial(land, looked)

        try:
            while True:
                while landed:
                    call = landed.popleft()
                    self._hear(hall, *flying.pop(call), call)
                while looked:
                    look = looked.popleft()
                    hall.looked_into(*looking.pop(look), look)
                room = self._capacity()
                admitted = hall.admit(room)
                while self._find is not None and (arrived := hall.next_arrival()) is not None:
                    look = start(self._find(arrived[1]))
                    looking[look] = arrived
                    look.add_done_callback(land_look)
                while len(flying) < room and (ready := hall.next_ask()) is not None:
                    call = start(self._rule(*ready))
                    flying[call] = ready
                    call.add_done_callback(land_call)
                for outcome in hall.leave():
                    yield outcome
                if admitted:
                    await asyncio.sleep(0)
                    continue
                if not flying and not looking:
                    if hall.empty:
                        return
                    continue
                await news.wait()
                news.clear()
        finally:
            if flying and self._grace:
                await asyncio.wait(set(flying), timeout=self._grace)  # what comes in now is paid and kept
            for left in (*flying, *looking):
                left.cancel()
            await asyncio.gather(*flying, *looking, return_exceptions=True)

    def _hear(self, hall: Hall, play: Play, place: int, task: "asyncio.Task[Ruling]") -> None:
        ruling = result_of(task)
        if isinstance(ruling, Ruling):
            self.watch(ruling)
        hall.tell(play, place, ruling)

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

    def _rule(self, play: Play, place: int) -> Coroutine[Any, Any, Ruling]:
        round_ = play.round
        assert round_ is not None  # noqa: S101
        return self._judge.rule(play.bout, round_.asks[place], play.purse)
