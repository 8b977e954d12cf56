"""`select_many_sync` against `caps select`: cases a second, and their ratio, in two comparisons.

* Inside one process: the function, in a program that leaves the cycle collector as Python has it, against
  the engine that the command uses, with the collector as the command sets it. Both turn results into lines.
* With --programs, two programs: `caps select`, and one that reads the same file, calls the function and
  prints the lines. Starting Python, reading and writing count for both.

Same stub, connections and settings, a new journal each time. They take turns, because the speed of a machine
changes from second to second; the median of the rounds counts. Seconds of the processor (of these processes
alone, without the stub) are less disturbed by what else the machine does.
"""

import argparse
import asyncio
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from endpoints import endpoint
from engine import CONNECTIONS, SIZE, cases

import caps
from caps.cli.main import spare_collector
from caps.config import RunConfig
from caps.runs.result_lines import json_lines, selection_line
from caps.session.resolve import resolve
from caps.session.session import open_session

SETTINGS: dict[str, Any] = {"model": "stub", "strategy": "caps", "max_connections": CONNECTIONS, "seed": 1}
USUAL = gc.get_threshold()
WARM_UP = 20  # cases
PROGRAM = """
import json, sys
import caps
path, url, journal, settings = sys.argv[1:]
with open(path) as file:
    made = [json.loads(line) for line in file]
for one in caps.select_many_sync(made, base_url=url, journal=journal, **json.loads(settings)):
    print(json.dumps(one.to_dict()))
"""

Way = Callable[[str, Path, Path, list[caps.Case]], int]


def engine(url: str, path: Path, journal: Path, made: list[caps.Case]) -> int:  # noqa: ARG001
    """What `caps select` does between reading the cases and writing the results."""

    async def run() -> int:
        resolved = resolve(RunConfig(base_url=(url,), journal=str(journal), **SETTINGS))
        done = 0
        async with open_session(resolved) as session:
            async for outcome in session.run(iter(made)):
                done += bool(json_lines([selection_line(outcome, resolved.config, price=resolved.price)]))
        return done

    spare_collector()
    return asyncio.run(run())


def function(url: str, path: Path, journal: Path, made: list[caps.Case]) -> int:  # noqa: ARG001
    """The same through the Python API, with the collector as Python has it."""
    results = caps.select_many_sync(iter(made), base_url=url, journal=journal, **SETTINGS)
    return sum(bool(json_lines([one.to_dict()])) for one in results if one.error is None)


def command(url: str, path: Path, journal: Path, made: list[caps.Case]) -> int:  # noqa: ARG001
    """`caps select` as a program."""
    given = [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.items()]
    where = [f"--base-url={url}", f"--journal={journal}", "--json", "--quiet"]
    return lines_of([sys.executable, "-m", "caps", "select", str(path), *given, *where])


def program(url: str, path: Path, journal: Path, made: list[caps.Case]) -> int:  # noqa: ARG001
    """A program that calls the function."""
    return lines_of([sys.executable, "-c", PROGRAM, str(path), url, str(journal), json.dumps(SETTINGS)])


def lines_of(words: list[str]) -> int:
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True)  # noqa: S603
    return sum(b'"error":' not in line for line in done.stdout.splitlines())


def processor() -> float:
    """Seconds of the processor, of this process and of those that it has waited for."""
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def measure(way: Way, url: str, path: Path, made: list[caps.Case]) -> tuple[float, float]:
    """Cases a second, and cases a second of the processor."""
    gc.collect()
    gc.unfreeze()
    gc.set_threshold(*USUAL)
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal.sqlite"
        start, worked = time.perf_counter(), processor()
        done = way(url, path, journal, made)
        seconds, work = time.perf_counter() - start, processor() - worked
    if done != len(made):
        raise SystemExit(f"{len(made) - done} of {len(made)} cases failed")
    return done / seconds, done / work


def write(path: Path, made: list[caps.Case]) -> None:
    """The cases as a file."""
    rows = [
        {
            "id": case.id, "problem": case.problem.text, "domain": case.domain,
            "candidates": [one.text for one in case.candidates],
        }
        for case in made
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def compare(base: tuple[str, Way], other: tuple[str, Way], made: list[caps.Case], rounds: int) -> None:
    """Measure two ways by turns and print both and their ratio."""
    found: dict[str, list[tuple[float, float]]] = {base[0]: [], other[0]: []}
    with endpoint() as url, tempfile.TemporaryDirectory() as folder:
        path, few = Path(folder) / "cases.jsonl", Path(folder) / "few.jsonl"
        write(path, made)
        write(few, made[:WARM_UP])
        for _, way in (base, other):
            measure(way, url, few, made[:WARM_UP])  # what is loaded when it is first needed
        for turn in range(rounds):
            for name, way in (base, other) if turn % 2 == 0 else (other, base):
                found[name].append(measure(way, url, path, made))
    for name, figures in found.items():
        wall, work = (median(one[place] for one in figures) for place in (0, 1))
        print(f"{name:24} {wall:6.1f} cases a second, {work:6.1f} a second of the processor")
    for place, unit in enumerate(("wall clock", "processor")):
        pairs = zip(found[other[0]], found[base[0]], strict=True)
        ratios = sorted(one[place] / two[place] for one, two in pairs)
        print(f"ratio, {unit:10} {median(ratios):.3f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--cases", type=int, default=500)
    options.add_argument("--rounds", type=int, default=4)
    options.add_argument("--programs", action="store_true", help="whole programs too")
    given = options.parse_args()
    made = list(cases(given.cases, SIZE))
    print(f"{given.cases} cases, median of {given.rounds} rounds")
    compare(("engine of caps select", engine), ("select_many_sync", function), made, given.rounds)
    if given.programs:
        compare(("caps select", command), ("program with the API", program), made, given.rounds)


if __name__ == "__main__":
    main()
