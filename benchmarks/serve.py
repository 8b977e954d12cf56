"""`caps serve` against a bare proxy of the same framework that makes the same calls; ratios of one run.

200 clients at once, n = 4, an upstream that takes 100 ms a call and never gives the same answer twice.

* latency over the ideal: as many waves of calls as a request has, 100 ms each
* requests a second, and latency, over those of the proxy (Starlette, uvicorn, aiohttp; no selection)
* memory of the server over 2,000 requests
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

import aiohttp
from stub import endpoint

DELAY = 0.1
CLIENTS = 200
BODY = {"model": "caps/stub", "messages": [{"role": "user", "content": "What is it?"}], "caps": {"n": 4}}


async def bare(upstream: str, waves: Sequence[int], size: int) -> None:
    """The proxy: for each request as many calls in as many waves, of bodies as large, and no thought."""
    import uvicorn  # noqa: PLC0415
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.requests import Request  # noqa: PLC0415
    from starlette.responses import JSONResponse  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    filler = {"model": "stub", "messages": [{"role": "user", "content": "BEGIN CANDIDATE" + "x" * size}]}
    client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def call(body: object) -> dict[str, object]:
        async with client.post(f"{upstream}/chat/completions", data=json.dumps(body).encode()) as response:
            return dict(json.loads(await response.read()))

    async def chat(request: Request) -> JSONResponse:
        body = await request.json()
        drawn = await asyncio.gather(*(call({**body, "model": "stub"}) for _ in range(waves[0])))
        for width in waves[1:]:
            await asyncio.gather(*(call(filler) for _ in range(width)))
        return JSONResponse(drawn[0])

    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    config = uvicorn.Config(app, port=0, http="h11", log_level="error", access_log=False, backlog=2048)
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}/v1"}), file=sys.stderr, flush=True)
    await serving


@contextmanager
def process(*command: str) -> Iterator[tuple[str, int]]:
    """A server that says its address on its first line; its address and process id."""
    with tempfile.NamedTemporaryFile() as log:  # a pipe would fill up
        running = subprocess.Popen(command, stderr=log)  # noqa: S603
        try:
            while not (said := Path(log.name).read_text()).count("\n"):
                time.sleep(0.05)
            yield json.loads(said.partition("\n")[0])["url"], running.pid
        finally:
            running.kill()
            running.communicate()


def memory(pid: int) -> float:
    """Megabytes resident."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def load(url: str, requests: int, pid: int) -> tuple[float, list[float], list[float]]:
    """Have 200 clients make so many requests: seconds in all, of each, and memory after each quarter."""
    left, seconds, marks = iter(range(requests)), [], []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def one() -> None:
            for number in left:
                start = time.perf_counter()
                async with client.post(f"{url}/chat/completions", json=BODY) as response:
                    body = await response.read()
                    assert response.status == 200, body  # noqa: S101
                seconds.append(time.perf_counter() - start)
                if (number + 1) % (requests // 4) == 0:
                    marks.append(memory(pid))

        start = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(CLIENTS)))
        return time.perf_counter() - start, seconds, marks


async def shape(url: str) -> tuple[list[int], int]:
    """How many calls each wave of a request has, and the size of a judge's prompt."""
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{url}/chat/completions", json=BODY) as response,
    ):
        split = json.loads(await response.read())["usage"]["caps"]
    stages, judged = split["stages"], split["verifier"]
    size = 4 * judged["prompt_tokens"] // max(1, judged["calls"])
    return [split["generation"]["calls"], *(stage["calls"] for stage in stages)], size


def told(name: str, total: float, seconds: list[float], waves: int) -> None:
    ideal = waves * DELAY
    p95 = quantiles(seconds, n=20)[-1]
    print(
        f"{name:<18}{len(seconds) / total:7.1f} requests/s, latency median {median(seconds):.3f} s "
        f"({median(seconds) / ideal:.2f} of the ideal {ideal:.1f} s), p95 {p95:.3f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--bare", nargs=3, metavar=("URL", "WAVES", "SIZE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bare:
        url, waves, size = given.bare
        asyncio.run(bare(url, [int(one) for one in waves.split(",")], int(size)))
        return
    caps = str(Path(sys.executable).with_name("caps"))
    with endpoint(DELAY, vary=True) as url:
        command = (caps, "serve", "--base-url", url, "--port", "0", "--max-connections", "4096")
        with process(*command) as (serving, pid):
            waves, size = asyncio.run(shape(serving))
            start = memory(pid)
            total, seconds, marks = asyncio.run(load(serving, given.requests, pid))
        words = ("--bare", url, ",".join(map(str, waves)), str(size))
        with process(sys.executable, __file__, *words) as (proxy, pid):
            bare_total, bare_seconds, _ = asyncio.run(load(proxy, given.requests, pid))
    print(f"a request          waves of {waves} calls, judge prompts of {size} characters")
    told("caps serve", total, seconds, len(waves))
    told("bare proxy", bare_total, bare_seconds, len(waves))
    slower = median(seconds) / median(bare_seconds)
    print(f"ratio              requests/s {bare_total / total:.3f}, latency {slower:.3f}")
    print(
        f"memory             start {start:.0f} MB, then " + ", ".join(f"{one:.0f}" for one in marks) + " MB"
    )


if __name__ == "__main__":
    main()
