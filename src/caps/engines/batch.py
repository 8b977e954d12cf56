"""The engine for Batch APIs: all cases of a run advance together, one step per batch.

Rules that must not be broken:

* A request that was sent is not sent again: not after a kill, not by another process on the same journal.
* A step without any result ends the run instead of repeating for ever.
* Budgets that a batch cannot keep are refused before anything is sent.
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from caps.core.errors import BusyError, CapsError, InputError, SettingError
from caps.core.play import Strategy
from caps.core.secrets import shown_address
from caps.core.types import Case
from caps.engines.base import CaseRun, Outcome, PerCase, Prepare, strategy_for, unreadable_case
from caps.engines.batch_files import BatchClient, BatchSettings, ImportCount, SentBatch, StepFiles
from caps.engines.budget import BudgetLimits
from caps.engines.local import fast_forward
from caps.engines.readability import ReplyCheck
from caps.engines.scheduler import MAX_PREPARING
from caps.journal.store import Journal
from caps.judging.base import Budget, Judge, Ruling, together
from caps.models.base import Model
from caps.models.batch_api import Batches, encode_line
from caps.models.endpoints import Endpoint
from caps.models.faults import Failures
from caps.models.http import HttpModel
from caps.models.pending import MissingRequest, PendingRequests


@dataclass(frozen=True, slots=True)
class CaseProgress:
    """The progress of a case: its outcome so far, its contest, and its requests without a reply."""

    outcome: Outcome
    case_run: CaseRun | None = None
    missing: Sequence[MissingRequest] = ()

    @property
    def stage(self) -> str | None:
        """The stage of the pending round; None when the case is over."""
        round_ = None if self.case_run is None or self.outcome.failure is not None else self.case_run.round
        return None if round_ is None else round_.stage

    @property
    def open(self) -> list[MissingRequest]:
        """The requests that must be answered for the case to advance."""
        return [one for one in self.missing if not one.lost]


class BatchState:
    """The state of all cases, derived from the journal in each pass; nothing is kept between passes.

    `budget` returns a new budget for a case, because each pass runs it from its beginning. Without
    `keep_going`, `UnreadableJudgeError` is raised if most replies of the judge cannot be read.
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
        keep_going: bool = True,
    ) -> None:
        self._keep_going = keep_going
        self._cases, self._strategy, self._seed = cases, strategy, seed
        self._judge, self._prepare, self._waiting, self._budget = judge, prepare, waiting, budget

    def __len__(self) -> int:
        return len(self._cases)

    def progress(self) -> Iterator[CaseProgress]:
        """Run every contest as far as the journal reaches, in input order."""
        self._waiting.begin()
        for number, case in enumerate(self._cases):
            yield self._advance(number, case)

    def next_step(self) -> Iterator[CaseProgress]:
        """The same before more is sent; stops if most replies so far cannot be read."""
        check = ReplyCheck(keep_going=self._keep_going)
        for progress in self.progress():
            if progress.outcome.judged or progress.stage is None:
                check.add_first_round(progress.outcome)
            if check.error is not None and progress.missing:
                raise check.error
            yield progress

    def outcomes(self) -> Iterator[Outcome]:
        """The outcomes of all cases, once no request is open."""
        check = ReplyCheck(keep_going=self._keep_going)
        for progress in self.progress():
            check.add_outcome(progress.outcome)
            yield progress.outcome
        check.finish()

    def _advance(self, number: int, case: Case | InputError) -> CaseProgress:
        if isinstance(case, InputError):
            return CaseProgress(unreadable_case(number, case))
        strategy = strategy_for(number, self._strategy)
        try:
            case_run = CaseRun(number, self._prepare(case), strategy, self._seed, self._budget())
        except CapsError as error:
            return CaseProgress(Outcome(number, case.id, failure=str(error)))
        try:
            fast_forward(case_run, self._judge)
        except CapsError:
            raise
        except Exception as error:  # an exception of the judge fails its case, as in a live run
            case_run.outcome.failure = f"{type(error).__name__}: {error}"
        return CaseProgress(case_run.outcome, case_run, self._waiting.take())


async def with_findings(
    source: Iterable[Case | InputError], find: Callable[[Case], Awaitable[Case]] | None
) -> list[Case | InputError]:
    """All cases of a source with their findings; a source that breaks off ends with the reason."""
    cases: list[Case | InputError] = []
    try:
        cases.extend(source)
    except InputError as error:
        cases.append(error)
    if find is None:
        return cases
    slots = asyncio.Semaphore(MAX_PREPARING)

    async def find_one(case: Case | InputError) -> Case | InputError:
        if isinstance(case, InputError):
            return case
        async with slots:
            try:
                return await find(case)
            except CapsError:
                raise
            except Exception as error:
                return InputError(f"case {case.id!r}: {type(error).__name__}: {error}")

    return list(await asyncio.gather(*map(find_one, cases)))


MakeBatchState: TypeAlias = Callable[[Sequence[Case | InputError], Strategy | PerCase, int], BatchState]


def check_batch_budgets(case: BudgetLimits, total: BudgetLimits) -> None:
    """Refuse budgets that a batch cannot keep: those in seconds and those for a whole run."""
    if case.seconds is not None or total != BudgetLimits():
        raise SettingError(
            "a batch keeps budgets of tokens and dollars for each case, none of seconds and none in total: "
            "give --budget-tokens or --budget-usd, --max-usd to refuse the start, or --engine local"
        )


class BatchEngine:
    """Runs all cases through the Batch API of each endpoint.

    `make_state` makes the state of some cases; `waiting` is shared with the models of their judge. `watch` is
    called with every ruling at the end of the run; `batch_client` reports progress.
    """

    def __init__(
        self,
        make_state: MakeBatchState,
        waiting: PendingRequests,
        apis: Mapping[Hashable, Batches],
        batch_client: BatchClient,
        *,
        settings: BatchSettings,
        find: Callable[[Case], Awaitable[Case]] | None = None,
    ) -> None:
        self._make_state, self._waiting, self._apis = make_state, waiting, apis
        self.batch_client, self._settings, self._find = batch_client, settings, find
        self.watch: Callable[[Ruling], object] = lambda _: None

    @classmethod
    def connected(
        cls,
        models: Mapping[Endpoint, Model],
        journal: Journal,
        make_state: Callable[[PendingRequests], MakeBatchState],
        *,
        settings: BatchSettings,
        find: Callable[[Case], Awaitable[Case]] | None = None,
    ) -> "BatchEngine":
        """The engine for the endpoints of models; `SettingError` if one has no Batch API."""
        apis: dict[Hashable, Batches] = {}
        for where, model in models.items():
            if not isinstance(model, HttpModel):
                raise SettingError(
                    "--engine batch needs an endpoint with a Batch API; "
                    f"{shown_address(where.base_url)} is none"
                )
            apis[where] = Batches(model, where.model, window=settings.window)
        failures = Failures(settings.tries)
        waiting = PendingRequests(journal, failures)
        client = BatchClient(journal, failures, settings)
        return cls(make_state(waiting), waiting, apis, client, settings=settings, find=find)

    async def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase, *, seed: int
    ) -> AsyncGenerator[Outcome, None]:
        """Run all cases and yield each outcome, in input order."""
        batch_state = self._make_state(await with_findings(cases, self._find), strategy, seed)
        step = 1
        while await self._step(batch_state, step):
            step += 1
        for outcome in batch_state.outcomes():
            for judged in outcome.judged:
                self.watch(judged.ruling)
            yield outcome
            await asyncio.sleep(0)

    async def _step(self, batch_state: BatchState, number: int) -> bool:
        """Send open requests, wait for all batches and import their results; false if nothing is open."""
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
            self.batch_client.on_progress(f"step {number}: {requests:,} requests open; batches: {batches}")
            by_address = {api.address: api for api in self._apis.values()}
            counts = await together(
                [self.batch_client.rejoin(by_address[sent.address], sent, Path(folder)) for sent in joined]
                + [self.batch_client.send(self._apis[part.group[0]], part) for part in parts]
            )
        for count in counts:
            self._waiting.paid |= count.keys
        self._check(counts, requests)
        return True

    async def _write(self, batch_state: BatchState, files: StepFiles) -> tuple[int, list[SentBatch]]:
        """Write the open requests that no batch holds; count all, and list the batches that hold some."""
        sent_before = self.batch_client.records.under_way({api.address for api in self._apis.values()})
        owners = {key: sent for sent in sent_before for key in sent.awaited}
        seen: set[str] = set()
        joined: dict[str, SentBatch] = {}
        for progress in batch_state.next_step():
            for one in progress.open:
                seen.add(one.key)
                sent = owners.get(one.key)
                if sent is not None:
                    joined[sent.name] = sent
                else:
                    limit_name = self._apis[one.level_model].limit_name
                    files.add(one, encode_line(one.key, one.request, limit_name=limit_name))
            await asyncio.sleep(0)  # lets signals through
        return len(seen), list(joined.values())

    def _check(self, counts: list[ImportCount], requests: int) -> None:
        """Report what went wrong in a step; raise if it was refused or brought no result."""
        for line in (line for count in counts for line in count.garbage):
            self.batch_client.on_warning(f"not a result: {line}")
        for count in counts:
            if count.refused is not None:
                raise count.refused
        if not any(count.progressed for count in counts):
            not_run = sum(count.not_run for count in counts)
            why = f"{not_run:,} were never run" if not_run else "no results came"
            raise BusyError(
                f"none of the {requests:,} requests of this step was answered ({why}): run the same command "
                "again later, or use --engine local"
            )
