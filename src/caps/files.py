"""Files that users name: read within bounds, written whole or not at all, and nothing that was there is lost.

Every output of a command goes through `Output`, `write_file` or `append_file`. Rules that must not be broken:

* A regular file is replaced only when the new one is whole, by a rename; it keeps its mode and owner.
* Whatever is not a regular file is never replaced: devices, FIFOs and open files (`/dev/stdout`,
  `/dev/fd/3`) are written into, directories and disks are refused. A symbolic link stays; its target is
  what is replaced. Another hard link keeps the old content.
* A database (such as a journal) and a file the command reads from are never replaced.
* A failing or full disk is an `InputError` of one sentence that names the file.
"""

import gzip
import os
import re
import stat
import sys
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import IO, Any

from caps.core.errors import InputError
from caps.core.text import printable_json

BOM = b"\xef\xbb\xbf"
MOST_BYTES = 64 << 20  # of a file that is read as one text: settings, prompts, profiles
PARTIAL = ".partial"
_SQLITE = b"SQLite format 3\x00"
_DESCRIPTORS = re.compile(r"/proc/(\d+)(?:/task/\d+)?/fd|/dev/fd")
_MOST_LINKS = 40
_PLAIN = getattr(os, "O_BINARY", 0)  # Windows alone has it, and lacks the others
_UNWAITED = getattr(os, "O_NONBLOCK", 0)  # a FIFO without a reader is refused, not waited for
_LINES_OF_OURS = (b'{"id":', b"\x1f\x8b")  # how a part that an earlier run left begins


@contextmanager
def file_errors(name: str, after: str = "") -> Iterator[None]:
    """Turn what the system says of a file into one sentence; a closed pipe is nobody's mistake."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}{after}") from None


# Reading


def open_input(path: str | Path) -> IO[bytes]:
    """Open a file for reading; a disk or an endless device is refused, a pipe is read as it comes."""
    file = Path(path).open("rb")  # noqa: SIM115  # the caller closes it
    try:
        found = os.fstat(file.fileno())
        endless = stat.S_ISCHR(found.st_mode) and not file.isatty() and not _is_null(found)
        if endless or stat.S_ISBLK(found.st_mode):
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


def read_file(path: str | Path, *, option: str = "", most: int = MOST_BYTES) -> bytes:
    """All bytes of a file, within a limit, without the byte order mark at its beginning."""
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


def read_text(path: str | Path, *, option: str = "", most: int = MOST_BYTES) -> str:
    """The text of a file in UTF-8, with or without a byte order mark."""
    try:
        return read_file(path, option=option, most=most).decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{option} {path}: is not UTF-8 ({error}): save it as UTF-8".strip()) from None


def read_toml(path: str | Path, *, option: str = "") -> dict[str, Any]:
    """The values of a TOML file."""
    try:
        return tomllib.loads(read_text(path, option=option))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{option} {path}: {error}".strip()) from None
    except (RecursionError, ValueError):  # lists in lists, or a number of thousands of digits
        raise InputError(f"{option} {path}: nests too deep, or holds too long a number".strip()) from None


# Writing


class Output:
    """A file in the making; a context manager. `finish` puts it in its place, gzipped if its name says so.

    `-` is standard output. With `keep`, the part made so far is called `NAME.partial` and stays when the
    run ends early; otherwise nothing is left behind. `inputs` are files that must not be replaced.
    """

    def __init__(
        self, name: str | Path, *, option: str = "", keep: bool = False, inputs: Iterable[str | Path] = ()
    ) -> None:
        self.name, self._keep = str(name), keep
        self._said = "standard output" if self.name == "-" else f"{option} {name}".strip()
        self._place: str | None = None  # of a regular file that is to be replaced
        self._partial: str | None = None
        with file_errors(self._said):
            self._refuse_inputs(inputs)
            self._raw = self._opened()
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
                with suppress(OSError, ValueError):  # a disk that is full is full when closing, too
                    file.close()
        if self._partial is not None and not self._keep:
            with suppress(OSError):
                Path(self._partial).unlink()

    def write(self, data: bytes) -> None:
        """Write bytes, whole and at once."""
        with file_errors(self._said):
            if self._terminal:
                data = printable_json(data)
            file = self._zip or self._raw or sys.stdout.buffer
            file.write(data)
            if self._zip is None or self._keep:
                file.flush()

    def finish(self) -> None:
        """Put the file in its place."""
        with file_errors(self._said):
            if self._zip is not None:
                self._zip.close()
            if self._raw is None:
                return
            self._raw.flush()
            if self._partial is None or self._place is None:
                self._raw.close()
                return
            os.fsync(self._raw.fileno())
            self._raw.close()
            Path(self._partial).replace(self._place)
            self._partial = None

    def _opened(self) -> IO[bytes] | None:
        if self.name == "-":
            return None
        number = _descriptor(self.name)
        if number is not None:
            sys.stdout.flush()
            return os.fdopen(os.dup(number), "wb")
        place = os.path.realpath(self.name)
        try:
            found: os.stat_result | None = os.stat(place)  # noqa: PTH116
        except FileNotFoundError:
            found = None
        if found is not None and not stat.S_ISREG(found.st_mode):
            return _opened_special(place, found)
        if found is not None:
            _refuse_precious(place)
        self._place = place
        file = self._create(place)
        if found is not None:
            _copy_owner(file.fileno(), found)
        return file

    def _create(self, place: str) -> IO[bytes]:
        """Open the part: under a name of its own, so that two runs at once never write into one file."""
        if self._keep:
            self._partial = place + PARTIAL
            return _taken_over(self._partial)
        folder, name = os.path.split(place)
        self._partial = os.path.join(folder, f".{name[:40]}.{token_hex(6)}{PARTIAL}")  # noqa: PTH118
        return os.fdopen(os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN, 0o666), "wb")

    def _refuse_inputs(self, inputs: Iterable[str | Path]) -> None:
        """Refuse to write over what is read: a line that cannot be read, or is left out, would be lost."""
        ours = _regular(1 if self.name == "-" else self.name)
        for one in inputs:
            if ours is not None and ours == _regular(0 if str(one) == "-" else one):
                raise InputError(f"{self._said}: is the file that is read: name another one")


def write_file(path: str | Path, data: bytes | Iterable[bytes], *, option: str = "") -> None:
    """Write a file as a whole; what was there stays as it is until the new one is complete."""
    with Output(path, option=option) as output:
        for chunk in (data,) if isinstance(data, bytes) else data:
            output.write(chunk)
        output.finish()


def append_file(path: Path, *, empty: bool = False) -> IO[bytes]:
    """Open a regular file that grows while a run goes on, `empty` or behind what is in it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _PLAIN | _UNWAITED, 0o666)
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
    """Keeps other processes from writing into a folder; a context manager. It ends with the process."""

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
        """Let others write."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_own_output(path: Path) -> bool:
    """Whether a file is our own standard output or error, as a shell redirects them."""
    return _regular(path) is not None and _regular(path) in (_regular(1), _regular(2))


def is_database(path: str | Path) -> bool:
    """Whether a regular file is a database of SQLite, such as a journal."""
    with Path(path).open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _opened_special(place: str, found: os.stat_result) -> IO[bytes]:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(21, "Is a directory")
    if stat.S_ISBLK(found.st_mode):
        raise InputError(f"{place}: is a disk; a file is wanted")
    return os.fdopen(os.open(place, os.O_WRONLY | _PLAIN | getattr(os, "O_NOCTTY", 0)), "wb")


def _refuse_precious(place: str) -> None:
    if not os.access(place, os.W_OK):
        raise PermissionError(13, "Permission denied")
    if is_database(place):
        raise InputError(f"{place}: is a database, such as a journal: it is left as it is; name another file")


def _copy_owner(descriptor: int, found: os.stat_result) -> None:
    mode = stat.S_IMODE(found.st_mode) & 0o777
    with suppress(OSError, AttributeError):
        if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(descriptor, found.st_uid, found.st_gid)
    with suppress(OSError, AttributeError):
        os.fchmod(descriptor, mode)


def _taken_over(partial: str) -> IO[bytes]:
    """The part of an earlier run, emptied; one that another process writes, or caps did not, is refused."""
    flags = os.O_RDWR | os.O_CREAT | _PLAIN | _UNWAITED | getattr(os, "O_NOFOLLOW", 0)
    file = os.fdopen(os.open(partial, flags, 0o666), "r+b")
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise InputError(f"{partial}: is not a regular file")
        with suppress(ImportError):
            import fcntl  # noqa: PLC0415  # not on Windows

            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        head = file.read(len(_LINES_OF_OURS[0]))
        if head and not head.startswith(_LINES_OF_OURS):
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
    """The open file that a name such as `/dev/stdout` or `/dev/fd/3` stands for."""
    for _ in range(_MOST_LINKS):
        folder, last = os.path.split(name)
        folder = os.path.realpath(folder or ".")
        found = _DESCRIPTORS.fullmatch(folder)
        if found is not None and last.isdecimal() and found[1] in (None, str(os.getpid())):
            return int(last)
        name = os.path.join(folder, last)  # noqa: PTH118
        try:
            name = os.path.join(folder, os.readlink(name))  # noqa: PTH115, PTH118
        except OSError:
            return None
    return None


def _regular(file: str | Path | int) -> tuple[int, int] | None:
    """What identifies a regular file; nothing else is anyone's to lose."""
    try:
        found = os.stat(file)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _is_null(found: os.stat_result) -> bool:
    return found.st_rdev == Path(os.devnull).stat().st_rdev
