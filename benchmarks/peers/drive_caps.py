"""This project: the engine as `caps select` runs it, journal and all."""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driving import drive, errand

from caps import Case
from caps.building import Endpoint, Setup, make_strategy, session

GIVEN = errand()


async def select(cases: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal.sqlite"
        where = Endpoint(GIVEN.url, "stub")
        setup = Setup(endpoint=where, connections=GIVEN.connections, journal=journal)
        given = [
            Case.of(one["problem"], one["candidates"], domain=one["domain"], name=one["id"]) for one in cases
        ]
        texts = {one["id"]: one["candidates"] for one in cases}
        async with session(setup, probe=False) as ready:
            outcomes = ready.engine.run(given, make_strategy(GIVEN.options[0]), seed=1)
            return {
                one.name: texts[one.name][one.selection.winner] async for one in outcomes if one.selection
            }


drive(GIVEN, lambda cases: asyncio.run(select(cases)))
