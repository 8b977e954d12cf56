"""One process and its pipes: bytes go in, bounded bytes come out, and its whole group can be ended."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from caps.graders.sandbox import EndedError, Status

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
