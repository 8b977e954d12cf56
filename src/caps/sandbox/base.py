"""The sandbox: what a job is, its limits and its result; which sandbox this machine offers.

Rules that must not be broken:

* Whatever the program does, `run` returns within its limits, and nothing of the program is left running.
* Output is read up to a bound and never beyond; a program that goes on is ended.
* Cancelling whoever waits ends the program.

`find_sandbox` chooses one; `docs/design/0004` says what each stops and what it does not.
"""

import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias

from caps.core.errors import CapsError, SandboxError, SettingError, UserError

# Why a candidate is wrong, in a word, and texts made fit for a person to read.


REASONS = MappingProxyType(
    {
        "ok": "wrong answer",
        "crashed": "runtime error",
        "timeout": "time limit",
        "memory": "memory limit",
        "output": "output limit",
        "unparsed": "does not parse",
    }
)
_MOST = 400


def shorten(text: str, most: int = _MOST) -> str:
    """A text of at most so many characters, the middle left out."""
    half = (most - 3) // 2
    return text if len(text) <= most else f"{text[:half]} … {text[-half:]}"


def printable(text: str) -> str:
    """A text as valid Unicode that no terminal obeys: surrogates replaced, controls escaped.

    What a candidate says reaches the journal, which stores UTF-8, and the terminal.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    if "\ud800" <= character <= "\udfff":
        return "\ufffd"
    return character.encode("unicode_escape").decode()


Status: TypeAlias = Literal["ok", "crashed", "timeout", "memory", "output"]
NAMES = ("auto", "bwrap", "unsafe-local")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a job may use. `memory` counts address space and holds for each of its processes.

    `cpu` is the processor time of one process, `seconds` unless a job has reason to last longer.
    """

    seconds: float = 10.0
    memory: int = 1 << 30
    output: int = 8 << 20
    processes: int = 8
    files: int = 64
    file_size: int = 16 << 20
    scratch: int = 64 << 20
    cpu: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A command, the files it finds in its folder, and its standard input."""

    argv: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    stdin: bytes = b""
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended; a negative `exit_code` is the signal that ended it."""

    status: Status
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class Language:
    """How a program text becomes a job: the command, and the name of the file it is given."""

    name: str
    file: str
    argv: tuple[str, ...]

    def job(self, source: str, *, stdin: bytes = b"", limits: Limits | None = None) -> Job:
        """Make the job that runs this program once."""
        text = source.encode(errors="surrogatepass")
        return Job((*self.argv, self.file), {self.file: text}, stdin, limits or Limits())


class EndedError(CapsError):
    """The program ended, or was ended, before it answered; never leaves this package."""

    def __init__(self, status: Status, exit_code: int | None, stderr: bytes) -> None:
        said = printable(stderr.strip().rpartition(b"\n")[2][:800].decode(errors="replace")[:200])
        super().__init__(f"ended: {status}, exit code {exit_code}" + (f", {said}" if said else ""))
        self.status: Status = status
        self.exit_code = exit_code


class Conversation(Protocol):
    """A running job that is asked and answers in messages of bytes, each with its length before it."""

    async def send(self, message: bytes) -> None:
        """Hand over one message."""
        ...

    async def receive(self, seconds: float) -> bytes:
        """Wait for one message; `EndedError` if none comes in time, or none can come any more."""
        ...


class Sandbox(Protocol):
    """Whatever runs jobs and keeps them in."""

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        ...

    def core(self) -> AbstractAsyncContextManager[object]:
        """Hold one of the cores; as many graders work at once as there are."""
        ...

    def open(self, job: Job) -> AbstractAsyncContextManager[Conversation]:
        """Start a job to talk with; it is ended on leaving. Takes no core: whoever opens holds one."""
        ...

    async def run(self, job: Job) -> JobResult:
        """Hold a core, run a job to its end, and tell how it went."""
        ...


async def find_sandbox(name: str = "auto", *, cores: int | None = None) -> Sandbox:
    """Find the sandbox of that name and try it; `auto` never chooses the unsafe one by itself."""
    from caps.sandbox.bubblewrap import Bubblewrap  # noqa: PLC0415 - they need the names above
    from caps.sandbox.runner import Runner  # noqa: PLC0415
    from caps.sandbox.unsafe_local import UnsafeLocal  # noqa: PLC0415

    if name not in NAMES:
        raise SettingError(f"no sandbox is called {name!r}: there are {', '.join(NAMES)}")
    cores = cores or os.cpu_count() or 1
    if name == "unsafe-local":
        return Runner(UnsafeLocal(), cores=cores)
    try:
        sandbox = Runner(Bubblewrap.find(), cores=cores)
        ran = await sandbox.run(PYTHON.job("print(6 * 7)"))
    except (SandboxError, OSError) as error:
        raise _no_bubblewrap(str(error)) from None
    if ran.stdout.strip() != b"42":
        raise _no_bubblewrap(ran.stderr.decode(errors="replace").strip()[:300] or ran.status)
    return sandbox


def _no_bubblewrap(why: str) -> UserError:
    return UserError(
        f"programs cannot be run safely here: {why}. Install bubblewrap 0.8 or later "
        "(apt-get install bubblewrap), or trust every candidate with your own rights: --sandbox unsafe-local"
    )


# No site packages, nothing of the user's, nothing written beside sources; without site there is no exit().
PYTHON = Language("python", "main.py", ("python", "-P", "-s", "-S", "-B"))
