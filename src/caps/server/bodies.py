"""Bodies of requests, read within a size and a time; all together have a limit too."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from caps.server.asgi import Receive
from caps.server.refusals import Gone, Refusal
from caps.server.rules import Limits


@dataclass(slots=True)
class Bodies:
    """All bodies that are held now."""

    limits: Limits
    held: int = 0

    @asynccontextmanager
    async def read(self, receive: Receive) -> AsyncIterator[bytes]:
        """The whole body, held until the request is done."""
        parts: list[bytes] = []
        size = 0
        try:
            try:
                async with asyncio.timeout(self.limits.reading):
                    async for part in _parts(receive):
                        parts.append(part)
                        size += len(part)
                        self._take(len(part), size)
            except TimeoutError:
                words = f"the body did not arrive within {self.limits.reading:g} s"
                raise Refusal(408, words, code="request_timeout") from None
            yield b"".join(parts)
        finally:
            self.held -= size

    def _take(self, more: int, size: int) -> None:
        self.held += more
        if size > self.limits.body:
            raise too_large(self.limits)
        if self.held > self.limits.bodies:
            raise Refusal(503, "too many bodies at once: try again later", code="too_busy", wait=1)


def too_large(limits: Limits) -> Refusal:
    """A body beyond the limit."""
    return Refusal(413, f"the body may have {limits.body:,} bytes at most", code="request_too_large")


async def _parts(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        yield message.get("body", b"")
        more = message.get("more_body", False)
