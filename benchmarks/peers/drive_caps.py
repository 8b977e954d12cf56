"""This project: the engine as `caps select` runs it, journal and all."""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driving import drive, task

from caps import Case
from caps.cli.main import spare_collector
from caps.config import RunConfig
from caps.session.resolve import resolve
from caps.session.session import open_session

GIVEN = task()


async def select(cases: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal.sqlite"
        config = RunConfig(
            model="stub", base_url=(GIVEN.url,), max_connections=GIVEN.connections, journal=str(journal),
            strategy=GIVEN.options[0], seed=1, hard_evidence="off",
        )  # fmt: skip
        given = [
            Case.of(one["problem"], one["candidates"], domain=one["domain"], name=one["id"]) for one in cases
        ]
        texts = {one["id"]: one["candidates"] for one in cases}
        async with open_session(resolve(config)) as ready:
            outcomes = ready.run(given)
            return {
                one.name: texts[one.name][one.selection.winner] async for one in outcomes if one.selection
            }


spare_collector()
drive(GIVEN, lambda cases: asyncio.run(select(cases)))
