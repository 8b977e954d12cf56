"""The script one writes in an afternoon: pairwise over all candidates, asyncio.gather, the openai client.

`knockout` plays whole rounds at once, `round-robin` everyone against everyone; no cache, no partial views.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from driving import drive, task
from openai import AsyncOpenAI

GIVEN = task()
PROMPT = """Problem:
{problem}

Answer A:
{a}

Answer B:
{b}

Which answer is correct, or closer to it? Think step by step, then end with "Winner: A" or "Winner: B"."""


async def better(client: AsyncOpenAI, room: asyncio.Semaphore, problem: str, a: str, b: str) -> str:
    async with room:
        reply = await client.chat.completions.create(
            model="stub",
            messages=[{"role": "user", "content": PROMPT.format(problem=problem, a=a, b=b)}],
            temperature=0,
            max_tokens=1024,
        )
    found = re.findall(r"Winner: (A|B)", reply.choices[0].message.content or "")
    return b if found and found[-1] == "B" else a


async def knockout(client: AsyncOpenAI, room: asyncio.Semaphore, case: Mapping[str, Any]) -> str:
    left = list(case["candidates"])
    while len(left) > 1:
        pairs = list(zip(left[::2], left[1::2], strict=False))
        bye = left[2 * len(pairs) :]
        left = [*await asyncio.gather(*(better(client, room, case["problem"], a, b) for a, b in pairs)), *bye]
    return str(left[0])


async def round_robin(client: AsyncOpenAI, room: asyncio.Semaphore, case: Mapping[str, Any]) -> str:
    pairs = combinations(case["candidates"], 2)
    wins = await asyncio.gather(*(better(client, room, case["problem"], a, b) for a, b in pairs))
    return str(Counter(wins).most_common(1)[0][0])


async def select(cases: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    play = {"knockout": knockout, "round-robin": round_robin}[GIVEN.options[0]]
    room = asyncio.Semaphore(GIVEN.connections)
    async with AsyncOpenAI(base_url=GIVEN.url, api_key="none", timeout=600) as client:
        picks = await asyncio.gather(*(play(client, room, case) for case in cases))
    return {case["id"]: pick for case, pick in zip(cases, picks, strict=True)}


drive(GIVEN, lambda cases: asyncio.run(select(cases)))
