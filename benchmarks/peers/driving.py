"""What all drivers share; it runs inside each tool's own environment, so the standard library must do.

A driver is called with an address, a file of cases, `single` or `many`, how many calls may be in flight, and
options of its own. It prints one line: seconds, processor seconds, peak memory, and whom it picked.
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

Work = Callable[[Sequence[Mapping[str, Any]]], Mapping[str, str]]


@dataclass(frozen=True)
class Errand:
    """What a driver is told."""

    url: str
    cases: list[dict[str, Any]]
    single: bool
    connections: int
    options: list[str]


def task() -> Errand:
    """Read the command line."""
    url, cases, mode, connections, *options = sys.argv[1:]
    return Errand(url, json.loads(Path(cases).read_text()), mode == "single", int(connections), options)


def own_use() -> tuple[float, float]:
    """Processor seconds of this process and of those it started and ended, and its peak memory in MB."""
    used, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    seconds = used.ru_utime + used.ru_stime + children.ru_utime + children.ru_stime
    return seconds, used.ru_maxrss / 1024


def drive(given: Errand, work: Work, use: Callable[[], tuple[float, float]] = own_use) -> None:
    """Have cases worked on, one after another or all at once, and print what it took.

    `work` returns the text picked for each case by its id. One case is done first, to warm up, uncounted.
    """
    work(given.cases[:1])
    urlopen(given.url.removesuffix("/v1") + "/tally").close()  # noqa: S310
    seconds, picks, (before, _) = [], {}, use()
    for some in [[one] for one in given.cases] if given.single else [given.cases]:
        start = time.perf_counter()
        picks |= work(some)
        seconds.append(time.perf_counter() - start)
    cpu, memory = use()
    marks = {case: text.partition("Attempt ")[2].partition(":")[0] for case, text in picks.items()}
    print(json.dumps({"seconds": seconds, "cpu": cpu - before, "memory": memory, "picks": marks}))
