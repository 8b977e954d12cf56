"""llm-verifier: its pivot tournament with one criterion; several selections at once share the connections."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
from driving import drive, task
from llm_verifier import select as verify

GIVEN = task()
WORKERS = 16  # a round of its tournament has as many pairs as there are candidates
CRITERIA = {"Correctness": "Is the final answer correct?"}
CLIENT = openai.OpenAI(base_url=GIVEN.url, api_key="none", timeout=600)


def select(cases: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    def one(case: Mapping[str, Any]) -> str:
        found = verify(
            case["problem"],
            case["candidates"],
            criteria=CRITERIA,
            n_evaluations=int(GIVEN.options[0]),
            max_workers=GIVEN.connections if GIVEN.single else WORKERS,
            model="stub",
            client=CLIENT,
            on_error="raise",
        )
        return str(found.best)

    with ThreadPoolExecutor(max(1, GIVEN.connections // WORKERS)) as pool:
        return {case["id"]: pick for case, pick in zip(cases, pool.map(one, cases), strict=True)}


drive(GIVEN, select)
