"""`caps serve` against a bare proxy of the same framework that makes the same calls; ratios of one run.

200 clients at once, n = 4, an upstream that takes 100 ms a call and never gives the same answer twice.

* latency over the ideal: as many waves of calls as a request has, 100 ms each; with few clients too, since
  with 200 on one machine it is the processors that are waited for
* requests a second, and latency, over those of the proxy (Starlette, uvicorn, aiohttp; no selection)
* memory of the server over 2,000 requests
* streams of the Messages API, 200 at once: every one must end whole, and the tokens that they report
  together must be those that the upstream counted
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
from endpoints import endpoint

DELAY = 0.1
CLIENTS, FEW = 200, 4
ROUNDS = 4
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


async def load(url: str, requests: int, clients: int) -> tuple[float, list[float]]:
    """Have clients make so many requests: seconds in all, and of each."""
    left, seconds = iter(range(requests)), []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def one() -> None:
            for _ in left:
                start = time.perf_counter()
                async with client.post(f"{url}/chat/completions", json=BODY) as response:
                    body = await response.read()
                    assert response.status == 200, body  # noqa: S101
                seconds.append(time.perf_counter() - start)

        start = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(clients)))
        return time.perf_counter() - start, seconds


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


async def stream_messages(url: str, upstream: str, requests: int, clients: int) -> None:
    """Have clients read streams of the Messages API; then compare what they report with the upstream."""
    body = {**BODY, "max_tokens": 100, "stream": True}
    left = iter(range(requests))
    seconds: list[float] = []
    spent = {"calls": 0, "prompt_tokens": 0, "completion_tokens": 0}

    async def one(client: aiohttp.ClientSession) -> None:
        for _ in left:
            start = time.perf_counter()
            async with client.post(f"{url}/messages", json=body) as response:
                said = await response.read()
            seconds.append(time.perf_counter() - start)
            events = [json.loads(line[6:]) for line in said.splitlines() if line.startswith(b"data: ")]
            assert response.status == 200, said  # noqa: S101
            assert events[-1]["type"] == "message_stop", said  # noqa: S101
            usage = events[-2]["usage"]
            split = usage["caps"]
            spent["calls"] += split["generation"]["calls"] + split["verifier"]["calls"]
            spent["prompt_tokens"] += usage["input_tokens"] + usage["cache_read_input_tokens"]
            spent["completion_tokens"] += usage["output_tokens"]

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def counted() -> dict[str, int]:
            async with client.get(f"{upstream}/spent") as response:
                return dict(await response.json())

        before = await counted()
        start = time.perf_counter()
        await asyncio.gather(*(one(client) for _ in range(clients)))
        total = time.perf_counter() - start
        after = await counted()
    assert spent == {name: after[name] - before[name] for name in after}, (spent, before, after)  # noqa: S101
    print(
        f"messages, {clients} streams    {len(seconds) / total:6.1f} requests/s, latency median "
        f"{median(seconds):.3f} s; {len(seconds):,} streams without an error, reported and counted by the "
        f"upstream alike: {spent['calls']:,} calls, {spent['prompt_tokens']:,} input and "
        f"{spent['completion_tokens']:,} output tokens"
    )


def compare(serving: str, proxy: str, *, requests: int, clients: int, ideal: float, pid: int) -> list[float]:
    """Load both by turns, so that whatever else this machine does meets both; memory after each turn."""
    rounds: dict[str, list[tuple[float, list[float]]]] = {"caps serve": [], "bare proxy": []}
    marks = []
    for _ in range(ROUNDS):
        rounds["caps serve"].append(asyncio.run(load(serving, requests // ROUNDS, clients)))
        marks.append(memory(pid))
        rounds["bare proxy"].append(asyncio.run(load(proxy, requests // ROUNDS, clients)))
    rates, middles = [], []
    for name, done in rounds.items():
        seconds = [one for _, each in done for one in each]
        p95 = quantiles(seconds, n=20)[-1]
        rates.append(len(seconds) / sum(total for total, _ in done))
        middles.append(median(seconds))
        print(
            f"{name}, {clients:>3} clients  {rates[-1]:6.1f} requests/s, latency median {middles[-1]:.3f} s "
            f"({middles[-1] / ideal:.2f} of the ideal {ideal:.1f} s), p95 {p95:.3f} s"
        )
    faster, slower = rates[0] / rates[1], middles[0] / middles[1]
    print(f"ratio                    requests/s {faster:.2f}, latency {slower:.2f}")
    return marks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--messages", action="store_true", help="only the streams of the Messages API")
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
            asyncio.run(stream_messages(serving, url, given.requests, CLIENTS))
            if given.messages:
                return
            waves, size = asyncio.run(shape(serving))
            words = ("--bare", url, ",".join(map(str, waves)), str(size))
            start, ideal = memory(pid), len(waves) * DELAY
            print(f"a request                waves of {waves} calls, judge prompts of {size} characters")
            with process(sys.executable, __file__, *words) as (proxy, _):
                compare(serving, proxy, requests=given.requests // 10, clients=FEW, ideal=ideal, pid=pid)
                marks = compare(
                    serving, proxy, requests=given.requests, clients=CLIENTS, ideal=ideal, pid=pid
                )
    print(
        f"memory                   start {start:.0f} MB, then "
        + ", ".join(f"{one:.0f}" for one in marks)
        + " MB"
    )


if __name__ == "__main__":
    main()
