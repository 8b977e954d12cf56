"""How much clients may ask for.

How many requests are worked on at once, and how many may wait for that.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from caps.core.settings import check_settings, setting
from caps.models.http import Gate
from caps.server.errors import ApiError

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Ceilings; a request beyond one is refused, except that time which ends brings the answer so far."""

    max_samples: int = setting(32, "samples of a request, or candidates of a case", least=1)
    max_body: int = setting(16 * MIB, "bytes of a body", least=1)
    max_held: int = setting(512 * MIB, "bytes of all bodies held at once", least=1)
    max_concurrent: int = setting(256, "requests worked on at once", least=1)
    max_waiting: int = setting(1024, "requests that may wait for their turn", least=0)
    max_seconds: float = setting(600.0, "of a request, its wait included", least=0.1)
    body_seconds: float = setting(30.0, "seconds in which a request must be sent", least=0.1)
    max_judge_tokens: int = setting(0, "a judge may read and write for a request; 0 is no limit", least=0)

    def __post_init__(self) -> None:
        check_settings(self)


class Admission:
    """Lets requests in, first come first served; too many who wait, or too long, are sent away."""

    def __init__(self, limits: Limits) -> None:
        self._gate, self._most = Gate(limits.max_concurrent), limits.max_waiting
        self.waiting = 0

    @property
    def working(self) -> int:
        """Requests under way."""
        return self._gate.busy

    @asynccontextmanager
    async def admit(self, until: float) -> AsyncIterator[None]:
        """Wait for a turn, at most until a time of the loop's clock."""
        if self.working >= self._gate.limit and self.waiting >= self._most:
            raise ApiError(
                429, "too many requests wait already: try again later", code="too_busy", retry_after=1
            )
        self.waiting += 1
        try:
            async with asyncio.timeout_at(until):
                await self._gate.__aenter__()
        except TimeoutError:
            raise ApiError(
                503, "no turn came in time: try again later", code="too_busy", retry_after=5
            ) from None
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            await self._gate.__aexit__(None, None, None)
