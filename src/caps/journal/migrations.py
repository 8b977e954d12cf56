"""The schema as numbered steps; the number of steps taken is the file's `user_version`.

Rules that must not be broken:

* A step that was released is never edited; a change is a further step.
* A file of a newer version, or of another program, is refused before anything in it is touched.
"""

import sqlite3
from pathlib import Path

from caps.core.errors import JournalError

APPLICATION_ID = 0x63617073  # "caps": tells our files from other SQLite files

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE replies (
            key TEXT PRIMARY KEY, at REAL NOT NULL, model TEXT NOT NULL, served TEXT NOT NULL,
            template TEXT NOT NULL, prompt_digest TEXT NOT NULL, finish TEXT NOT NULL, text TEXT NOT NULL,
            reasoning TEXT NOT NULL, prompt_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
            cached_tokens INTEGER NOT NULL, reasoning_tokens INTEGER NOT NULL, estimated INTEGER NOT NULL,
            logprobs TEXT, latency REAL NOT NULL, attempts INTEGER NOT NULL)""",
        """CREATE TABLE facts (
            kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, at REAL NOT NULL,
            PRIMARY KEY (kind, key))""",
        f"PRAGMA application_id = {APPLICATION_ID}",
    ),
    (
        # A reply that lost its words; the same request may be asked, stored and redacted again, so no key.
        """CREATE TABLE redacted (
            key TEXT NOT NULL, at REAL NOT NULL, model TEXT NOT NULL, served TEXT NOT NULL,
            template TEXT NOT NULL, prompt_digest TEXT NOT NULL, finish TEXT NOT NULL,
            prompt_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
            reasoning_tokens INTEGER NOT NULL, estimated INTEGER NOT NULL, latency REAL NOT NULL,
            attempts INTEGER NOT NULL, redacted_at REAL NOT NULL)""",
    ),
)


def inspect(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is not ours or comes from a newer version; changes nothing."""
    # In this order: tables that another process makes come with its mark, so whoever sees them sees that too.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    if owner != APPLICATION_ID and tables:
        raise JournalError(
            f"{str(path)!r} is the SQLite file of another program, not a journal: name another file"
        )
    version = _version(connection)
    if version > len(MIGRATIONS):
        raise JournalError(
            f"{str(path)!r} was written by a newer version of caps (journal version {version}, this one "
            f"knows {len(MIGRATIONS)}): upgrade caps, or name another file"
        )


def migrate(connection: sqlite3.Connection) -> None:
    """Take the steps that are missing, in one transaction; also shows that the file can be written."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read inside the transaction: another process may have taken the steps while we waited for it.
        for number in range(_version(connection), len(MIGRATIONS)):
            for statement in MIGRATIONS[number]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number + 1}")
        connection.execute("UPDATE facts SET at = at WHERE 0")  # changes nothing; a read-only file fails here
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
