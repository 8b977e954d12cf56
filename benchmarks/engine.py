"""The live engine against the least that could do the job; ratios of one run on one machine.

* calls a second of the whole engine, journal on, over those of a bare aiohttp loop: same stub, same 64
  connections, prompts of 4 kB, no latency; the collector is
  spared for both as the command line does. They take turns, because the speed of a machine changes from
  second to second; the median of the pairs counts
* makespan of 200 and of 20 cases of 18 calls at 200 ms with 64 connections, over the ideal; beside it that
  of a bare loop over as many calls
* seconds of the processor for a call and for its prompt, which `caps plan` reckons with
* memory of a stream of 100,000 cases with a scripted judge
"""

import argparse
import asyncio
import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import aiohttp
from endpoints import endpoint

from caps import Caps, Case, Verdict
from caps.cli.main import spare_collector
from caps.config import RunConfig
from caps.core.types import Candidate, Problem
from caps.engines.local import LocalEngine
from caps.judging.recorded import ScriptedJudge
from caps.session.parts import make_prepare
from caps.session.resolve import resolve
from caps.session.session import open_session

CONNECTIONS = 64
SIZE = 1_547  # characters of a candidate: with two of them a prompt has 4,096
PAIRS = 15


def cases(count: int, size: int) -> Iterator[Case]:
    """Cases of 16 different answers; `size` characters a candidate."""
    for number in range(count):
        texts = [f"{number} {i} " + "because of this, " * (size // 17) + f"\\boxed{{{i}}}" for i in range(16)]
        yield Case(f"{number}", Problem.of("What is it?"), tuple(map(Candidate, texts)), "math")


async def bare(url: str, calls: int) -> float:
    """Post `calls` prompts of 4 kB over 64 connections and read the replies."""
    messages = [{"role": "user", "content": "x" * 4096}]
    left = iter(range(calls))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def worker() -> None:
            for number in left:
                body = json.dumps({"model": "stub", "messages": messages, "max_tokens": 4096, "seed": number})
                async with client.post(f"{url}/chat/completions", data=body.encode()) as response:
                    json.loads(await response.read())

        start = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))
        return time.perf_counter() - start


async def engine(
    url: str, count: int, size: int, *, journal: bool = True, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, int]:
    """Select over `count` cases with everything on; seconds and calls."""
    made = list(cases(count, size))
    with tempfile.TemporaryDirectory() as folder:
        config = RunConfig(
            model="stub",
            base_url=(url,),
            max_connections=CONNECTIONS,
            journal=Path(folder) / "journal.sqlite" if journal else None,
            views={"partial": "full"},
            strategy="caps",
            seed=1,
            hard_evidence="off",
        )
        async with open_session(resolve(config)) as ready:
            start, calls = clock(), 0
            async for outcome in ready.run(made):
                calls += len(outcome.judged)
            return clock() - start, calls


def effort(url: str) -> tuple[float, float]:
    """Seconds of the processor for a call without its prompt, and for a thousand characters of that."""
    small, large = SIZE, 10 * SIZE  # characters of a candidate; a prompt shows two
    each = []
    for size, count in ((small, 150), (large, 60)):
        taken = [asyncio.run(engine(url, count, size, clock=time.process_time)) for _ in range(3)]
        each.append(min(seconds / calls for seconds, calls in taken))
    slope = (each[1] - each[0]) / (2 * (large - small))
    return each[0] - slope * 2 * small, slope * 1000


async def stream(count: int) -> list[tuple[int, int]]:
    """Select over a stream with a judge that answers at once; peak memory in MB as it goes."""
    judge = ScriptedJudge(lambda _, __: Verdict(9, 3))
    running = LocalEngine(judge, make_prepare(), capacity=lambda: CONNECTIONS)
    seen, marks = 0, []
    async for _ in running.run(cases(count, 200), Caps(), seed=1):
        seen += 1
        if seen in (count // 100, count // 10, count // 2, count):
            marks.append((seen, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024))
    return marks


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--stream", type=int, default=100_000, help="cases of the memory run")
    given = options.parse_args()
    spare_collector()
    with endpoint() as url:
        asyncio.run(engine(url, 20, SIZE))  # what is loaded when it is first needed
        pairs = []
        for _ in range(PAIRS):
            seconds, calls = asyncio.run(engine(url, 100, SIZE))
            pairs.append((calls / seconds, calls / asyncio.run(bare(url, calls))))
        ours, theirs = (median(side) for side in zip(*pairs, strict=True))
        ratios = [one / other for one, other in pairs]
        print(
            f"calls a second    engine {ours:7.0f}   bare loop {theirs:7.0f}   ratio {median(ratios):.2f}"
            f" (median of {PAIRS} pairs, {min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )
        fixed, more = effort(url)
        print(
            f"processor         {fixed * 1e6:.0f} µs a call, {more * 1e6:.0f} µs a thousand characters of it"
        )
    with endpoint(0.2) as url:
        for count in (200, 20):
            seconds, calls = asyncio.run(engine(url, count, SIZE))
            ideal = calls * 0.2 / CONNECTIONS
            least = asyncio.run(bare(url, calls))
            print(
                f"makespan          {count} cases {seconds:.2f} s, ideal {ideal:.2f} s, "
                f"ratio {seconds / ideal:.3f}, of a bare loop {least / ideal:.3f}",
                flush=True,
            )
    marks = asyncio.run(stream(given.stream))
    print("memory            " + ", ".join(f"{seen:,} cases {mb} MB" for seen, mb in marks))


if __name__ == "__main__":
    main()
