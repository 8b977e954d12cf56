"""What a sandbox takes and returns: jobs, limits and results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

from caps.core.errors import CapsError
from caps.core.text import escaped

REASONS = MappingProxyType(
    {
        "ok": "wrong answer",
        "crashed": "runtime error",
        "timeout": "time limit",
        "clock": "wall-clock limit",
        "memory": "memory limit",
        "output": "output limit",
        "unparsed": "does not parse",
    }
)
Status: TypeAlias = Literal["ok", "crashed", "timeout", "clock", "memory", "output"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of a job. `memory` is address space, for each of its processes.

    `seconds` limit a job that runs to its end by the clock, and each step of one that exchanges messages by
    its processor time. `cpu` is the processor time of one process in seconds; the default is `seconds`. With
    `address`, that is the address space, and `memory` limits the part of it that can be written.
    """

    seconds: float = 10.0
    memory: int = 1 << 30
    output: int = 8 << 20
    processes: int = 8
    files: int = 64
    file_size: int = 16 << 20
    scratch: int = 64 << 20
    cpu: float | None = None
    address: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A command, the files in its folder, and its standard input.

    `folders` are folders of this machine that it may read, by their path inside (bubblewrap only).
    """

    argv: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    stdin: bytes = b""
    limits: Limits = Limits()
    folders: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended; a negative `exit_code` is the number of the signal."""

    status: Status
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class Language:
    """How to run a program text: the command, and the name of its source file."""

    name: str
    file: str
    argv: tuple[str, ...]

    def job(self, source: str, *, stdin: bytes = b"", limits: Limits | None = None) -> Job:
        """The job that runs this program once."""
        text = source.encode(errors="surrogatepass")
        return Job((*self.argv, self.file), {self.file: text}, stdin, limits or Limits())


class EndedError(CapsError):
    """The program ended, or was killed, before it answered; internal to grading."""

    def __init__(self, status: Status, exit_code: int | None, stderr: bytes) -> None:
        message = escaped(stderr.strip().rpartition(b"\n")[2][:800].decode(errors="replace")[:200])
        super().__init__(f"ended: {status}, exit code {exit_code}" + (f", {message}" if message else ""))
        self.status: Status = status
        self.exit_code = exit_code


#: A step is ended after this many times its limit in processor time. What it used between the two is near
#: the limit: on another machine, or a busier one, it could have been on the other side of it.
CERTAIN = 2
#: A step ends by the clock after this many times that: it waits for something, or the machine is very busy.
PATIENCE = 10


def clock_seconds(seconds: float) -> float:
    """How long to wait, by the clock, for a step that may use this much processor time."""
    return CERTAIN * PATIENCE * seconds


# No site packages, no user settings, no bytecode files; without site there is no exit().
PYTHON = Language("python", "main.py", ("python", "-P", "-s", "-S", "-B"))
