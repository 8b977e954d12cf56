"""Running the command as a user does, each time in a process of its own: `caps` and `start` by a fork of a Python that
is ready, which costs a tenth of the time; `installed` from scratch.

Options may be written as they are typed: `caps("select", path, "--strategy caps --no-journal")`.
"""

import atexit
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from select import select
from tempfile import TemporaryFile
from threading import Thread
from typing import IO, Any

from caps.testing.serving import CAPS
from support.waiting import PATIENCE

Done = subprocess.CompletedProcess[str]


def caps(*words: object, stdin: str | None = None, stdout: IO[Any] | None = None, **environment: str) -> Done:
    """Run `caps` with these words to its end; nothing of the caller's settings or width of window leaks in."""
    process = Process([str(CAPS), *split_words(words)], clean(environment), stdin, stdout)
    try:
        out, error = process.communicate()
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return Done(list(words), process.returncode, out, error)


def start(*words: object, stdin: str | None = None, **environment: str) -> "Process":
    """Begin to run `caps` with these words."""
    return Process([str(CAPS), *split_words(words)], clean(environment), stdin)


def installed(*words: object, before: Callable[[], None] | None = None, **environment: str) -> Done:
    """Run the command from scratch, as the shell would; `before` is called in its process first."""
    return subprocess.run(
        [str(CAPS), *split_words(words)],
        capture_output=True,
        text=True,
        env=clean(environment),
        preexec_fn=before,
        timeout=PATIENCE,
        check=False,
    )


def split_words(words: tuple[object, ...]) -> list[str]:
    """Words of a command; a text that begins with an option may hold several."""
    texts = [str(word) for word in words]
    return [part for text in texts for part in (text.split() if text.startswith("-") else [text])]


def caps_json(*words: object, **environment: str) -> Any:
    """Run `caps … --json` and read what it prints."""
    done = caps(*words, "--json", **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def json_lines(done: Done) -> list[Any]:
    """What a command printed, an object a line."""
    return [json.loads(line) for line in done.stdout.splitlines()]


def read_lines(path: Path) -> list[Any]:
    """The objects in a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def one_sentence(done: Done, *words: object) -> None:
    """Check that a command ended with code 2 and one line on standard error that has these words."""
    assert done.returncode == 2, (done.returncode, done.stderr)
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("caps: ")
    for word in words:
        assert str(word) in line


def clean(environment: dict[str, str]) -> dict[str, str]:
    """Our environment without settings and the width of a window, and with these."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("CAPS_", "OPENAI_", "COLUMNS"))}
    return {**ours, **environment}


class Process:
    """A command under way, with as much of `subprocess.Popen` as is used of it; what it says is there at its end."""

    def __init__(
        self, words: list[str], environment: dict[str, str], stdin: str | None, stdout: IO[Any] | None = None
    ) -> None:
        self.returncode: int | None = None
        self._out, self._error = TemporaryFile("w+"), TemporaryFile("w+")  # noqa: SIM115  # until it is read
        heard, told = os.pipe()
        self._heard = os.fdopen(heard)
        given = _written(stdin)
        order = {"words": words, "environment": environment, "folder": str(Path.cwd())}
        streams = [given, (stdout or self._out).fileno(), self._error.fileno(), told]
        socket.send_fds(_line(), [json.dumps(order).encode()], streams)
        os.close(given)
        os.close(told)
        number = self._heard.readline()
        assert number, "the Python that was to be ready is not: what it said is on standard error"
        self.pid = int(number)

    def poll(self) -> int | None:
        """How it ended, if it has."""
        return self.returncode if self.returncode is not None or not self._ended(0) else self.wait()

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for its end."""
        if self.returncode is None:
            if not self._ended(timeout):
                raise subprocess.TimeoutExpired("caps", timeout)
            with self._heard:
                self.returncode = int(self._heard.readline())
        return self.returncode

    def communicate(self, timeout: float = PATIENCE) -> tuple[str, str]:
        """Wait for its end; what it said."""
        self.wait(timeout)
        with self._out, self._error:
            for file in (self._out, self._error):
                file.seek(0)
            return self._out.read(), self._error.read()

    def send_signal(self, sign: int) -> None:
        """Send it a signal while it runs."""
        if self.poll() is None:
            os.kill(self.pid, sign)

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self.send_signal(9)

    def _ended(self, seconds: float) -> bool:
        return bool(select([self._heard], [], [], seconds)[0])


@cache
def _line() -> socket.socket:
    """Where a Python that is ready takes orders; it ends when we do."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        ready = (sys.executable, Path(__file__).with_name("ready.py"), theirs.fileno())
        process = subprocess.Popen([*map(str, ready)], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def _written(text: str | None) -> int:
    """An open file from which this can be read as from a pipe."""
    if text is None:
        return os.open(os.devnull, os.O_RDONLY)
    theirs, ours = os.pipe()

    def write() -> None:
        with os.fdopen(ours, "w") as pipe:
            pipe.write(text)

    Thread(target=write, daemon=True).start()
    return theirs
