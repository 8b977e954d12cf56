"""Ctrl-C and SIGTERM: the work ends in order, and what was paid for is kept."""

import asyncio
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from caps.cli.output import say

T = TypeVar("T")


async def unless_stopped(work: Coroutine[Any, Any, T]) -> T | None:
    """Do some work; None where a signal ended it."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for signal_ in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return None


def say_stopped(journal: Path | None, after: str = "", kept: str = "") -> None:
    """Say that a run was interrupted, what is kept, and how to go on."""
    replies = "every reply so far is in the journal" if journal else "no journal was kept"
    say(f"interrupted{after}; {replies}{kept}: run the same command again to go on", "yellow")
