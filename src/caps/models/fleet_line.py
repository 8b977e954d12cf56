"""Who goes to which server, and who waits.

Rules that must not be broken:

* Nobody waits while a server that is awake has room: affinity never costs idleness. One call may wait at
  the gate of its favourite, if that finds its own limit, once nobody has room.
* A slot that becomes free goes to whoever prefers that server, else to who came first; nobody is passed by
  more than `MOST_PASSED` times while there was room.
* A slot is never lost, whoever is cancelled when.
"""

from asyncio import CancelledError, Future, get_running_loop
from collections.abc import Callable, Sequence
from itertools import islice

from caps.models.fleet_server import Server

MOST_PASSED = 64
MOST_SEEN = 64  # of those who wait, when one is looked for who prefers a server


class Turn:
    """Someone who waits: the servers in their order of preference, and the one it gets."""

    __slots__ = ("got", "order", "passed")

    def __init__(self, order: Sequence[Server]) -> None:
        self.order = order
        self.got: Future[Server] = get_running_loop().create_future()
        self.passed = 0

    def favourite(self, now: float) -> Server | None:
        """The first choice among those that are awake."""
        return next((server for server in self.order if server.awake(now)), None)


class Line:
    """Hands out servers: `server = await line.enter(order)`, and in the end `line.leave(server)`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: dict[Turn, None] = {}  # in the order they came

    async def enter(self, order: Sequence[Server]) -> Server:
        """The first in order that has room, or whichever this call gets in the end."""
        turn = Turn(order)
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
                turn.got.set_result(server)

    def dismiss(self, why: Callable[[], Exception]) -> None:
        """Send everyone who waits away."""
        while self._waiting:
            turn, _ = self._waiting.popitem()
            if not turn.got.done():
                turn.got.set_exception(why())

    def _match(self, now: float) -> tuple[Turn, Server] | None:
        head = next(iter(self._waiting))
        room = next((server for server in head.order if server.open(now)), None)
        for turn in islice(self._waiting, MOST_SEEN if head.passed < MOST_PASSED else 1):
            favourite = turn.favourite(now)
            if favourite is not None and (favourite.open(now) or (room is None and favourite.lines_up(now))):
                head.passed += turn is not head
                return turn, favourite
        return None if room is None else (head, room)
