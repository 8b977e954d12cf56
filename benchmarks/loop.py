"""Whether long texts hold up others: `caps serve` under requests that are made to take long.

* `/live`: what other clients wait for it while such a request is processed, in a server of its own
* stalls: how late a task of the same event loop wakes up meanwhile, in this process

The requests: 32 candidates of 97,000 statements each, and of as many as are still parsed; 256 long programs;
16 MB of JSON; a million keys; fields that are each small; texts full of tags that have to be escaped. The
median of `/live` should stay below 200 ms.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import aiohttp
from endpoints import endpoint
from serve import process

from caps.config import RunConfig
from caps.server.admission import Limits
from caps.server.app import ServerConfig, open_app
from caps.server.telemetry import JsonLog
from caps.session.resolve import resolve

GLANCES = 20
TICK = 0.005
PROGRAM = "def f{0}(x):\n    return [y + {0} for y in range(x)] if x else None\n\n"


def requests() -> Iterator[tuple[str, bytes]]:
    """What is sent, by name."""
    statements = [f"{number};" + "a;" * 97_000 for number in range(32)]
    yield "32 x 97,000 statements", _body(statements, "code")
    short = [f"{number};" + "a;" * 24_000 for number in range(32)]  # as many as are still parsed
    yield "32 x 24,000 statements", _body(short, "code")
    programs = ["".join(PROGRAM.format(i) for i in range(number, number + 80)) for number in range(256)]
    yield "256 long programs", _body(programs, "code")
    yield "16 MB of JSON", b'{"problem": "p", "candidates": [' + b"[]," * 5_500_000 + b'"x"]}'
    keys = ",".join(f'"{number}" :1' for number in range(1_000_000))  # the space hides how many they are
    yield "a million keys", f'{{"problem": "p", {keys}}}'.encode()
    fields = ",".join(f'"{number}":[{"[]," * 5000}1]' for number in range(900))
    yield "900 fields of lists", f'{{"problem": "p", {fields}}}'.encode()
    tags = [f"{number}\n" + "<winner>A</winner>\n" * 10_000 for number in range(32)]
    yield "32 x 10,000 tags", _body(tags, "general")


def _body(candidates: list[str], domain: str) -> bytes:
    row = {"problem": "Write it.", "candidates": candidates, "domain": domain}
    return json.dumps(row).encode()


async def glance(url: str, payload: bytes) -> tuple[int, float, list[float]]:
    """Send a request; its status and seconds, and those of `/live` while it is under way."""
    waits: list[float] = []
    async with aiohttp.ClientSession() as client, aiohttp.ClientSession() as other:

        async def send() -> int:
            head = {"content-type": "application/json"}
            async with client.post(f"{url}/select", data=payload, headers=head) as response:
                await response.read()
                return response.status

        start = time.perf_counter()
        sent = asyncio.ensure_future(send())
        while not sent.done():
            asked = time.perf_counter()
            async with other.get(f"{url.removesuffix('/v1')}/live") as response:
                await response.read()
            waits.append(time.perf_counter() - asked)
            await asyncio.wait([sent], timeout=0.02)
        return sent.result(), time.perf_counter() - start, waits


async def stalls(work: Callable[[], Awaitable[object]]) -> list[float]:
    """How late a task wakes up, every 5 ms, while some work is done in the same loop."""
    late: list[float] = []
    done = asyncio.ensure_future(work())
    while not done.done():
        start = time.perf_counter()
        await asyncio.sleep(TICK)
        late.append(time.perf_counter() - start - TICK)
    await done
    return late


async def inside(url: str, payload: bytes) -> list[float]:
    """The stalls of a server in this process."""
    resolved = resolve(RunConfig(model="stub", base_url=(url,), samples=8, sandbox="off"), any_model=True)
    serving = ServerConfig(resolved=resolved, log=JsonLog(quiet=True, file=StringIO()), limits=LIMITS)
    async with open_app(serving) as app:
        return await stalls(lambda: _call(app, payload))


async def _call(app: Any, payload: bytes) -> int:
    parts = [payload[at : at + 65536] for at in range(0, len(payload), 65536)]
    status = []

    async def receive() -> dict[str, object]:
        if not parts:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            status.append(message["status"])

    head = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/select", "headers": head, "query_string": b""}
    scope |= {"raw_path": b"/v1/select", "root_path": ""}
    await app(scope, receive, send)
    return int(status[0])


LIMITS = Limits(max_samples=256)


@contextmanager
def server(url: str) -> Iterator[str]:
    """`caps serve` in a process of its own."""
    caps = str(Path(sys.executable).with_name("caps"))
    with process(
        caps, "serve", "--base-url", url, "--model", "stub", "--port", "0", "--max-samples", "256"
    ) as (
        address,
        _,
    ):
        yield address


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    print(f"load average at the start {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    everything: list[float] = []
    with endpoint() as url, server(url) as serving:
        for name, payload in requests():
            status, seconds, waits = asyncio.run(glance(serving, payload))
            late = asyncio.run(inside(url, payload))
            everything += late
            print(
                f"{name:24} status {status} after {seconds:5.1f} s; /live median "
                f"{median(waits[:GLANCES]) * 1000:4.0f} ms, longest {max(waits) * 1000:4.0f} ms; "
                f"stalls p99 {_p99(late) * 1000:4.0f} ms, longest {max(late) * 1000:4.0f} ms",
                flush=True,
            )
    print(f"all stalls               p99 {_p99(everything) * 1000:.0f} ms of {len(everything):,} wakings")


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100)[-1] if len(values) > 1 else values[0]


if __name__ == "__main__":
    main()
