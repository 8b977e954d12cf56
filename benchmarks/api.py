"""`select_many_sync` against the engine that `caps select` uses: cases a second, and their ratio.

Same process, stub and connections, journal on for both, and both turn results into lines. The command itself
also starts Python, reads the file and writes the lines, which is not counted. They take turns, because the speed
of a machine changes from second to second; the median of the pairs counts.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from engine import CONNECTIONS, SIZE, cases
from stub import endpoint

import caps
from caps.cli.main import spare_collector
from caps.config import RunConfig
from caps.reports.lines import json_lines, selection_line
from caps.runner import Runner

SETTINGS: dict[str, Any] = {"model": "stub", "strategy": "caps", "max_connections": CONNECTIONS, "seed": 1}


async def command(url: str, made: list[caps.Case], journal: Path) -> int:
    """What `caps select` does between reading the cases and writing the results."""
    runner = Runner(RunConfig(base_url=(url,), journal=str(journal), **SETTINGS))
    done = 0
    async with runner.session(probe=False) as session:
        async for outcome in session.run(iter(made)):
            done += bool(json_lines([selection_line(outcome, runner.config, price=runner.price)]))
    return done


def api(url: str, made: list[caps.Case], journal: Path) -> int:
    """The same through the Python API."""
    results = caps.select_many_sync(iter(made), base_url=url, journal=journal, **SETTINGS)
    return sum(bool(json_lines([one.to_dict()])) for one in results if one.error is None)


def rate(ours: bool, url: str, made: list[caps.Case]) -> float:  # noqa: FBT001
    """Cases a second of one of the two."""
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal.sqlite"
        start = time.perf_counter()
        done = api(url, made, journal) if ours else asyncio.run(command(url, made, journal))
        seconds = time.perf_counter() - start
    if done != len(made):
        raise SystemExit(f"{len(made) - done} of {len(made)} cases failed")
    return done / seconds


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--cases", type=int, default=500)
    options.add_argument("--pairs", type=int, default=3)
    given = options.parse_args()
    spare_collector()
    made = list(cases(given.cases, SIZE))
    with endpoint() as url:
        for ours in (True, False):
            rate(ours, url, made[:20])  # what is loaded when it is first needed
        pairs = [(rate(True, url, made), rate(False, url, made)) for _ in range(given.pairs)]  # noqa: FBT003
    ratios = [ours / theirs for ours, theirs in pairs]
    first, second = (median(side) for side in zip(*pairs, strict=True))
    print(
        f"cases a second    select_many_sync {first:.1f}   engine of caps select {second:.1f}   "
        f"ratio {median(ratios):.2f}"
        f" (median of {given.pairs} pairs of {given.cases} cases, {min(ratios):.2f} to {max(ratios):.2f})"
    )


if __name__ == "__main__":
    main()
