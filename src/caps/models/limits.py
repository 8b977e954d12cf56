"""Limits of calls to a server: how many run at once, and for how long."""

import logging
from asyncio import (
    AbstractEventLoop,
    CancelledError,
    Future,
    Task,
    TimerHandle,
    current_task,
    get_running_loop,
)
from collections import deque
from types import TracebackType
from typing import Any, Literal, NamedTuple

from caps.core.errors import SettingError

_log = logging.getLogger(__name__)


class SharedTimeout:
    """Raises `TimeoutError` in a task that is inside for longer than `seconds`: `with timeout:`.

    All calls of a model have the same timeout, so one timer serves them all; a timer per call, as in aiohttp,
    is a twentieth of the work of a bare call. A task may be inside once at a time. Other cancellations of the
    task still take effect.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # The deadline of each task and its cancellation count on entry; in order of entry, hence of deadline.
        self._inside: dict[Task[Any], tuple[float, int]] = {}
        self._overdue: set[Task[Any]] = set()
        self._loop: AbstractEventLoop | None = None
        self._timer: TimerHandle | None = None

    def __enter__(self) -> None:
        loop, task = get_running_loop(), current_task()
        assert task is not None  # noqa: S101
        deadline = loop.time() + self._seconds
        self._inside[task] = deadline, task.cancelling()
        if self._timer is None or self._loop is not loop:
            self._loop, self._timer = loop, loop.call_at(deadline, self._expire)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = current_task()
        assert task is not None  # noqa: S101
        _, cancelling = self._inside.pop(task)
        if task in self._overdue:
            self._overdue.remove(task)
            if task.uncancel() <= cancelling and kind is CancelledError:
                raise TimeoutError from error

    def _expire(self) -> None:
        """Cancel overdue tasks, and set the timer for the next deadline."""
        self._timer, loop = None, get_running_loop()
        now = loop.time()
        for task, (deadline, _) in self._inside.items():
            if deadline > now:
                self._timer = loop.call_at(deadline, self._expire)
                return
            if task not in self._overdue:
                self._overdue.add(task)
                task.cancel()


class Ticket(NamedTuple):
    """A call that was admitted: its number in order of admission, and how many were under way with it."""

    number: int
    busy: int


class Gate:
    """A concurrency limit in order of arrival: `async with gate as ticket`.

    A slot is never lost, whichever call is cancelled and when. Entering and leaving take constant time.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.busy = 0
        self._tickets = 0
        self._waiting: deque[Future[Ticket]] = deque()
        self._full = False  # whether a call had to wait

    async def __aenter__(self) -> Ticket:
        if self.busy < self.limit:  # then no call is waiting
            return self._issue()
        return await self._wait()

    async def __aexit__(self, *_: object) -> None:
        self.busy -= 1
        if self._waiting:
            self._admit()

    def expect(self, calls: int) -> None:
        """Announce calls that are about to start together."""

    def on_success(self, ticket: Ticket, seconds: float) -> None:
        """Report a successful call and its duration."""

    def on_overload(self, ticket: Ticket, times: int = 1) -> None:
        """Report that a call met an overloaded server: too many requests, or no reply in time.

        `times`: how often in a row this call did.
        """

    def _issue(self) -> Ticket:
        self.busy += 1
        self._tickets += 1
        return Ticket(self._tickets, self.busy)

    async def _wait(self) -> Ticket:
        self._full = True
        admitted: Future[Ticket] = get_running_loop().create_future()
        self._waiting.append(admitted)
        try:
            return await admitted
        except CancelledError:
            if admitted.done() and not admitted.cancelled():
                self.busy -= 1  # admitted and cancelled at the same time: pass the slot on
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self.busy < self.limit:
            admitted = self._waiting.popleft()
            if not admitted.done():  # a cancelled one is skipped
                admitted.set_result(self._issue())


class AutoGate(Gate):
    """An adaptive limit: doubles from `start` until the server is overloaded, then grows by an eighth.

    Calls are counted in windows of about as many as the limit admits; each window may change it:

    * The server is overloaded if it refuses `OVERLOAD` of the calls of a window. Every server fails now and
      then, so fewer failures say nothing about the load. A call that is refused `PERSISTENT` times in a row
      says so too: chance rarely hits a call so often. The limit is cut by the share of refused calls, at most
      to the half. It stays at `FLOOR` or above, unless a call that is refused again and again shows that the
      server takes even fewer.
    * Latency above twice that of the best window (most throughput for its latency) cuts the limit below the
      load of that window, if throughput rose by less than a tenth of the load. The best window is then
      measured again: the calls themselves may have become longer.
    * Otherwise the limit grows if calls wait.

    Calls that are announced raise the limit to their number, as long as the server was never overloaded: it
    may be new, and would get them in small waves otherwise.
    """

    MIN_WINDOW = 4
    OVERLOAD = 0.15
    MIN_OVERLOADS = 4
    FLOOR = 4
    PERSISTENT = 3
    MIN_STEP = 2
    STEP = 0.125
    SLOWER = 2.0
    GAIN = 0.1

    def __init__(self, *, start: int = 4, most: int = 256, address: str = "") -> None:
        super().__init__(start)
        self._most = most
        self._address = address
        self._doubling = True
        self._last_cut = 0  # the last ticket issued before the limit was cut
        self._best: tuple[float, float] | None = None  # latency and load of the best window
        self._open_window()

    def expect(self, calls: int) -> None:
        """Raise the limit to the number of calls that start together, unless it was ever cut."""
        if self._doubling and calls > self.limit:
            self._set_limit(min(self._most, calls), "calls that start together")
            self._admit()

    def on_success(self, ticket: Ticket, seconds: float) -> None:
        """Count a call that began in this window, with its duration and how many were under way then."""
        if ticket.number > self._window_start:
            self._successes += 1
            self._seconds += max(seconds, 1e-9)
            self._load += ticket.busy
            self._close_full_window()

    def on_overload(self, ticket: Ticket, times: int = 1) -> None:
        """Count an overload, unless the call began before the last cut."""
        if ticket.number > self._last_cut:
            self._overloads += 1
            if times >= self.PERSISTENT:
                self._persistent = True
            self._close_full_window()

    def _open_window(self) -> None:
        self._window_start = self._tickets
        self._successes = self._overloads = self._load = 0
        self._seconds = 0.0
        self._persistent = False
        self._full = bool(self._waiting)

    def _close_full_window(self) -> None:
        """Adjust the limit if enough calls of this window are over."""
        outcomes = self._successes + self._overloads
        if outcomes < max(self.MIN_WINDOW, self.limit):
            return
        # Refusals come at once and replies later: their share is that of the calls that began.
        started = max(outcomes, self._tickets - self._window_start)
        if self._persistent or self._overloads >= max(self.MIN_OVERLOADS, self.OVERLOAD * started):
            floor = 1 if self._persistent else self.FLOOR
            accepted = max(0.5, min(0.9, 1 - self._overloads / started))
            self._cut(max(floor, int(accepted * self.limit)), "the server is overloaded")
        elif self._is_slower():
            self._best = None
        elif self._full:
            step = self.limit if self._doubling else max(self.MIN_STEP, int(self.STEP * self.limit))
            self._set_limit(min(self._most, self.limit + step), "calls wait and the server keeps up")
        self._open_window()
        self._admit()

    def _is_slower(self) -> bool:
        """Whether calls of this window took longer without more throughput; if so, the limit is cut."""
        if not self._successes:
            return False
        latency, load = self._seconds / self._successes, self._load / self._successes
        best_latency, best_load = self._best or (latency, load)
        throughput, best_throughput = load / latency, best_load / best_latency
        expected = best_throughput * (1 + self.GAIN * load / best_load)
        if latency > self.SLOWER * best_latency and throughput < expected:
            # Below the load of the best window: measured at the same load again, it would creep upwards.
            self._cut(max(1, int(0.75 * best_load)), "replies take longer")
            return True
        if self._best is None or throughput / latency > best_throughput / best_latency:
            self._best = (latency, load)
        return False

    def _cut(self, limit: int, reason: str) -> None:
        if limit < self.limit:
            self._set_limit(limit, reason)
            self._doubling = False
            self._last_cut = self._tickets

    def _set_limit(self, limit: int, reason: str) -> None:
        if limit != self.limit:
            _log.info("concurrent calls to %s: %d, before %d: %s", self._address, limit, self.limit, reason)
            self.limit = limit


def make_gate(connections: int | Literal["auto"], address: str = "") -> Gate:
    """The gate for the setting `connections`; the address is for the log."""
    if connections == "auto":
        return AutoGate(address=address)
    if isinstance(connections, bool) or not isinstance(connections, int) or connections < 1:
        raise SettingError(f"connections = {connections!r}: must be a whole number of at least 1, or 'auto'")
    return Gate(connections)
