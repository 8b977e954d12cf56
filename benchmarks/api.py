"""`select_many_sync` against the engine that `caps select` uses: cases a second, and their ratio.

Same process, stub and connections, journal on for both, and both turn results into lines. The command itself
also starts Python, reads the file and writes the lines, which is not counted. The command line spares the
cycle collector; a program that calls the function usually does not, so the function is measured both ways.
They take turns, because the speed of a machine changes from second to second; the median of the rounds
counts. Seconds of the processor (of this process alone) are less disturbed by what else the machine does.
"""

import argparse
import asyncio
import gc
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
from caps.runner import Runner
from caps.runs.result_lines import json_lines, selection_line

SETTINGS: dict[str, Any] = {"model": "stub", "strategy": "caps", "max_connections": CONNECTIONS, "seed": 1}
USUAL = gc.get_threshold()
ENGINE, PLAIN, SPARED = "engine of caps select", "select_many_sync", "select_many_sync, collector spared"
WAYS = (ENGINE, PLAIN, SPARED)


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


def measure(way: str, url: str, made: list[caps.Case]) -> tuple[float, float]:
    """Cases a second, and cases a second of the processor, of one of the three."""
    gc.collect()
    gc.unfreeze()
    gc.set_threshold(*USUAL)
    if way != PLAIN:
        spare_collector()
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal.sqlite"
        start, worked = time.perf_counter(), time.process_time()
        done = asyncio.run(command(url, made, journal)) if way == ENGINE else api(url, made, journal)
        seconds, work = time.perf_counter() - start, time.process_time() - worked
    if done != len(made):
        raise SystemExit(f"{len(made) - done} of {len(made)} cases failed")
    return done / seconds, done / work


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--cases", type=int, default=500)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    made = list(cases(given.cases, SIZE))
    with endpoint() as url:
        for way in WAYS:
            measure(way, url, made[:20])  # what is loaded when it is first needed
        turns = [WAYS[i % 3 :] + WAYS[: i % 3] for i in range(given.rounds)]  # nobody is always first
        rounds = [{way: measure(way, url, made) for way in turn} for turn in turns]
    print(f"{given.cases} cases, median of {given.rounds} rounds")
    for way in WAYS:
        wall, work = (median(one[way][i] for one in rounds) for i in (0, 1))
        words = f"{way:44} {wall:6.1f} cases a second, {work:6.1f} a second of the processor"
        if way != ENGINE:
            ratios = [[one[way][i] / one[ENGINE][i] for one in rounds] for i in (0, 1)]
            words += "; ratios " + ", ".join(
                f"{median(some):.2f} ({min(some):.2f} to {max(some):.2f})" for some in ratios
            )
        print(words)


if __name__ == "__main__":
    main()
