"""Ctrl-C and SIGTERM: the work ends in order, and what was paid for is kept.

The first signal works, whatever the process is doing: one that the event loop does not hear in time, because
something holds it up, ends the work at once, as a second one ends the time of grace.
"""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from caps.cli.output import say

T = TypeVar("T")

RESPONSE_SECONDS = 5.0  # within which an event loop that works hears a signal, on a busy machine too


async def run_until_signal(work: Coroutine[Any, Any, T]) -> T | None:
    """Do some work; None where a signal ended it."""
    task = asyncio.ensure_future(work)
    with _signals(task):
        try:
            return await task
        except asyncio.CancelledError:
            return None


@contextmanager
def _signals(task: "asyncio.Task[Any]") -> Iterator[None]:
    """Cancel a task on a signal; where the loop does not get to do that, raise `KeyboardInterrupt`."""
    loop = asyncio.get_running_loop()
    alarm = getattr(signal, "SIGALRM", None)  # not on Windows

    def cancel() -> None:
        if alarm is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        task.cancel()

    def stop(*_: object) -> None:
        if alarm is not None:
            signal.setitimer(signal.ITIMER_REAL, RESPONSE_SECONDS)
        loop.call_soon_threadsafe(cancel)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    handlers = {signal.SIGINT: stop, signal.SIGTERM: stop} | ({} if alarm is None else {alarm: interrupt})
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        if alarm is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def report_interrupted(journal: Path | None, after: str = "", kept: str = "") -> None:
    """Say that a run was interrupted, what is kept, and how to go on."""
    replies = "every reply so far is in the journal" if journal else "no journal was kept"
    say(f"interrupted{after}; {replies}{kept}: run the same command again to go on", "yellow")
