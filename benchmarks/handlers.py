"""FastAPI handlers that share one client, beside handlers that call `caps.best` afresh; needs Linux.

Selections a second, and milliseconds of the app's processor for each, which depend less on what else the
machine does: with 1, 10 and 100 requests at a time to the app of `examples/fastapi_app.py`, which gets a
route that calls `caps.best`. Three candidates, a judge in a process of its own that takes 20 ms a call. Both
ways take turns; the median of the rounds counts.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import aiohttp
from endpoints import endpoint

ROOT = Path(__file__).parents[1]
DELAY = 0.02
CONCURRENT = (1, 10, 100)
HEAD = """\
| requests at a time | `client.best`, shared: a second | ms of the processor | `caps.best`, afresh: a second | ms of the processor |
|---|---|---|---|---|"""  # noqa: E501
WAYS = ("best", "afresh")
APP = """
import sys
sys.path.insert(0, sys.argv[1])
import caps, uvicorn
from fastapi_app import Question, app

@app.post("/afresh")
async def afresh(question: Question):
    return {"winner": (await caps.best(question.problem, question.candidates)).winner}

uvicorn.run(app, port=int(sys.argv[2]), log_level="error")
"""


@contextmanager
def service(upstream: str, port: int) -> Iterator[tuple[str, int]]:
    """The app in a process of its own; yields its address and the id of the process."""
    variables = os.environ | {"CAPS_MODEL": "stub", "CAPS_BASE_URL": upstream}
    command = [sys.executable, "-c", APP, str(ROOT / "examples"), str(port)]
    with subprocess.Popen(command, env=variables) as process:  # noqa: S603
        try:
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.terminate()


async def ask(session: aiohttp.ClientSession, url: str, number: int) -> None:
    """One request; its candidates are its own, so nothing can be cached."""
    texts = [f"quality={quality} of {number}" for quality in (0.1, 0.9, 0.5)]
    async with session.post(url, json={"problem": f"Which? {number}", "candidates": texts}) as response:
        if response.status != 200 or (await response.json())["winner"] != 1:
            raise SystemExit(f"{url}: status {response.status}")


def processor(process: int) -> float:
    """Seconds of the processor that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def rate(url: str, process: int, concurrent: int, seconds: float) -> tuple[float, float]:
    """Selections a second with so many requests at a time, and the processor's milliseconds of each."""
    done, end = 0, time.perf_counter() + seconds
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def client(place: int) -> None:
            nonlocal done
            number = place
            while time.perf_counter() < end:
                await ask(session, url, number)
                number, done = number + concurrent, done + 1

        started, used = time.perf_counter(), processor(process)
        await asyncio.gather(*(client(place) for place in range(concurrent)))
        return done / (time.perf_counter() - started), 1000 * (processor(process) - used) / done


async def wait_for(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{url}/metrics/"):
                    return
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.1)


async def measure(url: str, process: int, rounds: int, seconds: float) -> None:
    """Print the rows of the table."""
    await wait_for(url)
    for concurrent in CONCURRENT:
        rates: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for _ in range(rounds):
            for way in WAYS:
                rates[way].append(await rate(f"{url}/{way}", process, concurrent, seconds))
        cells = [f"{median(values):.1f}" for way in WAYS for values in zip(*rates[way], strict=True)]
        print(f"| {concurrent} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=4.0)
    options.add_argument("--port", type=int, default=8797)
    words = options.parse_args()
    print(HEAD, flush=True)
    with endpoint(DELAY) as upstream, service(upstream, words.port) as (url, process):
        asyncio.run(measure(url, process, words.rounds, words.seconds))


if __name__ == "__main__":
    main()
