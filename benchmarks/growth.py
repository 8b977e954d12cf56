"""How the job grows: with candidates, with problems, with connections; one child process a row.

    python benchmarks/growth.py                 about two minutes
    python benchmarks/growth.py --full          N to 256, 100,000 problems, 512 connections
    python benchmarks/growth.py --json FILE

* candidates: N from 8 to 256, the live engine against the endpoint of benchmarks/peers, which takes its time
* problems: a stream through the engine with a judge that answers at once (scripted: no HTTP, no journal)
* connections: calls a second against an endpoint that takes as many as there are, over the ideal

`stall` is the longest time the event loop did not come round.
"""

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from peers.endpoint import Latency, endpoint
from peers.pools import marked_cases
from peers.tables import Page

from caps import Case, Verdict
from caps.config import RunConfig
from caps.core.types import Candidate, Problem, Rating, Solo
from caps.engines.base import Engine
from caps.engines.local import LocalEngine
from caps.judging.recorded import ScriptedJudge
from caps.session.parts import make_prepare, make_strategy
from caps.session.resolve import resolve
from caps.session.session import open_session

STRATEGIES = ("caps-r", "posterior", "sprint", "v1-infer", "pointwise")
CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class Point:
    """One row: what was run and what it took."""

    strategy: str
    n: int
    problems: int
    connections: int
    calls: int
    tokens: int
    seconds: float
    cpu: float
    memory: float
    stall: float
    asked_for: float = 0.0


async def play(engine: Engine, cases: Iterator[Case], name: str) -> tuple[int, int, int, float, float, float]:
    """Cases, calls, tokens, seconds, processor seconds, longest stall."""
    stall, start, before = 0.0, time.perf_counter(), _cpu()

    async def tick() -> None:
        nonlocal stall
        while True:
            last = time.perf_counter()
            await asyncio.sleep(0.005)
            stall = max(stall, time.perf_counter() - last - 0.005)

    ticking = asyncio.ensure_future(tick())
    seen = calls = tokens = 0
    async for outcome in engine.run(cases, make_strategy(name), seed=1):
        seen, calls = seen + 1, calls + len(outcome.judged)
        tokens += outcome.ledger.total().asked
    ticking.cancel()
    return seen, calls, tokens, time.perf_counter() - start, _cpu() - before, stall


def live(url: str, name: str, n: int, problems: int, connections: int) -> Point:
    """The engine as `caps select` runs it, against an endpoint."""
    cases = [one.case for one in marked_cases(problems, n=n)]
    idle = _memory()

    async def run() -> Point:
        with tempfile.TemporaryDirectory() as folder:
            config = RunConfig(
                model="stub", base_url=(url,), max_connections=connections, strategy=name,
                hard_evidence="off", journal=Path(folder) / "j.sqlite",
            )  # fmt: skip
            async with open_session(resolve(config)) as ready:
                _, calls, tokens, seconds, cpu, stall = await play(ready.engine, iter(cases), name)
        rise = _memory() - idle
        return Point(name, n, problems, connections, calls, tokens, seconds, cpu, rise, stall)

    return asyncio.run(run())


def scripted(name: str, n: int, problems: int) -> Point:
    """A stream through the engine, judged at once; cases are made on their way."""
    judge = ScriptedJudge(lambda _, ask: Rating(5) if isinstance(ask, Solo) else Verdict(9, 3))
    engine = LocalEngine(judge, make_prepare(), capacity=lambda: CONNECTIONS)
    filler = "because of this, " * 12

    def stream() -> Iterator[Case]:
        for number in range(problems):
            texts = [f"{number} {i} {filler}\\boxed{{{i}}}" for i in range(n)]
            yield Case(f"{number}", Problem.of("What is it?"), tuple(map(Candidate, texts)), "math")

    idle = _memory()
    _, calls, tokens, seconds, cpu, stall = asyncio.run(play(engine, stream(), name))
    return Point(name, n, problems, CONNECTIONS, calls, tokens, seconds, cpu, _memory() - idle, stall)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _memory() -> float:
    """Peak so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def alone(work: Callable[..., Point], *given: object) -> Point:
    """Do it in a process of its own, whose peak memory is nobody else's."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as worker:
        return worker.submit(work, *given).result()


def candidates(*, full: bool) -> list[Point]:
    points = []
    for n in (8, 16, 32, 64, 128, 256) if full else (8, 16, 64, 256):
        problems = max(4, (1024 if full else 512) // n)
        with endpoint(problems, Latency(), n=n) as running:
            names = STRATEGIES if full or n < 256 else STRATEGIES[:3]
            points += [alone(live, running.url, name, n, problems, CONNECTIONS) for name in names]
    return points


def problems(*, full: bool) -> list[Point]:
    points = []
    for count in (100, 1000, 10_000, 100_000) if full else (100, 1000, 4000):
        names = ("caps-r", "posterior", "pointwise") if count <= 1000 else ("caps-r",)
        points += [alone(scripted, name, 16, count) for name in names]
    return points


def connections(*, full: bool) -> list[Point]:
    """As many cases as keep the connections busy for a while; the ideal is all of them busy all the time."""
    latency, points = Latency(slots=1024), []
    for count in (1, 4, 16, 64, 256, 512) if full else (1, 8, 64, 512):
        cases = max(2, min(200 if full else 80, count))
        with endpoint(cases, latency) as running:
            point = alone(live, running.url, "caps-r", 16, cases, count)
            busy = running.tally()["judge"]
        held = (
            latency.fixed * busy["calls"] + busy["new"] / latency.reading + busy["written"] / latency.writing
        )
        points.append(replace(point, asked_for=held / count))
    return points


def told(page: Page, title: str, points: Sequence[Point]) -> None:
    """A table of points."""
    rows = []
    for one in points:
        each = 1 / one.problems
        row = [one.strategy, f"{one.n}", f"{one.problems:,}", f"{one.connections}", f"{each * one.calls:.1f}"]
        row += [
            f"{each * one.tokens:,.0f}" if one.tokens else "",
            f"{one.seconds:.2f}",
            f"{one.calls / one.seconds:.0f}",
        ]
        row += [
            f"{1000 * each * one.cpu:.2f}",
            f"{1e6 * one.cpu / max(1, one.calls):.0f}",
            f"{one.memory:.0f}",
        ]
        rows.append([*row, f"{1000 * one.stall:.0f}", f"{one.asked_for:.2f}" if one.asked_for else ""])
    heads = ("", "N", "problems", "connections", "calls", "tokens", "wall, s", "calls/s", "CPU, ms")
    page.table(title, (*heads, "CPU a call, us", "rise, MB", "stall, ms", "busy, s"), rows)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--full", action="store_true", help="the whole range; some ten minutes")
    options.add_argument("--markdown", action="store_true", help="tables for the documentation")
    options.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    options.add_argument("--only", nargs="*", default=["candidates", "problems", "connections"])
    given = options.parse_args()
    sweeps: dict[str, Callable[..., list[Point]]] = {
        "candidates": candidates,
        "problems": problems,
        "connections": connections,
    }
    found: dict[str, list[Point]] = {}
    page = Page(markdown=given.markdown)
    for name in given.only:
        print(f"{name} ...", file=sys.stderr, flush=True)
        found[name] = sweeps[name](full=given.full)
        told(page, name.capitalize(), found[name])
    print(page)
    if given.json:
        rows: dict[str, Any] = {name: [asdict(one) for one in points] for name, points in found.items()}
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
