"""Starts sandboxed jobs, reads their bounded output and ends them with their whole process group."""

import asyncio
import math
import os
import signal
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from caps.core.errors import SandboxError
from caps.sandbox.base import EndedError, Job, JobResult, Limits, Status

# One process and its pipes: bytes go in, bounded bytes come out, and its whole group can be ended.


_HEADER = 20  # digits of a message's length, with the line end
_GRACE = 0.5  # seconds for a dead process's pipes to close
_REAP = 5.0  # seconds for a killed process to be gone


class Process(asyncio.SubprocessProtocol):
    """A started process; also a `Talk`, for programs that answer in messages."""

    def __init__(self, limit: int) -> None:
        self.out = bytearray()
        self.err = bytearray()
        self.overflowed = False
        self.exit_code: int | None = None
        self._limit = limit
        self._transport: Any = None
        self._open = {1, 2}
        self._news = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to the process."""
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep what fits; who writes more to standard output is ended, errors are cut."""
        kept = self.out if fd == 1 else self.err
        room = self._limit + _HEADER - len(kept)
        kept += data[:room]
        if len(data) > room and fd == 1:
            self.overflowed = True
            self.kill()
        self._news.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        """Take note that nothing more will come from there."""
        self._open.discard(fd)
        self._news.set()

    def process_exited(self) -> None:
        """Take note of the ending."""
        self.exit_code = self._transport.get_returncode()
        self._news.set()

    def write(self, data: bytes) -> None:
        """Put bytes on the way to the process."""
        self._transport.get_pipe_transport(0).write(data)

    def close_input(self) -> None:
        """Let the process find the end of its input."""
        self._transport.get_pipe_transport(0).close()

    async def send(self, message: bytes) -> None:
        """Hand over one message."""
        self.write(b"%d\n%b" % (len(message), message))

    async def receive(self, seconds: float) -> bytes:
        """Wait for one message; a process that writes anything else is not worth waiting for."""
        in_time = await self._wait(lambda: self._message() is not None or 1 not in self._open, seconds)
        message = self._message()
        if message is None:
            await self.end()
            status: Status = "output" if self.overflowed else "crashed" if in_time else "timeout"
            raise EndedError(status, self.exit_code, bytes(self.err))
        start = self.out.index(b"\n") + 1
        del self.out[: start + len(message)]
        return message

    def _message(self) -> bytes | None:
        start = self.out.find(b"\n", 0, _HEADER) + 1
        size = self.out[: start - 1]
        if not start or not size.isdigit():
            if start or len(self.out) > _HEADER:
                self.kill()
            return None
        end = start + int(size)
        if int(size) > self._limit:
            self.overflowed = True
            self.kill()
        return bytes(self.out[start:end]) if len(self.out) >= end else None

    async def finish(self, seconds: float) -> bool:
        """Wait for the end of the process and its output; False if it did not come in time."""
        in_time = await self._wait(lambda: self.exit_code is not None, seconds)
        await self._wait(lambda: not self._open, _GRACE if in_time else 0)
        return in_time

    def kill(self) -> None:
        """End the process and its group, without waiting."""
        if self._transport is not None and self.exit_code is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._transport.get_pid(), signal.SIGKILL)

    async def end(self) -> None:
        """End the process if it still runs, and let go of its pipes."""
        if self._transport is None:
            return
        self.kill()
        try:
            await self._wait(lambda: self.exit_code is not None, _REAP)
        finally:
            self._transport.close()

    async def _wait(self, done: Callable[[], bool], seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not done():
                    self._news.clear()
                    await self._news.wait()
        return done()


@dataclass(frozen=True, slots=True)
class Launch:
    """The real command behind a job: what is executed, where, with which open files."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: str = "/"
    fds: tuple[int, ...] = ()


class Launcher(Protocol):
    """What tells one sandbox from another."""

    @property
    def name(self) -> str:
        """What the sandbox is called."""
        ...

    @property
    def faults(self) -> tuple[bytes, ...]:
        """How complaints of the launcher's own commands begin."""
        ...

    def launch(self, job: Job) -> AbstractContextManager[Launch]:
        """Lay out a job's files and say how it is started; everything is gone on leaving."""
        ...


@dataclass(slots=True)
class Runner:
    """A sandbox made of a launcher and a number of cores."""

    launcher: Launcher
    cores: int
    _free: asyncio.Semaphore = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(self.cores)

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        return self.launcher.name

    def core(self) -> asyncio.Semaphore:
        """One of the cores, to be held with `async with`."""
        return self._free

    @asynccontextmanager
    async def open(self, job: Job) -> AsyncIterator[Process]:
        """Start a job and end it on leaving, whatever happens in between."""
        with self.launcher.launch(job) as launch:
            process = Process(job.limits.output)
            # Cancelled halfway, a start would leave a process that nobody has a hold of.
            starting = asyncio.create_task(_start(process, launch))
            try:
                await asyncio.shield(starting)
                if job.stdin:
                    process.write(job.stdin)
                yield process
            finally:
                await asyncio.wait([starting])
                await process.end()

    async def run(self, job: Job) -> JobResult:
        """Run a job to its end; its time starts when it has a core."""
        async with self._free:
            started = time.perf_counter()
            async with self.open(job) as process:
                process.close_input()
                in_time = await process.finish(job.limits.seconds)
            ran = JobResult(
                _status(process, in_time=in_time),
                process.exit_code,
                bytes(process.out),
                bytes(process.err),
                time.perf_counter() - started,
            )
        if ran.status == "crashed" and ran.stderr.startswith(self.launcher.faults):
            await self._check(ran, job)
        return ran

    async def _check(self, ran: JobResult, job: Job) -> None:
        """Was it the launcher that failed, or a program that talks like one? A harmless job tells."""
        again = Job(("true",), limits=job.limits)
        if job.argv != again.argv and (await self.run(again)).status == "ok":
            return
        raise SandboxError(f"{self.name} cannot start: {ran.stderr.decode(errors='replace').strip()[:300]}")


async def _start(process: Process, launch: Launch) -> None:
    loop = asyncio.get_running_loop()
    try:
        await loop.subprocess_exec(
            lambda: process,
            *launch.argv,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=launch.env,
            cwd=launch.folder,
            pass_fds=launch.fds,
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxError(f"{launch.argv[0]!r} cannot start: {os.strerror(error.errno or 0)}") from None


def _status(process: Process, *, in_time: bool) -> Status:
    if process.overflowed:
        return "output"
    if not in_time:
        return "timeout"
    return judge_exit(process.exit_code, bytes(process.err))


def judge_exit(code: int | None, stderr: bytes) -> Status:
    """Name an ending; a shell and bubblewrap tell the signal n as exit code 128 + n."""
    if code == 0:
        return "ok"
    if code in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
        return "timeout"
    last = stderr.rstrip().rpartition(b"\n")[2]
    return "memory" if last.startswith((b"MemoryError", b"OSError: [Errno 12]")) else "crashed"


# Limits as the kernel knows them, set by `prlimit` on the way to the program, and its whole environment.


# A fixed hash seed makes the order of sets the same in every run, and so the grade.
ENVIRONMENT = MappingProxyType(
    {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "LANG": "C.UTF-8",
        "HOME": "/tmp",  # noqa: S108
        "PYTHONHASHSEED": "0",
    }
)
_STACK = 64 << 20  # recursion through C needs it; more would be counted for every thread


def prlimit(limits: Limits, *, processes: int | None) -> tuple[str, ...]:
    """The command that starts what follows under these limits; `processes` None leaves them uncounted."""
    cpu = math.ceil((limits.cpu or limits.seconds) + 1)
    words = ["prlimit", f"--as={limits.memory}", f"--cpu={cpu}", f"--fsize={limits.file_size}"]
    words += [f"--nofile={limits.files}", f"--stack={_STACK}", "--core=0", "--memlock=0", "--msgqueue=0"]
    if processes is not None:
        words.append(f"--nproc={processes}")
    return tuple(words)
