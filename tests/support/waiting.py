"""Waiting for what comes about in its own time: as long as a busy machine may take, and not a moment longer."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from caps.testing.endpoint import PATIENCE, Condition


def wait_until(condition: Condition) -> None:
    """Go on once this is so; fail if it never is."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.005)


async def until(condition: Condition) -> None:
    """The same for those who must not hold up an event loop."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came about"
        await asyncio.sleep(0.002)


def skip(seconds: float) -> None:
    """Set the clock of the running event loop ahead: timers that end within these seconds end now."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port at which nobody answers, and which only a server that names it can get."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
