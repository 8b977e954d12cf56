"""Limits as the kernel knows them, set by `prlimit` on the way to the program, and its whole environment."""

import math
from types import MappingProxyType

from caps.graders.sandbox import Limits

# A fixed hash seed makes the order of sets the same in every run, and so the grade.
ENVIRONMENT = MappingProxyType(
    {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "LANG": "C.UTF-8",
        "HOME": "/tmp",  # noqa: S108
        "PYTHONHASHSEED": "0",
    }
)
_STACK = 64 << 20  # recursion through C needs it; more would be counted for every thread


def prlimit(limits: Limits, *, processes: int | None) -> tuple[str, ...]:
    """The command that starts what follows under these limits; `processes` None leaves them uncounted."""
    cpu = math.ceil((limits.cpu or limits.seconds) + 1)
    words = ["prlimit", f"--as={limits.memory}", f"--cpu={cpu}", f"--fsize={limits.file_size}"]
    words += [f"--nofile={limits.files}", f"--stack={_STACK}", "--core=0", "--memlock=0", "--msgqueue=0"]
    if processes is not None:
        words.append(f"--nproc={processes}")
    return tuple(words)
