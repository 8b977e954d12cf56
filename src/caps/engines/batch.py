"""The engine for batches: all cases of a run advance together, one round of requests per batch.

Each pass plays every case anew as far as the journal reaches, and hands the open requests to a carrier, which
has them answered and stores the replies in the journal. Nothing else is kept between passes, so a run that
was interrupted goes on when the same command is run again.

A request that was sent is not sent again: not after a kill, not by another process on the same journal.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Protocol

from caps.core.errors import BatchWaitingError, CapsError, InputError
from caps.core.play import Strategy
from caps.core.types import Case
from caps.costs.budget import Budget
from caps.engines.base import CaseRun, Outcome, PerCase, strategy_for, unreadable_case
from caps.engines.batch_carriers import Notices
from caps.engines.local import fast_forward
from caps.engines.readability import ReplyCheck
from caps.engines.scheduler import MAX_PREPARING
from caps.judging.base import Judge, Ruling
from caps.judging.preparation import CasePreparation
from caps.models.batch import OpenRequest, PendingRequests

Source = Sequence[Case | InputError]


class Carrier(Protocol):
    """Has requests answered outside this process: by a Batch API, or through files in a folder."""

    notices: Notices

    async def exchange(self, requests: AsyncIterator[OpenRequest]) -> bool:
        """Store replies to these requests in the journal; False if there are no requests.

        It raises `BatchWaitingError` if replies can come only after this process has ended. The keys of
        replies that were paid for by this run are added to `PendingRequests.paid`.
        """
        ...


class BatchEngine:
    """Runs all cases through a carrier.

    `requests` is shared with the carrier and with the models of the judge. `new_budget` returns a new budget
    for a case, because each pass plays it from its beginning. `watch` is called with every ruling at the end
    of the run. Without `keep_going`, `UnreadableJudgeError` is raised if most replies of the judge cannot be
    read.
    """

    def __init__(
        self,
        judge: Judge,
        prepare: CasePreparation,
        requests: PendingRequests,
        carrier: Carrier,
        *,
        new_budget: Callable[[], Budget],
        find: Callable[[Case], Awaitable[Case]] | None = None,
        keep_going: bool = True,
    ) -> None:
        self._judge, self._prepare, self._requests, self._carrier = judge, prepare, requests, carrier
        self._new_budget, self._find, self._keep_going = new_budget, find, keep_going
        self.watch: Callable[[Ruling], object] = lambda _: None

    @property
    def notices(self) -> Notices:
        """Receives the messages for the user."""
        return self._carrier.notices

    async def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase, *, seed: int
    ) -> AsyncGenerator[Outcome, None]:
        """Run all cases and yield each outcome, in input order."""
        source, failed = await _with_findings(cases, self._find), list[Outcome]()
        try:
            going_on = True
            while going_on:
                async with aclosing(self._open_requests(source, strategy, seed, failed)) as requests:
                    going_on = await self._carrier.exchange(requests)
        except BatchWaitingError as waiting:
            waiting.failed = [(outcome.name, str(outcome.failure)) for outcome in failed]
            raise
        check = ReplyCheck(keep_going=self._keep_going)
        for outcome, _ in self._play(source, strategy, seed):
            check.add_outcome(outcome)
            for judged in outcome.judged:
                self.watch(judged.ruling)
            yield outcome
            await asyncio.sleep(0)
        check.finish()

    async def _open_requests(
        self, source: Source, strategy: Strategy | PerCase, seed: int, failed: list[Outcome]
    ) -> AsyncGenerator[OpenRequest, None]:
        """The requests that all cases need next, and the cases that `failed`.

        It stops before more is sent if most replies so far cannot be read.
        """
        check = ReplyCheck(keep_going=self._keep_going)
        failed.clear()
        for outcome, requests in self._play(source, strategy, seed):
            if outcome.judged or not requests:
                check.add_first_round(outcome)
            if check.error is not None and requests:
                raise check.error
            if outcome.failure is not None:
                failed.append(outcome)
            for request in requests:
                yield request
            await asyncio.sleep(0)  # lets signals through

    def _play(
        self, source: Source, strategy: Strategy | PerCase, seed: int
    ) -> Iterator[tuple[Outcome, list[OpenRequest]]]:
        """Play every case as far as the journal reaches: its outcome so far, and its open requests."""
        self._requests.begin()
        for number, case in enumerate(source):
            if isinstance(case, InputError):
                yield unreadable_case(number, case), []
                continue
            try:
                prepared = self._prepare(case)
                case_run = CaseRun(number, prepared, strategy_for(number, strategy), seed, self._new_budget())
            except CapsError as error:
                yield Outcome(number, case.id, failure=str(error)), []
                continue
            try:
                fast_forward(case_run, self._judge)
            except CapsError:
                raise
            except Exception as error:  # an exception of the judge fails its case, as in a live run
                case_run.outcome.failure = f"{type(error).__name__}: {error}"
            requests = self._requests.take()
            yield case_run.outcome, requests if case_run.outcome.failure is None else []


async def _with_findings(
    source: Iterable[Case | InputError], find: Callable[[Case], Awaitable[Case]] | None
) -> Source:
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
