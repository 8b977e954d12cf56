"""Starts jobs through a launcher, reads what they write up to their bounds, and leaves nothing running."""

import asyncio
import os
import signal
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from caps.core.errors import SandboxError
from caps.graders.process import Process
from caps.graders.sandbox import Job, Ran, Status


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

    async def run(self, job: Job) -> Ran:
        """Run a job to its end; its time starts when it has a core."""
        async with self._free:
            started = time.perf_counter()
            async with self.open(job) as process:
                process.close_input()
                in_time = await process.finish(job.limits.seconds)
            ran = Ran(
                _status(process, in_time=in_time),
                process.exit_code,
                bytes(process.out),
                bytes(process.err),
                time.perf_counter() - started,
            )
        if ran.status == "crashed" and ran.stderr.startswith(self.launcher.faults):
            await self._check(ran, job)
        return ran

    async def _check(self, ran: Ran, job: Job) -> None:
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
