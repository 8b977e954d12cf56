"""A domain of your own: SQL queries are compared by running them on SQLite, and graded by their rows.

Use it with: caps select cases.jsonl --domain py:own_domain:SQL --base-url URL --model NAME
"""

import asyncio
import json
import sqlite3
import time
from collections.abc import Sequence
from hashlib import sha256

import caps

ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
SCHEMA = "create table staff (name, pay); insert into staff values ('Ada', 9), ('Bob', 5), ('Cy', 7);"
WORST = "select name from staff order by pay limit 1"
QUERIES = [WORST, WORST.replace("pay", "pay desc"), "```sql\nSELECT name FROM staff WHERE pay = 9;\n```"]


def query(candidate: caps.Candidate) -> str:
    """The signature, and the SQL itself: the last fenced block of a candidate, else all of it."""
    blocks = candidate.text.split("```")
    return (blocks[-2].removeprefix("sql") if len(blocks) > 2 else candidate.text).strip().rstrip(";")


def rows_of(schema: str, text: str, seconds: float) -> str | None:
    """The rows of a query, which is hostile: None where it fails, writes, opens a file or takes too long."""
    database, end = sqlite3.connect(":memory:"), time.monotonic() + seconds
    try:
        database.executescript(schema)
        database.set_authorizer(lambda action, *_: action not in ALLOWED)  # True is SQLITE_DENY
        database.set_progress_handler(lambda: time.monotonic() > end, 1000)
        return json.dumps(database.execute(text).fetchmany(1000), default=str)
    except (sqlite3.Error, sqlite3.Warning, MemoryError):
        return None
    finally:
        database.close()


class QueryRunner:
    """Finder and grader in one; queries run in threads, since SQLite blocks."""

    version = "sql-1"  # facts and grades are kept under it: change it when they could change

    def __init__(self, resources: caps.Resources) -> None:
        self._seconds = min(1.0, resources.seconds)

    async def find(self, case: caps.Case, until: float | None = None) -> Sequence[caps.Found]:  # noqa: ARG002
        """Queries that return the same rows are one answer; a query that fails is like no other."""
        results = [await self._rows(case, query(candidate)) for candidate in case.candidates]
        return [caps.Found(None if rows is None else sha256(rows.encode()).hexdigest()) for rows in results]

    async def grade(self, case: caps.Case, candidate: caps.Candidate) -> caps.Grade:
        """Right is what returns the rows of the case's `gold` query."""
        gold, rows = [await self._rows(case, text) for text in (str(case.extra["gold"]), query(candidate))]
        return caps.Grade(correct=rows == gold, reason="" if rows == gold else "other rows")

    async def close(self) -> None:
        """Nothing is held open."""

    async def _rows(self, case: caps.Case, text: str) -> str | None:
        return await asyncio.to_thread(rows_of, str(case.extra.get("schema", "")), text, self._seconds)


SQL = caps.Domain(name="sql", signature=query, finder=QueryRunner, grader=QueryRunner, fields=("schema",))


def main() -> None:
    """Two of three queries return the same row, however they are written."""
    caps.register_domain(SQL)
    case = {"domain": "sql", "problem": "Who is paid most?", "schema": SCHEMA, "candidates": QUERIES}
    print(caps.select_sync(case, strategy="majority").text)


if __name__ == "__main__":
    main()
