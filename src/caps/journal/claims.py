"""Claims: of several processes that share a journal, only one makes a given call.

A claim is a lock of the operating system on one byte of a file beside the journal, at a place that follows
from the key of the call. It ends with the process that holds it, whatever ended that, and costs two system
calls. Invariants:

* Claims save money; nothing else depends on them. Without them both processes ask, and the first reply stays.
* A call is claimed before its reply is looked for, and released after it is stored: whoever gets the claim
  later finds the reply.
* Nothing waits for a claim forever: after `LEASE_SECONDS` the call is made anyway.
"""

import asyncio
import os
import struct
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

LEASE_SECONDS = 600.0  # as long as a call may take by default
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.25  # seconds between two looks at a claim of another process
_LOCK = struct.Struct("hhqqi")  # struct flock: type, whence, start, length, process
_FIRST = 1  # the first byte is that of the processes which have the file open


class Claims:
    """The claims of one process, in a file that all processes of a journal share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._set(fcntl.F_RDLCK, 0)

    @classmethod
    def open(cls, path: Path) -> "Claims | None":
        """Open the file; None where the system has no such locks: then calls are not claimed."""
        if not hasattr(fcntl, "F_OFD_SETLK"):  # on Linux only
            return None
        with suppress(OSError):
            return cls(path)
        return None

    def take_now(self, key: str) -> bool:
        """Claim a call, unless another process has it."""
        try:
            self._set(fcntl.F_WRLCK, _place(key))
        except OSError:
            return False
        return True

    async def take(self, key: str, seconds: float = LEASE_SECONDS) -> None:
        """Claim a call; waits, up to `seconds`, while another process has it."""
        until, pause = time.monotonic() + seconds, FIRST_PAUSE
        while not self.take_now(key) and time.monotonic() < until:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def release(self, key: str) -> None:
        """End a claim; one that does not exist is ignored."""
        with suppress(OSError):
            self._set(fcntl.F_UNLCK, _place(key))

    def close(self) -> None:
        """End all claims, and remove the file if no other process has it open."""
        with suppress(OSError):
            question = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            if _LOCK.unpack(fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, question))[0] == fcntl.F_UNLCK:
                self.path.unlink(missing_ok=True)
        os.close(self._file)

    def _set(self, kind: int, place: int) -> None:
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _LOCK.pack(kind, os.SEEK_SET, place, 1, 0))


def _place(key: str) -> int:
    """The byte that stands for a key: two keys share one as rarely as hashes of 56 bits collide."""
    return _FIRST + int.from_bytes(sha256(key.encode("utf-8", "replace")).digest()[:7], "big")
