"""The engine for Batch APIs: all cases of a run advance together, one step per batch.

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
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from caps.core.errors import BusyError, CapsError, InputError, SettingError
from caps.core.play import Strategy
from caps.core.types import Case
from caps.engines.base import CaseRun, Outcome, PerCase, Prepare
from caps.engines.batch_files import BatchClient, BatchFile, BatchSettings, ImportCount, SentBatch, StepFiles
from caps.engines.budget import BudgetLimits
from caps.engines.local import fast_forward
from caps.engines.scheduler import MOST_LOOKING
from caps.judging.base import Budget, Judge, Ruling
from caps.models.batch_api import Batches, encode_line
from caps.models.pending import MissingRequest, PendingRequests

# All cases of a run, moving together: a pass plays every contest as far as the journal reaches.
#
# Nothing is kept between passes: where a contest stands is a function of the journal.


@dataclass(frozen=True, slots=True)
class CaseProgress:
    """Where a case stands: what became of it so far, its contest, and the requests it lacks a reply to."""

    outcome: Outcome
    play: CaseRun | None = None
    noted: Sequence[MissingRequest] = ()

    @property
    def stage(self) -> str | None:
        """The stage it waits in; none where it is over."""
        round_ = None if self.play is None or self.outcome.failure is not None else self.play.round
        return None if round_ is None else round_.stage

    @property
    def open(self) -> list[MissingRequest]:
        """What must be asked for it to go on."""
        return [one for one in self.noted if not one.lost]


class BatchState:
    """Plays the same cases again and again, with a judge whose models wait for batches.

    `purse` makes the purse of a case anew, because a pass plays it from its beginning.
    """

    def __init__(
        self,
        cases: Sequence[Case | InputError],
        strategy: Strategy | PerCase,
        *,
        seed: int,
        judge: Judge,
        prepare: Prepare,
        waiting: PendingRequests,
        budget: Callable[[], Budget],
    ) -> None:
        self._cases, self._strategy, self._seed = cases, strategy, seed
        self._judge, self._prepare, self._waiting, self._purse = judge, prepare, waiting, budget

    def __len__(self) -> int:
        return len(self._cases)

    def stands(self) -> Iterator[CaseProgress]:
        """Where each case stands now, in the order of input."""
        self._waiting.begin()
        for number, case in enumerate(self._cases):
            yield self._stand(number, case)

    def _stand(self, number: int, case: Case | InputError) -> CaseProgress:
        if isinstance(case, InputError):
            return CaseProgress(Outcome(number, "", failure=str(case)))
        own = self._strategy
        chosen = own.strategies[number] if isinstance(own, PerCase) else own
        try:
            play = CaseRun(number, self._prepare(case), chosen, self._seed, self._purse())
        except CapsError as error:
            return CaseProgress(Outcome(number, case.id, failure=str(error)))
        try:
            fast_forward(play, self._judge)
        except CapsError:
            raise
        except Exception as error:  # a judge that broke fails its case, as it does live
            play.outcome.failure = f"{type(error).__name__}: {error}"
        return CaseProgress(play.outcome, play, self._waiting.take())


async def with_findings(
    source: Iterable[Case | InputError], find: Callable[[Case], Awaitable[Case]] | None
) -> list[Case | InputError]:
    """All cases of a source with what was found of them; one that breaks off ends with the reason."""
    cases: list[Case | InputError] = []
    try:
        cases.extend(source)
    except InputError as error:
        cases.append(error)
    if find is None:
        return cases
    places = asyncio.Semaphore(MOST_LOOKING)

    async def look(case: Case | InputError) -> Case | InputError:
        if isinstance(case, InputError):
            return case
        async with places:
            try:
                return await find(case)
            except CapsError:
                raise
            except Exception as error:
                return InputError(f"case {case.id!r}: {type(error).__name__}: {error}")

    return list(await asyncio.gather(*map(look, cases)))


MakeConvoy: TypeAlias = Callable[[Sequence[Case | InputError], Strategy | PerCase, int], BatchState]


def refuse_unkept(case: BudgetLimits, total: BudgetLimits) -> None:
    """A case's tokens and dollars can be kept; time and what a whole run may take cannot."""
    if case.seconds is not None or total != BudgetLimits():
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
        waiting: PendingRequests,
        desks: Mapping[Hashable, Batches],
        batch_client: BatchClient,
        *,
        settings: BatchSettings,
        find: Callable[[Case], Awaitable[Case]] | None = None,
    ) -> None:
        self._convoys, self._waiting, self._desks, self.batch_client = convoys, waiting, desks, batch_client
        self._settings, self._find = settings, find
        self.watch: Callable[[Ruling], object] = lambda _: None

    async def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase, *, seed: int
    ) -> AsyncGenerator[Outcome, None]:
        """Play all cases and yield what became of each, in the order of input."""
        batch_state = self._convoys(await with_findings(cases, self._find), strategy, seed)
        step = 1
        while await self._step(batch_state, step):
            step += 1
        for stand in batch_state.stands():
            for judged in stand.outcome.judged:
                self.watch(judged.ruling)
            yield stand.outcome
            await asyncio.sleep(0)

    async def _step(self, batch_state: BatchState, number: int) -> bool:
        """Send what is open, wait for that and what is under way, take it in; false if nothing is open."""
        with (
            TemporaryDirectory(prefix="caps-batch-") as folder,
            StepFiles(Path(folder), f"step-{number:03d}", self._settings) as files,
        ):
            requests, joined = await self._write(batch_state, files)
            parts = files.finish()
            if not requests:
                return False
            kinds = [(len(parts), "new"), (len(joined), "under way already")]
            batches = ", ".join(f"{count} {kind}" for count, kind in kinds if count)
            self.batch_client.told(f"step {number}: {requests:,} requests open; batches: {batches}")
            desks = {desk.address: desk for desk in self._desks.values()}
            taken = await _all_of(
                [self.batch_client.rejoin(desks[sent.address], sent, Path(folder)) for sent in joined]
                + [self.batch_client.send(self._desk(part), part) for part in parts]
            )
        for one in taken:
            self._waiting.paid |= one.keys
        self._conclude(taken, requests)
        return True

    async def _write(self, batch_state: BatchState, files: StepFiles) -> tuple[int, list[SentBatch]]:
        """Write what is open and not under way; how much is open, and the batches some of it is in."""
        before = self.batch_client.notes.under_way({desk.address for desk in self._desks.values()})
        owner = {key: sent for sent in before for key in sent.awaited}
        seen: set[str] = set()
        joined: dict[str, SentBatch] = {}
        for stand in batch_state.stands():
            for one in stand.open:
                seen.add(one.key)
                sent = owner.get(one.key)
                if sent is not None:
                    joined[sent.name] = sent
                else:
                    limit_name = self._desks[one.level_model].limit_name
                    files.add(one, encode_line(one.key, one.request, limit_name=limit_name))
            await asyncio.sleep(0)  # so that a signal is heard
        return len(seen), list(joined.values())

    def _desk(self, part: BatchFile) -> Batches:
        return self._desks[part.group[0]]

    def _conclude(self, taken: list[ImportCount], requests: int) -> None:
        """Say what went wrong; a step that brought nothing is the last."""
        for words in (words for one in taken for words in one.garbage):
            self.batch_client.warned(f"not a result: {words}")
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


async def _all_of(work: list[Coroutine[Any, Any, ImportCount]]) -> list[ImportCount]:
    """Do all of it at once; the first that breaks ends the others, whose batches go on by themselves."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
