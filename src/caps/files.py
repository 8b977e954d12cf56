"""Reading and writing the files that users name: reads are bounded, writes are atomic.

Every output of a command goes through `Output`, `write_file` or `append_file`. Rules that must not be broken:

* A regular file is replaced only when the new one is complete, by a rename; it keeps its mode and owner.
* Only regular files are replaced: devices, FIFOs and open files (`/dev/stdout`, `/dev/fd/3`) are written
  into, directories and disks are refused. A symbolic link stays, and its target is replaced. Another hard
  link keeps the old content.
* A database (such as a journal) and an input of the command are never replaced.
* A failing or full disk is an `InputError` of one sentence that names the file.
"""

import gzip
import os
import re
import stat
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import IO, Any, TypeVar

import msgspec

from caps.core.errors import InputError
from caps.core.text import printable_json

T = TypeVar("T")
BOM = b"\xef\xbb\xbf"
#: What decoding of hostile bytes raises.
UNDECODABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
MAX_BYTES = 64 << 20  # of a file that is read as a whole: settings, prompts, profiles
PARTIAL = ".partial"
_SQLITE = b"SQLite format 3\x00"
_DESCRIPTORS = re.compile(r"/proc/(\d+)(?:/task/\d+)?/fd|/dev/fd")
_MAX_LINKS = 40
_BINARY = getattr(os, "O_BINARY", 0)  # Windows only
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # a FIFO without a reader is refused, not waited for
_CAPS_PREFIXES = (b'{"id":', b"\x1f\x8b")  # how a partial file of an earlier run begins


@contextmanager
def file_errors(name: str, after: str = "") -> Iterator[None]:
    """Turn an `OSError` into an `InputError` that names the file; a closed pipe is not an error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}{after}") from None


# Reading


def open_input(path: str | Path) -> IO[bytes]:
    """Open a file for reading; pipes are accepted, disks and endless devices are refused."""
    file = Path(path).open("rb")  # noqa: SIM115  # the caller closes it
    try:
        status = os.fstat(file.fileno())
        endless = (
            stat.S_ISCHR(status.st_mode)
            and not file.isatty()
            and status.st_rdev != Path(os.devnull).stat().st_rdev
        )
        if endless or stat.S_ISBLK(status.st_mode):
            raise InputError(f"{path}: is a device, not a file")
    except BaseException:
        file.close()
        raise
    return file


def is_stream(path: str | Path) -> bool:
    """Whether a file can be read only once: standard input, a pipe or a device."""
    if str(path) == "-":
        return True
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def read_file(path: str | Path, *, option: str = "", most: int = MAX_BYTES) -> bytes:
    """Read all bytes of a file, within a limit and without a byte order mark."""
    name = f"{option} {path}".strip()
    with file_errors(name):
        if str(path) == "-":
            data = sys.stdin.buffer.read(most + 1)
        else:
            with open_input(path) as file:
                data = file.read(most + 1)
    if len(data) > most:
        raise InputError(f"{name}: holds more than {most:,} bytes")
    return data.removeprefix(BOM)


def read_text(path: str | Path, *, option: str = "", most: int = MAX_BYTES) -> str:
    """Read a UTF-8 file, with or without a byte order mark."""
    try:
        return read_file(path, option=option, most=most).decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{option} {path}: is not UTF-8 ({error}): save it as UTF-8".strip()) from None


def read_toml(path: str | Path, *, option: str = "") -> dict[str, Any]:
    """Read a TOML file."""
    try:
        return tomllib.loads(read_text(path, option=option))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{option} {path}: not a TOML file: {error}".strip()) from None
    except (RecursionError, ValueError):  # deeply nested lists, or a number of thousands of digits
        raise InputError(f"{option} {path}: nests too deep, or holds too long a number".strip()) from None


def decode_json(data: bytes | str, kind: type[T], where: str = "") -> T:
    """The JSON value of this type in a file or a message; an `InputError` names `where` it stands."""
    try:
        return msgspec.json.decode(data, type=kind)
    except UNDECODABLE as error:
        is_other_kind = kind is not object and isinstance(error, msgspec.ValidationError)
        reason = "" if is_other_kind else "not JSON"
        raise InputError(": ".join(filter(None, (where, reason, str(error))))) from None


# Writing


class Output:
    """An output file, gzipped if its name says so; a context manager. `finish` moves it into place.

    `-` is standard output. With `keep`, the unfinished file is called `NAME.partial` and stays when the run
    ends early; otherwise it is removed. `inputs` are files that must not be replaced.
    """

    def __init__(
        self, name: str | Path, *, option: str = "", keep: bool = False, inputs: Iterable[str | Path] = ()
    ) -> None:
        self.name, self._keep = str(name), keep
        self._label = "standard output" if self.name == "-" else f"{option} {name}".strip()
        self._target: str | None = None  # the regular file to create or replace
        self._partial: str | None = None
        with file_errors(self._label):
            self._refuse_inputs(inputs)
            self._raw = self._open()
        self._terminal = (self._raw or sys.stdout.buffer).isatty()
        self._zip = (
            gzip.GzipFile(filename=Path(self.name).name, mode="wb", fileobj=self._raw)
            if self.name.endswith(".gz") and self._raw is not None
            else None
        )

    def __enter__(self) -> "Output":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self._zip, self._raw):
            if file is not None:
                with suppress(OSError, ValueError):  # closing fails on a full disk too
                    file.close()
        if self._partial is not None and not self._keep:
            with suppress(OSError):
                Path(self._partial).unlink()

    def write(self, data: bytes) -> None:
        """Write and flush bytes."""
        with file_errors(self._label):
            if self._terminal:
                data = printable_json(data)
            file = self._zip or self._raw or sys.stdout.buffer
            file.write(data)
            if self._zip is None or self._keep:
                file.flush()

    def finish(self) -> None:
        """Complete the file and move it into place."""
        with file_errors(self._label):
            if self._zip is not None:
                self._zip.close()
            if self._raw is None:
                return
            self._raw.flush()
            if self._partial is None or self._target is None:
                self._raw.close()
                return
            os.fsync(self._raw.fileno())
            self._raw.close()
            Path(self._partial).replace(self._target)
            self._partial = None

    def _open(self) -> IO[bytes] | None:
        if self.name == "-":
            return None
        number = _descriptor(self.name)
        if number is not None:
            sys.stdout.flush()
            return os.fdopen(os.dup(number), "wb")
        target = os.path.realpath(self.name)
        try:
            status: os.stat_result | None = os.stat(target)  # noqa: PTH116
        except FileNotFoundError:
            status = None
        if status is not None and not stat.S_ISREG(status.st_mode):
            return _open_special(target, status)
        if status is not None:
            _refuse_protected(target)
        self._target = target
        file = self._create(target)
        if status is not None:
            _copy_owner(file.fileno(), status)
        return file

    def _create(self, target: str) -> IO[bytes]:
        """Open the partial file; its name is unique, so that two runs never write into one file."""
        if self._keep:
            self._partial = target + PARTIAL
            return _open_partial(self._partial)
        folder, name = os.path.split(target)
        self._partial = os.path.join(folder, f".{name[:40]}.{token_hex(6)}{PARTIAL}")  # noqa: PTH118
        return os.fdopen(os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666), "wb")

    def _refuse_inputs(self, inputs: Iterable[str | Path]) -> None:
        """Refuse to replace an input: lines that are unreadable or left out would be lost."""
        output = _file_id(1 if self.name == "-" else self.name)
        for one in inputs:
            if output is not None and output == _file_id(0 if str(one) == "-" else one):
                raise InputError(f"{self._label}: is the file that is read: name another one")


def write_file(path: str | Path, data: bytes | Iterable[bytes], *, option: str = "") -> None:
    """Write a file atomically; an existing one stays until the new one is complete."""
    with Output(path, option=option) as output:
        for chunk in (data,) if isinstance(data, bytes) else data:
            output.write(chunk)
        output.finish()


def append_file(path: Path, *, empty: bool = False) -> IO[bytes]:
    """Open a regular file for appending; `empty` truncates it first."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _BINARY | _NONBLOCK, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputError(f"{path}: is not a regular file")
        if empty:
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "ab")


class FolderLock:
    """A lock that keeps other processes from writing into a folder; a context manager."""

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = None
        try:
            import fcntl  # noqa: PLC0415  # not on Windows
        except ImportError:
            return
        self._descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise InputError(
                f"{path}: another process is writing into this folder: wait for it, or name another"
            ) from None
        except OSError:
            self.close()  # a file system without locks

    def __enter__(self) -> "FolderLock":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_own_output(path: Path) -> bool:
    """Whether a file is the redirected standard output or error of this process."""
    return _file_id(path) is not None and _file_id(path) in (_file_id(1), _file_id(2))


def join_paths(paths: Sequence[str]) -> str:
    """Several files as one source of cases; a single path is returned unchanged."""
    if len(paths) > 1 and "-" in paths:
        raise InputError("-: standard input cannot be read together with files: write it to a file first")
    return "\n".join(paths)


def split_paths(source: str) -> list[str]:
    """The files of a source of cases."""
    return source.split("\n")


def is_database(path: str | Path) -> bool:
    """Whether a regular file is an SQLite database, such as a journal."""
    with Path(path).open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _open_special(path: str, status: os.stat_result) -> IO[bytes]:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(21, "Is a directory")
    if stat.S_ISBLK(status.st_mode):
        raise InputError(f"{path}: is a disk; name a file")
    return os.fdopen(os.open(path, os.O_WRONLY | _BINARY | getattr(os, "O_NOCTTY", 0)), "wb")


def _refuse_protected(path: str) -> None:
    if not os.access(path, os.W_OK):
        raise PermissionError(13, "Permission denied")
    if is_database(path):
        raise InputError(f"{path}: is a database, such as a journal: it is left as it is; name another file")


def _copy_owner(descriptor: int, status: os.stat_result) -> None:
    mode = stat.S_IMODE(status.st_mode) & 0o777
    with suppress(OSError, AttributeError):
        if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(descriptor, status.st_uid, status.st_gid)
    with suppress(OSError, AttributeError):
        os.fchmod(descriptor, mode)


def _open_partial(partial: str) -> IO[bytes]:
    """Open and empty a partial file; one that is in use or was not written by caps is refused."""
    flags = os.O_RDWR | os.O_CREAT | _BINARY | _NONBLOCK | getattr(os, "O_NOFOLLOW", 0)
    file = os.fdopen(os.open(partial, flags, 0o666), "r+b")
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise InputError(f"{partial}: is not a regular file")
        with suppress(ImportError):
            import fcntl  # noqa: PLC0415  # not on Windows

            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        head = file.read(len(_CAPS_PREFIXES[0]))
        if head and not head.startswith(_CAPS_PREFIXES):
            raise InputError(f"{partial}: holds something that caps did not write: move it away")
        file.seek(0)
        file.truncate()
    except BlockingIOError:
        file.close()
        raise InputError(f"{partial}: another process is writing it: wait for it, or name another") from None
    except BaseException:
        file.close()
        raise
    return file


def _descriptor(name: str) -> int | None:
    """The descriptor that a name such as `/dev/stdout` or `/dev/fd/3` refers to."""
    for _ in range(_MAX_LINKS):
        folder, last = os.path.split(name)
        folder = os.path.realpath(folder or ".")
        match = _DESCRIPTORS.fullmatch(folder)
        if match is not None and last.isdecimal() and match[1] in (None, str(os.getpid())):
            return int(last)
        name = os.path.join(folder, last)  # noqa: PTH118
        try:
            name = os.path.join(folder, os.readlink(name))  # noqa: PTH115, PTH118
        except OSError:
            return None
    return None


def _file_id(file: str | Path | int) -> tuple[int, int] | None:
    """Device and inode of a regular file; None for anything else."""
    try:
        status = os.stat(file)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
