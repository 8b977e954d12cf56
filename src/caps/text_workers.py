"""Long texts are read in worker processes, so that no text, however long, holds up the event loop.

Threads would not do: they share the interpreter's lock with the loop.

Rules that must not be broken:

* Only pure functions run here: what they return depends on their arguments alone, so it does not matter where
  they run, or whether they run again.
* A job has a limit of its own, and may have a deadline too; a worker that exceeds either is killed.
* No process is started before the first long text.
"""

import asyncio
import gc
import io
import os
import pickle
import signal
import sys
from functools import partial
from typing import Any, BinaryIO, TypeVar

from caps.core.errors import CapsError, SlowTextError
from caps.graders.algebra import limit_memory
from caps.graders.workers import NoReplyError, Workers
from caps.models.threads import usable_cores

T = TypeVar("T")

SECONDS = 30.0  # for one job: far more than any text takes that was not made to take long
LONG_TEXT = 64_000  # characters: shorter ones are read inline, in a few milliseconds
MOST_WORKERS = 4
MEMORY = 2 << 30
LONGEST_REPLY = 256 << 20
_HEAD = 8


class TextWorkers:
    """Runs pure functions on long texts in worker processes, and on short ones at once.

    Whoever makes one closes it, in the event loop in which it was used.
    """

    def __init__(self, *, count: int | None = None, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self._seconds = seconds
        self._workers = Workers(
            "caps.text_workers:serve",
            (memory,),
            count=count or min(MOST_WORKERS, usable_cores()),
            seconds=seconds,
            wire=_Pickles(),
            longest=LONGEST_REPLY,
        )

    @property
    def started(self) -> int:
        """How many processes were started so far."""
        return self._workers.started

    async def run(
        self, work: "partial[T]", *, size: int, limit: int = LONG_TEXT, until: float | None = None
    ) -> T:
        """What the work returns; in a worker where `size`, in characters, exceeds `limit`.

        Errors of ours are raised as they were there; a worker that takes too long, or dies, is a
        `SlowTextError`. `until` is a time of the loop's clock.
        """
        if size <= limit:
            return work()
        try:
            kind, value = await self._workers.ask((self._seconds, work), until=until)
        except NoReplyError as error:
            late = "its time ended first" if "its time" in str(error) else str(error)
            raise SlowTextError(f"{size:,} characters of text could not be read: {late}") from None
        if kind == "returned":
            return value  # type: ignore[no-any-return]
        if isinstance(value, CapsError):
            raise value
        raise SlowTextError(f"{size:,} characters of text could not be read: {value}")

    async def close(self) -> None:
        """End every worker."""
        await self._workers.close()


def serve(memory: int) -> None:
    """The program of a worker: does jobs until its input ends, or one takes far longer than it may."""
    jobs, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a plug-in prints is no reply
    limit_memory(memory)
    gc.disable()  # syntax trees have no cycles, and looking for some takes half of the time
    _reply(replies, ("ready", None))
    while (head := jobs.read(_HEAD)) and len(head) == _HEAD:
        seconds, work = pickle.loads(jobs.read(int.from_bytes(head)))  # noqa: S301  # from our own parent
        signal.setitimer(signal.ITIMER_REAL, 2 * seconds + 1)  # nobody may be left to kill it
        try:
            answer: tuple[str, object] = ("returned", work())
        except CapsError as error:
            answer = ("raised", error)
        except Exception as error:
            answer = ("raised", f"{type(error).__name__}: {error}"[:500])
        signal.setitimer(signal.ITIMER_REAL, 0)
        _reply(replies, answer)
        del work, answer
        gc.collect()


def _reply(pipe: BinaryIO, answer: tuple[str, object]) -> None:
    try:
        data = pickle.dumps(answer, 5)
    except Exception as error:  # a plug-in may return anything
        data = pickle.dumps(("raised", f"{type(error).__name__}: {error}"[:500]), 5)
    pipe.write(len(data).to_bytes(_HEAD))
    pipe.write(data)
    pipe.flush()


class _Pickles:
    """A pickle with its length before it; a reply may hold plain values and types of this package only."""

    def dump(self, question: Any) -> bytes:
        """A question with its length."""
        data = pickle.dumps(question, 5)
        return len(data).to_bytes(_HEAD) + data

    async def load(self, stream: asyncio.StreamReader, longest: int) -> Any:
        """The next reply."""
        size = int.from_bytes(await stream.readexactly(_HEAD))
        if size > longest:
            raise ValueError("too long")
        return _Replies(io.BytesIO(await stream.readexactly(size))).load()


class _Replies(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if module.partition(".")[0] == "caps" else None
        if not isinstance(found, type):
            raise ValueError(f"a reply may not hold {module}.{name}")
        return found
