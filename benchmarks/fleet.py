"""What a fleet gains and costs; ratios of one run on one machine, with simulated prefix caches.

* share of the prompt that servers find in their caches: one server, a fleet, and the same fleet with calls
  sent anywhere; the cache is simulated: it never forgets, in blocks of 64 characters
* calls a second through a fleet over those straight to the same stub, with as many connections
"""

import argparse
import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from endpoints import endpoint

from caps import Case
from caps.config import RunConfig
from caps.core.types import Candidate, Problem
from caps.models import fleet
from caps.runner import Runner
from caps.testing import Reply, ScriptedEndpoint, better_quality_wins, endpoint_process

BLOCK = 64
CONNECTIONS = 16


def cases(count: int) -> Iterator[Case]:
    """Cases of 16 different answers and a statement twice as long as one."""
    for number in range(count):
        texts = [f"{number} {i} " + "because of this, " * 60 + f"\\boxed{{{i}}}" for i in range(16)]
        statement = f"{number}: " + "given all of that, " * 120 + "what is it?"
        yield Case(f"{number}", Problem.of(statement), tuple(map(Candidate, texts)), "math")


def caching(delay: float) -> ScriptedEndpoint:
    """Report how much of each prompt began like another that was seen before."""
    seen: set[bytes] = set()

    def script(body: dict[str, Any], _: int) -> Reply:
        prompt = body["messages"][0]["content"].encode()
        digest, cached, fresh = blake2b(digest_size=16), 0, False
        for start in range(0, len(prompt) - BLOCK, BLOCK):
            digest.update(prompt[start : start + BLOCK])
            block = digest.digest()
            fresh = fresh or block not in seen
            cached += not fresh
            seen.add(block)
        details = {"cached_tokens": cached * BLOCK // 4}
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": 9, "prompt_tokens_details": details}
        return replace(better_quality_wins(body), usage=usage, delay=delay)

    return ScriptedEndpoint(script, keep=False)


async def play(address: str, count: int, connections: int) -> tuple[float, float, int]:
    """Select; the cached share of what was read, seconds, and calls."""
    config = RunConfig(
        model="stub", base_url=(address,), max_connections=connections, views={"partial": "full"},
        strategy="caps", seed=1, hard_evidence="off",
    )  # fmt: skip
    async with Runner(config).session() as ready:
        start, read, cached, calls = time.perf_counter(), 0, 0, 0
        async for outcome in ready.run(cases(count)):
            total = outcome.ledger.total()
            read, cached, calls = read + total.billed, cached + total.cached, calls + len(outcome.judged)
        return cached / read, time.perf_counter() - start, calls


def cached_share(
    servers: int, count: int, connections: int, delay: float, *, scattered: bool = False
) -> float:
    """The cached share with so many fresh servers."""
    usual = fleet.group_of
    with ExitStack() as stack:
        address = ",".join(
            stack.enter_context(endpoint_process("fleet:caching", delay)) for _ in range(servers)
        )
        if scattered:
            fleet.group_of = lambda _: os.urandom(8)
        try:
            return asyncio.run(play(address, count, connections))[0]
        finally:
            fleet.group_of = usual


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--cases", type=int, default=60)
    options.add_argument("--servers", type=int, default=4)
    options.add_argument("--delay", type=float, default=0.2, help="seconds a call takes")
    given = options.parse_args()
    count, many, delay = given.cases, given.servers, given.delay
    one = cached_share(1, count, CONNECTIONS * many, delay)
    ours = cached_share(many, count, CONNECTIONS, delay)
    anywhere = cached_share(many, count, CONNECTIONS, delay, scattered=True)
    print(f"read from caches  one server {one:.2f}   fleet of {many} {ours:.2f}   anywhere {anywhere:.2f}")
    with endpoint() as url:
        both = f"{url},{url}?again"
        rounds = []
        for _ in range(3):
            (_, alone, calls), (_, through, _) = (
                asyncio.run(play(address, count, connections))
                for address, connections in ((url, 2 * CONNECTIONS), (both, CONNECTIONS))
            )
            rounds.append((calls / through, calls / alone))
        through, alone = max(one for one, _ in rounds), max(one for _, one in rounds)
    print(f"calls a second    fleet {through:6.0f}   straight {alone:6.0f}   ratio {through / alone:.2f}")


if __name__ == "__main__":
    main()
