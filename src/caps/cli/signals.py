"""Ctrl-C and SIGTERM: the work ends in order, and what was paid for is stored.

The first signal always works. If the event loop is blocked and does not react in time, the work ends at
once, as after a second signal.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from caps.cli.output import say

T = TypeVar("T")

RESPONSE_SECONDS = 5.0  # in which an event loop reacts to a signal, also on a busy machine


def run_paid_work(
    work: Coroutine[Any, Any, int], journal: Path | None, after: Callable[[], str] = str, kept: str = ""
) -> int:
    """Run a command to its exit code; on Ctrl-C or SIGTERM, print what is stored and how to continue."""
    code = asyncio.run(run_until_signal(work))
    if code is None:
        report_interrupted(journal, after(), kept)
        return 130
    return code


async def run_until_signal(work: Coroutine[Any, Any, T]) -> T | None:
    """Do some work; return None if a signal ended it."""
    task = asyncio.ensure_future(work)
    with _signals(task):
        try:
            return await task
        except asyncio.CancelledError:
            return None


@contextmanager
def _signals(task: "asyncio.Task[Any]") -> Iterator[None]:
    """Cancel a task on a signal; if the loop is blocked, raise `KeyboardInterrupt`."""
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
    """Print that a run was interrupted, what is stored, and how to continue."""
    replies = "every reply so far is in the journal" if journal else "there is no journal"
    say(f"interrupted{after}; {replies}{kept}: run the same command again to continue", "yellow")
