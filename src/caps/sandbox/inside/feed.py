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

from caps.sandbox.inside.prelude import load, preload
from caps.sandbox.inside.wire import Wire, limit_cpu

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
    if prelude:
        preload(code)
    gc.freeze()  # so that children do not copy unused pages
    while (message := wire.receive()) is not None:
        seconds, _, text = message.partition(b"\n")
        files = _open_files(text)
        running, alive = _open_pipe()
        child = os.fork()
        if not child:
            wire.close()
            os.close(running)
            _become(files)
            limit_cpu(float(seconds))
            load(code, "__main__", prelude=prelude)
            _leave()
        os.close(alive)
        wire.send(_await(child, running, files, limit))


def main_native(limit: int) -> None:
    """Compile a program of another language, then run it on every input, each with its own time limit.

    The first message is the source, the name of its file, and the commands.
    """
    from caps.sandbox.inside.plain import decode_given  # noqa: PLC0415 - only needed here

    wire = Wire()
    source, name, compiling, running = decode_given(wire.receive() or b"")
    with open(name, "wb") as file:  # noqa: PTH123 - pathlib takes long to load
        file.write(source)
    if compiling:
        answer = _run_native(wire, compiling, b"", limit, 0)
        if not answer.startswith(b"0 "):
            wire.send(b"unparsed " + answer[-_ERRORS:])
            return
    wire.send(b"parsed")
    while (message := wire.receive()) is not None:
        seconds, _, text = message.partition(b"\n")
        wire.send(_run_native(wire, running, text, limit, float(seconds)))


def _run_native(wire: Wire, argv: list[str], text: bytes, limit: int, seconds: float) -> bytes:
    """Run a command; after these seconds of processor time, if any, it is killed."""
    files = _open_files(text)
    running, alive = _open_pipe()
    child = os.fork()
    if not child:
        try:
            wire.close()
            os.close(running)
            _become(files)
            if seconds:
                limit_cpu(seconds)
            os.execvp(argv[0], argv)  # noqa: S606
        finally:
            os._exit(127)
    os.close(alive)
    return _await(child, running, files, limit)


def _open_files(text: bytes) -> list[int]:
    """Files for standard input, which has this text, output and errors."""
    files = [_new_file() for _ in range(3)]
    _fill(files[0], text)
    os.lseek(files[0], 0, os.SEEK_SET)
    return files


def _open_pipe() -> tuple[int, int]:
    """Both ends of a pipe; the second one is kept by the programs that a program executes."""
    running, alive = os.pipe()
    os.set_inheritable(alive, True)  # noqa: FBT003
    return running, alive


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
        answer += os.pread(files[2], _ERRORS, max(0, err - _ERRORS))
    for file in files:
        os.close(file)
    return answer


def _is_group(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except OSError:
        return False
    return True
