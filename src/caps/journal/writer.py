"""Rows are stored in groups, at once where the file is free, else on a thread that may wait for it.

Rules that must not be broken:

* A caller is answered only after the commit that holds its row.
* The first row stored under a key stands; whoever comes later is handed that one.
* A transaction that fails is undone whole, and everyone in it is told; the next one starts afresh.
* An event loop never waits here: not for another process, nor for a disk to flush.
"""

import sqlite3
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TypeAlias

import msgspec

from caps.journal.faults import is_busy
from caps.journal.rows import Row, Table, chunks, insertion
from caps.journal.turns import Coalescer

# Rows of one statement. Every statement lets go of the interpreter's lock, which a busy event loop gives back
# only after some milliseconds: few statements a transaction matter more than anything else here.
ROWS = 48
MOST = 1024  # rows of one transaction: a bound on how long other processes wait for theirs
LONG_LOG = 4 * 2**20  # bytes of log after which it is worked into the file, as SQLite itself would
LOOK_EVERY = 64  # commits
# Turns of an event loop whose rows share a commit. With 64 calls under way that is about thirty rows and not
# eight, which takes a quarter less of the processor a row; an idle loop turns at once.
TURNS = 4


class Append(msgspec.Struct, frozen=True, eq=False):
    """A row to store, and whom to tell which row stands."""

    table: Table
    row: Row
    told: "Future[Row]"
    loop: AbstractEventLoop


Outcome: TypeAlias = Row | Exception
Task: TypeAlias = Append | Callable[[], None] | None  # a row, something else to do, or the end


class Writer:
    """Stores rows: what came in during a few turns of an event loop shares a transaction.

    `quick` is a connection that never waits; without it (every commit is flushed to disk), or while it is
    in use or the file is held by another process, the thread stores them over `patient`. `log_size` tells how
    long the write-ahead log has grown, `explained` what those who wait are told of an error of SQLite's.
    """

    def __init__(
        self,
        patient: sqlite3.Connection,
        quick: sqlite3.Connection | None,
        in_use: Lock,
        log_size: Callable[[], int],
        explained: Callable[[sqlite3.Error], Exception],
    ) -> None:
        self._patient, self._quick, self._in_use = patient, quick, in_use
        self._log_size, self._explained = log_size, explained
        self._arrived = Coalescer(self._store_arrived, turns=TURNS)
        self._queue: SimpleQueue[Task] = SimpleQueue()
        self._thread: Thread | None = None
        self._commits = 0

    def append(self, table: Table, row: Row) -> "Future[Row]":
        """Store a row and tell the one that stands; a cancelled caller's row is stored all the same."""
        loop = get_running_loop()
        told: Future[Row] = loop.create_future()
        item = Append(table, row, told, loop)
        if self._quick is None:
            self._do(item)
        else:
            self._arrived.add(item, loop)
        return told

    def close(self) -> None:
        """Store what was handed in, then end the thread."""
        self._hand_over(self._arrived.take())
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _store_arrived(self, appends: list[Append]) -> None:
        """Store what came in, unless that would mean to wait."""
        outcomes = self._store_at_once(appends) if len(appends) <= MOST else None
        if outcomes is None:
            self._hand_over(appends)
        else:
            self._settle([(item.told, outcome) for item, outcome in zip(appends, outcomes, strict=True)])

    def _store_at_once(self, appends: list[Append]) -> list[Outcome] | None:
        if self._quick is None or not self._in_use.acquire(blocking=False):
            return None
        try:
            outcomes = _store(self._quick, appends)
        finally:
            self._in_use.release()
        if any(isinstance(one, sqlite3.Error) and is_busy(one) for one in outcomes[:1]):
            return None
        self._commits += 1
        if self._commits % LOOK_EVERY == 0 and self._log_size() > LONG_LOG:
            self._do(self._shorten_log)
        return outcomes

    def _shorten_log(self) -> None:
        """Work the log into the file; nobody writes meanwhile, else it would never be caught up with."""
        with self._in_use, suppress(sqlite3.Error):  # put off: the next one is tried soon enough
            self._patient.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _hand_over(self, appends: list[Append]) -> None:
        for item in appends:
            self._do(item)

    def _do(self, task: Task) -> None:
        if self._thread is None:
            # A daemon, so that a journal nobody closed does not keep the process alive.
            self._thread = Thread(target=self._run, name="caps-journal", daemon=True)
            self._thread.start()
        self._queue.put(task)

    def _run(self) -> None:
        open_ = True
        while open_:
            batch = [self._queue.get()]
            try:
                while len(batch) < MOST:
                    batch.append(self._queue.get_nowait())
            except Empty:
                pass
            open_ = None not in batch
            appends = [item for item in batch if isinstance(item, Append)]
            if appends:
                self._tell(appends, _store(self._patient, appends))
            for task in {item for item in batch if callable(item)}:
                task()

    def _tell(self, appends: list[Append], outcomes: list[Outcome]) -> None:
        """Wake each event loop once for all of its callers."""
        by_loop: defaultdict[AbstractEventLoop, list[tuple[Future[Row], Outcome]]] = defaultdict(list)
        for item, outcome in zip(appends, outcomes, strict=True):
            by_loop[item.loop].append((item.told, outcome))
        for loop, settled in by_loop.items():
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more, the rows are stored
                loop.call_soon_threadsafe(self._settle, settled)

    def _settle(self, settled: list[tuple["Future[Row]", Outcome]]) -> None:
        for told, outcome in settled:
            if told.done():
                continue
            if isinstance(outcome, sqlite3.Error):
                told.set_exception(self._explained(outcome))
            elif isinstance(outcome, Exception):
                told.set_exception(outcome)
            else:
                told.set_result(outcome)


def _store(connection: sqlite3.Connection, appends: list[Append]) -> list[Outcome]:
    """Store all in one transaction; one outcome each."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        by_table: defaultdict[Table, list[int]] = defaultdict(list)
        for position, item in enumerate(appends):
            by_table[item.table].append(position)
        standing: list[Outcome] = [item.row for item in appends]
        for table, positions in by_table.items():
            for part in chunks(positions, ROWS):
                _insert(connection, table, part, appends, standing)
        connection.execute("COMMIT")
    except Exception as error:  # whatever it is, those who wait must hear of it
        _undo(connection)
        return [error] * len(appends)
    return standing


def _insert(
    connection: sqlite3.Connection,
    table: Table,
    positions: list[int],
    appends: list[Append],
    standing: list[Outcome],
) -> None:
    values = chain.from_iterable(appends[position].row for position in positions)
    stored = connection.execute(insertion(table, len(positions)), tuple(values)).rowcount
    if stored == len(positions):
        return
    for position in positions:
        key = appends[position].row[: table.keyed]
        standing[position] = connection.execute(table.lookup, key).fetchone()


def _undo(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # the failure that led here is the one worth telling
        if connection.in_transaction:
            connection.execute("ROLLBACK")
