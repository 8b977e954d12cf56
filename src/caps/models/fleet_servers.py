"""The servers of a fleet: their queue, their load, and their health checks.

A server is up; or it rests at its own request, and gets no new calls while its running ones finish; or it is
out until a health check succeeds.
"""

import asyncio
from asyncio import CancelledError, Future, get_running_loop
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import aiohttp

from caps.core.errors import (
    AccessError,
    BusyError,
    ModelError,
    RefusedError,
    TooLongError,
    UnknownModelError,
    UnreachableError,
)
from caps.models.base import Notify
from caps.models.faults import Retries

if TYPE_CHECKING:
    from caps.models.http import HttpModel


DOWN = (UnreachableError, AccessError, UnknownModelError)
OUR_FAULT = (TooLongError, RefusedError)


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """When a failing server is taken out and how it returns; times in seconds.

    A server is out after `streak` failures in a row, or at once if it cannot be reached. It is checked after
    `first`, then after pauses that double up to `longest`; a check takes at most `check_timeout`. After its
    return it gets at most `trial` concurrent calls until one succeeds. A busy server rests for the time it
    requests, else from `rest` on, doubling up to `longest`; if it requests more than `max_retry_after`, it is
    out for that time.
    """

    streak: int = 3
    trial: int = 4
    first: float = 1.0
    longest: float = 60.0
    check_timeout: float = 5.0
    rest: float = 0.5
    max_retry_after: float = 120.0


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """Statistics of a server in a run; `problem` is why it is out, or last was."""

    address: str
    weight: float
    calls: int
    failed: int
    outs: int
    seconds_out: float
    out: bool
    problem: str


class FleetServer:
    """One server with its load and health; callers report events to it with the time."""

    def __init__(
        self, model: "HttpModel", weight: float, policy: HealthPolicy, *, allow_queueing: bool
    ) -> None:
        self.model, self.weight = model, weight
        self.load = 0
        self.known = False  # whether it ever answered
        self.error: ModelError | None = None
        self._policy, self._allow_queueing = policy, allow_queueing
        self._calls = self._failed = self._streak = self._outs = self._rests = self._checks = 0
        self._seconds_out = 0.0
        self._out_since: float | None = None
        self._rests_until = self._requested_wait = 0.0
        self._on_trial = False

    @property
    def out(self) -> bool:
        """Whether it gets no calls until a health check succeeds."""
        return self._out_since is not None

    @property
    def limit(self) -> int:
        """How many concurrent calls it may have; 0 while it is out."""
        if self.out:
            return 0
        most = self.model.connections
        return min(most, self._policy.trial) if self._on_trial else most

    @property
    def pause(self) -> float:
        """Seconds until the next health check."""
        backoff = min(self._policy.longest, self._policy.first * 2.0 ** min(self._checks, 60))
        return max(backoff, self._requested_wait)

    def is_available(self, now: float) -> bool:
        """Whether it accepts calls: it is neither out nor resting."""
        return not self.out and now >= self._rests_until

    def has_capacity(self, now: float) -> bool:
        """Whether it can start one more call now."""
        return self.is_available(now) and self.load < self.limit

    def can_queue(self, now: float) -> bool:
        """Whether one call may wait at its gate: an `AutoGate` raises its limit only if calls wait."""
        return (
            self._allow_queueing and not self._on_trial and self.is_available(now) and self.load == self.limit
        )

    def record_success(self) -> None:
        """Record a successful call."""
        self._calls += 1
        self._streak = self._rests = self._checks = 0
        self._on_trial = False
        self.known = True

    def record_failure(self, error: ModelError, now: float) -> float | None:
        """Record a failed call; returns the seconds it rests, if it does. It may be `out` after this."""
        if isinstance(error, OUR_FAULT):
            self.known = True
            return None
        self._failed += 1
        self.known = self.known or error.attempts > 0
        if self.out:
            return None  # an earlier failure took it out
        self.error = error
        if isinstance(error, BusyError):
            return self._rest(error.wait, now)
        self._streak += 1
        if isinstance(error, DOWN) or self._on_trial or self._streak >= self._policy.streak:
            self._take_out(now)
        return None

    def record_failed_check(self) -> None:
        """Record a failed health check."""
        self._checks += 1

    def readmit(self, now: float) -> float:
        """Put it on trial after a successful health check; returns the seconds it was out."""
        away = 0.0 if self._out_since is None else now - self._out_since
        self._seconds_out += away
        self._out_since = None
        self._streak, self._requested_wait, self._on_trial = 0, 0.0, True
        self._checks += 1  # the next pause is longer, unless a call succeeds
        return away

    def record(self, now: float) -> ServerRecord:
        """Statistics so far."""
        since = 0.0 if self._out_since is None else now - self._out_since
        problem = str(self.error) if self.error is not None and self._outs else ""
        return ServerRecord(
            self.model.address, self.weight, self._calls, self._failed, self._outs,
            self._seconds_out + since, self.out, problem,
        )  # fmt: skip

    def _rest(self, asked: float | None, now: float) -> float | None:
        if asked is not None and asked > self._policy.max_retry_after:
            self._requested_wait = asked
            self._take_out(now)
            return None
        fresh = now >= self._rests_until  # many calls rejected at once count as one
        self._rests += fresh
        backoff = min(self._policy.longest, self._policy.rest * 2.0 ** min(self._rests - 1, 60))
        until = now + (backoff if asked is None else asked)
        if not fresh and (asked is None or until <= self._rests_until):
            return None
        self._rests_until = until
        return until - now

    def _take_out(self, now: float) -> None:
        self._out_since = now
        self._outs += 1


# --- The queue of calls for servers ---
#
# Rules that must not be broken:
#
# * No call waits while an available server has a free slot: affinity never leaves a server idle. At a server
#   that finds its own limit, one call may wait at its gate, or the limit would never grow.
# * The home of a group is the server of its first call: its first choice, or one that had a free slot.
# * A free slot goes to a call that prefers the server, else to a group without a home, else to the oldest
#   call. The oldest call is overtaken at most `MAX_OVERTAKEN` times.
# * A server that failed a call does not get it again while another is available: failing fast would attract
#   more calls.
# * A slot is never lost, whichever call is cancelled at whatever time.

MAX_OVERTAKEN = 64
MAX_SCANNED = 128  # waiting calls searched for one that prefers a server
MAX_HOMES = 8192


class Ticket:
    """A waiting call: its servers in order of preference, group, servers that failed it, and assignment."""

    __slots__ = ("assigned", "failed", "group", "order", "overtaken")

    def __init__(
        self, order: Sequence[FleetServer], group: bytes | None, failed: Collection[FleetServer]
    ) -> None:
        self.order, self.group, self.failed = order, group, failed
        self.assigned: Future[FleetServer] = get_running_loop().create_future()
        self.overtaken = 0

    def choices(self, available: Collection[FleetServer]) -> list[FleetServer]:
        """The servers it may use, in order of preference."""
        usable = [server for server in self.order if server in available]
        return [server for server in usable if server not in self.failed] or usable if self.failed else usable


class ServerQueue:
    """Assigns calls to servers: `server = await queue.acquire(order, group)`; `queue.release(server)`."""

    def __init__(self, servers: Sequence[FleetServer], clock: Callable[[], float]) -> None:
        self._servers, self._clock = servers, clock
        self._waiting: dict[Ticket, None] = {}  # oldest first
        self._homes: dict[bytes, FleetServer] = {}  # least recently used first

    async def acquire(
        self,
        order: Sequence[FleetServer],
        group: bytes | None = None,
        *,
        failed: Collection[FleetServer] = (),
    ) -> FleetServer:
        """Wait for a slot: at the home of the group, else at the first in order with a free one."""
        ticket = Ticket(order, group, failed)
        self._waiting[ticket] = None
        self.dispatch()
        try:
            return await ticket.assigned
        except CancelledError:
            if (
                ticket.assigned.done()
                and not ticket.assigned.cancelled()
                and ticket.assigned.exception() is None
            ):
                self.release(
                    ticket.assigned.result()
                )  # assigned and cancelled at the same time: pass the slot on
            raise
        finally:
            self._waiting.pop(ticket, None)

    def release(self, server: FleetServer) -> None:
        """Return a slot."""
        server.load -= 1
        self.dispatch()

    def dispatch(self) -> None:
        """Assign every waiting call that can start now."""
        now = self._clock()
        while self._waiting:
            match = self._match(now)
            if match is None:
                return
            ticket, server = match
            del self._waiting[ticket]
            if not ticket.assigned.done():  # a cancelled one is skipped
                server.load += 1
                self._set_home(ticket, server)
                ticket.assigned.set_result(server)

    def reject_all(self, make_error: Callable[[], Exception]) -> None:
        """Fail all waiting calls."""
        while self._waiting:
            ticket, _ = self._waiting.popitem()
            if not ticket.assigned.done():
                ticket.assigned.set_exception(make_error())

    def _match(self, now: float) -> tuple[Ticket, FleetServer] | None:
        """The next call to start, and its server."""
        available = {server for server in self._servers if server.is_available(now)}
        free = {server for server in available if server.has_capacity(now)}
        ready = free | {server for server in available if server.can_queue(now)}
        if not ready:
            return None
        head, newcomer, other = next(iter(self._waiting)), None, None
        for ticket in islice(self._waiting, MAX_SCANNED if head.overtaken < MAX_OVERTAKEN else 1):
            choices = ticket.choices(available)
            home = self._homes.get(ticket.group) if ticket.group is not None else None
            preferred = home if home in choices else choices[0]
            if preferred in ready:
                head.overtaken += ticket is not head
                return ticket, preferred
            spare = next((server for server in choices if server in free), None)
            if spare is not None:
                other = other or (ticket, spare)
                newcomer = newcomer or ((ticket, spare) if home is None else None)
        chosen = newcomer or other
        if chosen is not None:
            head.overtaken += chosen[0] is not head
        return chosen

    def _set_home(self, ticket: Ticket, server: FleetServer) -> None:
        """Make the server the home of a group that has none."""
        if ticket.group is None or ticket.failed:
            return
        self._homes[ticket.group] = self._homes.pop(ticket.group, server)
        if len(self._homes) > MAX_HOMES:
            del self._homes[next(iter(self._homes))]


# --- Health checks ---

TICK = 0.002  # seconds: a timer may fire a little early, when the server still rests
NO_MODEL_LIST = (404, 405)


class HealthMonitor:
    """Takes failing servers out, checks them and readmits them; `exhausted` when all were out for too long.

    A check requests the model list, which costs nothing, and never makes a paid call.
    """

    def __init__(
        self,
        servers: Sequence[FleetServer],
        queue: ServerQueue,
        *,
        policy: HealthPolicy,
        retries: Retries,
        notify: Notify,
        clock: Callable[[], float],
    ) -> None:
        self._servers, self._queue, self._policy, self._retries = servers, queue, policy, retries
        self._notify, self._clock = notify, clock
        self._checks: set[asyncio.Task[None]] = set()
        self._give_up_timer: asyncio.TimerHandle | None = None
        self.exhausted = False

    def record_failure(self, server: FleetServer, error: ModelError) -> None:
        """Record a failed call and take the server out if needed."""
        was_out = server.out
        rest = server.record_failure(error, self._clock())
        loop = asyncio.get_running_loop()
        if rest is not None:
            loop.call_later(rest + TICK, self._queue.dispatch)
        if server.out and not was_out:
            self._notify(f"a server is out, its calls go to the others: {error}")
            task = loop.create_task(self._check_until_healthy(server))
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)
            if all(one.out for one in self._servers):
                self._give_up_timer = loop.call_later(self._give_up_after(), self._give_up)

    def bound(self, number: int) -> float:
        """The longest wait after attempt `number`, counted from 0."""
        return min(self._retries.longest, self._retries.first * 2.0 ** min(number, 60))

    def unavailable_error(self, attempts: int = 0) -> ModelError:
        """The error that says why no server is available, of the common type if there is one."""
        errors = [server.error for server in self._servers if server.error is not None]
        kinds = {type(error) for error in errors}
        kind = kinds.pop() if len(kinds) == 1 else UnreachableError
        reasons = "; ".join(dict.fromkeys(str(error) for error in errors))
        return kind(f"none of the {len(self._servers)} servers is available: {reasons}", attempts=attempts)

    async def close(self) -> None:
        """Stop all checks; servers that were out get another chance if the fleet is used again."""
        checks, self._checks = self._checks, set()
        for task in checks:
            task.cancel()
        await asyncio.gather(*checks, return_exceptions=True)
        self._resume()
        for server in self._servers:
            if server.out:
                server.readmit(self._clock())

    async def _check_until_healthy(self, server: FleetServer) -> None:
        """Check a server repeatedly, then readmit it."""
        while True:
            await asyncio.sleep(server.pause)
            if await self._is_healthy(server):
                break
            server.record_failed_check()
        away = server.readmit(self._clock())
        self._notify(f"{server.model.address} is back after {away:.0f} s")
        self._resume()
        self._queue.dispatch()

    async def _is_healthy(self, server: FleetServer) -> bool:
        """Whether a server lists its models, or answers that it has no such list."""
        try:
            async with asyncio.timeout(self._policy.check_timeout):
                status, _ = await server.model.listing()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return False
        return status == 200 or status in NO_MODEL_LIST

    def _give_up_after(self) -> float:
        """Seconds to wait while all are out: the retries at one server, fewer if none ever answered."""
        retries, known = self._retries, any(server.known for server in self._servers)
        return sum(map(self.bound, range(retries.most if known else min(retries.most, retries.most_unknown))))

    def _give_up(self) -> None:
        self.exhausted = True
        self._queue.reject_all(self.unavailable_error)

    def _resume(self) -> None:
        self.exhausted = False
        if self._give_up_timer is not None:
            self._give_up_timer.cancel()
            self._give_up_timer = None
