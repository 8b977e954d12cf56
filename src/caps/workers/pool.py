"""The parent's side: worker processes that answer requests, at most some at once, and can be killed.

Each worker is a separate Python process with an empty environment and its own session, so an interrupt at
the terminal does not reach it; it ends when its input ends. A request is one line of JSON, a list of the
request and of the lengths of the bytes that follow it. A reply is one line of JSON of bounded length, never a
pickle: a worker that hostile data has taken over must not be able to run code here.

A request is limited by the processor time of its worker, which ends itself (`child.limit_cpu`), so that the
result does not depend on how busy the machine is. The clock is only a backstop, and says so.
"""

import asyncio
import contextlib
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caps.core.text import parse_json
from caps.workers.child_python import isolated

STARTING_SECONDS = 60.0
TASKS_EACH = 2000
LONGEST_REPLY = 1 << 16
CLOCK = 10  # times the processor time of a request, after which the clock ends it
_PROGRAM = (
    "import json; from importlib import import_module; "
    "module, name = sys.argv[1].split(':'); getattr(import_module(module), name)(*json.loads(sys.argv[2]))"
)


_NO_JSON = object()
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_OUT_OF_TIME = getattr(signal, "SIGPROF", None)  # not on Windows: there the clock ends a request


def usable_cores(quota: Path = _QUOTA) -> int:
    """Cores this process may use: its affinity, limited by a container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        allowed, period = quota.read_text(encoding="ascii").split()
        return max(1, min(cores, int(allowed) // int(period)))
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max": no quota
        return cores


class NoReplyError(Exception):
    """A worker took too long, crashed or could not start; the message says which."""


class DeadlineError(NoReplyError):
    """The deadline of a request passed before its reply."""


class ClockError(NoReplyError):
    """The clock ended a request before its processor time was used."""


class NotStartedError(NoReplyError):
    """A worker could not start."""


@dataclass(slots=True)
class _Worker:
    process: asyncio.subprocess.Process
    seconds: float
    tasks: int = 0

    async def ask(self, request: bytes, parts: tuple[bytes, ...]) -> Any:
        assert self.process.stdin  # noqa: S101
        self.process.stdin.writelines((request, *parts))
        return await self.receive(CLOCK * self.seconds)

    async def receive(self, seconds: float) -> Any:
        assert self.process.stdout  # noqa: S101
        try:
            async with asyncio.timeout(seconds):
                line = await self.process.stdout.readline()
        except TimeoutError:
            raise ClockError(f"no reply within {seconds:g} s by the clock") from None
        except ValueError:
            raise NoReplyError("the reply is too long") from None
        if line.endswith(b"\n"):
            reply = parse_json(line, _NO_JSON)
            if reply is _NO_JSON:
                raise NoReplyError("the reply is no JSON")
            return reply
        if _OUT_OF_TIME is not None and await self.process.wait() == -_OUT_OF_TIME:
            raise NoReplyError(f"no reply within {self.seconds:g} s of processor time")
        raise NoReplyError("the worker died")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


class Workers:
    """At most `count` processes that run `program` (`package.module:function`) with `arguments`.

    A request may take `seconds` of processor time, by which the program limits itself, and a reply may have
    `longest` bytes.
    """

    def __init__(
        self,
        program: str,
        arguments: tuple[Any, ...] = (),
        *,
        count: int = 2,
        seconds: float = 5,
        longest: int = LONGEST_REPLY,
    ) -> None:
        self._program, self._arguments, self._seconds = program, arguments, seconds
        self._longest, self._free = longest, asyncio.Semaphore(count)
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        self.started = 0

    async def ask(self, request: object, *parts: bytes, until: float | None = None) -> Any:
        """Send a request to a free worker; `NoReplyError` if no reply arrives in time.

        `until` is a time on the loop's clock that also ends the wait for a free worker.
        """
        message = json.dumps([request, *map(len, parts)]).encode() + b"\n"
        try:
            async with asyncio.timeout_at(until):
                return await self._ask(message, parts)
        except TimeoutError:
            raise DeadlineError("the deadline passed first") from None

    async def _ask(self, request: bytes, parts: tuple[bytes, ...]) -> Any:
        async with self._free:
            worker = self._idle.pop() if self._idle else await self._start()
            self._busy.append(worker)
            try:
                reply = await worker.ask(request, parts)
            except BaseException:
                # A late reply must not be mistaken for the next one.
                await _end([worker])
                raise
            finally:
                self._busy.remove(worker)
            worker.tasks += 1
            if worker.tasks >= TASKS_EACH:
                await _end([worker])
            else:
                self._idle.append(worker)
            return reply

    async def close(self) -> None:
        """Stop every worker; a running request gets no reply, a later one a new worker."""
        idle, self._idle = self._idle, []
        await _end([*idle, *self._busy])

    async def _start(self) -> _Worker:
        child = isolated(_PROGRAM, self._program, json.dumps(self._arguments))
        process = await asyncio.create_subprocess_exec(
            *child.argv,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env=child.env, start_new_session=True, limit=self._longest,
        )  # fmt: skip
        self.started += 1
        worker = _Worker(process, self._seconds)
        try:
            await worker.receive(STARTING_SECONDS)
        except NoReplyError as error:
            await _end([worker])
            raise NotStartedError(str(error)) from None
        except BaseException:
            await _end([worker])
            raise
        return worker


async def _end(workers: list[_Worker]) -> None:
    """Kill all first, then wait until they are gone, also if this task is cancelled meanwhile.

    A process that nobody has waited for stays behind as a zombie once its event loop is closed.
    """
    cancelled: asyncio.CancelledError | None = None
    for worker in workers:
        worker.kill()
    for worker in workers:
        if worker.process.stdin:
            worker.process.stdin.close()
        while worker.process.returncode is None:
            try:
                if worker.process.stdout:
                    await _discard(worker.process.stdout)
                await worker.process.wait()
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled


async def _discard(stream: asyncio.StreamReader) -> None:
    """Read what a killed worker wrote: asyncio waits for ever for one whose pipe is not read to its end."""
    with contextlib.suppress(RuntimeError):  # the task that asked it reads the pipe
        while await stream.read(LONGEST_REPLY):
            pass
