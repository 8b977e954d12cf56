"""Runs a program on one standard input after another, each in a new child process.

The first message is the program; each later one is a number of seconds of processor time, a line end, and an
input. A reply has the exit code, the length of the output and the milliseconds of processor time in a line,
then the output, then the end of standard error. A run ends when the program and all processes that it started
have ended, so what they print counts whatever their timing. They have ended when nobody holds the pipe that
they inherit, and their group is empty.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import time

from caps.sandbox.inside.prelude import load, provide
from caps.sandbox.inside.wire import Wire, limit_cpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ERRORS = 2000  # bytes of standard error that are kept


def main(limit: int, *, prelude: bool) -> None:
    """Answer every input; the child process runs the program."""
    wire = Wire()
    try:
        code = compile(wire.receive() or b"", "main.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        wire.send(f"unparsed {error!r}".encode(errors="replace"))
        return
    wire.send(b"parsed")
    if prelude:
        provide(code, {}, None)  # imports what it names, so that its runs, which are forked, need not

    def play() -> None:
        load(code, "__main__", prelude=prelude)
        _leave()

    gc.freeze()  # so that children do not copy unused pages
    answer_inputs(wire, play, limit)


def answer_inputs(wire: Wire, play: Callable[[], object], limit: int) -> None:
    """Answer each input with what `play`, in a child process, makes of it."""
    while (message := wire.receive()) is not None:
        seconds, _, text = message.partition(b"\n")
        wire.send(run_child(wire, play, text, limit, float(seconds)))


def run_child(wire: Wire, play: Callable[[], object], text: bytes, limit: int, seconds: float) -> bytes:
    """Run `play`, which must not return, on an input; it has these seconds of processor time, if any."""
    files = _open_files(text)
    running, alive = os.pipe()
    os.set_inheritable(alive, True)  # noqa: FBT003 - kept by the programs that a program executes
    child = os.fork()
    if not child:
        wire.close()
        os.close(running)
        _become(files)
        if seconds:
            limit_cpu(seconds)
        play()
    os.close(alive)
    return _await(child, running, files, limit)


def _open_files(text: bytes) -> list[int]:
    """Files for standard input, which has this text, output and errors."""
    files = [_new_file() for _ in range(3)]
    _fill(files[0], text)
    os.lseek(files[0], 0, os.SEEK_SET)
    return files


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


def _await(child: int, running: int, files: list[int], limit: int) -> bytes:
    while os.read(running, 4096):  # first of all: a program that writes into the pipe must not wait for us
        pass
    os.close(running)
    _, status, used = os.wait4(child, 0)
    while _is_group(child):  # a program that was executed has closed the pipe
        time.sleep(0.001)
    out, err = (os.fstat(file).st_size for file in files[1:])
    answer = b"output"
    if out <= limit:
        code, spent = os.waitstatus_to_exitcode(status), int(1000 * (used.ru_utime + used.ru_stime))
        answer = b"%d %d %d\n%b" % (code, out, spent, os.pread(files[1], out, 0))
        answer += os.pread(files[2], ERRORS, max(0, err - ERRORS))
    for file in files:
        os.close(file)
    return answer


def _is_group(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except OSError:
        return False
    return True
