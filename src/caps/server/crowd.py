"""How many requests are worked on at once, and how many may wait for that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from caps.models.http import Gate
from caps.server.refusals import Refusal
from caps.server.rules import Limits


class Crowd:
    """Lets requests in, first come first served; too many who wait, or too long, are sent away."""

    def __init__(self, limits: Limits) -> None:
        self._gate, self._most = Gate(limits.concurrent), limits.waiting
        self.waiting = 0

    @property
    def working(self) -> int:
        """Requests under way."""
        return self._gate.busy

    @asynccontextmanager
    async def turn(self, until: float) -> AsyncIterator[None]:
        """Wait for a turn, at most until a time of the loop's clock."""
        if self.working >= self._gate.limit and self.waiting >= self._most:
            raise Refusal(429, "too many requests wait already: try again later", code="too_busy", wait=1)
        self.waiting += 1
        try:
            async with asyncio.timeout_at(until):
                await self._gate.__aenter__()
        except TimeoutError:
            raise Refusal(503, "no turn came in time: try again later", code="too_busy", wait=5) from None
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            await self._gate.__aexit__(None, None, None)
