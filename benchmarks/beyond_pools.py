"""The pools `beyond.py` measures on: made up or read, looked into once, fitted to, and changed."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from caps.core.errors import InputError
from caps.core.types import Case
from caps.datasets.imports import open_cases
from caps.findings.answers import AnswerFinder
from caps.findings.base import Findings
from caps.findings.programs import BehaviourFinder
from caps.grading.math import MathGrader
from caps.journal.store import Journal
from caps.session.parts import make_prepare
from caps.studies.simulation import LabelledPool, PoolModel, generated_pools
from caps.studies.suites import pool_of


class Pools(NamedTuple):
    """Problems under a name; `apart` are the same, told apart by syntax as a cascade has them."""

    name: str
    merged: Sequence[LabelledPool]
    apart: Sequence[LabelledPool]


def imagined(problems: int, n: int) -> list[Pools]:
    """Pools the simulator makes up: answers that cluster, and programs that hardly do."""
    kinds = {kind: PoolModel(kind=kind, n=n, full_tokens=1500) for kind in ("math", "code")}
    return [
        Pools(kind, found, found)
        for kind, model in kinds.items()
        if (found := generated_pools(model, problems, 7))
    ]


def read(path: str, n: int, journal: str | None) -> Pools:
    """Labelled cases, the first `n` candidates of each; with a journal, looked into as `caps select` does."""
    cases = asyncio.run(_looked_into(path, n, journal))
    merged, apart = make_prepare(findings=journal is not None), make_prepare()
    both = [(pool_of(merged(case), place), pool_of(apart(case), place)) for place, case in enumerate(cases)]
    return Pools(Path(path).name.partition(".")[0], [one for one, _ in both], [other for _, other in both])


async def _looked_into(path: str, n: int, journal: str | None) -> list[Case]:
    cases = []
    for case in open_cases(path):
        if isinstance(case, InputError):
            raise case
        cases.append(replace(case, candidates=case.candidates[:n]))
    if journal is None:
        return cases
    finders = {"code": BehaviourFinder(), "math": AnswerFinder(MathGrader())}
    findings = Findings(finders, Journal.open(journal))
    try:
        return [await findings.find(case) for case in cases]
    finally:
        await findings.close()
