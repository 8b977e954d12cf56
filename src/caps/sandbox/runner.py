"""Starts sandboxed jobs, reads their bounded output and kills all their processes.

Rules that must not be broken:

* Whatever the program does, `run` returns within its limits, and no process of the program is left running.
* Output is read up to a bound and never beyond; a program that exceeds it is killed.
* Cancelling the waiting task kills the program.

`docs/design/0004` says what each sandbox stops and what it does not.

A sandbox with its own process namespace reports the host's process id of the namespace's init. Killing that
process ends every process of the namespace, whatever the program did to escape: as an ordinary user, it may
own the init and leave its session and process group. Without such a report the process group is killed.
"""

import asyncio
import json
import math
import os
import signal
import time
from abc import ABC, abstractmethod
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, ClassVar

from caps.core.errors import SandboxError
from caps.sandbox.base import EndedError, Job, JobResult, Limits, Status

_HEADER = 20  # digits of a message's length, with the line end
_GRACE = 0.5  # seconds for a dead process's pipes to close
_REAP = 5.0  # seconds for a killed process to be gone
_PARENT = 1  # the place of the parent's id in /proc/<id>/stat, after the name in parentheses


class Process(asyncio.SubprocessProtocol):
    """A running job with bounded output; the two sides may exchange length-prefixed messages."""

    def __init__(self, limit: int) -> None:
        self.out = bytearray()
        self.err = bytearray()
        self.overflowed = False
        self.exit_code: int | None = None
        self._limit = limit
        self._transport: Any = None
        self._open = {1, 2}
        self._init: int | None = None  # pidfd of the namespace's init while it runs
        self._changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Store output up to the limit; more standard output kills the process, more errors are dropped."""
        buffer = self.out if fd == 1 else self.err
        room = self._limit + _HEADER - len(buffer)
        buffer += data[:room]
        if len(data) > room and fd == 1:
            self.overflowed = True
            self.kill()
        self._changed.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        """Record that the pipe is closed."""
        self._open.discard(fd)
        self._changed.set()

    def process_exited(self) -> None:
        """Record the exit code."""
        self.exit_code = self._transport.get_returncode()
        self._changed.set()

    def write(self, data: bytes) -> None:
        """Write bytes to standard input."""
        self._transport.get_pipe_transport(0).write(data)

    def close_input(self) -> None:
        """Close standard input."""
        self._transport.get_pipe_transport(0).close()

    async def send(self, message: bytes) -> None:
        """Send one message."""
        self.write(b"%d\n%b" % (len(message), message))

    async def receive(self, seconds: float) -> bytes:
        """Wait for one message, so long by the clock; a process that writes anything else is killed.

        `EndedError` if there is none, or the process has ended.
        """
        in_time = await self._wait(lambda: self._message() is not None or 1 not in self._open, seconds)
        message = self._message()
        if message is None:
            if in_time:  # how it ended is known a little later
                await self._wait(lambda: self.exit_code is not None, _REAP)
            await self.end()
            raise EndedError(self._ending(in_time=in_time), self.exit_code, bytes(self.err))
        start = self.out.index(b"\n") + 1
        del self.out[: start + len(message)]
        return message

    def _ending(self, *, in_time: bool) -> Status:
        """Why there is no message."""
        if self.overflowed:
            return "output"
        if not in_time:
            return "clock"
        return "timeout" if classify_exit(self.exit_code, b"") == "timeout" else "crashed"

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
        """Wait for the end of the process and its output; False if it did not end in time."""
        in_time = await self._wait(lambda: self.exit_code is not None, seconds)
        await self._wait(lambda: not self._open, _GRACE if in_time else 0)
        return in_time

    def watch_init(self, pid: int) -> None:
        """Remember the init of the process namespace, a child of this process, until it has ended."""
        with suppress(OSError):  # it has ended
            handle = os.pidfd_open(pid)
            if _parent_of(pid) != self._transport.get_pid():  # it has ended, and its number is another's
                os.close(handle)
                return
            self._init = handle
            asyncio.get_running_loop().add_reader(handle, self._forget_init)

    def _forget_init(self) -> None:
        if self._init is not None:
            asyncio.get_running_loop().remove_reader(self._init)
            os.close(self._init)
            self._init = None
            self._changed.set()

    def kill(self) -> None:
        """Kill all processes, without waiting."""
        with suppress(ProcessLookupError, PermissionError):
            if self._init is not None:
                signal.pidfd_send_signal(self._init, signal.SIGKILL)  # the launcher then ends by itself
            elif self._transport is not None and self.exit_code is None:
                os.killpg(self._transport.get_pid(), signal.SIGKILL)

    async def end(self) -> None:
        """Kill what still runs, wait until it is gone, and close the pipes."""
        if self._transport is None:
            return
        self.kill()
        try:
            await self._wait(self._is_gone, _REAP)
        except (
            asyncio.CancelledError
        ):  # it is killed: waiting for it takes no time, leaving it makes a zombie
            await self._wait(self._is_gone, _REAP)
            raise
        finally:
            self._forget_init()
            self._transport.close()

    def _is_gone(self) -> bool:
        return self.exit_code is not None and self._init is None

    async def _wait(self, done: Callable[[], bool], seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not done():
                    self._changed.clear()
                    await self._changed.wait()
        return done()


@dataclass(frozen=True, slots=True)
class Launch:
    """The actual command of a job, with its environment, folder and open files.

    `init` are the two ends of a pipe on which the command reports the init of its process namespace.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: str = "/"
    fds: tuple[int, ...] = ()
    init: tuple[IO[bytes], IO[bytes]] | None = None


class Sandbox(ABC):
    """Runs jobs in isolation; the number of cores limits how many run concurrently.

    `name` is its name on the command line; `faults` are how error messages of the commands that start a job
    begin.
    """

    name: ClassVar[str]
    faults: ClassVar[tuple[bytes, ...]]

    def __init__(self, cores: int) -> None:
        self._free = asyncio.Semaphore(cores)

    @abstractmethod
    def launch(self, job: Job) -> AbstractContextManager[Launch]:
        """Prepare the files and the command of a job; everything is removed on exit."""

    def core(self) -> asyncio.Semaphore:
        """The semaphore of the cores, for use with `async with`; `open` needs one."""
        return self._free

    @asynccontextmanager
    async def open(self, job: Job) -> AsyncIterator[Process]:
        """Start a job to exchange messages with; it is killed on exit. The caller must hold a core."""
        with self.launch(job) as launch:
            process = Process(job.limits.output)
            # A start that is cancelled halfway would leave a process that cannot be killed.
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
            result = JobResult(
                _status(process, in_time=in_time),
                process.exit_code,
                bytes(process.out),
                bytes(process.err),
                time.perf_counter() - started,
            )
        if result.status == "crashed" and result.stderr.startswith(self.faults):
            await self._check_launcher(result, job)
        return result

    async def _check_launcher(self, result: JobResult, job: Job) -> None:
        """Raise if the launcher fails on a harmless job too; a program may imitate its error messages."""
        harmless = Job(("true",), limits=job.limits)
        if job.argv != harmless.argv and (await self.run(harmless)).status == "ok":
            return
        raise SandboxError(
            f"{self.name} cannot start: {result.stderr.decode(errors='replace').strip()[:300]}"
        )


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
    if launch.init is not None:
        reading, writing = launch.init
        writing.close()  # so that the report ends
        pid = _reported_init(await _read_to_end(reading))
        if pid is not None:
            process.watch_init(pid)


async def _read_to_end(pipe: IO[bytes]) -> bytes:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
    try:
        return await reader.read()
    finally:
        transport.close()


def _reported_init(report: bytes) -> int | None:
    """The process id in a report; None if there is none, because nothing was started."""
    try:
        return int(json.loads(report)["child-pid"])
    except (ValueError, LookupError, TypeError):
        return None


def _parent_of(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(stat.rpartition(")")[2].split()[_PARENT])


def _status(process: Process, *, in_time: bool) -> Status:
    if process.overflowed:
        return "output"
    if not in_time:
        return "timeout"
    return classify_exit(process.exit_code, bytes(process.err))


def classify_exit(code: int | None, stderr: bytes) -> Status:
    """The status of an exit code; a shell and bubblewrap report signal n as exit code 128 + n."""
    if code == 0:
        return "ok"
    if code in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
        return "timeout"
    last = stderr.rstrip().rpartition(b"\n")[2]
    return "memory" if last.startswith((b"MemoryError", b"OSError: [Errno 12]")) else "crashed"


# The whole environment of a job. A fixed hash seed makes the order of sets, and so the grade, reproducible.
ENVIRONMENT = MappingProxyType(
    {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "LANG": "C.UTF-8",
        "HOME": "/tmp",  # noqa: S108
        "PYTHONHASHSEED": "0",
    }
)
_STACK = 64 << 20  # recursion through C needs it; it is charged for every thread


def prlimit(limits: Limits, *, processes: int | None) -> tuple[str, ...]:
    """The command prefix that sets these limits; with `processes` None they are not limited."""
    cpu = math.ceil((limits.cpu or limits.seconds) + 1)
    command = [
        "prlimit",
        f"--as={limits.address or limits.memory}",
        f"--data={limits.memory}",
        f"--cpu={cpu}:{cpu + 2}",
    ]
    command.append(f"--fsize={limits.file_size}")
    command += [f"--nofile={limits.files}", f"--stack={_STACK}", "--core=0", "--memlock=0", "--msgqueue=0"]
    if processes is not None:
        command.append(f"--nproc={processes}")
    return tuple(command)
