"""The journal: every paid reply and every finding, stored before it is used.

Invariants:

* Rows are added, never changed: the first row stored under a key stays, in this process and in others.
* A caller gets its answer only after the commit that contains its row.
* A failed transaction is rolled back completely and reported to all of its callers.
* The event loop never waits here: neither for another process nor for a disk flush.
* Only replies and digests of prompts are stored: no prompt, no API key.
* A file that cannot be used is rejected when it is opened, before money is spent, and is left unchanged.

One thread writes, over a connection of its own, and rows that wait together share a transaction. Lookups use
a second connection: with a write-ahead log they do not wait for the writer.
"""

import logging
import sqlite3
import time
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from caps.core.errors import JournalError
from caps.journal.claims import Claims
from caps.journal.database import (
    BUSY_SECONDS,
    MAX_CHECKED_BYTES,
    beside,
    check_is_file,
    connect,
    explain,
    prepare,
)
from caps.journal.records import (
    FACTS,
    REPLIES,
    UNREADABLE,
    Reply,
    Row,
    Table,
    chunks,
    clean,
    insertion,
    is_readable,
    lookup_of_many,
    read_json,
    replacement,
)

if TYPE_CHECKING:
    from caps.journal.maintenance import Stats

_log = logging.getLogger(__name__)

Outcome: TypeAlias = Row | Exception
# Every statement releases the interpreter lock, and a busy event loop returns it after some milliseconds: few
# statements per transaction matter more than anything else here.
ROWS_PER_STATEMENT = 48
MAX_TRANSACTION_ROWS = 1024  # limits how long other processes wait for their transactions
KEYS_PER_LOOKUP = 256  # SQLite before 3.32 accepts at most 999


class PendingRow(NamedTuple):
    """A row to store, and the future that gets the row that is stored under its key."""

    table: Table
    row: Row
    future: "Future[Row]"
    loop: AbstractEventLoop


class Writer:
    """A thread that stores rows; those that wait together share a transaction."""

    def __init__(
        self, connection: sqlite3.Connection, explain_error: Callable[[sqlite3.Error], Exception]
    ) -> None:
        self._connection, self._explain_error = connection, explain_error
        self._queue: SimpleQueue[PendingRow | None] = SimpleQueue()
        # A daemon, so that a journal that was not closed does not keep the process alive.
        self._thread = Thread(target=self._run, name="caps-journal", daemon=True)
        self._thread.start()

    def append(self, table: Table, row: Row) -> "Future[Row]":
        """Store a row and return the one under its key; the row of a cancelled caller is stored too."""
        loop = get_running_loop()
        future: Future[Row] = loop.create_future()
        self._queue.put(PendingRow(table, row, future, loop))
        return future

    def close(self) -> None:
        """Store all pending rows, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch = [self._queue.get()]
            with suppress(Empty):
                while len(batch) < MAX_TRANSACTION_ROWS:
                    batch.append(self._queue.get_nowait())
            rows = [item for item in batch if item is not None]
            is_open = len(rows) == len(batch)
            if rows:
                self._notify(rows, _store(self._connection, rows))

    def _notify(self, rows: list[PendingRow], outcomes: list[Outcome]) -> None:
        """Resolve the futures, with one call per event loop."""
        by_loop: defaultdict[AbstractEventLoop, list[tuple[Future[Row], Outcome]]] = defaultdict(list)
        for item, outcome in zip(rows, outcomes, strict=True):
            by_loop[item.loop].append((item.future, outcome))
        for loop, settled in by_loop.items():
            with suppress(RuntimeError):  # the loop is closed: its callers are gone, and the rows are stored
                loop.call_soon_threadsafe(self._resolve, settled)

    def _resolve(self, settled: list[tuple["Future[Row]", Outcome]]) -> None:
        for future, outcome in settled:
            if future.done():
                continue
            if isinstance(outcome, sqlite3.Error):
                future.set_exception(self._explain_error(outcome))
            elif isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


def _store(connection: sqlite3.Connection, rows: list[PendingRow]) -> list[Outcome]:
    """Store all rows in one transaction, and return one outcome for each."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        by_table: defaultdict[Table, list[int]] = defaultdict(list)
        for position, item in enumerate(rows):
            by_table[item.table].append(position)
        standing: list[Outcome] = [item.row for item in rows]
        for table, positions in by_table.items():
            for part in chunks(positions, ROWS_PER_STATEMENT):
                _insert(connection, table, part, rows, standing)
        connection.execute("COMMIT")
    except Exception as error:  # of any type: all callers must get it
        _rollback(connection)
        return [error] * len(rows)
    return standing


def _insert(
    connection: sqlite3.Connection,
    table: Table,
    positions: list[int],
    rows: list[PendingRow],
    standing: list[Outcome],
) -> None:
    values = chain.from_iterable(rows[position].row for position in positions)
    stored = connection.execute(insertion(table, len(positions)), tuple(values)).rowcount
    if stored == len(positions):
        return
    for position in positions:
        row = rows[position].row
        (stored_row,) = _fetch(connection, table.lookup, row[: table.keyed])
        if is_readable(table, stored_row):
            standing[position] = stored_row
        else:
            connection.execute(replacement(table), row)


def _fetch(connection: sqlite3.Connection, statement: str, values: Sequence[Any]) -> list[Row]:
    """The rows of a statement; texts that are not UTF-8 arrive as bytes."""
    try:
        return connection.execute(statement, values).fetchall()
    except sqlite3.OperationalError as error:
        if "decode" not in str(error):
            raise
    connection.text_factory = _text_or_bytes
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.text_factory = str


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _rollback(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # the error that led here is the one to report
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def default_path(data_dir: Path) -> Path:
    """The default path of the journal."""
    return data_dir / "journal.sqlite"


class Journal:
    """An open journal: created by `Journal.open`, closed by `close` or as a context manager."""

    def __init__(
        self,
        path: Path,
        writer: sqlite3.Connection,
        reader: sqlite3.Connection,
        clock: Callable[[], float],
    ) -> None:
        self.path = path
        self.claims = Claims.open(beside(path, "-lock"))
        self._connections, self._reader, self._reading = (writer, reader), reader, Lock()
        self._writer = Writer(writer, self._explain_error)
        self._clock = clock
        self._unreadable: set[str] = set()
        self._open = True

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        durable: bool = False,
        patience: float = BUSY_SECONDS,
        checked: int = MAX_CHECKED_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> "Journal":
        """Open or create a journal; `durable` also survives power loss, at the cost of a flush per commit.

        If another process is writing, it is waited for, up to `patience` seconds. A file of up to `checked`
        bytes is checked for damage first.
        """
        path = Path(path)
        check_is_file(path)
        opened: list[sqlite3.Connection] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            for _ in range(2):
                opened.append(connect(path, patience, create=True))
            writer, reader = opened
            prepare(writer, path, patience, durable=durable, checked=checked)
            return cls(path, writer, reader, clock)
        except (sqlite3.Error, OSError) as error:
            _close(opened)
            raise explain(error, path) from error
        except BaseException:
            _close(opened)
            raise

    def close(self) -> None:
        """Store all pending rows and close the file; closing twice is harmless."""
        if self._open:
            self._open = False
            self._writer.close()
            with self._reading:
                _close(self._connections)
            if self.claims is not None:
                self.claims.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def append(self, reply: Reply) -> Reply:
        """Store a reply and return, after its commit, the reply that is stored under its key."""
        self._check_open()
        own = reply.row(self._clock())
        standing = await self._writer.append(REPLIES, own)
        return Reply._make(own) if standing is own else Reply.of(standing) or reply

    async def record(self, kind: str, key: str, value: object) -> Any:
        """Store a fact (any JSON value) and return, after its commit, the fact under its key."""
        text = msgspec.json.encode(value).decode()
        self._check_open()
        row = await self._writer.append(FACTS, (clean(kind), clean(key), text, self._clock()))
        return msgspec.json.decode(row[2])

    def get(self, key: str) -> Reply | None:
        """The reply under a key."""
        for row in self._read(REPLIES.lookup, [key]):
            return self._readable(row)
        return None

    async def recall(self, key: str) -> Reply | None:
        """The reply under a key, as `ReplyStore` asks for it."""
        return self.get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, Reply]:
        """The replies under these keys; missing ones are left out."""
        replies = {}
        for part in chunks(list(keys), KEYS_PER_LOOKUP):
            for row in self._read(lookup_of_many(REPLIES, len(part)), part):
                if (reply := self._readable(row)) is not None:
                    replies[reply.key] = reply
        return replies

    def stamps(self, keys: Iterable[str]) -> dict[str, float]:
        """When the replies under these keys were stored."""
        stamps: dict[str, float] = {}
        for part in chunks(list(keys), KEYS_PER_LOOKUP):
            marks = ", ".join("?" * len(part))
            stamps.update(self._read(f"SELECT key, at FROM replies WHERE key IN ({marks})", part))  # noqa: S608
        return stamps

    def fact(self, kind: str, key: str) -> Any:
        """The fact under a kind and key, or None."""
        for row in self._read(FACTS.lookup, [kind, key]):
            if is_readable(FACTS, row):
                return msgspec.json.decode(row[2])
            self._report_unreadable(f"{kind} {key}")
        return None

    async def recall_fact(self, kind: str, key: str) -> Any:
        """The fact under a kind and key, as `ReplyStore` asks for it."""
        return self.fact(kind, key)

    def facts(self, kind: str) -> dict[str, Any]:
        """All facts of a kind, by key."""
        rows = self._read("SELECT key, value FROM facts WHERE kind = ?", [kind])
        decoded = {key: read_json(value) for key, value in rows}
        for key in [key for key, value in decoded.items() if value is UNREADABLE]:
            del decoded[key]
            self._report_unreadable(f"{kind} {key}")
        return decoded

    def stats(self) -> "Stats":
        """Statistics of the journal; reads the whole file."""
        from caps.journal.maintenance import collect_stats  # noqa: PLC0415

        return collect_stats(self._read, self.path)

    def _readable(self, row: Row) -> Reply | None:
        reply = Reply.of(row)
        if reply is None:
            self._report_unreadable(f"reply {row[0]}")
        return reply

    def _report_unreadable(self, name: str) -> None:
        """Name a row that is skipped; what it held is computed or asked for again."""
        if name not in self._unreadable:
            self._unreadable.add(name)
            _log.warning("journal %s: %s cannot be read and is made again", self.path, name[:200])

    def _explain_error(self, error: sqlite3.Error) -> JournalError:
        failure = explain(error, self.path)
        failure.__cause__ = error
        return failure

    def _read(self, statement: str, values: list[Any]) -> list[Row]:
        self._check_open()
        try:
            with self._reading:
                return _fetch(self._reader, statement, values)
        except sqlite3.Error as error:
            raise explain(error, self.path) from error

    def _check_open(self) -> None:
        if not self._open:
            raise JournalError(f"journal {str(self.path)!r} is closed: open it again")


def _close(connections: Iterable[sqlite3.Connection]) -> None:
    for connection in connections:
        connection.close()
