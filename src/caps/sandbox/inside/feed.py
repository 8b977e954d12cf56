"""Runs a program on one standard input after another, each in a new child process.

The first message is the program; each later one is an input. A reply has the exit code and the length of the
output in a line, then the output, then the end of standard error.
"""

import atexit
import gc
import os
import sys

from caps.sandbox.inside.prelude import load
from caps.sandbox.inside.wire import Wire

_ERRORS = 2000  # bytes of standard error that are kept


def main(limit: int, *, prelude: bool) -> None:
    """Answer every input; the child process runs the program."""
    wire = Wire()
    try:
        code = compile(wire.receive() or b"", "main.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        wire.send(f"unparsed {error!r}".encode(errors="replace"))
        return
    wire.send(b"parsed")
    gc.freeze()  # so that children do not copy unused pages
    while (text := wire.receive()) is not None:
        files = [_new_file() for _ in range(3)]
        _fill(files[0], text)
        os.lseek(files[0], 0, os.SEEK_SET)
        child = os.fork()
        if not child:
            wire.close()
            _become(files)
            load(code, "__main__", prelude=prelude)
            _leave()
        wire.send(_await(child, files, limit))


def _new_file() -> int:
    """An unnamed file in the current folder, subject to the storage limits of the program."""
    try:
        return os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError:  # not supported by the file system; that of the sandbox supports it
        return os.memfd_create("file")


def _fill(file: int, text: bytes) -> None:
    left = memoryview(text)
    while left:
        left = left[os.write(file, left) :]


def _leave() -> None:
    """Exit like Python, but without finalization, which takes longer than most programs."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.__stdout__, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    os._exit(0)


def _become(files: list[int]) -> None:
    os.setsid()
    for fd, file in enumerate(files):
        os.dup2(file, fd)
        os.close(file)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # type: ignore[misc] # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # type: ignore[misc] # noqa: SIM115


def _await(child: int, files: list[int], limit: int) -> bytes:
    _, status = os.waitpid(child, 0)
    try:  # noqa: SIM105 - contextlib costs a millisecond here
        os.killpg(child, 9)  # processes it left running
    except OSError:
        pass
    out, err = (os.fstat(file).st_size for file in files[1:])
    answer = b"output 0\n"
    if out <= limit:
        answer = b"%d %d\n%b" % (os.waitstatus_to_exitcode(status), out, os.pread(files[1], out, 0))
        answer += os.pread(files[2], _ERRORS, max(0, err - _ERRORS))
    for file in files:
        os.close(file)
    return answer
