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
import random
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from statistics import mean
from typing import Literal

from caps.core.errors import ModelError
from caps.core.types import Message
from caps.models.base import Request
from caps.models.http import HttpModel, Timeouts
from caps.testing import Hang, Reply, Reset, ScriptedEndpoint, Status, endpoint_process
from caps.testing.endpoint import Behaviour

CLIENTS = 100
CAPACITY = 16
FIXED = (8, 16, 32, 64, CLIENTS)
READ_SECONDS = 5.0  # after which a call that hangs is given up


def server(kind: str) -> ScriptedEndpoint:
    """One of the three servers, which answers after about 0.3 s or fails as its kind does."""
    free = asyncio.Semaphore(CAPACITY)

    def answer() -> Reply:
        return Reply(delay=random.uniform(0.15, 0.45))

    def flaky() -> Behaviour:
        chance = random.random()
        if chance < 0.06:
            return Status(random.choice((500, 502, 503)))
        if chance < 0.09:
            return Status(429, headers={"Retry-After": "1"})
        if chance < 0.095:
            return Hang()
        return Reset() if chance < 0.1 else answer()

    async def queued() -> Behaviour:
        async with free:
            await asyncio.sleep(random.uniform(0.15, 0.45))
        return Reply()

    def script(_: object, __: int) -> Behaviour | Awaitable[Behaviour]:
        if kind == "flaky":
            return flaky()
        if kind == "queueing":
            return queued()
        return Status(429) if endpoint.busy > CAPACITY else answer()

    endpoint = ScriptedEndpoint(script, keep=False)
    return endpoint


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
    given = options.parse_args()
    for kind in ("flaky", "refusing", "queueing"):
        with endpoint_process("connections:server", kind) as url:
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
