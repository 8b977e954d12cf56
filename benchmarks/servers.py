"""What several servers gain and cost; ratios of one run on one machine, with simulated prefix caches.

* share of the prompt that servers find in their caches: one server, several, and several with calls sent
  anywhere; the cache is simulated: it never forgets, in blocks of 64 characters
* the same with one of the servers killed in the middle: no case may fail
* calls a second through two servers over those straight to the same stub, with as many connections
"""

import argparse
import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

from endpoints import endpoint

from caps import Case
from caps.config import RunConfig
from caps.core.types import Candidate, Problem
from caps.models import servers
from caps.session.resolve import resolve
from caps.session.session import open_session
from caps.testing import Reply, ScriptedEndpoint, better_quality_wins, endpoint_process

BLOCK = 64
CONNECTIONS = 16


def cases(count: int) -> Iterator[Case]:
    """Cases of 16 different answers and a statement twice as long as one."""
    for number in range(count):
        texts = [f"{number} {i} " + "because of this, " * 60 + f"\\boxed{{{i}}}" for i in range(16)]
        statement = f"{number}: " + "given all of that, " * 120 + "what is it?"
        yield Case(f"{number}", Problem.of(statement), tuple(map(Candidate, texts)), "math")


def caching(delay: float, dies_at: int) -> ScriptedEndpoint:
    """Report how much of each prompt began like another that was seen before; die at a request, if not 0."""
    seen: set[bytes] = set()

    def script(body: dict[str, Any], number: int) -> Reply:
        if number + 1 == dies_at:
            os._exit(1)
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


class Played(NamedTuple):
    """The cached share of what was read, the seconds, the calls, and the cases that failed."""

    cached: float
    seconds: float
    calls: int
    failed: int


async def play(address: str, count: int, connections: int) -> Played:
    """Select from all cases."""
    config = RunConfig(
        model="stub", base_url=(address,), max_connections=connections, views={"partial": "full"},
        strategy="caps", seed=1, hard_evidence="off",
    )  # fmt: skip
    async with open_session(resolve(config)) as ready:
        start, read, cached, calls, failed = time.perf_counter(), 0, 0, 0, 0
        async for outcome in ready.run(cases(count)):
            total = outcome.ledger.total()
            read, cached, calls = read + total.billed, cached + total.cached, calls + len(outcome.judged)
            failed += outcome.failure is not None or outcome.ledger.unanswered.total() > 0
        return Played(cached / read, time.perf_counter() - start, calls, failed)


def play_fresh(many: int, count: int, connections: int, delay: float, *, dies_at: int = 0) -> Played:
    """Select with so many servers whose caches are empty."""
    with ExitStack() as stack:
        urls = [
            stack.enter_context(endpoint_process("servers:caching", delay, 0 if number else dies_at))
            for number in range(many)
        ]
        return asyncio.run(play(",".join(urls), count, connections))


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--cases", type=int, default=60)
    options.add_argument("--servers", type=int, default=4)
    options.add_argument("--delay", type=float, default=0.2, help="seconds a call takes")
    given = options.parse_args()
    count, many, delay = given.cases, given.servers, given.delay
    single = play_fresh(1, count, CONNECTIONS * many, delay)
    several = play_fresh(many, count, CONNECTIONS, delay)
    killed = play_fresh(many, count, CONNECTIONS, delay, dies_at=100)
    usual, servers.prefix_of = servers.prefix_of, lambda _: os.urandom(8)
    anywhere = play_fresh(many, count, CONNECTIONS, delay)
    servers.prefix_of = usual
    for name, played in {
        "one server": single,
        f"{many} servers": several,
        f"{many} servers, one killed": killed,
        f"{many} servers, calls sent anywhere": anywhere,
    }.items():
        print(
            f"{name:32} read from caches {played.cached:.2f}   {played.seconds:.2f} s   "
            f"{played.failed} cases failed"
        )
    with endpoint() as url:
        rounds = []
        for _ in range(3):
            straight = asyncio.run(play(url, count, 2 * CONNECTIONS))
            through = asyncio.run(play(f"{url},{url}?again", count, CONNECTIONS))
            rounds.append((straight.calls / straight.seconds, through.calls / through.seconds))
        alone, both = (max(speeds) for speeds in zip(*rounds, strict=True))
    print(f"calls a second    two servers {both:6.0f}   straight {alone:6.0f}   ratio {both / alone:.2f}")


if __name__ == "__main__":
    main()
