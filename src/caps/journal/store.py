"""The journal: every paid reply and every finding, stored before it is used.

Invariants:

* Rows are added, never changed: the first row stored under a key stays, in this process and in others.
* A caller gets its answer only after the commit that contains its row.
* A failed transaction is rolled back completely and reported to all of its callers.
* The event loop never waits here: neither for another process nor for a disk flush.
* Only replies and digests of prompts are stored: no prompt, no API key.
* A file that cannot be used is rejected when it is opened, before money is spent, and is left unchanged.

Rows are stored in groups: at once while the file is free, else by a thread that may wait for it.
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
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import msgspec

from caps.core.errors import JournalError
from caps.journal.database import (
    BUSY_SECONDS,
    MAX_CHECKED_BYTES,
    Claims,
    beside,
    check_is_file,
    connect,
    explain,
    is_busy,
    never_wait,
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

T = TypeVar("T")
# Every statement releases the interpreter lock, and a busy event loop returns it after some milliseconds: few
# statements per transaction matter more than anything else here.
ROWS_PER_STATEMENT = 48
MAX_TRANSACTION_ROWS = 1024  # limits how long other processes wait for their transactions
LONG_LOG_BYTES = 4 * 2**20  # size of the write-ahead log that causes a checkpoint, as in SQLite itself
LOG_CHECK_COMMITS = 64  # commits between two looks at the size of the log
# Iterations of the event loop whose rows share a commit. With 64 calls in flight that is about thirty rows
# instead of eight, which saves a quarter of the CPU time per row; an idle loop iterates at once.
LOOP_TURNS = 4
KEYS_PER_LOOKUP = 256  # SQLite before 3.32 accepts at most 999


class Coalescer(Generic[T]):
    """Collects items for a few iterations of the event loop, then processes them together.

    An iteration of an idle loop takes almost no time; one of a busy loop brings more items.
    """

    def __init__(self, process: Callable[[list[T]], None], *, turns: int = 1) -> None:
        self._process, self._turns = process, turns
        self._waiting: dict[AbstractEventLoop, list[T]] = {}

    def add(self, item: T, loop: AbstractEventLoop | None = None) -> None:
        """Add an item; `loop` is the running event loop, if the caller has it already."""
        loop = loop or get_running_loop()
        waiting = self._waiting.get(loop)
        if waiting is not None:
            waiting.append(item)
            return
        self._waiting[loop] = [item]
        loop.call_soon(self._turn, loop, self._turns)

    def take(self) -> list[T]:
        """Remove and return all waiting items of every loop; they are not processed any more."""
        taken = list[T]()
        for loop in list(self._waiting):
            taken += self._waiting.pop(loop, [])
        return taken

    def _turn(self, loop: AbstractEventLoop, left: int) -> None:
        if left > 1:
            loop.call_soon(self._turn, loop, left - 1)
            return
        items = self._waiting.pop(loop, None)
        if items is not None:  # else `take` returned them
            self._process(items)


class PendingRow(msgspec.Struct, frozen=True, eq=False):
    """A row to store, and the future that gets the row that is stored under its key."""

    table: Table
    row: Row
    future: "Future[Row]"
    loop: AbstractEventLoop


Outcome: TypeAlias = Row | Exception
Task: TypeAlias = PendingRow | Callable[[], None] | None  # a row, a function to call, or the end


class Writer:
    """Stores rows; those of a few iterations of the event loop share a transaction.

    `quick` is a connection that never waits. Without it (every commit is flushed to disk), while it is in
    use, or while another process holds the file, a thread stores the rows over `patient`. `log_size` is the
    size of the write-ahead log, `explain_error` turns an error of SQLite into the one that callers get.
    """

    def __init__(
        self,
        patient: sqlite3.Connection,
        quick: sqlite3.Connection | None,
        in_use: Lock,
        log_size: Callable[[], int],
        explain_error: Callable[[sqlite3.Error], Exception],
    ) -> None:
        self._patient, self._quick, self._in_use = patient, quick, in_use
        self._log_size, self._explain_error = log_size, explain_error
        self._pending = Coalescer(self._store_now_or_enqueue, turns=LOOP_TURNS)
        self._queue: SimpleQueue[Task] = SimpleQueue()
        self._thread: Thread | None = None
        self._commits = 0

    def append(self, table: Table, row: Row) -> "Future[Row]":
        """Store a row and return the one under its key; the row of a cancelled caller is stored too."""
        loop = get_running_loop()
        future: Future[Row] = loop.create_future()
        item = PendingRow(table, row, future, loop)
        if self._quick is None:
            self._submit(item)
        else:
            self._pending.add(item, loop)
        return future

    def close(self) -> None:
        """Store all pending rows, then end the thread."""
        self._enqueue(self._pending.take())
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _store_now_or_enqueue(self, rows: list[PendingRow]) -> None:
        """Store rows at once, or let the thread do it if that would mean to wait."""
        outcomes = self._store_now(rows) if len(rows) <= MAX_TRANSACTION_ROWS else None
        if outcomes is None:
            self._enqueue(rows)
        else:
            self._resolve([(item.future, outcome) for item, outcome in zip(rows, outcomes, strict=True)])

    def _store_now(self, rows: list[PendingRow]) -> list[Outcome] | None:
        if self._quick is None or not self._in_use.acquire(blocking=False):
            return None
        try:
            outcomes = _store(self._quick, rows)
        finally:
            self._in_use.release()
        if any(isinstance(one, sqlite3.Error) and is_busy(one) for one in outcomes[:1]):
            return None
        self._commits += 1
        if self._commits % LOG_CHECK_COMMITS == 0 and self._log_size() > LONG_LOG_BYTES:
            self._submit(self._checkpoint)
        return outcomes

    def _checkpoint(self) -> None:
        """Write the log back into the file; writers wait meanwhile, else the log would grow as fast."""
        with self._in_use, suppress(sqlite3.Error):  # postponed: the next attempt follows soon
            self._patient.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _enqueue(self, rows: list[PendingRow]) -> None:
        for item in rows:
            self._submit(item)

    def _submit(self, task: Task) -> None:
        if self._thread is None:
            # A daemon, so that a journal that was not closed does not keep the process alive.
            self._thread = Thread(target=self._run, name="caps-journal", daemon=True)
            self._thread.start()
        self._queue.put(task)

    def _run(self) -> None:
        open_ = True
        while open_:
            batch = [self._queue.get()]
            try:
                while len(batch) < MAX_TRANSACTION_ROWS:
                    batch.append(self._queue.get_nowait())
            except Empty:
                pass
            open_ = None not in batch
            rows = [item for item in batch if isinstance(item, PendingRow)]
            if rows:
                self._notify(rows, _store(self._patient, rows))
            for task in {item for item in batch if callable(item)}:
                task()

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
        connections: tuple[sqlite3.Connection, sqlite3.Connection, sqlite3.Connection],
        clock: Callable[[], float],
        *,
        durable: bool,
    ) -> None:
        self.path = path
        self.claims = Claims.open(beside(path, "-lock"))
        self._connection, self._reader, self._quick = connections
        self._reading, self._in_use = Lock(), Lock()
        log = beside(path, "-wal")
        quick = None if durable else self._quick
        self._writer = Writer(
            self._connection, quick, self._in_use, lambda: log.stat().st_size, self._explain_error
        )
        self._lookups = Coalescer(self._look_up)
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
            for seconds in (patience, patience, 0.0):
                opened.append(connect(path, seconds, create=True))
            writer, reader, quick = opened
            prepare(writer, path, patience, durable=durable, checked=checked)
            never_wait(quick)
            return cls(path, (writer, reader, quick), clock, durable=durable)
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
            with self._reading, self._in_use:
                _close([self._quick, self._reader, self._connection])
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
        row = reply.row(self._clock())
        standing = await self._writer.append(REPLIES, row)
        return Reply._make(row) if standing is row else Reply.of(standing) or reply

    async def record(self, kind: str, key: str, value: object) -> Any:
        """Store a fact (any JSON value) and return, after its commit, the fact under its key."""
        text = msgspec.json.encode(value).decode()
        self._check_open()
        row = await self._writer.append(FACTS, (clean(kind), clean(key), text, self._clock()))
        return msgspec.json.decode(row[2])

    def get(self, key: str) -> Reply | None:
        """The reply under a key."""
        return self.get_many([key]).get(key)

    def recall(self, key: str) -> "Future[Reply | None]":
        """The reply under a key; lookups of the same moment share a statement."""
        loop = get_running_loop()
        future: Future[Reply | None] = loop.create_future()
        self._lookups.add((key, future), loop)
        return future

    def get_many(self, keys: Iterable[str]) -> dict[str, Reply]:
        """The replies under these keys; missing ones are left out."""
        replies = {}
        for part in chunks(list(keys), KEYS_PER_LOOKUP):
            for row in self._read(lookup_of_many(REPLIES, len(part)), part):
                reply = Reply.of(row)
                if reply is None:
                    self._report_unreadable(f"reply {row[0]}")
                else:
                    replies[reply.key] = reply
        return replies

    def stamps(self, keys: Iterable[str]) -> dict[str, float]:
        """When the replies under these keys were stored."""
        times: dict[str, float] = {}
        for part in chunks(list(keys), KEYS_PER_LOOKUP):
            marks = ", ".join("?" * len(part))
            times.update(self._read(f"SELECT key, at FROM replies WHERE key IN ({marks})", part))  # noqa: S608
        return times

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

    def _look_up(self, wanted: "list[tuple[str, Future[Reply | None]]]") -> None:
        replies: dict[str, Reply] = {}
        failure: Exception | None = None
        try:
            replies = self.get_many([key for key, _ in wanted])
        except Exception as error:  # of any type: all callers must get it
            failure = error
        for key, future in wanted:
            if future.done():
                continue
            if failure is None:
                future.set_result(replies.get(key))
            else:
                future.set_exception(failure)

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
        """Read over the writing connection, which has cached pages, or over another while it is in use."""
        self._check_open()
        try:
            if self._in_use.acquire(blocking=False):
                try:
                    return _fetch(self._quick, statement, values)
                except sqlite3.OperationalError as error:
                    if not is_busy(error):
                        raise
                finally:
                    self._in_use.release()
            with self._reading:
                return _fetch(self._reader, statement, values)
        except sqlite3.Error as error:
            raise explain(error, self.path) from error

    def _check_open(self) -> None:
        if not self._open:
            raise JournalError(f"journal {str(self.path)!r} is closed: open it again")


def _close(connections: list[sqlite3.Connection]) -> None:
    for connection in connections:
        connection.close()
