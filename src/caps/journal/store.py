"""The journal: every paid reply and every finding, stored before anything is done with it.

Rules that must not be broken:

* Rows are added, never changed: the first stored under a key stands, in this process and in others.
* Replies and digests of prompts only: no prompt, no API key.
* A file that cannot be used is refused when it is opened, before money is spent, and is left as it is.
"""

import sqlite3
import time
from asyncio import Future, get_running_loop
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any

import msgspec

from caps.core.errors import JournalError
from caps.journal.faults import explain, is_busy
from caps.journal.opening import BUSY_SECONDS, CHECKED_BYTES, connect, hasten, make_ready, refuse_directory
from caps.journal.rows import FACTS, REPLIES, Reply, Row, chunks, clean, lookup_of_many
from caps.journal.stock import Stats, beside, collect_stats
from caps.journal.turns import Coalescer
from caps.journal.writer import Writer

_LOOKUP = REPLIES.lookup
LOOKUPS = 256  # keys of one statement; SQLite before 3.32 takes 999 at most


def default_path(data_dir: Path) -> Path:
    """Where the journal lies when nobody says otherwise."""
    return data_dir / "journal.sqlite"


class Journal:
    """An open journal; use `Journal.open`, and close it (it is its own context manager)."""

    def __init__(
        self,
        path: Path,
        connections: tuple[sqlite3.Connection, sqlite3.Connection, sqlite3.Connection],
        clock: Callable[[], float],
        *,
        durable: bool,
    ) -> None:
        self.path = path
        self._connection, self._reader, self._quick = connections
        self._reading, self._in_use = Lock(), Lock()
        log = beside(path, "-wal")
        at_once = None if durable else self._quick
        self._writer = Writer(
            self._connection, at_once, self._in_use, lambda: log.stat().st_size, self._explained
        )
        self._lookups = Coalescer(self._look_up)
        self._clock = clock
        self._open = True

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        durable: bool = False,
        patience: float = BUSY_SECONDS,
        checked: int = CHECKED_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> "Journal":
        """Open or create a journal; `durable` survives power loss too, for the price of a flush a commit.

        Other processes are waited for, when they write, for `patience` seconds. A file of up to
        `checked` bytes is looked through for damage first.
        """
        path = Path(path)
        refuse_directory(path)
        opened: list[sqlite3.Connection] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            for seconds in (patience, patience, 0.0):
                opened.append(connect(path, seconds, create=True))
            writer, reader, quick = opened
            make_ready(writer, path, patience, durable=durable, checked=checked)
            hasten(quick)
            return cls(path, (writer, reader, quick), clock, durable=durable)
        except (sqlite3.Error, OSError) as error:
            _close(opened)
            raise explain(error, path) from error
        except BaseException:
            _close(opened)
            raise

    def close(self) -> None:
        """Store what was handed in and let go of the file; closing twice is harmless."""
        if self._open:
            self._open = False
            self._writer.close()
            with self._reading, self._in_use:
                _close([self._quick, self._reader, self._connection])

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def append(self, reply: Reply) -> Reply:
        """Store a reply and return, after the commit that holds it, the one that stands under its key."""
        self._check_open()
        own = reply.row(self._clock())
        standing = await self._writer.append(REPLIES, own)
        return Reply._make(own) if standing is own else Reply.of(standing)

    async def record(self, kind: str, key: str, value: object) -> Any:
        """Store a fact (anything JSON can hold) and return, after its commit, the one that stands."""
        text = msgspec.json.encode(value).decode()
        self._check_open()
        row = await self._writer.append(FACTS, (clean(kind), clean(key), text, self._clock()))
        return msgspec.json.decode(row[2])

    def get(self, key: str) -> Reply | None:
        """The reply under a key."""
        rows = self._read(_LOOKUP, [key])
        return Reply.of(rows[0]) if rows else None

    def recall(self, key: str) -> "Future[Reply | None]":
        """The reply under a key, looked up together with those that are wanted in the same moment."""
        loop = get_running_loop()
        told: Future[Reply | None] = loop.create_future()
        self._lookups.add((key, told), loop)
        return told

    def get_many(self, keys: Iterable[str]) -> dict[str, Reply]:
        """The replies under these keys; those not there are left out."""
        found = {}
        for part in chunks(list(keys), LOOKUPS):
            for row in self._read(lookup_of_many(REPLIES, len(part)), part):
                found[row[0]] = Reply.of(row)
        return found

    def stamps(self, keys: Iterable[str]) -> dict[str, float]:
        """When the replies under these keys were stored."""
        found: dict[str, float] = {}
        for part in chunks(list(keys), LOOKUPS):
            marks = ", ".join("?" * len(part))
            found.update(self._read(f"SELECT key, at FROM replies WHERE key IN ({marks})", part))  # noqa: S608
        return found

    def fact(self, kind: str, key: str) -> Any:
        """The fact under a kind and key, or None."""
        rows = self._read(FACTS.lookup, [kind, key])
        return msgspec.json.decode(rows[0][2]) if rows else None

    async def recall_fact(self, kind: str, key: str) -> Any:
        """The fact under a kind and key, for those who keep theirs they know not where."""
        return self.fact(kind, key)

    def facts(self, kind: str) -> dict[str, Any]:
        """All facts of a kind, by key."""
        rows = self._read("SELECT key, value FROM facts WHERE kind = ?", [kind])
        return {key: msgspec.json.decode(value) for key, value in rows}

    def stats(self) -> Stats:
        """Count what is stored; reads the whole file."""
        return collect_stats(self._read, self.path)

    def _look_up(self, wanted: "list[tuple[str, Future[Reply | None]]]") -> None:
        found: dict[str, Reply] = {}
        failure: Exception | None = None
        try:
            found = self.get_many([key for key, _ in wanted])
        except Exception as error:  # whatever it is, those who wait must hear of it
            failure = error
        for key, told in wanted:
            if told.done():
                continue
            if failure is None:
                told.set_result(found.get(key))
            else:
                told.set_exception(failure)

    def _explained(self, error: sqlite3.Error) -> JournalError:
        failure = explain(error, self.path)
        failure.__cause__ = error
        return failure

    def _read(self, statement: str, values: list[Any]) -> list[Row]:
        """Read over the connection that writes, whose pages are at hand, or while it is busy over another."""
        self._check_open()
        try:
            if self._in_use.acquire(blocking=False):
                try:
                    return self._quick.execute(statement, values).fetchall()
                except sqlite3.OperationalError as error:
                    if not is_busy(error):
                        raise
                finally:
                    self._in_use.release()
            with self._reading:
                return self._reader.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise explain(error, self.path) from error

    def _check_open(self) -> None:
        if not self._open:
            raise JournalError(f"journal {str(self.path)!r} was closed before this use of it")


def _close(connections: list[sqlite3.Connection]) -> None:
    for connection in connections:
        connection.close()
