"""What SQLite complains about, in words that name the file and the way out."""

import sqlite3
from pathlib import Path

from caps.core.errors import JournalError

# Debian builds its sqlite3 without the part that .recover needs.
_DAMAGED = (
    "is damaged and left as it is: name another file; what can be read is saved by  "
    "sqlite3 OLD .recover | sqlite3 NEW  (with the sqlite3 of sqlite.org: that of some systems cannot)"
)
# Matched from the start of SQLite's own names, so that extended codes (`READONLY_DIRECTORY`) are covered.
_WORDS = (
    ("SQLITE_READONLY", "cannot be written: make the file and its folder writable, or name another file"),
    ("SQLITE_PERM", "cannot be written: make the file and its folder writable, or name another file"),
    ("SQLITE_AUTH", "cannot be written: make the file and its folder writable, or name another file"),
    ("SQLITE_CANTOPEN", "cannot be opened: its folder must exist and be writable; or name another file"),
    ("SQLITE_FULL", "has no room left on its disk: free some, then run again; what was stored is safe"),
    ("SQLITE_IOERR", "met a failing or full disk: mend that, then run again; what was stored is safe"),
    ("SQLITE_NOTADB", "is not a journal (not an SQLite file): it is left as it is; name another file"),
    ("SQLITE_CORRUPT", _DAMAGED),
    ("SQLITE_BUSY", "is held by another process for too long: end that one, or name another file"),
    ("SQLITE_LOCKED", "is held by another process for too long: end that one, or name another file"),
    ("SQLITE_PROTOCOL", "is held by another process for too long: end that one, or name another file"),
)


def explain(error: Exception, path: Path) -> JournalError:
    """Turn whatever SQLite or the file system raised into the error a user can act on."""
    name = getattr(error, "sqlite_errorname", None) or ""
    words = next((words for start, words in _WORDS if name.startswith(start)), "cannot be used")
    return JournalError(f"journal {str(path)!r} {words} ({error})")


def damaged(path: Path, found: str) -> JournalError:
    """The error for a file in which damage was found."""
    return JournalError(f"journal {str(path)!r} {_DAMAGED} ({found})")


def is_unwritable(error: sqlite3.Error) -> bool:
    """Whether the disk or its permissions forbid to write, which says nothing about reading."""
    return (getattr(error, "sqlite_errorname", None) or "").startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN"))


def is_busy(error: sqlite3.Error) -> bool:
    """Whether waiting a little may help."""
    return (getattr(error, "sqlite_errorname", None) or "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
