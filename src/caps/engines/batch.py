"""The engine of Batch APIs: the whole benchmark moves through its stages together, a step at a time.

Rules that must not be broken:

* What is under way is not asked again: not after a kill, not by another process on the same journal.
* A step that brings nothing ends the run; it does not go on for ever.
* Budgets that a batch cannot keep are refused before anything is sent.
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from caps.core.errors import BusyError, InputError, SettingError
from caps.core.play import Strategy
from caps.core.types import Case
from caps.engines.absorb import Taken
from caps.engines.base import Outcome, PerCase
from caps.engines.batch_courier import Courier
from caps.engines.batch_files import BatchSettings, Part, StepFiles
from caps.engines.batch_notes import Sent
from caps.engines.budget import Budget
from caps.engines.convoy import Convoy, looked_into
from caps.judges.base import Ruling
from caps.models.batch_lines import encode_line
from caps.models.batches import Batches
from caps.models.waiting import Waiting

MakeConvoy: TypeAlias = Callable[[Sequence[Case | InputError], Strategy | PerCase, int], Convoy]


def refuse_unkept(case: Budget, total: Budget) -> None:
    """A case's tokens and dollars can be kept; time and what a whole run may take cannot."""
    if case.seconds is not None or total != Budget():
        raise SettingError(
            "a batch keeps budgets of tokens and dollars for each case, none of seconds and none in total: "
            "give --budget-tokens or --budget-usd, --max-usd to refuse the start, or --engine local"
        )


class BatchEngine:
    """Plays all cases through the Batch API of each seat's endpoint.

    `convoys` makes cases ready to move; `waiting` is what their judge's models share. `watch` hears every
    ruling when all is over; its `courier` tells in words what is under way.
    """

    def __init__(
        self,
        convoys: MakeConvoy,
        waiting: Waiting,
        desks: Mapping[Hashable, Batches],
        courier: Courier,
        *,
        settings: BatchSettings,
        find: Callable[[Case], Awaitable[Case]] | None = None,
    ) -> None:
        self._convoys, self._waiting, self._desks, self.courier = convoys, waiting, desks, courier
        self._settings, self._find = settings, find
        self.watch: Callable[[Ruling], object] = lambda _: None

    async def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase, *, seed: int
    ) -> AsyncGenerator[Outcome, None]:
        """Play all cases and yield what became of each, in the order of input."""
        convoy = self._convoys(await looked_into(cases, self._find), strategy, seed)
        step = 1
        while await self._step(convoy, step):
            step += 1
        for stand in convoy.stands():
            for judged in stand.outcome.judged:
                self.watch(judged.ruling)
            yield stand.outcome
            await asyncio.sleep(0)

    async def _step(self, convoy: Convoy, number: int) -> bool:
        """Send what is open, wait for that and what is under way, take it in; false if nothing is open."""
        with (
            TemporaryDirectory(prefix="caps-batch-") as folder,
            StepFiles(Path(folder), f"step-{number:03d}", self._settings) as files,
        ):
            requests, joined = await self._write(convoy, files)
            parts = files.finish()
            if not requests:
                return False
            kinds = [(len(parts), "new"), (len(joined), "under way already")]
            batches = ", ".join(f"{count} {kind}" for count, kind in kinds if count)
            self.courier.told(f"step {number}: {requests:,} requests open; batches: {batches}")
            desks = {desk.address: desk for desk in self._desks.values()}
            taken = await _all_of(
                [self.courier.rejoin(desks[sent.address], sent, Path(folder)) for sent in joined]
                + [self.courier.send(self._desk(part), part) for part in parts]
            )
        for one in taken:
            self._waiting.paid |= one.keys
        self._conclude(taken, requests)
        return True

    async def _write(self, convoy: Convoy, files: StepFiles) -> tuple[int, list[Sent]]:
        """Write what is open and not under way; how much is open, and the batches some of it is in."""
        before = self.courier.notes.under_way({desk.address for desk in self._desks.values()})
        owner = {key: sent for sent in before for key in sent.awaited}
        seen: set[str] = set()
        joined: dict[str, Sent] = {}
        for stand in convoy.stands():
            for one in stand.open:
                seen.add(one.key)
                sent = owner.get(one.key)
                if sent is not None:
                    joined[sent.name] = sent
                else:
                    limit_name = self._desks[one.seat].limit_name
                    files.add(one, encode_line(one.key, one.request, limit_name=limit_name))
            await asyncio.sleep(0)  # so that a signal is heard
        return len(seen), list(joined.values())

    def _desk(self, part: Part) -> Batches:
        return self._desks[part.group[0]]

    def _conclude(self, taken: list[Taken], requests: int) -> None:
        """Say what went wrong; a step that brought nothing is the last."""
        for words in (words for one in taken for words in one.garbage):
            self.courier.warned(f"not a result: {words}")
        for one in taken:
            if one.refused is not None:
                raise one.refused
        if not any(one.moved for one in taken):
            unrun = sum(one.unrun for one in taken)
            why = f"{unrun:,} were never run" if unrun else "no results came"
            raise BusyError(
                f"none of the {requests:,} requests of this step was answered ({why}): run the same command "
                "again later, or use --engine local"
            )


async def _all_of(work: list[Coroutine[Any, Any, Taken]]) -> list[Taken]:
    """Do all of it at once; the first that breaks ends the others, whose batches go on by themselves."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
