"""Long texts are read in worker processes, so that no text, however long, holds up the event loop.

Threads would not do: they share the interpreter's lock with the loop.

Rules that must not be broken:

* Only pure functions run here: what they return depends on their arguments alone, so it does not matter where
  they run, or whether they run again.
* A job has a limit of its own, of the processor's time, which does not depend on how busy the machine is; and
  it may have a deadline. A worker that exceeds either is ended.
* No process is started before the first long text.
"""

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from importlib import import_module
from typing import Any, BinaryIO, TypeVar

from caps.core.errors import CapsError, SlowTextError
from caps.graders.algebra import limit_memory
from caps.graders.worker_pool import NoReplyError, Workers
from caps.models.embedded import usable_cores

T = TypeVar("T")

SECONDS = 30.0  # of the processor for one job: far more than any text takes that was not made to take long
BUSY_MACHINE = 4  # times as long a job may take by the clock
LONG_TEXT = 64_000  # characters: shorter ones are read inline, in a few milliseconds
MOST_WORKERS = 4
MEMORY = 2 << 30
LONGEST_REPLY = 256 << 20
_SIZE = 8  # bytes that say how many follow
_SHORT = 200  # characters that JSON may as well hold


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
            seconds=BUSY_MACHINE * seconds,
            wire=_Parcels(),
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
            raise SlowTextError(f"{size:,} characters of text could not be read: {error}") from None
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
    signal.signal(signal.SIGPROF, _out_of_time)
    gc.disable()  # syntax trees have no cycles, and looking for some takes half of the time
    _reply(replies, ("ready", None))
    while True:
        try:
            seconds, work = _Parcels().load_now(jobs)
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_REAL, 2 * BUSY_MACHINE * seconds + 1)  # nobody may be left to kill it
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            answer: tuple[str, object] = ("returned", work())
        except CapsError as error:
            answer = ("raised", error)
        except _OutOfTimeError:
            answer = ("raised", f"it takes more than {seconds:g} s")
        except Exception as error:
            answer = ("raised", f"{type(error).__name__}: {error}"[:500])
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
        _reply(replies, answer)
        del work, answer
        gc.collect()


class _OutOfTimeError(BaseException):
    """A job has had all of its time; no plug-in should catch it."""


def _out_of_time(*_: object) -> None:
    raise _OutOfTimeError


def _reply(pipe: BinaryIO, answer: tuple[str, object]) -> None:
    try:
        data = _Parcels().dump(answer)
    except Exception as error:  # a plug-in may return anything
        data = _Parcels().dump(("raised", f"{type(error).__name__}: {error}"[:500]))
    pipe.write(data)
    pipe.flush()


class _Parcels:
    """Plain data as JSON, its long texts behind it as they are: nothing is unpickled, and little is escaped.

    Of what is no plain value, only dataclasses, named tuples, enumerations and functions of this package
    travel, by their names and the values of their fields.
    """

    def dump(self, question: Any) -> bytes:
        """A message: sizes, JSON, long texts."""
        blobs: list[bytes] = []
        plain = json.dumps(_packed(question, blobs)).encode()
        sizes = [len(plain), *map(len, blobs)]
        head = b"".join(size.to_bytes(_SIZE) for size in (len(sizes), *sizes))
        return b"".join([head, plain, *blobs])

    async def load(self, stream: asyncio.StreamReader, longest: int) -> Any:
        """The next reply."""
        count = int.from_bytes(await stream.readexactly(_SIZE))
        if count * _SIZE > longest:
            raise ValueError("too long")
        sizes = _sizes(await stream.readexactly(count * _SIZE))
        if sum(sizes) > longest:
            raise ValueError("too long")
        plain, *blobs = [await stream.readexactly(size) for size in sizes]
        return _unpacked(json.loads(plain), blobs)

    def load_now(self, file: BinaryIO) -> Any:
        """The next question; `EOFError` at the end."""
        head = file.read(_SIZE)
        if len(head) < _SIZE:
            raise EOFError
        plain, *blobs = [file.read(size) for size in _sizes(file.read(int.from_bytes(head) * _SIZE))]
        return _unpacked(json.loads(plain), blobs)


def _sizes(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + _SIZE]) for at in range(0, len(data), _SIZE)]


def _packed(value: Any, blobs: list[bytes]) -> Any:
    """A value as JSON can say it; what is not itself there is a list of its kind and its parts."""
    if isinstance(value, Enum):
        return ["enum", _name_of(type(value)), value.value]
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        if len(value) <= _SHORT:
            return value
        blobs.append(value.encode("utf-8", "surrogatepass"))
        return ["text", len(blobs) - 1]
    if isinstance(value, bytes):
        blobs.append(value)
        return ["bytes", len(blobs) - 1]
    if isinstance(value, partial):
        return [
            "work",
            _name_of(value.func),
            _packed(list(value.args), blobs),
            _packed(value.keywords, blobs),
        ]
    if isinstance(value, dict):
        return ["dict", [[_packed(one, blobs) for one in pair] for pair in value.items()]]
    if isinstance(value, CapsError):
        return ["error", _name_of(type(value)), _packed(str(value), blobs)]
    if is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, one.name) for one in fields(value) if one.init]
        return ["object", _name_of(type(value)), *(_packed(one, blobs) for one in parts)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ["object", _name_of(type(value)), *(_packed(one, blobs) for one in value)]
    if isinstance(value, list | tuple):
        return [type(value).__name__, *(_packed(one, blobs) for one in value)]
    raise TypeError(f"{type(value).__name__} cannot be sent to another process, or back")


def _unpacked(value: Any, blobs: Sequence[bytes]) -> Any:
    if not isinstance(value, list):
        return value
    kind, *rest = value
    match kind:
        case "text":
            return blobs[rest[0]].decode("utf-8", "surrogatepass")
        case "bytes":
            return blobs[rest[0]]
        case "dict":
            return {_unpacked(key, blobs): _unpacked(one, blobs) for key, one in rest[0]}
        case "work":
            arguments, keywords = (_unpacked(one, blobs) for one in rest[1:])
            return partial(_named(rest[0]), *arguments, **keywords)
    parts = [_unpacked(one, blobs) for one in rest]
    if kind in ("list", "tuple"):
        return parts if kind == "list" else tuple(parts)
    made = _named(rest[0])
    wanted = {"enum": Enum, "error": CapsError}.get(kind, object)
    if not isinstance(made, type) or not issubclass(made, wanted):
        raise ValueError(f"no reply holds {rest[0]}")
    return made(*parts[1:])


def _name_of(thing: Any) -> str:
    return f"{thing.__module__}:{thing.__qualname__}"


@cache
def _named(name: str) -> Any:
    """A function or type of this package by its name."""
    module, _, attribute = name.partition(":")
    if module.partition(".")[0] != "caps" or not attribute.isidentifier():
        raise ValueError(f"{name} is none of ours")
    return getattr(import_module(module), attribute)
