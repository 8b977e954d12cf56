"""How jobs are started, in bubblewrap or with limits alone, and which of the two works on this machine.

Bubblewrap gives each its own namespaces, a minimal file system and a system-call filter.

As root, every job gets an otherwise unused user id, since the limit on processes counts all processes of a
user and does not apply to root; otherwise a user namespace isolates it.
"""

import errno
import os
import platform
import secrets
import shutil
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple

from caps.core.errors import SandboxError, SettingError, UserError
from caps.sandbox.base import PYTHON, Job
from caps.sandbox.runner import ENVIRONMENT, Launch, Sandbox, prlimit

# --- The system-call filter: calls that no graded program needs, or that could evade the limits ---
#
# Namespaces would allow unbounded mounts; System V shared memory, memory files (memfd) and what is sent to a
# socket and not received are not charged to the program; the others are rarely used and less tested parts of
# the kernel. They fail with EPERM. A program gets sockets as connected pairs only, which event loops and
# pipes between processes need: each holds a few hundred kilobytes at most, and their number is limited like
# that of files. Pairs of other families than Unix fail with EAFNOSUPPORT.


class _Machine(NamedTuple):
    audit: int
    clone: int
    socketpair: int
    denied: tuple[int, ...]


# Numbers from 424 on are the same on all architectures: io_uring_setup, open_tree, move_mount, fsopen,
# pidfd_getfd, mount_setattr, memfd_secret.
_COMMON = (425, 428, 429, 430, 438, 442, 447)
_CLONE3 = 435  # its flags are in memory that a filter cannot read; without it, libraries use clone
_NEW_USER = 0x10000000
# In this order: unshare setns mount umount2 pivot_root ptrace process_vm_readv process_vm_writev keyctl
# add_key request_key bpf perf_event_open userfaultfd shmget msgget semget open_by_handle_at kexec_load
# init_module finit_module memfd_create socket connect bind setsockopt.
_MACHINES = {
    "x86_64": _Machine(
        0xC000003E, 56, 53,
        (272, 308, 165, 166, 155, 101, 310, 311, 250, 248, 249, 321, 298, 323, 29, 68, 64, 304, 246, 175,
         313, 319, 41, 42, 49, 54),
    ),
    "aarch64": _Machine(
        0xC00000B7, 220, 199,
        (97, 268, 40, 39, 41, 117, 270, 271, 219, 217, 218, 280, 241, 282, 194, 186, 190, 265, 104, 105,
         273, 279, 198, 203, 200, 208),
    ),
}  # fmt: skip
_UNIX = 1  # AF_UNIX
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _AUDIT, _FIRST = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000


@cache
def build_filter(machine: str = platform.machine()) -> bytes:
    """The filter as BPF bytes; it allows everything on a machine whose call numbers are not listed."""
    if not has_filter(machine):
        return _step(_RETURN, _ALLOW)
    audit, clone, socketpair, denied = _MACHINES[machine]
    steps = [_step(_LOAD, _AUDIT), _step(_EQUAL, audit, 1, 0), _step(_RETURN, _KILL), _step(_LOAD, _NUMBER)]
    if machine == "x86_64":  # the x32 ABI: other numbers for the same calls
        steps += [_step(_AT_LEAST, 0x40000000, 0, 1), _step(_RETURN, _FAIL | errno.ENOSYS)]
    steps += [_step(_EQUAL, _CLONE3, 0, 1), _step(_RETURN, _FAIL | errno.ENOSYS)]
    for number in (*denied, *_COMMON):
        steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _FAIL | errno.EPERM)]
    steps += [_step(_EQUAL, socketpair, 0, 4), _step(_LOAD, _FIRST), _step(_EQUAL, _UNIX, 1, 0)]
    steps += [_step(_RETURN, _FAIL | errno.EAFNOSUPPORT), _step(_RETURN, _ALLOW)]
    steps += [_step(_EQUAL, clone, 0, 3), _step(_LOAD, _FIRST), _step(_ANY_BIT, _NEW_USER, 0, 1)]
    steps += [_step(_RETURN, _FAIL | errno.EPERM), _step(_RETURN, _ALLOW)]
    return b"".join(steps)


def has_filter(machine: str = platform.machine()) -> bool:
    """Whether system calls are filtered on such a machine."""
    return machine in _MACHINES


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)


_FOLDER = "/job"
_NEEDED = ("bwrap", "prlimit", "setpriv")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SETTINGS = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


class Bubblewrap(Sandbox):
    """Runs jobs in bubblewrap; `SandboxError` where a program that it needs is not installed."""

    name = "bwrap"
    faults = (b"bwrap: ", b"setpriv: ", b"prlimit: ")

    def __init__(self, cores: int) -> None:
        missing = [name for name in _NEEDED if shutil.which(name) is None]
        if missing:
            raise SandboxError(f"{' and '.join(missing)} is not installed")
        super().__init__(cores)
        self._uids = _spare_uids() if os.geteuid() == 0 else range(0)  # for jobs

    @contextmanager
    def launch(self, job: Job) -> Iterator[Launch]:
        """The command that starts a job; its files are passed in memory."""
        with ExitStack() as stack:
            ends = zip(os.pipe(), ("rb", "wb"), strict=True)
            reading, writing = (stack.enter_context(os.fdopen(end, mode)) for end, mode in ends)
            contents = [*job.files.values(), build_filter()]
            fds = (*(stack.enter_context(_in_memory(one)).fileno() for one in contents), writing.fileno())
            yield Launch(self._argv(job, fds), ENVIRONMENT, fds=fds, init=(reading, writing))

    def _argv(self, job: Job, fds: tuple[int, ...]) -> tuple[str, ...]:
        limits = job.limits
        files = [
            word
            for name, fd in zip(job.files, fds, strict=False)
            for word in ("--perms", "0444", "--file", str(fd), f"{_FOLDER}/{name}")
        ]
        # First, because what comes later is visible: this interpreter may be in a folder below it.
        argv = ["bwrap", "--perms", "1777", "--size", str(limits.scratch), "--tmpfs", "/tmp"]  # noqa: S108
        argv += [*_common_arguments(), *self._privileges()]
        argv += ["--perms", "0755", "--dir", _FOLDER, *_parents(job.files), *files]
        argv += _read_only(job.folders)
        argv += ["--remount-ro", "/", "--chdir", "/tmp", "--seccomp", str(fds[-2])]  # noqa: S108
        argv += ["--info-fd", str(fds[-1])]
        inner = [_program(job.argv[0]), *(self._path_inside(word, job) for word in job.argv[1:])]
        if self._uids:
            # Random, so that other processes that run jobs are unlikely to use the same.
            uid = str(secrets.choice(self._uids))
            argv += ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "--inh-caps=-all"]
        taken = 0 if self._uids else _count_tasks(os.getuid())
        return (*prlimit(limits, processes=limits.processes + taken), *argv, *inner)

    @staticmethod
    def _path_inside(word: str, job: Job) -> str:
        return f"{_FOLDER}/{word}" if word in job.files else word

    def _privileges(self) -> list[str]:
        if self._uids:
            return ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        return ["--unshare-user", "--disable-userns", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"]


@cache
def _common_arguments() -> tuple[str, ...]:
    """Arguments for the file system of every job: system programs and libraries, and this interpreter."""
    arguments = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    # No --new-session: the runner starts it in a new session, and killing that group ends even a half-started
    # sandbox. Killed between its own setsid and prctl, bubblewrap would leave the inner process running.
    arguments += ["--die-with-parent", "--hostname", "sandbox", "--clearenv"]
    for name, value in ENVIRONMENT.items():
        arguments += ["--setenv", name, value]
    arguments += ["--setenv", "PYTHONPATH", _FOLDER]
    for folder in ("/dev", "/etc"):
        arguments += ["--perms", "0755", "--dir", folder]  # otherwise only root could read them
    for path in (
        *_SYSTEM,
        *_SETTINGS,
        *map(str, sorted(Path("/etc").glob("java-*"))),
    ):  # Java has settings there
        if Path(path).is_symlink() and path.count("/") == 1:
            arguments += ["--symlink", str(Path(path).readlink()), path]
        else:
            arguments += ["--ro-bind-try", path, path]
    prefix = Path(sys.base_prefix).resolve()
    if not prefix.is_relative_to("/usr"):
        for parent in reversed(prefix.parents[:-1]):
            # Otherwise bubblewrap would copy the mode, for example of /root.
            arguments += ["--perms", "0755", "--dir", str(parent)]
        arguments += ["--ro-bind", str(prefix), str(prefix)]
    # Without root, a program could otherwise write to the memory of its namespace's init and make it outlive
    # this process. An empty folder hides it.
    arguments += ["--proc", "/proc", "--perms", "0555", "--size", "4096", "--tmpfs", "/proc/1"]
    arguments += ["--remount-ro", "/proc/1"]
    for device in _DEVICES:
        arguments += ["--dev-bind", device, device]
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        arguments += ["--symlink", f"/proc/self/fd/{fd}", f"/dev/{name}"]
    return tuple(arguments)


def _parents(files: Iterable[str]) -> list[str]:
    """Arguments that create the parent folders of files, outermost first."""
    folders = {parent for name in files for parent in Path(name).parents if parent != Path()}
    return [
        word for folder in sorted(folders) for word in ("--perms", "0755", "--dir", f"{_FOLDER}/{folder}")
    ]


def _read_only(folders: Mapping[str, str]) -> list[str]:
    """Arguments that show folders at their paths inside; parent folders are created as everyone's."""
    arguments = []
    for inside, folder in folders.items():
        for parent in (*reversed(Path(inside).parents[:-1]), inside):
            arguments += ["--perms", "0755", "--dir", str(parent)]
        arguments += ["--ro-bind", folder, inside]
    return arguments


@cache
def _program(name: str) -> str:
    """`python` means the current interpreter; other names are resolved in the sandbox."""
    return str(Path(sys.executable).resolve()) if name == "python" else name


def _spare_uids() -> range:
    """User ids at the upper end of the range that this root may use."""
    spans = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    first, _, size = max((tuple(map(int, span)) for span in spans), key=lambda span: span[2])
    stop = first + size - 2
    return range(stop - min(1 << 30, size // 2), stop)


def _count_tasks(uid: int) -> int:
    """Threads of this user, which the limit includes, and two for bubblewrap."""
    count = 2
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and folder.stat().st_uid == uid:
                count += len(os.listdir(folder / "task"))  # noqa: PTH208 - only names are needed
    return count


def _in_memory(content: bytes) -> IO[bytes]:
    file = os.fdopen(os.memfd_create("job"), "w+b", buffering=0)
    file.write(content)
    file.seek(0)
    return file


# --- The weaker sandbox for machines without bubblewrap; it must be chosen by name ---
#
# It limits memory, processor time, file size, open files and wall time, kills the program's process group,
# clears its environment and gives it a temporary folder. It does not stop a program from
#
# * reading or changing whatever you can read or change, or sending it over the network;
# * killing your processes, the one that runs it included;
# * starting any number of processes, or moving some to another group where they outlive the time limit;
# * filling the disk with many files, each within the limit.


class UnsafeLocal(Sandbox):
    """Runs jobs as ordinary processes under limits."""

    name = "unsafe-local"
    faults = (b"prlimit: ",)

    @contextmanager
    def launch(self, job: Job) -> Iterator[Launch]:
        """Write the files of a job to a temporary folder and return its command."""
        if job.folders:
            raise SandboxError("unsafe-local: cannot protect the folders of a job: use bwrap")
        with TemporaryDirectory(prefix="caps-", ignore_cleanup_errors=True) as folder:
            for name, content in job.files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            program = str(Path(sys.executable).resolve()) if job.argv[0] == "python" else job.argv[0]
            env = {**ENVIRONMENT, "HOME": folder, "TMPDIR": folder, "PYTHONPATH": folder}
            yield Launch((*prlimit(job.limits, processes=None), program, *job.argv[1:]), env, folder)


NAMES = ("auto", "bwrap", "unsafe-local")


async def find_sandbox(name: str = "auto", *, cores: int | None = None) -> Sandbox:
    """Find and test the sandbox of that name; `auto` never chooses the unsafe one."""
    if name not in NAMES:
        raise SettingError(f"no sandbox is called {name!r}: choose one of {', '.join(NAMES)}")
    cores = cores or os.cpu_count() or 1
    if name == "unsafe-local":
        return UnsafeLocal(cores)
    try:
        sandbox = Bubblewrap(cores)
        result = await sandbox.run(PYTHON.job("print(6 * 7)"))
    except (SandboxError, OSError) as error:
        raise _no_bubblewrap(str(error)) from None
    if result.stdout.strip() != b"42":
        raise _no_bubblewrap(result.stderr.decode(errors="replace").strip()[:300] or result.status)
    return sandbox


def _no_bubblewrap(why: str) -> UserError:
    return UserError(
        f"programs cannot be run safely here: {why}. Install bubblewrap 0.8 or later "
        "(apt-get install bubblewrap), or trust every candidate with your own rights: --sandbox unsafe-local"
    )
