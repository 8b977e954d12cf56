"""The servers of a fleet: their queue, their load, and their health checks.

It is up; or it rests, because it asked for it, and is given nothing while what it has goes on; or it is out,
until a look at it goes well.
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
from caps.models.base import Tell
from caps.models.faults import Retries

if TYPE_CHECKING:
    from caps.models.http import HttpModel


GONE = (UnreachableError, AccessError, UnknownModelError)
OUR_FAULT = (TooLongError, RefusedError)


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """How a server that fails is treated.

    So many failures in a row (`streak`) take it out; one that cannot be reached is out at once. It is looked
    at after `first` seconds, then after pauses that double up to `longest`, each look of at most `look`
    seconds; once back it has at most `trial` calls until one went well. A busy one rests as long as it asks,
    or from `rest` seconds on, doubling up to `longest`; who asks for more than `obey` seconds is out so long.
    """

    streak: int = 3
    trial: int = 4
    first: float = 1.0
    longest: float = 60.0
    look: float = 5.0
    rest: float = 0.5
    obey: float = 120.0


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """What became of a server in a run; `problem` is why it is out, or was last."""

    address: str
    weight: float
    calls: int
    failed: int
    outs: int
    seconds_out: float
    out: bool
    problem: str


class FleetServer:
    """A model at its address with its load and health; it is told what happens, and when."""

    def __init__(self, model: "HttpModel", weight: float, care: HealthPolicy, *, lines_up: bool) -> None:
        self.model, self.weight = model, weight
        self.load = 0
        self.known = False  # whether it ever answered
        self.error: ModelError | None = None
        self._care, self._lines_up = care, lines_up
        self._calls = self._failed = self._streak = self._outs = self._rests = self._looks = 0
        self._seconds_out = 0.0
        self._out_since: float | None = None
        self._rests_until = self._asked = 0.0
        self._on_trial = False

    @property
    def out(self) -> bool:
        """Whether it is given nothing until a look at it goes well."""
        return self._out_since is not None

    @property
    def limit(self) -> int:
        """How many calls it may have now; none while it is out."""
        if self.out:
            return 0
        most = self.model.connections
        return min(most, self._care.trial) if self._on_trial else most

    @property
    def pause(self) -> float:
        """Seconds until the next look at it."""
        own = min(self._care.longest, self._care.first * 2.0 ** min(self._looks, 60))
        return max(own, self._asked)

    def awake(self, now: float) -> bool:
        """Whether it takes calls at all."""
        return not self.out and now >= self._rests_until

    def open(self, now: float) -> bool:
        """Whether it can begin with one more call at once."""
        return self.awake(now) and self.load < self.limit

    def lines_up(self, now: float) -> bool:
        """Whether one call may wait at its gate: a gate that finds its own limit grows only if some wait."""
        return self._lines_up and not self._on_trial and self.awake(now) and self.load == self.limit

    def served(self) -> None:
        """A call went well."""
        self._calls += 1
        self._streak = self._rests = self._looks = 0
        self._on_trial = False
        self.known = True

    def failed(self, error: ModelError, now: float) -> float | None:
        """A call failed: seconds it rests now, if it does; it may be `out` after this."""
        if isinstance(error, OUR_FAULT):
            self.known = True
            return None
        self._failed += 1
        self.known = self.known or error.attempts > 0
        if self.out:
            return None  # others told so before
        self.error = error
        if isinstance(error, BusyError):
            return self._rest(error.wait, now)
        self._streak += 1
        if isinstance(error, GONE) or self._on_trial or self._streak >= self._care.streak:
            self._leave(now)
        return None

    def missed(self) -> None:
        """A look at it went wrong."""
        self._looks += 1

    def returned(self, now: float) -> float:
        """A look at it went well: it is up, on trial; the seconds it was out."""
        away = 0.0 if self._out_since is None else now - self._out_since
        self._seconds_out += away
        self._out_since = None
        self._streak, self._asked, self._on_trial = 0, 0.0, True
        self._looks += 1  # the next pause is longer, unless a call goes well
        return away

    def record(self, now: float) -> ServerRecord:
        """What became of it so far."""
        since = 0.0 if self._out_since is None else now - self._out_since
        problem = str(self.error) if self.error is not None and self._outs else ""
        return ServerRecord(
            self.model.address, self.weight, self._calls, self._failed, self._outs,
            self._seconds_out + since, self.out, problem,
        )  # fmt: skip

    def _rest(self, asked: float | None, now: float) -> float | None:
        if asked is not None and asked > self._care.obey:
            self._asked = asked
            self._leave(now)
            return None
        fresh = now >= self._rests_until  # of many that were sent away at once, one speaks for all
        self._rests += fresh
        own = min(self._care.longest, self._care.rest * 2.0 ** min(self._rests - 1, 60))
        until = now + (own if asked is None else asked)
        if not fresh and (asked is None or until <= self._rests_until):
            return None
        self._rests_until = until
        return until - now

    def _leave(self, now: float) -> None:
        self._out_since = now
        self._outs += 1


# Who goes to which server, and who waits.
#
# Rules that must not be broken:
#
# * No request waits while an available server has room: affinity never costs idleness. Only where a server
#   finds its own limit may one call wait at its gate, or that would never learn that it could bear more.
# * A group is at home where its first call went: at its own first choice, or where there was room then.
# * A slot that becomes free goes to who prefers that server, else to a group without a home, else to who came
#   first; nobody is passed by more than `MOST_PASSED` times while there was room.
# * Who failed a call does not get it again while another is awake: failing fast would attract ever more.
# * A slot is never lost, whoever is cancelled when.


MOST_PASSED = 64
MOST_SEEN = 128  # of those who wait, when one is looked for who prefers a server
MOST_HOMES = 8192


class Ticket:
    """Someone who waits: the order of its choices, its group, who failed it already, and what it gets."""

    __slots__ = ("failed", "got", "group", "order", "passed")

    def __init__(
        self, order: Sequence[FleetServer], group: bytes | None, failed: Collection[FleetServer]
    ) -> None:
        self.order, self.group, self.failed = order, group, failed
        self.got: Future[FleetServer] = get_running_loop().create_future()
        self.passed = 0

    def choices(self, awake: Collection[FleetServer]) -> list[FleetServer]:
        """Whom it may go to, in order."""
        able = [server for server in self.order if server in awake]
        return [server for server in able if server not in self.failed] or able if self.failed else able


class ServerQueue:
    """Hands out servers: `server = await line.enter(order, group)`, and in the end `line.leave(server)`."""

    def __init__(self, servers: Sequence[FleetServer], clock: Callable[[], float]) -> None:
        self._servers, self._clock = servers, clock
        self._waiting: dict[Ticket, None] = {}  # in the order they came
        self._homes: dict[bytes, FleetServer] = {}  # in the order they were last seen

    async def enter(
        self,
        order: Sequence[FleetServer],
        group: bytes | None = None,
        *,
        failed: Collection[FleetServer] = (),
    ) -> FleetServer:
        """The home of the group or the first in order that has room, or whichever this call gets then."""
        turn = Ticket(order, group, failed)
        self._waiting[turn] = None
        self.stir()
        try:
            return await turn.got
        except CancelledError:
            if turn.got.done() and not turn.got.cancelled() and turn.got.exception() is None:
                self.leave(turn.got.result())  # let in and cancelled in the same moment: pass it on
            raise
        finally:
            self._waiting.pop(turn, None)

    def leave(self, server: FleetServer) -> None:
        """Give a slot back."""
        server.load -= 1
        self.stir()

    def stir(self) -> None:
        """Let in whoever can go now."""
        now = self._clock()
        while self._waiting:
            match = self._match(now)
            if match is None:
                return
            turn, server = match
            del self._waiting[turn]
            if not turn.got.done():  # a cancelled one is skipped
                server.load += 1
                self._settle(turn, server)
                turn.got.set_result(server)

    def dismiss(self, why: Callable[[], Exception]) -> None:
        """Send everyone who waits away."""
        while self._waiting:
            turn, _ = self._waiting.popitem()
            if not turn.got.done():
                turn.got.set_exception(why())

    def _match(self, now: float) -> tuple[Ticket, FleetServer] | None:
        """Who goes next, and where."""
        awake = {server for server in self._servers if server.awake(now)}
        free = {server for server in awake if server.open(now)}
        ready = free | {server for server in awake if server.lines_up(now)}
        if not ready:
            return None
        head, newcomer, other = next(iter(self._waiting)), None, None
        for turn in islice(self._waiting, MOST_SEEN if head.passed < MOST_PASSED else 1):
            choices = turn.choices(awake)
            home = self._homes.get(turn.group) if turn.group is not None else None
            wanted = home if home in choices else choices[0]
            if wanted in ready:
                head.passed += turn is not head
                return turn, wanted
            room = next((server for server in choices if server in free), None)
            if room is not None:
                other = other or (turn, room)
                newcomer = newcomer or ((turn, room) if home is None else None)
        chosen = newcomer or other
        if chosen is not None:
            head.passed += chosen[0] is not head
        return chosen

    def _settle(self, turn: Ticket, server: FleetServer) -> None:
        """A group that has no home yet has one now."""
        if turn.group is None or turn.failed:
            return
        self._homes[turn.group] = self._homes.pop(turn.group, server)
        if len(self._homes) > MOST_HOMES:
            del self._homes[next(iter(self._homes))]


# An eye on the servers of a fleet: who fails is taken out, looked at now and then, and taken back.


TICK = 0.002  # a timer may fire a little early, and then nobody would be awake
LISTS_NONE = (404, 405)


class HealthMonitor:
    """Draws the consequences of failures; `hopeless` once nobody has been up for as long as we wait.

    What is out is looked at by its list of models, which costs nothing, never by a paid call.
    """

    def __init__(
        self,
        servers: Sequence[FleetServer],
        line: ServerQueue,
        *,
        care: HealthPolicy,
        retries: Retries,
        tell: Tell,
        clock: Callable[[], float],
    ) -> None:
        self._servers, self._line, self._care, self._retries = servers, line, care, retries
        self._tell, self._clock = tell, clock
        self._looking: set[asyncio.Task[None]] = set()
        self._end_of_hope: asyncio.TimerHandle | None = None
        self.hopeless = False

    def hear(self, server: FleetServer, error: ModelError) -> None:
        """A call failed."""
        was_out = server.out
        rest = server.failed(error, self._clock())
        loop = asyncio.get_running_loop()
        if rest is not None:
            loop.call_later(rest + TICK, self._line.stir)
        if server.out and not was_out:
            self._tell(f"a server is out, its calls go to the others: {error}")
            task = loop.create_task(self._look_after(server))
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)
            if all(one.out for one in self._servers):
                self._end_of_hope = loop.call_later(self._patience(), self._give_up)

    def bound(self, number: int) -> float:
        """The longest wait after the tries of this number, from 0."""
        return min(self._retries.longest, self._retries.first * 2.0 ** min(number, 60))

    def nobody(self, attempts: int = 0) -> ModelError:
        """Why nobody can be asked: the fault they share, if it is one, and what each said."""
        errors = [server.error for server in self._servers if server.error is not None]
        kinds = {type(error) for error in errors}
        kind = kinds.pop() if len(kinds) == 1 else UnreachableError
        said = "; ".join(dict.fromkeys(str(error) for error in errors))
        return kind(f"none of the {len(self._servers)} servers can be asked: {said}", attempts=attempts)

    async def close(self) -> None:
        """Look no more; who was out is given another chance, should there be a next time."""
        looking, self._looking = self._looking, set()
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
        self._hope()
        for server in self._servers:
            if server.out:
                server.returned(self._clock())

    async def _look_after(self, server: FleetServer) -> None:
        """Look at a server again and again until it is well."""
        while True:
            await asyncio.sleep(server.pause)
            if await self._well(server):
                break
            server.missed()
        away = server.returned(self._clock())
        self._tell(f"{server.model.address} is back after {away:.0f} s")
        self._hope()
        self._line.stir()

    async def _well(self, server: FleetServer) -> bool:
        """Whether a server lists its models, or at least answers like one that cannot."""
        try:
            async with asyncio.timeout(self._care.look):
                status, _ = await server.model.listing()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return False
        return status == 200 or status in LISTS_NONE

    def _patience(self) -> float:
        """Seconds to wait without any server: as long as the tries at one would take, less at strangers."""
        retries, known = self._retries, any(server.known for server in self._servers)
        return sum(map(self.bound, range(retries.most if known else min(retries.most, retries.strangers))))

    def _give_up(self) -> None:
        self.hopeless = True
        self._line.dismiss(self.nobody)

    def _hope(self) -> None:
        self.hopeless = False
        if self._end_of_hope is not None:
            self._end_of_hope.cancel()
            self._end_of_hope = None
