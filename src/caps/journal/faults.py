"""What SQLite complains about, in words that name the file and the way out."""

import sqlite3
from pathlib import Path

from caps.core.errors import JournalError

# Matched from the start of SQLite's own names, so that extended codes (`READONLY_DIRECTORY`) are covered.
_WORDS = (
    ("SQLITE_READONLY", "cannot be written: make the file and its folder writable, or name another file"),
    ("SQLITE_PERM", "cannot be written: make the file and its folder writable, or name another file"),
    ("SQLITE_AUTH", "cannot be written: make the file and its folder writable, or name another file"),
    ("SQLITE_CANTOPEN", "cannot be opened: its folder must exist and be writable; or name another file"),
    ("SQLITE_FULL", "has no room left on its disk: free some, then run again; what was stored is safe"),
    ("SQLITE_IOERR", "met a failing or full disk: mend that, then run again; what was stored is safe"),
    ("SQLITE_NOTADB", "is not a journal (not an SQLite file): it is left as it is; name another file"),
    (
        "SQLITE_CORRUPT",
        (
            "is damaged and left as it is: save what can be read with  sqlite3 OLD .recover | sqlite3 NEW  "
            "or name another file"
        ),
    ),
    ("SQLITE_BUSY", "is held by another process for too long: end that one, or name another file"),
    ("SQLITE_LOCKED", "is held by another process for too long: end that one, or name another file"),
    ("SQLITE_PROTOCOL", "is held by another process for too long: end that one, or name another file"),
)


def explain(error: Exception, path: Path) -> JournalError:
    """Turn whatever SQLite or the file system raised into the error a user can act on."""
    name = getattr(error, "sqlite_errorname", None) or ""
    words = next((words for start, words in _WORDS if name.startswith(start)), "cannot be used")
    return JournalError(f"journal {str(path)!r} {words} ({error})")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether waiting a little may help."""
    return (getattr(error, "sqlite_errorname", None) or "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
