"""Waiting for what comes about in its own time: as long as a busy machine may take, and not a moment longer."""

import asyncio
import time

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
