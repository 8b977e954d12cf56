"""Processes that answer questions and may be killed for it: started when needed, reused, replaced.

Each is a Python of its own with an empty environment, one JSON value a line in and out; bytes may follow
a question, and then it is a list that ends with their lengths. A worker shares no signal
with us, so an interrupt at the terminal reaches us alone; it ends when its input does.
"""

import asyncio
import contextlib
import json
import sys
from dataclasses import dataclass
from typing import Any

STARTING_SECONDS = 60.0
TASKS_EACH = 2000
_LONGEST_REPLY = 1 << 16
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from importlib import import_module; "
    "module, name = sys.argv[2].split(':'); getattr(import_module(module), name)(*json.loads(sys.argv[3]))"
)


class NoReplyError(Exception):
    """A worker took too long, fell over or could not start; the message says which."""


class NotStartedError(NoReplyError):
    """A worker could not start, whatever it was to be asked."""


@dataclass(slots=True)
class _Worker:
    process: asyncio.subprocess.Process
    tasks: int = 0

    async def ask(self, question: object, parts: tuple[bytes, ...], seconds: float) -> Any:
        assert self.process.stdin  # noqa: S101  # it was started with pipes
        asked = [question, *map(len, parts)] if parts else question
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        for part in parts:
            self.process.stdin.write(part)
        return await self.hear(seconds)

    async def hear(self, seconds: float) -> Any:
        assert self.process.stdout  # noqa: S101  # it was started with pipes
        try:
            async with asyncio.timeout(seconds):
                line = await self.process.stdout.readline()
        except TimeoutError:
            raise NoReplyError(f"no reply within {seconds:g} s") from None
        except ValueError:
            raise NoReplyError("a reply longer than any should be") from None
        if not line.endswith(b"\n"):
            raise NoReplyError("the worker died over it")
        return json.loads(line)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


class Workers:
    """At most `count` processes that run `program` (`package.module:function`) with arguments of its own."""

    def __init__(
        self, program: str, arguments: tuple[Any, ...] = (), *, count: int = 2, seconds: float = 5
    ) -> None:
        self._program, self._arguments, self._seconds = program, arguments, seconds
        self._free = asyncio.Semaphore(count)
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        self.started = 0

    async def ask(self, question: object, *parts: bytes) -> Any:
        """Put a question (any JSON value) to a free worker; `NoReplyError` when none comes in time."""
        async with self._free:
            worker = self._idle.pop() if self._idle else await self._start()
            self._busy.append(worker)
            try:
                reply = await worker.ask(question, parts, self._seconds)
            except BaseException:
                # Whatever happened, a late reply must not be taken for the next one.
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
        """End every worker; a question under way gets no reply, a later one a new worker."""
        idle, self._idle = self._idle, []
        await _end([*idle, *self._busy])

    async def _start(self) -> _Worker:
        words = (json.dumps(sys.path), self._program, json.dumps(self._arguments))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-s", "-c", _PROGRAM, *words,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env={"PYTHONHASHSEED": "0"}, start_new_session=True, limit=_LONGEST_REPLY,
        )  # fmt: skip
        self.started += 1
        worker = _Worker(process)
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
