"""its_hub: best-of-n with its own judge; candidates are drawn from the endpoint, which hands out the pool."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from driving import drive, task
from its_hub import LLMJudge, LMOrchestrator, OpenAICompatibleLanguageModel
from its_hub.core.algorithms.bon import BestOfN

GIVEN = task()


async def select(cases: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    model = OpenAICompatibleLanguageModel(GIVEN.url, "none", "stub", temperature=0.7)
    judge = LLMJudge(OpenAICompatibleLanguageModel(GIVEN.url, "none", "stub"))
    best = BestOfN(judge, LMOrchestrator(max_concurrency=GIVEN.connections))
    picks = await asyncio.gather(
        *(best.ainfer(model, case["problem"], budget=len(case["candidates"])) for case in cases)
    )
    return {case["id"]: pick["content"] for case, pick in zip(cases, picks, strict=True)}


drive(GIVEN, lambda cases: asyncio.run(select(cases)))
