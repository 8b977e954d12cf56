"""The files of the journal: the database, its schema and errors of SQLite; claims on calls.

Invariants:

* A file of another version, or of another program, is rejected before anything in it is changed.
* An error names the file and what to do.
"""

import asyncio
import os
import sqlite3
import struct
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from caps.core.errors import JournalError

# The sqlite3 of Debian is built without the extension that .recover needs.
_DAMAGED = (
    "is damaged and was not changed: name another file; to save what can be read, run  "
    "sqlite3 OLD .recover | sqlite3 NEW  (with the program from sqlite.org: some systems' own one cannot)"
)
_UNWRITABLE = "cannot be written: make the file and its folder writable, or name another file"
_LOCKED = "has been locked by another process for too long: end that process, or name another file"
# Prefixes of SQLite's error names, so that extended codes (`READONLY_DIRECTORY`) are covered.
_MESSAGES = (
    ("SQLITE_READONLY", _UNWRITABLE),
    ("SQLITE_PERM", _UNWRITABLE),
    ("SQLITE_AUTH", _UNWRITABLE),
    ("SQLITE_CANTOPEN", "cannot be opened: its folder must exist and be writable; or name another file"),
    ("FOLDER", "cannot be opened, nor can its folder be created: name another file with --journal"),
    ("SQLITE_FULL", "has no space left on its disk: free some, then run again; what was stored is safe"),
    ("SQLITE_IOERR", "is on a failing or full disk: repair that, then run again; what was stored is safe"),
    ("SQLITE_NOTADB", "is not a journal (not an SQLite file) and was not changed: name another file"),
    ("SQLITE_CORRUPT", _DAMAGED),
    ("SQLITE_BUSY", _LOCKED),
    ("SQLITE_LOCKED", _LOCKED),
    ("SQLITE_PROTOCOL", _LOCKED),
)


def beside(path: Path, ending: str) -> Path:
    """The path of a file that SQLite keeps next to a journal."""
    return path.with_name(path.name + ending)


def explain(error: Exception, path: Path) -> JournalError:
    """An error of SQLite or the file system as one that names the file and what to do."""
    name = getattr(error, "sqlite_errorname", None) or ("FOLDER" if isinstance(error, OSError) else "")
    message = next((text for start, text in _MESSAGES if name.startswith(start)), "cannot be used")
    return JournalError(f"journal {str(path)!r} {message} ({error})")


def damage_error(path: Path, damage: str) -> JournalError:
    """The error for a damaged file."""
    return JournalError(f"journal {str(path)!r} {_DAMAGED} ({damage})")


def is_unwritable(error: sqlite3.Error) -> bool:
    """Whether the file cannot be written; it may still be readable."""
    return (getattr(error, "sqlite_errorname", None) or "").startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN"))


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process holds the file, so that waiting may help."""
    return (getattr(error, "sqlite_errorname", None) or "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


APPLICATION_ID = 0x63617073  # "caps": marks journals among other SQLite files

VERSION = 2  # of the schema; a change to it is a new number

SCHEMA = (
    """CREATE TABLE replies (
        key TEXT PRIMARY KEY, at REAL NOT NULL, model TEXT NOT NULL, served TEXT NOT NULL,
        template TEXT NOT NULL, prompt_digest TEXT NOT NULL, finish TEXT NOT NULL, text TEXT NOT NULL,
        reasoning TEXT NOT NULL, prompt_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL, reasoning_tokens INTEGER NOT NULL, estimated INTEGER NOT NULL,
        logprobs TEXT, latency REAL NOT NULL, attempts INTEGER NOT NULL)""",
    """CREATE TABLE facts (
        kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, at REAL NOT NULL,
        PRIMARY KEY (kind, key))""",
    # Replies without their texts. A request may be stored and redacted again, so there is no primary key.
    """CREATE TABLE redacted (
        key TEXT NOT NULL, at REAL NOT NULL, model TEXT NOT NULL, served TEXT NOT NULL,
        template TEXT NOT NULL, prompt_digest TEXT NOT NULL, finish TEXT NOT NULL,
        prompt_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
        reasoning_tokens INTEGER NOT NULL, estimated INTEGER NOT NULL, latency REAL NOT NULL,
        attempts INTEGER NOT NULL, redacted_at REAL NOT NULL)""",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)


def inspect(connection: sqlite3.Connection, path: Path) -> None:
    """Reject a file of another program or of another version; changes nothing."""
    # In this order: another process creates tables together with the mark; without it they are foreign.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    if owner != APPLICATION_ID and tables:
        raise JournalError(
            f"{str(path)!r} is the SQLite file of another program, not a journal: name another file"
        )
    version = _version(connection)
    if version not in (0, VERSION):
        which, advice = ("a newer", "upgrade caps") if version > VERSION else ("an older", "use that one")
        raise JournalError(
            f"{str(path)!r} was written by {which} version of caps (journal version {version}, this "
            f"one reads {VERSION}): {advice}, or name another file"
        )


def create(connection: sqlite3.Connection) -> None:
    """Create the tables of an empty file in one transaction; also checks that the file can be written."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if is_empty(connection):  # else another process has created them meanwhile
            for statement in SCHEMA:
                connection.execute(statement)
        # Changes nothing, but fails if the file is read-only.
        connection.execute("UPDATE facts SET at = at WHERE 0")
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether a file has no tables yet."""
    return _version(connection) == 0


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


BUSY_SECONDS = 30.0
# Up to this size the whole file is checked for damaged pages before it is used, at about 1 ms per megabyte;
# damage of a larger file is reported when it is met.
MAX_CHECKED_BYTES = 256 * 2**20
# Keys are random, so in a long journal every row changes a page of the index: the longer the log may become
# before a checkpoint, the more rows share a page. 16 MB save a sixth of the CPU time.
CHECKPOINT_PAGES = 4000


def connect(path: Path, patience: float, *, create: bool, more: str = "") -> sqlite3.Connection:
    """Connect to a file, which is created only with `create`; wait up to `patience` seconds for locks."""
    # Autocommit: transactions are explicit. Used by two threads, never at the same time.
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}{more}",
        uri=True,
        timeout=patience,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )


def check_is_file(path: Path) -> None:
    """Reject a path that is a directory or a device."""
    if path.is_dir():
        raise JournalError(f"journal {str(path)!r} is a directory: name a file in it")
    if path.exists() and not path.is_file():
        raise JournalError(f"journal {str(path)!r} is a device or a pipe: name a file")


def examine(connection: sqlite3.Connection, path: Path, *, checked: int = MAX_CHECKED_BYTES) -> None:
    """Reject a file that is foreign, of another version or damaged; changes nothing."""
    inspect(connection, path)
    if path.stat().st_size <= checked:
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            raise damage_error(path, " ".join(result.split()))


def prepare(
    connection: sqlite3.Connection,
    path: Path,
    patience: float,
    *,
    durable: bool = False,
    checked: int = MAX_CHECKED_BYTES,
) -> None:
    """Check a file, switch it to the write-ahead log, and create its tables if it is new."""
    examine(connection, path, checked=checked)
    _enable_wal(connection, path, patience)
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    create(connection)


def never_wait(connection: sqlite3.Connection) -> None:
    """Make a connection never wait for the disk: other connections flush what it commits."""
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")


def _enable_wal(connection: sqlite3.Connection, path: Path, patience: float) -> None:
    """Switch to the write-ahead log, so that processes can read and write at the same time."""
    deadline = time.monotonic() + patience
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError as error:
            # SQLite does not wait for this lock itself; processes that create a file together run into it.
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    if mode != "wal":
        raise JournalError(
            f"journal {str(path)!r} is on a file system that cannot share it (mode {mode!r}): "
            "name a file on a local disk"
        )


# --- Claims: of several processes that share a journal, only one makes a given call ---
#
# A claim is a lock of the operating system on one byte of a file beside the journal, at a place that follows
# from the key of the call. It ends with the process that holds it, whatever ended that, and costs two system
# calls. Invariants:
#
# * Claims save money; nothing else depends on them. Without them both processes ask, and the first reply
#   stays.
# * A call is claimed before its reply is looked for, and released after it is stored: whoever gets the claim
#   later finds the reply.
# * Nothing waits for a claim forever: after `LEASE_SECONDS` the call is made anyway.


try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

LEASE_SECONDS = 600.0  # as long as a call may take by default
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.25  # seconds between two looks at a claim of another process
_LOCK = struct.Struct("hhqqi")  # struct flock: type, whence, start, length, process
_FIRST = 1  # the first byte is that of the processes which have the file open


class Claims:
    """The claims of one process, in a file that all processes of a journal share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._set(fcntl.F_RDLCK, 0)

    @classmethod
    def open(cls, path: Path) -> "Claims | None":
        """Open the file; None where the system has no such locks: then calls are not claimed."""
        if not hasattr(fcntl, "F_OFD_SETLK"):  # on Linux only
            return None
        with suppress(OSError):
            return cls(path)
        return None

    def take_now(self, key: str) -> bool:
        """Claim a call, unless another process has it."""
        try:
            self._set(fcntl.F_WRLCK, _place(key))
        except OSError:
            return False
        return True

    async def take(self, key: str, seconds: float = LEASE_SECONDS) -> None:
        """Claim a call; waits, up to `seconds`, while another process has it."""
        until, pause = time.monotonic() + seconds, FIRST_PAUSE
        while not self.take_now(key) and time.monotonic() < until:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def release(self, key: str) -> None:
        """End a claim; one that does not exist is ignored."""
        with suppress(OSError):
            self._set(fcntl.F_UNLCK, _place(key))

    def close(self) -> None:
        """End all claims, and remove the file if no other process has it open."""
        with suppress(OSError):
            question = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            if _LOCK.unpack(fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, question))[0] == fcntl.F_UNLCK:
                self.path.unlink(missing_ok=True)
        os.close(self._file)

    def _set(self, kind: int, place: int) -> None:
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _LOCK.pack(kind, os.SEEK_SET, place, 1, 0))


def _place(key: str) -> int:
    """The byte that stands for a key: two keys share one as rarely as hashes of 56 bits collide."""
    return _FIRST + int.from_bytes(sha256(key.encode("utf-8", "replace")).digest()[:7], "big")
