"""Who goes to which server, and who waits.

Rules that must not be broken:

* Nobody waits here while a server that is awake has room: affinity never costs idleness. Only where a server
  finds its own limit may one call wait at its gate, or that would never learn that it could bear more.
* A group is at home where its first call went: at its own first choice, or where there was room then.
* A slot that becomes free goes to who prefers that server, else to a group without a home, else to who came
  first; nobody is passed by more than `MOST_PASSED` times while there was room.
* Who failed a call does not get it again while another is awake: failing fast would attract ever more.
* A slot is never lost, whoever is cancelled when.
"""

from asyncio import CancelledError, Future, get_running_loop
from collections.abc import Callable, Collection, Sequence
from itertools import islice

from caps.models.fleet_server import Server

MOST_PASSED = 64
MOST_SEEN = 128  # of those who wait, when one is looked for who prefers a server
MOST_HOMES = 8192


class Turn:
    """Someone who waits: the order of its choices, its group, who failed it already, and what it gets."""

    __slots__ = ("failed", "got", "group", "order", "passed")

    def __init__(self, order: Sequence[Server], group: bytes | None, failed: Collection[Server]) -> None:
        self.order, self.group, self.failed = order, group, failed
        self.got: Future[Server] = get_running_loop().create_future()
        self.passed = 0

    def choices(self, awake: Collection[Server]) -> list[Server]:
        """Whom it may go to, in order."""
        able = [server for server in self.order if server in awake]
        return [server for server in able if server not in self.failed] or able if self.failed else able


class Line:
    """Hands out servers: `server = await line.enter(order, group)`, and in the end `line.leave(server)`."""

    def __init__(self, servers: Sequence[Server], clock: Callable[[], float]) -> None:
        self._servers, self._clock = servers, clock
        self._waiting: dict[Turn, None] = {}  # in the order they came
        self._homes: dict[bytes, Server] = {}  # in the order they were last seen

    async def enter(
        self, order: Sequence[Server], group: bytes | None = None, *, failed: Collection[Server] = ()
    ) -> Server:
        """The home of the group or the first in order that has room, or whichever this call gets then."""
        turn = Turn(order, group, failed)
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
                self._settle(turn, server)
                turn.got.set_result(server)

    def dismiss(self, why: Callable[[], Exception]) -> None:
        """Send everyone who waits away."""
        while self._waiting:
            turn, _ = self._waiting.popitem()
            if not turn.got.done():
                turn.got.set_exception(why())

    def _match(self, now: float) -> tuple[Turn, Server] | None:
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

    def _settle(self, turn: Turn, server: Server) -> None:
        """A group that has no home yet has one now."""
        if turn.group is None or turn.failed:
            return
        self._homes[turn.group] = self._homes.pop(turn.group, server)
        if len(self._homes) > MOST_HOMES:
            del self._homes[next(iter(self._homes))]
