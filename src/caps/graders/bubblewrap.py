"""The sandbox proper: bubblewrap, with namespaces of its own and hardly anything of the machine to be seen.

As root every job gets a user id of its own that nothing else uses, since the limit on processes counts all
processes of a user and does not hold for root; otherwise a user namespace does the hiding.
"""

import os
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from caps.core.errors import SandboxError
from caps.graders.rlimits import ENVIRONMENT, prlimit
from caps.graders.runner import Launch
from caps.graders.sandbox import Job
from caps.graders.seccomp import build_filter

_FOLDER = "/job"
_NEEDED = ("bwrap", "prlimit", "setpriv")
_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/localtime",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Starts jobs inside bubblewrap; `uids` are those it may give away, none if it is not root."""

    uids: range
    name: str = "bwrap"
    faults: tuple[bytes, ...] = (b"bwrap: ", b"setpriv: ", b"prlimit: ")

    @classmethod
    def find(cls) -> "Bubblewrap":
        """Find what it needs on this machine."""
        missing = [name for name in _NEEDED if shutil.which(name) is None]
        if missing:
            raise SandboxError(f"{' and '.join(missing)} is not installed")
        return cls(_spare_uids() if os.geteuid() == 0 else range(0))

    @contextmanager
    def launch(self, job: Job) -> Iterator[Launch]:
        """Say how a job is started; its files are handed over in memory."""
        contents = [*job.files.values(), build_filter()]
        fds = tuple(_in_memory(content) for content in contents)
        try:
            yield Launch(self._argv(job, fds), ENVIRONMENT, fds=fds)
        finally:
            for fd in fds:
                with suppress(OSError):
                    os.close(fd)

    def _argv(self, job: Job, fds: tuple[int, ...]) -> tuple[str, ...]:
        limits = job.limits
        files = [
            word
            for name, fd in zip(job.files, fds, strict=False)
            for word in ("--perms", "0444", "--file", str(fd), f"{_FOLDER}/{name}")
        ]
        argv = ["bwrap", *_view(), *self._rights()]
        argv += ["--perms", "1777", "--size", str(limits.scratch), "--tmpfs", "/tmp"]  # noqa: S108
        argv += ["--perms", "0755", "--dir", _FOLDER, *_parents(job.files), *files]
        argv += ["--remount-ro", "/", "--chdir", "/tmp", "--seccomp", str(fds[-1])]  # noqa: S108
        inner = [_program(job.argv[0]), *(self._place(word, job) for word in job.argv[1:])]
        if self.uids:
            # By chance, so that other processes that run jobs are unlikely to hold the same.
            own = str(secrets.choice(self.uids))
            argv += ["setpriv", "--reuid", own, "--regid", own, "--clear-groups", "--inh-caps=-all"]
        taken = 0 if self.uids else _count_tasks(os.getuid())
        return (*prlimit(limits, processes=limits.processes + taken), *argv, *inner)

    @staticmethod
    def _place(word: str, job: Job) -> str:
        return f"{_FOLDER}/{word}" if word in job.files else word

    def _rights(self) -> list[str]:
        if self.uids:
            return ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        return ["--unshare-user", "--disable-userns", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"]


@cache
def _view() -> tuple[str, ...]:
    """What every job may see: the system's programs and libraries, and this interpreter."""
    words = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    # No --new-session: we start it in one of its own, and as part of its group even a half-started sandbox
    # is ended with it; killed between its setsid and its prctl, bubblewrap leaves the inner half running.
    words += ["--die-with-parent", "--hostname", "sandbox", "--clearenv"]
    for name, value in ENVIRONMENT.items():
        words += ["--setenv", name, value]
    words += ["--setenv", "PYTHONPATH", _FOLDER]
    for folder in ("/dev", "/etc"):
        words += ["--perms", "0755", "--dir", folder]  # else they would be root's alone
    for path in _SYSTEM:
        if Path(path).is_symlink() and path.count("/") == 1:
            words += ["--symlink", str(Path(path).readlink()), path]
        else:
            words += ["--ro-bind-try", path, path]
    prefix = Path(sys.base_prefix).resolve()
    if not prefix.is_relative_to("/usr"):
        for parent in reversed(prefix.parents[:-1]):
            words += ["--perms", "0755", "--dir", str(parent)]  # else it would copy the mode of /root, say
        words += ["--ro-bind", str(prefix), str(prefix)]
    words += ["--proc", "/proc"]
    for device in _DEVICES:
        words += ["--dev-bind", device, device]
    return tuple(words)


def _parents(files: Iterable[str]) -> list[str]:
    """The folders that files stand in, outermost first."""
    folders = {parent for name in files for parent in Path(name).parents if parent != Path()}
    return [
        word for folder in sorted(folders) for word in ("--perms", "0755", "--dir", f"{_FOLDER}/{folder}")
    ]


@cache
def _program(name: str) -> str:
    """`python` is the interpreter that runs us; anything else is found in the sandbox."""
    return str(Path(sys.executable).resolve()) if name == "python" else name


def _spare_uids() -> range:
    """User ids at the far end of what this root may become."""
    spans = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    first, _, size = max((tuple(map(int, span)) for span in spans), key=lambda span: span[2])
    stop = first + size - 2
    return range(stop - min(1 << 30, size // 2), stop)


def _count_tasks(uid: int) -> int:
    """Threads this user has already, for the limit counts them in; bubblewrap needs two more."""
    count = 2
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and folder.stat().st_uid == uid:
                count += len(os.listdir(folder / "task"))  # noqa: PTH208 - names are all that is wanted
    return count


def _in_memory(content: bytes) -> int:
    fd = os.memfd_create("job")
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
