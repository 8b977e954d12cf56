"""A worker: plays cases in a process of its own with the local engine, and holds the connections for them.

It knows nothing that would be missed: replies and findings are with the clerk, cases with whoever sent them.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, NamedTuple, TypeAlias

from caps.engines.budget import Pot
from caps.engines.clerk import JournalAfar, PotAfar, heard
from caps.engines.local import LocalEngine
from caps.engines.told import Job, Told
from caps.findings.kept import Findings
from caps.journal.base import Keeper


class Bench(NamedTuple):
    """What a worker works with: an engine for so many seconds (or no limit), who looks into cases first."""

    engine: Callable[[float | None], LocalEngine]
    findings: Findings | None


Equip: TypeAlias = Callable[[Keeper | None, Pot | None], AbstractAsyncContextManager[Bench]]


class Worker:
    """Plays one case a call, many at once."""

    def __init__(self, name: str, equip: Equip, clerk: Any, *, journaled: bool, limited: bool) -> None:
        self._name, self._equip, self._clerk = name, equip, clerk
        self._journaled, self._limited = journaled, limited
        self._stack = AsyncExitStack()
        self._bench: Bench | None = None
        self._opening = asyncio.Lock()
        self._playing: set[asyncio.Task[Told]] = set()

    async def ready(self) -> int:
        """Open connections; the number of this process."""
        await self._equipped()
        return os.getpid()

    async def play(self, job: Job) -> Told:
        """Play a case and tell of it."""
        task = asyncio.ensure_future(self._play(job))
        self._playing.add(task)
        task.add_done_callback(self._playing.discard)
        return await task

    async def leave(self) -> None:
        """End what is under way, with its time of grace, and close the connections."""
        playing = list(self._playing)
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)
        await self._stack.aclose()

    async def _play(self, job: Job) -> Told:
        bench = await self._equipped()
        left = None if job.ends is None else max(0.0, job.ends - time.time())
        run = bench.engine(left).run([job.case], job.strategy, seed=job.seed)
        (outcome,) = [one async for one in run]
        return Told.of(outcome, _taken(bench.findings))

    async def _equipped(self) -> Bench:
        """The bench, equipped once in a life: after a death it is another, and the clerk must know."""
        async with self._opening:
            if self._bench is None:
                life = await heard(self._clerk.enter.remote(self._name))
                journal = JournalAfar(self._clerk) if self._journaled else None
                pot = PotAfar(self._clerk, self._name, life) if self._limited else None
                self._bench = await self._stack.enter_async_context(self._equip(journal, pot))
            return self._bench


def _taken(findings: Findings | None) -> Counter[str]:
    """What could not be looked into since it was last asked."""
    if findings is None:
        return Counter()
    taken, findings.unusable = findings.unusable, Counter()
    return taken
