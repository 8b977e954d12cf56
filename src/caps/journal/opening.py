"""Opening the file: all that must hold before a row is read or written.

A file that does not pass is refused with its name and the way out, and is left as it is.
"""

import sqlite3
import time
from pathlib import Path

from caps.core.errors import JournalError
from caps.journal.faults import damaged, is_busy
from caps.journal.migrations import inspect, migrate

BUSY_SECONDS = 30.0
# Up to this size the whole file is looked through for damaged pages before it is used, at about 1 ms a
# megabyte; in a larger one, damage is told when it is met.
CHECKED_BYTES = 256 * 2**20
# Keys are random, so every row writes a page of the index of a long journal: the longer the log may become
# before it is written back, the more rows share a page. 16 MB save a sixth of the processor's time.
LOG_PAGES = 4000


def connect(path: Path, patience: float, *, create: bool, more: str = "") -> sqlite3.Connection:
    """Connect to a file, which is made only with `create`; others are waited for, `patience` seconds."""
    # Autocommit: transactions are begun by name. Used from two threads, never at once.
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}{more}",
        uri=True,
        timeout=patience,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )


def refuse_directory(path: Path) -> None:
    """Refuse a path that no file can be at."""
    if path.is_dir():
        raise JournalError(f"journal {str(path)!r} is a directory: name a file in it")
    if path.exists() and not path.is_file():
        raise JournalError(f"journal {str(path)!r} is a device or a pipe: name a file")


def examine(connection: sqlite3.Connection, path: Path, *, checked: int = CHECKED_BYTES) -> None:
    """Refuse a file that is not ours, of a newer version or damaged; changes nothing."""
    inspect(connection, path)
    if path.stat().st_size <= checked:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise damaged(path, " ".join(found.split()))


def make_ready(
    connection: sqlite3.Connection,
    path: Path,
    patience: float,
    *,
    durable: bool = False,
    checked: int = CHECKED_BYTES,
) -> None:
    """Examine a file, then make it one that can be shared and written, with the newest schema."""
    examine(connection, path, checked=checked)
    _share(connection, path, patience)
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
    migrate(connection)


def hasten(connection: sqlite3.Connection) -> None:
    """Make a connection never wait for the disk: what it commits is flushed by others."""
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")


def _share(connection: sqlite3.Connection, path: Path, patience: float) -> None:
    """Switch to the write-ahead log, which lets processes read and write side by side."""
    deadline = time.monotonic() + patience
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError as error:
            # SQLite does not wait for this lock by itself; processes that create one file together meet it.
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    if mode != "wal":
        raise JournalError(
            f"journal {str(path)!r} lies on a file system that cannot share it (mode {mode!r}): "
            "name a file on a local disk"
        )
