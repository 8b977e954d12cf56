"""What the journal costs: appends and lookups per second, and the time to open a long one.

Run it with `python -m benchmarks.journal [--rows 100000]`.
"""

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from caps.journal.rows import Reply
from caps.journal.store import Journal

TEXT = "The first solution handles the empty list; the second does not. " * 8


def reply(key: str) -> Reply:
    return Reply(key, 0.0, "model", "model", "pairwise", "0" * 64, "stop", TEXT, prompt_tokens=900)


async def append_all(journal: Journal, rows: int, appenders: int, name: str) -> float:
    left = iter(range(rows))

    async def appender() -> None:
        for number in left:
            await journal.append(reply(f"{random.getrandbits(200):050x}{name}{number:010d}"))

    started = time.perf_counter()
    await asyncio.gather(*(appender() for _ in range(appenders)))
    return rows / (time.perf_counter() - started)


def lookups(journal: Journal, keys: list[str]) -> tuple[float, float]:
    started = time.perf_counter()
    for key in keys:
        journal.get(key)
    single = len(keys) / (time.perf_counter() - started)
    started = time.perf_counter()
    journal.get_many(keys)
    return single, len(keys) / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    rows = parser.parse_args().rows
    table = Table("journal", "per second", title=f"journal, replies of {len(TEXT)} characters")
    with tempfile.TemporaryDirectory() as folder:
        for durable in (False, True):
            for appenders, count in ((1, 2_000), (64, 10_000), (512, 20_000)):
                label = f"appends, {appenders} at once" + (", durable" if durable else "")
                with Journal.open(Path(folder) / f"{label}.sqlite", durable=durable) as journal:
                    speed = asyncio.run(append_all(journal, count // (4 if durable else 1), appenders, "a"))
                table.add_row(label, f"{speed:,.0f}")
        path = Path(folder) / "long.sqlite"
        with Journal.open(path) as journal:
            table.add_row(
                f"appends up to {rows:,} rows", f"{asyncio.run(append_all(journal, rows, 512, 'b')):,.0f}"
            )
            keys = [row[0] for row in journal._read("SELECT key FROM replies", [])]
        started = time.perf_counter()
        with Journal.open(path) as journal:
            opened = time.perf_counter() - started
            single, many = lookups(journal, random.sample(keys, min(20_000, rows)))
        table.add_row("lookups, one by one", f"{single:,.0f}")
        table.add_row("lookups, in batches", f"{many:,.0f}")
        table.caption = (
            f"opened with {rows:,} rows in {opened * 1000:.1f} ms; {path.stat().st_size / 1e6:.0f} MB"
        )
    Console().print(table)


if __name__ == "__main__":
    main()
