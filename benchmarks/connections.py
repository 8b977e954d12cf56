"""The adaptive limit of concurrent calls beside fixed limits, all in one run: ratios, not seconds.

    python benchmarks/connections.py                  about six minutes
    python benchmarks/connections.py --seconds 10     shorter

100 clients ask three servers:

* flaky: takes any number of calls; 6 % end in 5xx, 3 % in 429, 1 % hang or are reset
* refusing: answers 429 to every call beyond 16
* queueing: works on 16 calls, the others wait

`auto` should reach 0.8 of the best fixed limit on each, and load a server that saturates at 16 with about 16.
"""

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean
from typing import Literal

from aiohttp import web

from caps.core.errors import ModelError
from caps.core.types import Message
from caps.models.base import Request
from caps.models.http import HttpModel, Timeouts

CLIENTS = 100
CAPACITY = 16
FIXED = (8, 16, 32, 64, CLIENTS)
READ_SECONDS = 5.0  # after which a call that hangs is given up
REPLY = {
    "model": "stub",
    "choices": [{"message": {"role": "assistant", "content": "OK"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 1},
}


class Server:
    """One of the three servers."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._busy = 0
        self._free = asyncio.Semaphore(CAPACITY)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Answer after about 0.3 s, or fail as the kind of server does."""
        await request.read()
        self._busy += 1
        try:
            if self._kind == "flaky":
                return await self._maybe_fail(request)
            if self._kind == "refusing" and self._busy > CAPACITY:
                return web.Response(status=429)
            async with self._free if self._kind == "queueing" else contextlib.nullcontext():
                return await self._answer()
        finally:
            self._busy -= 1

    async def _maybe_fail(self, request: web.Request) -> web.StreamResponse:
        chance = random.random()
        if chance < 0.06:
            return web.Response(status=random.choice((500, 502, 503)))
        if chance < 0.09:
            return web.Response(status=429, headers={"Retry-After": "1"})
        if chance < 0.095:
            await asyncio.sleep(10 * READ_SECONDS)
        elif chance < 0.1 and request.transport is not None:
            request.transport.abort()
        return await self._answer()

    async def _answer(self) -> web.Response:
        await asyncio.sleep(random.uniform(0.15, 0.45))
        return web.Response(body=json.dumps(REPLY).encode(), content_type="application/json")


async def serve(kind: str) -> None:
    """Run a server until it is killed; prints its port."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", Server(kind).complete)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


@contextmanager
def server(kind: str) -> Iterator[str]:
    """A server in a process of its own; yields its base URL."""
    process = subprocess.Popen([sys.executable, __file__, "--serve", kind], stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        assert process.stdout is not None  # noqa: S101
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
    finally:
        process.kill()
        process.wait()


@dataclass(slots=True)
class Tally:
    """What the clients saw: answers, calls that failed for good, and the limit over the second half."""

    answered: int
    failed: int
    limit: float


async def drive(url: str, connections: int | Literal["auto"], seconds: float) -> Tally:
    """Ask with all clients for some seconds."""
    model = HttpModel(url, connections=connections, timeouts=Timeouts(read=READ_SECONDS))
    tally, limits = Tally(0, 0, 0.0), list[int]()
    end = time.perf_counter() + seconds

    async def client(number: int) -> None:
        while time.perf_counter() < end:
            try:
                await model.complete(Request((Message("user", f"{number}"),), "stub"))
            except ModelError:
                tally.failed += time.perf_counter() < end
            else:
                tally.answered += time.perf_counter() < end

    clients = [asyncio.create_task(client(number)) for number in range(CLIENTS)]
    while (left := end - time.perf_counter()) > 0:
        if left < seconds / 2:
            limits.append(model.connections)
        await asyncio.sleep(0.05)
    for task in clients:
        task.cancel()
    await asyncio.wait(clients)
    await model.close()
    tally.limit = mean(limits)
    return tally


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--seconds", type=float, default=20.0, help="for each limit at each server")
    options.add_argument("--serve", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.serve:
        asyncio.run(serve(given.serve))
        return
    for kind in ("flaky", "refusing", "queueing"):
        with server(kind) as url:
            fixed = {limit: asyncio.run(drive(url, limit, given.seconds)) for limit in FIXED}
            auto = asyncio.run(drive(url, "auto", given.seconds))
        best = max(fixed, key=lambda limit: fixed[limit].answered)
        ratio = auto.answered / fixed[best].answered
        others = ", ".join(
            f"{limit}: {tally.answered} ({tally.failed} failed)" for limit, tally in fixed.items()
        )
        print(
            f"{kind:9} auto {auto.answered} answers ({auto.failed} failed), limit {auto.limit:.0f}; "
            f"ratio to the best fixed limit, {best}: {ratio:.2f}; {others}",
            flush=True,
        )


if __name__ == "__main__":
    main()
