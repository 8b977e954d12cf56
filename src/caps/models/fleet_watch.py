"""An eye on the servers of a fleet: who fails is taken out, looked at now and then, and taken back."""

import asyncio
from collections.abc import Callable, Sequence

import aiohttp

from caps.core.errors import ModelError, UnreachableError
from caps.models.base import Tell
from caps.models.fleet_line import Line
from caps.models.fleet_server import Care, Server
from caps.models.retries import Retries

TICK = 0.002  # a timer may fire a little early, and then nobody would be awake
LISTS_NONE = (404, 405)


class Watch:
    """Draws the consequences of failures; `hopeless` once nobody has been up for as long as we wait.

    What is out is looked at by its list of models, which costs nothing, never by a paid call.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        line: Line,
        *,
        care: Care,
        retries: Retries,
        tell: Tell,
        clock: Callable[[], float],
    ) -> None:
        self._servers, self._line, self._care, self._retries = servers, line, care, retries
        self._tell, self._clock = tell, clock
        self._looking: set[asyncio.Task[None]] = set()
        self._end_of_hope: asyncio.TimerHandle | None = None
        self.hopeless = False

    def hear(self, server: Server, error: ModelError) -> None:
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

    async def _look_after(self, server: Server) -> None:
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

    async def _well(self, server: Server) -> bool:
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
