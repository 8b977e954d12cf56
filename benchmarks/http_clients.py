"""HTTP clients beside one another: processor time of a bare call with each that is installed.

    pip install pyreqwest rnet curl_cffi uvloop
    python benchmarks/http_clients.py

64 calls at once of 4 kB against the stub, which answers at once; medians of five turns.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from statistics import median
from typing import Any

from stub import endpoint

CALLS, CONNECTIONS, ROUNDS = 6_000, 64, 5
Call = Callable[[bytes], Awaitable[bytes]]


def bodies() -> Iterator[bytes]:
    messages = [{"role": "user", "content": "x" * 4096}]
    for number in range(CALLS):
        yield json.dumps({"model": "stub", "messages": messages, "seed": number}).encode()


async def drive(call: Call) -> float:
    """Make all calls; microseconds of the processor for each."""
    left = bodies()

    async def worker() -> None:
        for body in left:
            json.loads(await call(body))

    start = time.process_time()
    await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))
    return (time.process_time() - start) / CALLS * 1e6


async def aiohttp(package: Any, url: str) -> float:
    async with package.ClientSession(connector=package.TCPConnector(limit=0)) as client:

        async def call(body: bytes) -> bytes:
            async with client.post(url, data=body) as response:
                found: bytes = await response.read()
                return found

        return await drive(call)


async def pyreqwest(_: Any, url: str) -> float:
    async with import_module("pyreqwest.client").ClientBuilder().build() as client:

        async def call(body: bytes) -> bytes:
            response = await client.post(url).body_bytes(body).build().send()
            return bytes(await response.bytes())

        return await drive(call)


async def rnet(package: Any, url: str) -> float:
    client = package.Client()

    async def call(body: bytes) -> bytes:
        response = await client.post(url, body=body)
        found: bytes = await response.bytes()
        return found

    return await drive(call)


async def curl_cffi(package: Any, url: str) -> float:
    async with package.AsyncSession(max_clients=CONNECTIONS) as client:

        async def call(body: bytes) -> bytes:
            found: bytes = (await client.post(url, data=body)).content
            return found

        return await drive(call)


def main() -> None:
    """Let all take turns, with the event loop of Python, and with uvloop where it is installed."""
    runs: dict[str, list[float]] = {}
    loops = {"": asyncio.run}
    try:
        loops[" on uvloop"] = import_module("uvloop").run
    except ImportError:
        print("uvloop: not installed")
    with endpoint() as base:
        for _ in range(ROUNDS):
            for client in (aiohttp, pyreqwest, rnet, curl_cffi):
                try:
                    package = import_module(client.__name__)
                except ImportError:
                    continue
                for loop, run in loops.items():
                    taken = run(client(package, f"{base}/chat/completions"))
                    runs.setdefault(client.__name__ + loop, []).append(taken)
    for name, taken in runs.items():
        print(f"{name:24} {median(taken):4.0f} µs a call ({min(taken):.0f} to {max(taken):.0f})")


if __name__ == "__main__":
    main()
