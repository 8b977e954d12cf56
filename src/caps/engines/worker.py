"""A worker: plays cases in a process of its own with the local engine, and holds the connections for them.

It knows nothing that would be missed: replies and findings are with the clerk, cases with whoever sent them.
"""

import asyncio
import os
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

from caps.engines.bench import Bench
from caps.engines.clerk import JournalAfar, PotAfar, Terms, heard
from caps.engines.told import Job, Told
from caps.findings.kept import Findings


class Worker:
    """Plays one case a call, many at once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stack = AsyncExitStack()
        self._bench: Bench | None = None
        self._opening = asyncio.Lock()
        self._playing: set[asyncio.Task[Told]] = set()

    async def ready(self, clerk: Any) -> int:
        """Make ready to work for a clerk; the number of this process."""
        await self._equipped(clerk)
        return os.getpid()

    async def play(self, clerk: Any, job: Job) -> Told:
        """Play a case and tell of it; the clerk comes along each time, for whoever has just been replaced."""
        task = asyncio.ensure_future(self._play(clerk, job))
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

    async def _play(self, clerk: Any, job: Job) -> Told:
        bench = await self._equipped(clerk)
        left = None if job.ends is None else max(0.0, job.ends - time.time())
        run = bench.engine(left).run([job.case], job.strategy, seed=job.seed)
        (outcome,) = [one async for one in run]
        return Told.of(outcome, _taken(bench.findings))

    async def _equipped(self, clerk: Any) -> Bench:
        """The bench, equipped once in a life: after a death it is another, and the clerk must know."""
        async with self._opening:
            if self._bench is None:
                terms: Terms = await heard(clerk.enter.remote(self._name))
                journal = JournalAfar(clerk) if terms.journaled else None
                pot = PotAfar(clerk, self._name, terms.life) if terms.limited else None
                self._bench = await self._stack.enter_async_context(terms.equip(journal, pot))
            return self._bench


def _taken(findings: Findings | None) -> Counter[str]:
    """What could not be looked into since it was last asked."""
    if findings is None:
        return Counter()
    taken, findings.unusable = findings.unusable, Counter()
    return taken
