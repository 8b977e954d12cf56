"""Maintenance of journals: statistics, and the removal of replies or of their texts.

Invariants:

* What is removed is gone from the bytes of the file and its log, not only from its tables.
* A reply without its text is never served: its other fields move to a table that no lookup reads.
* A missing file is not created, and reading changes nothing.
"""

import sqlite3
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from caps.core.errors import InputError, JournalError
from caps.journal.database import (
    BUSY_SECONDS,
    beside,
    check_is_file,
    connect,
    create,
    examine,
    explain,
    inspect,
    is_empty,
    is_unwritable,
    prepare,
)
from caps.journal.records import REPLIES, Row

Read: TypeAlias = Callable[[str, list[Any]], list[Row]]
_MODEL_COLUMNS = "model, count(*), total(prompt_tokens), total(output_tokens), min(at), max(at)"
CONTENT_COLUMNS = ("text", "reasoning", "logprobs")
METADATA_COLUMNS = tuple(column for column in REPLIES.columns if column not in CONTENT_COLUMNS)
_METADATA = ", ".join(METADATA_COLUMNS)
_MOVE = f"INSERT INTO redacted ({_METADATA}, redacted_at) SELECT {_METADATA}, ? FROM replies"  # noqa: S608
_WHOLE = sys.maxsize  # check files of any size for damage: they are read completely anyway
_BYTES = " + ".join(f"ifnull(length(CAST({column} AS BLOB)), 0)" for column in CONTENT_COLUMNS)


@dataclass(frozen=True, slots=True)
class ModelStats:
    """Replies and tokens of one model; tokens of redacted replies are included."""

    model: str
    replies: int
    redacted: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of a journal. `replies` can be served; `redacted` replies have lost their texts."""

    path: Path
    bytes: int
    version: int
    facts: int
    first_at: float | None
    last_at: float | None
    by_model: tuple[ModelStats, ...]

    @property
    def replies(self) -> int:
        """Number of replies that can be served."""
        return sum(share.replies for share in self.by_model)

    @property
    def redacted(self) -> int:
        """Number of replies without their texts."""
        return sum(share.redacted for share in self.by_model)

    @property
    def prompt_tokens(self) -> int:
        """Input tokens of all replies."""
        return sum(share.prompt_tokens for share in self.by_model)

    @property
    def output_tokens(self) -> int:
        """Output tokens of all replies."""
        return sum(share.output_tokens for share in self.by_model)

    @property
    def models(self) -> Mapping[str, int]:
        """Number of replies of each model."""
        return {share.model: share.replies for share in self.by_model if share.replies}


def collect_stats(read: Read, path: Path) -> Stats:
    """Statistics of a journal; reads the whole file."""
    ((version,),) = read("PRAGMA user_version", [])
    ((facts,),) = read("SELECT count(*) FROM facts", [])
    counted: dict[str, dict[str, Row]] = {}
    for table in ("replies", "redacted"):
        for model, *figures in read(f"SELECT {_MODEL_COLUMNS} FROM {table} GROUP BY model", []):  # noqa: S608
            counted.setdefault(model, {})[table] = tuple(figures)
    times = [time for rows in counted.values() for row in rows.values() for time in row[3:]]
    shares = [_model_stats(model, rows) for model, rows in counted.items()]
    shares.sort(key=lambda share: (-share.replies, -share.redacted, share.model))
    first, last = (min(times), max(times)) if times else (None, None)
    return Stats(path, size_on_disk(path), version, facts, first, last, tuple(shares))


def size_on_disk(path: Path) -> int:
    """Bytes of the file and of its write-ahead log."""
    files = (path, beside(path, "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def _model_stats(model: str, rows: Mapping[str, Row]) -> ModelStats:
    none = (0, 0, 0)
    live, redacted = rows.get("replies", none), rows.get("redacted", none)
    return ModelStats(model, live[0], redacted[0], int(live[1] + redacted[1]), int(live[2] + redacted[2]))


@dataclass(frozen=True, slots=True)
class ReplyFilter:
    """Which replies to remove: of a model, stored before a time, or both; all with neither."""

    model: str | None = None
    before: float | None = None

    def where(self) -> tuple[str, list[Any]]:
        """The WHERE clause of a statement, and its values."""
        limits = {"model = ?": self.model, "at < ?": self.before}
        conditions = {clause: value for clause, value in limits.items() if value is not None}
        return (f" WHERE {' AND '.join(conditions)}" if conditions else ""), list(conditions.values())

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables with rows to remove; facts belong to no model."""
        return ("replies", "redacted", "facts") if self.model is None else ("replies", "redacted")


@dataclass(frozen=True, slots=True)
class Removal:
    """What was or would be removed: rows of each table, and bytes (before the removal: of texts only)."""

    replies: int = 0
    redacted: int = 0
    facts: int = 0
    bytes: int = 0
    prompt_tokens: int = 0  # paid for the replies; counted before a removal only
    output_tokens: int = 0


def read_stats(path: Path, *, patience: float = BUSY_SECONDS) -> Stats:
    """Statistics of the journal at a path; changes nothing."""
    with _open_to_read(path, patience) as read:
        return collect_stats(read, path)


def count(path: Path, which: ReplyFilter, *, patience: float = BUSY_SECONDS) -> Removal:
    """Count what `prune` would remove; changes nothing."""
    condition, values = which.where()
    with _open_to_read(path, patience) as read:
        rows = {
            table: read(f"SELECT count(*) FROM {table}{condition}", values)[0][0]  # noqa: S608
            for table in which.tables
        }
        figures = f"total({_BYTES}), total(prompt_tokens), total(output_tokens)"
        ((size, asked, written),) = read(f"SELECT {figures} FROM replies{condition}", values)  # noqa: S608
    return Removal(**rows, bytes=int(size), prompt_tokens=int(asked), output_tokens=int(written))


def prune(path: Path, which: ReplyFilter, *, patience: float = BUSY_SECONDS) -> Removal:
    """Remove replies, redacted replies, and facts of that age."""
    return _remove(path, which, which.tables, patience)


def redact(path: Path, which: ReplyFilter, *, now: float, patience: float = BUSY_SECONDS) -> Removal:
    """Remove the texts of replies and keep their other fields."""
    return _remove(path, which, ("replies",), patience, kept_at=now)


def _remove(
    path: Path, which: ReplyFilter, emptied: tuple[str, ...], patience: float, kept_at: float | None = None
) -> Removal:
    """Delete rows of tables; with `kept_at`, the figures of replies move to the table `redacted`."""
    condition, values = which.where()
    before = _size(path)
    with _open_to_change(path, patience) as connection:
        with _transaction(connection):
            if kept_at is not None:
                connection.execute(f"{_MOVE}{condition}", [kept_at, *values])
            gone = {
                table: connection.execute(f"DELETE FROM {table}{condition}", values).rowcount  # noqa: S608
                for table in emptied
            }
        _scrub(connection, path)
    return Removal(**gone, bytes=max(0, before - size_on_disk(path)))


def _size(path: Path) -> int:
    """Bytes of an existing file; a missing one is an error."""
    check_is_file(path)
    if not path.exists():
        raise JournalError(f"journal {str(path)!r} does not exist: name the one that was used")
    return size_on_disk(path)


@contextmanager
def _open_to_read(path: Path, patience: float) -> Iterator[Read]:
    """A function that reads from a file without changing it."""
    _size(path)
    try:
        with closing(_reader(path, patience)) as connection:
            connection.execute("BEGIN")  # all reads see the same state
            yield lambda statement, values: connection.execute(statement, values).fetchall()
    except (sqlite3.Error, OSError) as error:
        raise explain(error, path) from error


def _reader(path: Path, patience: float) -> sqlite3.Connection:
    try:
        return _examined(path, patience)
    except sqlite3.OperationalError as error:
        log = beside(path, "-wal")
        if not is_unwritable(error) or (log.exists() and log.stat().st_size):
            raise
    # On a read-only disk SQLite cannot share the file; without a log it can be read as it is.
    return _examined(path, patience, "&immutable=1")


def _examined(path: Path, patience: float, more: str = "") -> sqlite3.Connection:
    connection = connect(path, patience, create=False, more=more)
    try:
        connection.execute("PRAGMA query_only = ON")
        examine(connection, path, checked=_WHOLE)
        is_new = is_empty(connection)
    except BaseException:
        connection.close()
        raise
    if is_new:  # read the tables that it would get
        connection.close()
        connection = sqlite3.connect(":memory:", isolation_level=None)
        create(connection)
    return connection


@contextmanager
def _open_to_change(path: Path, patience: float) -> Iterator[sqlite3.Connection]:
    try:
        with closing(connect(path, patience, create=False)) as connection:
            prepare(connection, path, patience, checked=_WHOLE)
            connection.execute("PRAGMA secure_delete = ON")
            yield connection
    except (sqlite3.Error, OSError) as error:
        raise explain(error, path) from error


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _scrub(connection: sqlite3.Connection, path: Path) -> None:
    """Overwrite what was deleted, in the log and in the file, and release the space."""
    _empty_log(connection, path)  # first, so that the texts are gone even if there is no space to vacuum
    connection.execute("VACUUM")
    _empty_log(connection, path)


def _empty_log(connection: sqlite3.Connection, path: Path) -> None:
    (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise JournalError(
            f"journal {str(path)!r} has been locked by another process for too long: what was removed is "
            "no longer served, but its bytes remain; end that process, then run the same command again"
        )


def measured_output(journal: Path, model: str | None, templates: Collection[str]) -> float:
    """Mean output tokens of the judge calls in a journal, for one model or all; read-only."""
    if not journal.is_file():
        raise InputError(f"--journal {journal}: no such file")
    marks = ", ".join("?" * len(templates))
    query = f"SELECT avg(output_tokens) FROM replies WHERE template IN ({marks})"  # noqa: S608
    try:
        with closing(sqlite3.connect(f"{journal.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            inspect(connection, journal)
            by_model = () if model is None else (model,)
            ((mean,),) = connection.execute(
                f"{query} AND model = ?" if by_model else query, (*templates, *by_model)
            ).fetchall()
    except sqlite3.Error as error:
        raise explain(error, journal) from error
    if mean is None:
        whose = "" if model is None else f" of {model!r}"
        raise InputError(f"--journal {journal}: no judge calls{whose} in it")
    return float(mean)
