"""One thread that writes: whatever has come in while it was busy shares the next transaction.

Rules that must not be broken:

* A caller is answered only after the commit that holds its row.
* The first row stored under a key stands; whoever comes later is handed that one.
* A transaction that fails is undone whole, and everyone in it is told; the next one starts afresh.
"""

import sqlite3
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections import defaultdict
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple, TypeAlias

from caps.journal.rows import Row, Table, chunks, insertion

# Rows of one statement. Every statement lets go of the interpreter's lock, which a busy event loop gives back
# only after some milliseconds: few statements a transaction matter more than anything else here.
ROWS = 48
MOST = 1024  # rows of one transaction: a bound on how long other processes wait for theirs


class Append(NamedTuple):
    """A row to store, and whom to tell which row stands."""

    table: Table
    row: Row
    told: "Future[Row]"
    loop: AbstractEventLoop


Outcome: TypeAlias = Row | Exception


class Writer:
    """Stores rows in groups on its own thread, which starts with the first of them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._queue: SimpleQueue[Append | None] = SimpleQueue()
        self._thread: Thread | None = None

    async def append(self, table: Table, row: Row) -> Row:
        """Store a row and return the one that stands; a cancelled caller's row is stored all the same."""
        loop = get_running_loop()
        told: Future[Row] = loop.create_future()
        if self._thread is None:
            # A daemon, so that a journal nobody closed does not keep the process alive.
            self._thread = Thread(target=self._run, name="caps-journal", daemon=True)
            self._thread.start()
        self._queue.put(Append(table, row, told, loop))
        return await told

    def close(self) -> None:
        """Store what was handed in, then end the thread."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        open_ = True
        while open_:
            batch = [self._queue.get()]
            try:
                while len(batch) < MOST:
                    batch.append(self._queue.get_nowait())
            except Empty:
                pass
            appends = [item for item in batch if item is not None]
            open_ = len(appends) == len(batch)
            _tell(appends, self._store(appends))

    def _store(self, appends: list[Append]) -> list[Outcome]:
        """Store all in one transaction; one outcome each."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            by_table: defaultdict[Table, list[int]] = defaultdict(list)
            for position, item in enumerate(appends):
                by_table[item.table].append(position)
            standing: list[Outcome] = [item.row for item in appends]
            for table, positions in by_table.items():
                for part in chunks(positions, ROWS):
                    self._insert(table, part, appends, standing)
            self._connection.execute("COMMIT")
        except Exception as error:  # whatever it is, those who wait must hear of it
            self._undo()
            return [error] * len(appends)
        return standing

    def _insert(
        self, table: Table, positions: list[int], appends: list[Append], standing: list[Outcome]
    ) -> None:
        values = [value for position in positions for value in appends[position].row]
        stored = self._connection.execute(insertion(table, len(positions)), values).rowcount
        if stored == len(positions):
            return
        for position in positions:
            key = appends[position].row[: table.keyed]
            standing[position] = self._connection.execute(table.lookup, key).fetchone()

    def _undo(self) -> None:
        with suppress(sqlite3.Error):  # the failure that led here is the one worth telling
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def _tell(appends: list[Append], outcomes: list[Outcome]) -> None:
    """Wake each event loop once for all of its callers."""
    by_loop: defaultdict[AbstractEventLoop, list[tuple[Future[Row], Outcome]]] = defaultdict(list)
    for item, outcome in zip(appends, outcomes, strict=True):
        by_loop[item.loop].append((item.told, outcome))
    for loop, settled in by_loop.items():
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more, and the rows are stored
            loop.call_soon_threadsafe(_settle, settled)


def _settle(settled: list[tuple["Future[Row]", Outcome]]) -> None:
    for told, outcome in settled:
        if told.done():
            continue
        if isinstance(outcome, Exception):
            told.set_exception(outcome)
        else:
            told.set_result(outcome)
