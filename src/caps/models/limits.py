"""How many calls are under way at once: a fixed number, or as many as the server bears.

Rules that must not be broken:

* Whoever came first goes first, and a slot is never lost, whoever is cancelled when.
* Entering and leaving take constant time.
"""

from asyncio import CancelledError, Future, get_running_loop
from collections import deque
from types import TracebackType
from typing import Literal

from caps.core.errors import SettingError


class Gate:
    """Lets at most `limit` calls through: `async with gate as ticket`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.busy = 0
        self._tickets = 0
        self._waiting: deque[Future[None]] = deque()
        self._full = False  # whether anyone had to wait

    async def __aenter__(self) -> int:
        if self.busy < self.limit:  # then nobody waits: whoever could go was let go
            self.busy += 1
        else:
            await self._wait()
        self._tickets += 1
        return self._tickets

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.busy -= 1
        if self._waiting:
            self._let_in()

    def served(self, ticket: int, seconds: float) -> None:
        """Say that a call went well, and how long it took."""

    def strained(self, ticket: int) -> None:
        """Say that a call met a server under strain: too many requests, or no answer in time."""

    async def _wait(self) -> None:
        self._full = True
        turn = get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except CancelledError:
            if turn.done() and not turn.cancelled():
                self.busy -= 1  # let in and cancelled in the same moment: pass the slot on
                self._let_in()
            raise

    def _let_in(self) -> None:
        while self._waiting and self.busy < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():  # a cancelled one is skipped
                self.busy += 1
                turn.set_result(None)


class AutoGate(Gate):
    """Finds the limit by itself: doubles from `start` until the server shows strain, then grows by steps.

    The limit is halved at a sign of strain (once for all calls under way then), and when latency passes twice
    that of the best window, at a higher limit than then, without more calls per second for it. After such
    a cut the best is measured anew: the calls themselves may have become longer.
    """

    STEP = 2
    LEAST_WINDOW = 8
    SLOWER = 2.0
    GAIN = 1.1
    ALIKE = 1.1

    def __init__(self, *, start: int = 4, most: int = 256) -> None:
        super().__init__(start)
        self._most = most
        self._doubling = True
        self._last_cut = 0  # the last ticket given out before the limit was cut
        self._best: tuple[float, int] | None = None  # least latency, highest limit that had it
        self._open_window()

    def served(self, ticket: int, seconds: float) -> None:
        """Count a call of this window; a full window decides about the limit."""
        seconds = max(seconds, 1e-9)
        if ticket <= self._window_start:
            return
        self._count += 1
        self._seconds += seconds
        if self._count >= max(self.LEAST_WINDOW, self.limit):
            self._close_window(self._seconds / self._count)

    def strained(self, ticket: int) -> None:
        """Halve the limit, unless this call began before the last cut."""
        if ticket > self._last_cut:
            self._cut()

    def _open_window(self) -> None:
        self._window_start = self._tickets
        self._count = 0
        self._seconds = 0.0
        self._full = bool(self._waiting)

    def _close_window(self, latency: float) -> None:
        best, at = self._best or (latency, self.limit)
        if latency > self.SLOWER * best and self.limit > at and self.limit / latency < self.GAIN * at / best:
            self._best = None
            self._cut()
            return
        if latency <= self.ALIKE * best:
            self._best = (min(best, latency), self.limit)
        if self._full:
            grown = self.limit * 2 if self._doubling else self.limit + self.STEP
            self.limit = min(self._most, grown)
        self._open_window()
        self._let_in()

    def _cut(self) -> None:
        self.limit = max(1, self.limit // 2)
        self._doubling = False
        self._last_cut = self._tickets
        self._open_window()


def make_gate(connections: int | Literal["auto"]) -> Gate:
    """The gate a setting stands for."""
    if connections == "auto":
        return AutoGate()
    if isinstance(connections, bool) or not isinstance(connections, int) or connections < 1:
        raise SettingError(f"connections = {connections!r}: must be a whole number of at least 1, or 'auto'")
    return Gate(connections)
