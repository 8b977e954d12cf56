"""Admission of requests: the limits clients are held to, and the queue of requests that wait to run."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from caps.core.settings import check_settings, setting
from caps.models.limits import Gate
from caps.server.errors import ApiError

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of requests; each is an option of `caps serve`.

    At the time limit a request gets the best answer so far; at any other, an error.
    """

    max_samples: int = setting(32, "maximum number of samples per request, or candidates per case", least=1)
    max_body: int = setting(16 * MIB, "maximum size of a request in bytes", least=1, unit="BYTES")
    max_held: int = setting(
        512 * MIB, "maximum size of all requests in memory, in bytes", least=1, unit="BYTES"
    )
    max_concurrent: int = setting(256, "maximum number of requests that run at the same time", least=1)
    max_waiting: int = setting(1024, "maximum number of requests that wait to run", least=0)
    max_seconds: float = setting(
        600.0, "maximum seconds per request, including its wait", least=0.1, unit="SECONDS"
    )
    body_seconds: float = setting(
        30.0, "maximum seconds for a client to send a request", least=0.1, unit="SECONDS"
    )
    max_judge_tokens: int = setting(
        0, "maximum judge tokens per request, input and output; 0 means no limit", least=0, unit="TOKENS"
    )
    heartbeat: float = setting(10.0, "seconds between the heartbeats of a stream", least=0.01, unit="SECONDS")
    grace: float = setting(
        60.0, "seconds in which requests may finish after SIGTERM", least=1, unit="SECONDS"
    )
    keep_last: int = setting(1000, "with --keep: maximum number of runs; the oldest are deleted", least=1)
    recent: int = setting(
        0,
        "remember the last N requests with their answers, in memory, and show them on the page at /, to "
        "every client with a key; 0 remembers none",
        least=0,
        most=1000,
    )

    def __post_init__(self) -> None:
        check_settings(self)


class Admission:
    """Runs a limited number of requests at a time, in order of arrival, and rejects the rest."""

    def __init__(self, limits: Limits) -> None:
        self._gate, self._max_waiting = Gate(limits.max_concurrent), limits.max_waiting
        self.waiting = 0
        self.on_wait: Callable[[float], object] = float  # receives the seconds that a request waited

    @property
    def working(self) -> int:
        """Requests that run now."""
        return self._gate.busy

    @asynccontextmanager
    async def admit(self, deadline: float) -> AsyncIterator[None]:
        """Wait to run, at most until `deadline` by the event loop's clock; hold the place in the context."""
        if self.working >= self._gate.limit and self.waiting >= self._max_waiting:
            raise ApiError(
                429, "too many requests are waiting: try again later", code="too_busy", retry_after=1
            )
        self.waiting += 1
        arrived = time.perf_counter()
        try:
            async with asyncio.timeout_at(deadline):
                await self._gate.__aenter__()
        except TimeoutError:
            raise ApiError(
                503,
                "the request had to wait for longer than its time limit: try again later",
                code="too_busy",
                retry_after=5,
            ) from None
        finally:
            self.waiting -= 1
            self.on_wait(time.perf_counter() - arrived)
        try:
            yield
        finally:
            await self._gate.__aexit__()
