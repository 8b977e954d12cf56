"""What the journal costs: appends and lookups per second, and the time to resume a long one.

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

from caps.journal.records import Reply
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


def resume(path: Path, keys: list[str], *, many: bool) -> float:
    """Seconds to open a journal and look all of these keys up, as a run does that is started again."""
    started = time.perf_counter()
    with Journal.open(path) as journal:
        found = len(journal.get_many(keys)) if many else sum(journal.get(key) is not None for key in keys)
    seconds = time.perf_counter() - started
    assert found == len(keys)  # noqa: S101
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    rows = parser.parse_args().rows
    table = Table("journal", "per second", "seconds", title=f"journal, replies of {len(TEXT)} characters")
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
        opened = resume(path, [], many=True)
        random.shuffle(keys)
        for many, how in ((False, "one by one"), (True, "in batches")):
            seconds = resume(path, keys, many=many)
            label = f"resuming {rows:,} rulings, looked up {how}"
            table.add_row(label, f"{rows / seconds:,.0f}", f"{seconds:.2f}")
        table.caption = (
            f"of which opening and checking {rows:,} rows: {opened * 1000:.0f} ms; "
            f"{path.stat().st_size / 1e6:.0f} MB"
        )
    Console().print(table)


if __name__ == "__main__":
    main()
