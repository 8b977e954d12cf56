"""Who goes to which server, and who waits.

Rules that must not be broken:

* Nobody waits here while a server that is awake has room: affinity never costs idleness. Only where a server
  finds its own limit may one call wait at its gate, or that would never learn that it could bear more.
* A group is at home where its first call went: at its own first choice, or where there was room then.
* A slot that becomes free goes to who prefers that server, else to a group without a home, else to who came
  first; nobody is passed by more than `MOST_PASSED` times while there was room.
* A slot is never lost, whoever is cancelled when.
"""

from asyncio import CancelledError, Future, get_running_loop
from collections.abc import Callable, Sequence
from itertools import islice

from caps.models.fleet_server import Server

MOST_PASSED = 64
MOST_SEEN = 256  # of those who wait, when one is looked for who prefers a server
MOST_HOMES = 8192


class Turn:
    """Someone who waits: its group, unless it goes by the order of servers alone, and what it gets."""

    __slots__ = ("got", "group", "order", "passed")

    def __init__(self, order: Sequence[Server], group: bytes | None) -> None:
        self.order, self.group = order, group
        self.got: Future[Server] = get_running_loop().create_future()
        self.passed = 0


class Line:
    """Hands out servers: `server = await line.enter(order, group)`, and in the end `line.leave(server)`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: dict[Turn, None] = {}  # in the order they came
        self._homes: dict[bytes, Server] = {}  # in the order they were last seen

    async def enter(self, order: Sequence[Server], group: bytes | None = None) -> Server:
        """The home of the group or the first in order that has room, or whichever this call gets then."""
        turn = Turn(order, group)
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

    def leave(self, server: Server) -> None:
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
                self._settle(turn.group, server)
                turn.got.set_result(server)

    def dismiss(self, why: Callable[[], Exception]) -> None:
        """Send everyone who waits away."""
        while self._waiting:
            turn, _ = self._waiting.popitem()
            if not turn.got.done():
                turn.got.set_exception(why())

    def _match(self, now: float) -> tuple[Turn, Server] | None:
        """Who goes next, and where."""
        head = next(iter(self._waiting))
        room = next((server for server in head.order if server.open(now)), None)
        if room is None and not any(server.lines_up(now) for server in head.order):
            return None
        newcomer = None
        for turn in islice(self._waiting, MOST_SEEN if head.passed < MOST_PASSED else 1):
            wanted = self._favourite(turn, now)
            if wanted is not None and (wanted.open(now) or wanted.lines_up(now)):
                head.passed += turn is not head
                return turn, wanted
            if newcomer is None and turn.group not in self._homes:
                newcomer = turn
        if room is None:
            return None
        chosen = newcomer or head
        head.passed += chosen is not head
        return chosen, next(server for server in chosen.order if server.open(now))

    def _favourite(self, turn: Turn, now: float) -> Server | None:
        """The home of its group if that is awake, else the first choice among those that are."""
        home = None if turn.group is None else self._homes.get(turn.group)
        if home is not None and home.awake(now):
            return home
        return next((server for server in turn.order if server.awake(now)), None)

    def _settle(self, group: bytes | None, server: Server) -> None:
        if group is None:
            return
        self._homes[group] = self._homes.pop(group, server)
        if len(self._homes) > MOST_HOMES:
            del self._homes[next(iter(self._homes))]
