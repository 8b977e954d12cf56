"""The live engine: all contests at once under one limit on calls, in one event loop.

Rules that must not be broken:

* Work-conserving: while a call may start and any case has something to ask, a call starts.
* Later rounds go first, so cases finish instead of piling up; calls that share slot A go out together.
* Cases are read only as far as they are needed, and forgotten once they are handed on, in the order of input.
* One failed case does not stop the others.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from functools import partial
from heapq import heappop, heappush
from typing import Any

from caps.core.errors import CapsError, InputError
from caps.core.play import Strategy
from caps.core.types import Case
from caps.costs.prices import Price
from caps.engines.base import Outcome, Play, Prepare
from caps.engines.budget import Budget, CasePurse, Total
from caps.judges.base import Judge, Ruling

MOST_WAITING = 4096

_Entry = tuple[int, int, int, int, Play]
_Landed = tuple[Play, int, "asyncio.Task[Ruling]"]


class LocalEngine:
    """Plays a stream of cases with one judge.

    `capacity` tells how many calls may be under way now; it is asked again after every call.
    `watch` hears every ruling as it comes in.
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
    ) -> None:
        self._judge, self._prepare, self._capacity = judge, prepare, capacity
        self._case_budget, self._total_budget = case_budget or Budget(), total_budget or Budget()
        self._price, self._grace = price, grace
        self.watch: Callable[[Ruling], object] = lambda _: None

    async def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy, *, seed: int
    ) -> AsyncIterator[Outcome]:
        """Play all cases and yield what became of each, in the order of input."""
        hall = _Hall(iter(cases), self._opener(strategy, seed), self._judge)
        flying: set[asyncio.Task[Ruling]] = set()
        landed: deque[_Landed] = deque()
        news = asyncio.Event()

        def land(play: Play, place: int, task: "asyncio.Task[Ruling]") -> None:
            flying.discard(task)
            if not task.cancelled():
                task.exception()  # taken note of: a run that ends for another's says nothing of this one
            landed.append((play, place, task))
            news.set()

        try:
            while True:
                while landed:
                    play, place, task = landed.popleft()
                    ruling = _ruling_of(task)
                    if isinstance(ruling, Ruling):
                        self.watch(ruling)
                    hall.tell(play, place, ruling)
                room = self._capacity()
                hall.admit(room)
                while len(flying) < room and (ready := hall.next_ask()) is not None:
                    play, place = ready
                    task = asyncio.ensure_future(self._rule(play, place))
                    flying.add(task)
                    task.add_done_callback(partial(land, play, place))
                for outcome in hall.leave():
                    yield outcome
                if not flying and not landed:
                    if hall.empty:
                        return
                    continue
                await news.wait()
                news.clear()
        finally:
            if flying and self._grace:
                await asyncio.wait(set(flying), timeout=self._grace)  # what comes in now is paid and kept
            for task in flying:
                task.cancel()
            await asyncio.gather(*flying, return_exceptions=True)

    def _opener(self, strategy: Strategy, seed: int) -> "Callable[[int, Case], Play]":
        """How a case enters: made ready, with a purse of its own."""
        total = Total(self._total_budget, self._price)
        clock = asyncio.get_running_loop().time
        start, own, whole = clock(), self._case_budget.seconds, self._total_budget.seconds

        def enter(number: int, case: Case) -> Play:
            ends = [] if whole is None else [start + whole]
            ends += [] if own is None else [clock() + own]
            purse = CasePurse(self._case_budget, self._price, total, deadline=min(ends, default=None))
            return Play(number, self._prepare(case), strategy, seed, purse)

        return enter

    def _rule(self, play: Play, place: int) -> Coroutine[Any, Any, Ruling]:
        round_ = play.round
        assert round_ is not None  # noqa: S101
        return self._judge.rule(play.bout, round_.asks[place], play.purse)


def _ruling_of(task: "asyncio.Task[Ruling]") -> Ruling | Exception:
    """What a judge said, or how it broke; what would break every other call too is raised."""
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, CapsError) or not isinstance(error, Exception):
        raise error
    return error


class _Hall:
    """Everyone who is inside: cases with something to ask, cases that wait, cases that are done."""

    def __init__(
        self, source: Iterator[Case | InputError], opened: Callable[[int, Case], Play], judge: Judge
    ) -> None:
        self._source: Iterator[Case | InputError] | None = source
        self._opened, self._judge = opened, judge
        self._ready: list[_Entry] = []
        self._done: dict[int, Outcome] = {}
        self._entered = 0
        self._left = 0

    @property
    def empty(self) -> bool:
        """Whether everyone has come and gone."""
        return self._source is None and self._left == self._entered

    def admit(self, wanted: int) -> None:
        """Let cases in until there are `wanted` asks to choose from."""
        while self._source is not None and len(self._ready) < wanted:
            if self._entered - self._left >= MOST_WAITING:
                return
            case = self._read()
            if case is not None:
                self._enter(self._entered, case)
                self._entered += 1

    def next_ask(self) -> tuple[Play, int] | None:
        """The ask to send next."""
        while self._ready:
            *_, place, play = heappop(self._ready)
            if play.outcome.failure is None:
                return play, place
        return None

    def tell(self, play: Play, place: int, ruling: Ruling | Exception) -> None:
        """Pass a ruling on, and queue what the contest asks next; a judge that broke fails the case."""
        if play.outcome.failure is not None:
            return
        if isinstance(ruling, Exception):
            play.outcome.failure = f"{type(ruling).__name__}: {ruling}"
            self._done[play.outcome.number] = play.outcome
        elif play.tell(place, ruling):
            self._queue(play)
        else:
            self._push(play, play.follow())

    def leave(self) -> Iterator[Outcome]:
        """Those who are done, as far as everyone before them is."""
        while self._left in self._done:
            self._left += 1
            yield self._done.pop(self._left - 1)

    def _read(self) -> Case | InputError | None:
        """The next case; a source that breaks off ends with the reason as its last."""
        if self._source is None:
            return None
        try:
            case = next(self._source, None)
        except InputError as error:
            case, self._source = error, None
        if case is None:
            self._source = None
        return case

    def _enter(self, number: int, case: Case | InputError) -> None:
        if isinstance(case, InputError):
            self._done[number] = Outcome(number, "", failure=str(case))
            return
        try:
            self._queue(self._opened(number, case))
        except CapsError as error:
            self._done[number] = Outcome(number, case.id, failure=str(error))

    def _queue(self, play: Play) -> None:
        round_ = play.round
        if round_ is None:
            self._done[play.outcome.number] = play.outcome
            return
        self._push(play, play.begin(self._judge))

    def _push(self, play: Play, places: list[int]) -> None:
        round_ = play.round
        for place in places if round_ is not None else []:
            first = round_.asks[place].entrants[0]  # type: ignore[union-attr]
            # Unique up to the place, so that the heap never compares two plays.
            heappush(self._ready, (-play.depth, play.outcome.number, first, place, play))
