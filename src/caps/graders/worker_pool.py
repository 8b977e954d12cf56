"""Worker processes that answer requests and can be killed.

Each is a Python of its own with an empty environment; a `Wire` says how questions and replies are written,
one JSON value a line unless told otherwise. Bytes may follow such a line, and then it is a list that ends
with their lengths. A worker shares no signal with us, so an interrupt at the terminal reaches us alone; it
ends when its input does.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

STARTING_SECONDS = 60.0
TASKS_EACH = 2000
LONGEST_REPLY = 1 << 16
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from importlib import import_module; "
    "module, name = sys.argv[2].split(':'); getattr(import_module(module), name)(*json.loads(sys.argv[3]))"
)


class NoReplyError(Exception):
    """A worker took too long, fell over or could not start; the message says which."""


class DeadlineError(NoReplyError):
    """The deadline of a question came before its reply."""


class NotStartedError(NoReplyError):
    """A worker could not start, whatever it was to be asked."""


class Wire(Protocol):
    """How questions and replies are written on the pipes of a worker."""

    def dump(self, question: Any) -> bytes:
        """A question as bytes."""
        ...

    async def load(self, stream: asyncio.StreamReader, longest: int) -> Any:
        """The next reply; `ValueError` if it is longer than `longest`, `EOFError` if the stream ends."""
        ...


class JsonLines:
    """One JSON value a line; the reader's own limit bounds a reply."""

    def dump(self, question: Any) -> bytes:
        """A question as one line."""
        return json.dumps(question).encode() + b"\n"

    async def load(self, stream: asyncio.StreamReader, longest: int) -> Any:  # noqa: ARG002
        """The reply on the next line."""
        line = await stream.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return json.loads(line)


@dataclass(slots=True)
class _Worker:
    process: asyncio.subprocess.Process
    wire: Wire
    longest: int
    tasks: int = 0

    async def ask(self, question: bytes, parts: tuple[bytes, ...], seconds: float) -> Any:
        assert self.process.stdin  # noqa: S101  # it was started with pipes
        self.process.stdin.writelines((question, *parts))
        return await self.hear(seconds)

    async def hear(self, seconds: float) -> Any:
        assert self.process.stdout  # noqa: S101  # it was started with pipes
        try:
            async with asyncio.timeout(seconds):
                return await self.wire.load(self.process.stdout, self.longest)
        except TimeoutError:
            raise NoReplyError(f"no reply within {seconds:g} s") from None
        except EOFError:  # before ValueError: an incomplete read may be both
            raise NoReplyError("the worker died over it") from None
        except ValueError:
            raise NoReplyError("a reply longer than any should be") from None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


class Workers:
    """At most `count` processes that run `program` (`package.module:function`) with arguments of its own.

    A question may take `seconds`, and a reply have `longest` bytes, unless the question says otherwise.
    """

    def __init__(
        self,
        program: str,
        arguments: tuple[Any, ...] = (),
        *,
        count: int = 2,
        seconds: float = 5,
        wire: Wire | None = None,
        longest: int = LONGEST_REPLY,
    ) -> None:
        self._program, self._arguments, self._seconds = program, arguments, seconds
        self._wire, self._longest = wire or JsonLines(), longest
        self._free = asyncio.Semaphore(count)
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        self.started = 0

    async def ask(
        self,
        question: object,
        *parts: bytes,
        seconds: float | None = None,
        until: float | None = None,
        took: Callable[[float], object] = lambda _: None,
    ) -> Any:
        """Put a question to a free worker; `NoReplyError` when no reply comes in time.

        `seconds` count from the moment a worker has the question, and `took` hears how many passed; `until`
        is a time of the loop's clock that also ends the wait for a free worker.
        """
        asked = self._wire.dump([question, *map(len, parts)] if parts else question)
        try:
            async with asyncio.timeout_at(until):
                return await self._ask(asked, parts, seconds or self._seconds, took)
        except TimeoutError:
            raise DeadlineError("its time ended first") from None

    async def _ask(
        self, question: bytes, parts: tuple[bytes, ...], seconds: float, took: Callable[[float], object]
    ) -> Any:
        async with self._free:
            worker = self._idle.pop() if self._idle else await self._start()
            self._busy.append(worker)
            started = time.perf_counter()
            try:
                reply = await worker.ask(question, parts, seconds)
            except BaseException:
                # Whatever happened, a late reply must not be taken for the next one.
                await _end([worker])
                raise
            finally:
                self._busy.remove(worker)
                took(time.perf_counter() - started)
            worker.tasks += 1
            if worker.tasks >= TASKS_EACH:
                await _end([worker])
            else:
                self._idle.append(worker)
            return reply

    async def close(self) -> None:
        """End every worker; a question under way gets no reply, a later one a new worker."""
        idle, self._idle = self._idle, []
        await _end([*idle, *self._busy])

    async def _start(self) -> _Worker:
        words = (json.dumps(sys.path), self._program, json.dumps(self._arguments))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-s", "-c", _PROGRAM, *words,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env={"PYTHONHASHSEED": "0"}, start_new_session=True, limit=LONGEST_REPLY,
        )  # fmt: skip
        self.started += 1
        worker = _Worker(process, self._wire, self._longest)
        try:
            await worker.hear(STARTING_SECONDS)
        except NoReplyError as error:
            await _end([worker])
            raise NotStartedError(str(error)) from None
        except BaseException:
            await _end([worker])
            raise
        return worker


async def _end(workers: list[_Worker]) -> None:
    """Kill first, so that they end even if we are cancelled while they do."""
    for worker in workers:
        worker.kill()
    for worker in workers:
        if worker.process.stdin:
            worker.process.stdin.close()
        await worker.process.wait()
