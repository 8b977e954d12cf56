"""Runs a sampling policy: samples of several generators and questions to a judge, interleaved.

Rules that must not be broken:

* The policy sees events in one order; with a journal that order is stored before it is used, so that a
  resumed run and a live one see the same.
* No sample outlives the run: what is no longer needed is cancelled at once.
* Every sample that was started is in the ledger, a cancelled one with an estimate.
* If no sample succeeds, there is no outcome.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean, median
from typing import Any, Generic, Protocol, TypeVar

from caps.core.contest import Contest
from caps.core.play import Play
from caps.core.policy import Draw, Event, JudgePrice, Policy, PolicyRun, Pool, Source
from caps.core.text import plural
from caps.core.types import Answer, Candidate, Case, Entrant, Round, Selection, Unanswered, Usage
from caps.costs.budget import Budget
from caps.costs.prices import Price
from caps.engines.base import Outcome
from caps.engines.local import LocalEngine
from caps.journal.records import ReplyStore
from caps.judging.base import EXHAUSTED, NOTHING, PreparedCase
from caps.judging.payment import USUAL_OUTPUT, USUAL_REPLY

LATE = 3.0  # a sample is late after this many times the median time of those that ended
LEAST_WAIT = 0.25  # seconds before any sample is late
INSTRUCTIONS = 250  # tokens of a question besides problem and candidates
EVENT = "event of a question"  # the kind of its facts in the journal
UNPRICED = Price(1.0, 4.0)  # what tokens are weighed by where no price is known


class Drawn(Protocol):
    """A sample that ended: a candidate, or the reason why there is none."""

    @property
    def candidate(self) -> Candidate | None: ...  # noqa: D102
    @property
    def usage(self) -> Usage: ...  # noqa: D102
    @property
    def replayed(self) -> bool: ...  # noqa: D102
    @property
    def cause(self) -> str: ...  # noqa: D102


D = TypeVar("D", bound=Drawn)


@dataclass(frozen=True, slots=True)
class Generator(Generic[D]):
    """A source of samples: `start(i, candidates)` generates its i-th sample, given the candidates so far."""

    name: str
    start: Callable[[int, Sequence[Candidate]], Awaitable[D]]
    price: Price | None = None
    quality: float = 0.6
    independent: bool = True


@dataclass(frozen=True, slots=True)
class EventLog:
    """The order of events in the journal, if there is one; the first process to store a step decides it."""

    journal: ReplyStore | None = None
    key: str = ""

    async def recall(self, step: int) -> Any:
        """What happened at a step; None if that is not stored."""
        return self.journal and await self.journal.recall_fact(EVENT, f"{self.key}/{step}")

    async def record(self, step: int, row: Any) -> Any:
        """Store what happened at a step, and return what is stored."""
        return row if self.journal is None else await self.journal.record(EVENT, f"{self.key}/{step}", row)


@dataclass(slots=True)
class GeneratorLedger:
    """What one generator was asked for and what that cost.

    `usage` counts every sample, `paid` what was paid in this run. Cancelled samples are estimated.
    """

    name: str
    price: Price | None
    quality: float = 0.6  # that was expected
    started: int = 0
    ended: int = 0
    failed: int = 0
    cancelled: int = 0
    replayed: int = 0
    usage: Usage = NOTHING
    paid: Usage = NOTHING
    cancelled_usage: Usage = NOTHING
    seconds: list[float] = field(default_factory=list)

    @property
    def usd(self) -> float | None:
        """Dollars paid in this run."""
        paid = self.paid
        return None if self.price is None else self.price.of(paid.prompt, paid.output, paid.cached)


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a question: when, what, and how things stood after it."""

    seconds: float
    what: str
    samples: int
    leader: int | None
    probability: float | None
    generation: Usage
    judging: Usage


@dataclass(slots=True)
class Adapted(Generic[D]):
    """The result of a policy: the outcome (None without a candidate), all samples, and the story."""

    case: Case
    outcome: Outcome | None
    samples: list[D]
    written_by: tuple[int, ...]
    ledgers: list[GeneratorLedger]
    steps: list[Step]
    events: list[Event]
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class PlayedPolicy:
    """A policy's rounds and selection as a strategy, so that they are shown and stored like a contest."""

    rounds: tuple[Round, ...]
    selection: Selection

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:  # noqa: ARG002
        """Yield the rounds that were asked; candidates that came later are last in their rankings."""
        for round_ in self.rounds:
            later = [one.id for one in entrants if one.id not in round_.ranking]
            yield replace(round_, ranking=(*round_.ranking, *later))
        return self.selection


Progress = Callable[[Step], object]


class AdaptiveRun(Generic[D]):
    """One question under a policy; `watch` is called with every sample that ended, `progress` at each step.

    `asks`: whether the judge may be asked. `price` is the judge's. `budget` limits both together. `describe`
    completes the case once there are candidates.
    """

    def __init__(
        self,
        case: Case,
        policy: Policy,
        generators: Sequence[Generator[D]],
        engine: LocalEngine,
        *,
        asks: bool,
        seed: int,
        budget: Budget,
        price: Price | None = None,
        log: EventLog,
        watch: Callable[[D], object] = lambda _: None,
        progress: Progress = lambda _: None,
        describe: Callable[[Case], Case] = lambda case: case,
    ) -> None:
        self._case, self._policy, self._generators, self._engine = case, policy, generators, engine
        self._asks, self._budget, self._log = asks, budget, log
        self._seed, self._watch, self._progress = f"{seed}/{case.id}", watch, progress
        self._describe = describe
        all_priced = all(one.price is not None for one in generators) and (price is not None or not asks)
        self._prices = [one.price if all_priced and one.price else UNPRICED for one in generators]
        self._judge_price = price if all_priced and price is not None else UNPRICED
        self._ledgers = [GeneratorLedger(one.name, one.price, one.quality) for one in generators]
        self._waiting = set[tuple[int, int]]()  # started by the policy, not sent: the record names others
        self._tasks: dict[tuple[int, int], asyncio.Task[D]] = {}
        self._numbers: list[list[int]] = [[] for _ in generators]  # not used for lack of budget
        self._begun: dict[tuple[int, int], float] = {}
        self._late = set[tuple[int, int]]()
        self._samples: list[D] = []
        self._refused: list[D] = []  # for which the budget was too small
        self._written_by: list[int] = []
        self._prepared: PreparedCase | None = None
        self._outcome = Outcome(0, case.id)
        self._rounds: list[tuple[Round, tuple[Answer, ...]]] = []
        self._steps: list[Step] = []
        self._asked: list[float] = []  # seconds of the judge's replies
        self._out_of_budget, self._following = False, True

    async def run(self) -> Adapted[D]:
        """Follow the policy to its end; errors that every sample would meet are raised."""
        loop = asyncio.get_running_loop()
        self._start_time = loop.time()
        try:
            run = PolicyRun(self._policy, Event(await self._pool()), seed=self._seed)
            while (action := run.pending) is not None:
                if self._time_is_over():
                    run.stop("time")
                elif isinstance(action, Draw):
                    what = await self._sample(action)
                    if what is None:
                        run.stop("time")
                    else:
                        run.tell(Event(await self._pool()))
                        self._note(what, run)
                else:
                    answers = await self._ask(action)
                    run.tell(Event(await self._pool(), answers))
                    self._note(plural(len(answers), "verdict"), run)
                    reasons = [isinstance(one, Unanswered) and one.reason for one in answers]
                    if answers and all(reason in EXHAUSTED for reason in reasons):
                        run.stop("budget")
        finally:
            await self._cancel()
        self._engine.check_replies(self._outcome)
        return self._adapted(run)

    # Samples

    async def _sample(self, action: Draw) -> str | None:
        """Start samples and wait for an event; None if the time ended first."""
        for number, count in enumerate(action.counts):
            for _ in range(count):
                self._start(number)
        if not self._tasks and not self._waiting:
            self._out_of_budget = True  # nothing runs and nothing may start
            return "no more samples"
        step = len(self._steps)
        row = await self._recorded(step)
        if row is None:
            self._send(sorted(self._waiting))
            done = await self._next_ended()
            if done is None:
                return None
            late = sorted(key for key in self._tasks if key not in done and self._is_late(key))
            happened = {"done": sorted(done), "late": late}
            row = await self._log.record(step, happened)
            if not self._names_running(row):  # another process went another way
                row = happened
        keys = [(int(source), int(number)) for source, number in row["done"]]
        self._late |= {(int(source), int(number)) for source, number in row["late"]}
        if keys:
            self._send([key for key in keys if key in self._waiting])
            await asyncio.wait([self._tasks[key] for key in keys])
        for key in keys:
            self._end(key)
        return ", ".join(self._generators[source].name for source, _ in keys) if keys else "late samples"

    async def _recorded(self, step: int) -> Any:
        """The stored event of a step, as long as it names samples that run."""
        row = await self._log.recall(step) if self._following else None
        self._following = row is not None and self._names_running(row)
        return row if self._following else None

    def _names_running(self, row: Any) -> bool:
        running = self._tasks.keys() | self._waiting
        return all(tuple(key) in running for key in (*row["done"], *row["late"]))

    async def _next_ended(self) -> list[tuple[int, int]] | None:
        """Samples that ended, none if some became late, or None when the time is over."""
        while True:
            done, _ = await asyncio.wait(
                self._tasks.values(), timeout=self._patience(), return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                return [key for key, task in self._tasks.items() if task in done]
            if self._time_is_over():
                return None
            if any(self._is_late(key) for key in self._tasks if key not in self._late):
                return []

    def _patience(self) -> float | None:
        """Seconds to wait for a sample: until the next one is late, or the time is over."""
        now = asyncio.get_running_loop().time()
        ends = [] if self._budget.deadline is None else [self._budget.deadline]
        limit = self._lateness()
        if limit is not None:
            ends += [self._begun[key] + limit for key in self._tasks if key not in self._late]
        return max(0.001, min(ends) - now) if ends else None

    def _lateness(self) -> float | None:
        durations = [second for ledger in self._ledgers for second in ledger.seconds]
        return max(LEAST_WAIT, LATE * median(durations)) if durations else None

    def _is_late(self, key: tuple[int, int]) -> bool:
        limit = self._lateness()
        waited = asyncio.get_running_loop().time() - self._begun[key]
        return key in self._late or (limit is not None and waited >= limit)

    def _start(self, source: int) -> None:
        """Start a sample of a source; it is sent when the policy waits."""
        ledger, unused = self._ledgers[source], self._numbers[source]
        self._waiting.add((source, unused.pop(0) if unused else ledger.started))
        ledger.started += 1

    def _send(self, keys: Sequence[tuple[int, int]]) -> None:
        for source, number in keys:
            self._waiting.remove((source, number))
            start = self._generators[source].start(number, self._case.candidates)
            self._tasks[source, number] = asyncio.ensure_future(start)
            self._begun[source, number] = asyncio.get_running_loop().time()

    def _end(self, key: tuple[int, int]) -> None:
        """Count a sample that ended; an exception of it is raised."""
        task, ledger = self._tasks.pop(key), self._ledgers[key[0]]
        self._late.discard(key)
        sample = task.result()
        self._out_of_budget = sample.candidate is None and sample.cause in EXHAUSTED
        if self._out_of_budget:  # nothing was sent; there may be room when others have ended
            self._numbers[key[0]].append(key[1])
            ledger.started -= 1
            self._refused.append(sample)
            return
        ledger.ended += 1
        ledger.usage += sample.usage
        if sample.replayed:
            ledger.replayed += 1
        else:
            ledger.paid += sample.usage
            ledger.seconds.append(asyncio.get_running_loop().time() - self._begun[key])
        self._samples.append(sample)
        self._watch(sample)
        if sample.candidate is None:
            ledger.failed += 1
            return
        self._written_by.append(key[0])
        self._case = replace(self._case, candidates=(*self._case.candidates, sample.candidate))

    async def _cancel(self) -> None:
        """Cancel what runs and estimate what it cost."""
        ended = asyncio.get_running_loop().time()
        for key, task in self._tasks.items():
            ledger = self._ledgers[key[0]]
            task.cancel()
            ledger.cancelled += 1
            spent = self._estimate(ledger, ended - self._begun[key])
            ledger.usage += spent
            ledger.paid += spent
            ledger.cancelled_usage += spent
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()
        for source, _ in self._waiting:  # an earlier run has paid for it and cancelled it
            ledger = self._ledgers[source]
            ledger.cancelled += 1
            ledger.usage += self._estimate(ledger, None)

    def _estimate(self, ledger: GeneratorLedger, seconds: float | None) -> Usage:
        """The usage of a cancelled sample: the usual prompt, and output by its time and the measured speed.

        A sample that is cancelled has often run longer than those that ended, so it may have written more: up
        to what a late one would, since it may be stuck as well. Without time or speed: the usual output.
        """
        prompt, output = self._usual(ledger)
        if seconds is not None and sum(ledger.seconds) > 0:
            written = ledger.paid.output - ledger.cancelled_usage.output
            output = min(LATE * output, seconds * written / sum(ledger.seconds))
        return Usage(round(prompt), round(output), estimated=True)

    def _usual(self, ledger: GeneratorLedger) -> tuple[float, float]:
        """Usual tokens of a sample's prompt and output."""
        if ledger.ended:
            return ledger.usage.prompt / ledger.ended, ledger.usage.output / ledger.ended
        return len(self._case.problem.text) / 4, USUAL_OUTPUT

    # Questions

    async def _ask(self, round_: Round) -> tuple[Answer, ...]:
        assert self._prepared is not None  # noqa: S101
        begun = asyncio.get_running_loop().time()
        patience = (
            max(LEAST_WAIT, LATE * median(self._asked)) if self._asked and not self._following else None
        )
        outcome, answers = await self._engine.ask(self._prepared, round_, self._budget, patience)
        latencies = [
            one.ruling.attempts[-1].latency for one in outcome.judged if one.ruling.attempts
        ]  # of the calls themselves
        self._asked += latencies or [asyncio.get_running_loop().time() - begun]
        self._outcome.judged += outcome.judged
        self._outcome.ledger.add(outcome.ledger)
        self._outcome.failure = outcome.failure
        self._rounds.append((round_, answers))
        return answers

    # What the policy is told

    async def _pool(self) -> Pool:
        """The pool as it is now; new candidates are looked into and prepared first."""
        prepared_count = 0 if self._prepared is None else len(self._prepared.case.candidates)
        if len(self._case.candidates) > prepared_count:
            described = self._describe(self._case)
            self._prepared = await self._engine.prepare_case(described, self._budget)
        entrants = () if self._prepared is None else self._prepared.evidence.entrants
        return Pool(
            tuple(self._source(number) for number in range(len(self._generators))),
            entrants,
            tuple(self._written_by),
            self._judge_terms() if self._asks else None,
            closed=self._out_of_budget,
        )

    def _source(self, number: int) -> Source:
        generator, ledger = self._generators[number], self._ledgers[number]
        prompt, output = self._usual(ledger)
        price = self._prices[number].of(round(prompt), round(output))
        running = ledger.started - ledger.ended
        late = sum(source == number for source, _ in self._late)
        return Source(price, generator.quality, ledger.started, running, late, generator.independent)

    def _judge_terms(self) -> JudgePrice:
        spent = self._outcome.ledger.total()
        replies = [attempt.usage.output for one in self._outcome.judged for attempt in one.ruling.attempts]
        reply = fmean(replies) if replies else USUAL_REPLY
        prompt = INSTRUCTIONS + len(self._case.problem.text) // 4
        free = bool(spent.calls) and not spent.asked and not sum(replies)  # a function that costs nothing
        price = Price(0.0, 0.0) if free else self._judge_price
        return JudgePrice(price.of(1000, 0) / 1000, price.of(0, round(reply)), prompt)

    def _time_is_over(self) -> bool:
        deadline = self._budget.deadline
        return deadline is not None and asyncio.get_running_loop().time() >= deadline

    def _note(self, what: str, run: PolicyRun) -> None:
        """Add a step to the story."""
        facts = run.pending.facts if run.pending is not None else run.selection.facts if run.selection else {}
        ranking = (
            run.pending.ranking if run.pending is not None else run.selection.order if run.selection else ()
        )
        judged = self._outcome.ledger.total()
        step = Step(
            asyncio.get_running_loop().time() - self._start_time,
            what,
            len(self._case.candidates),
            ranking[0] if ranking else None,
            facts.get("probability"),
            sum((one.usage for one in self._ledgers), start=NOTHING),
            Usage(judged.asked, judged.output),
        )
        self._steps.append(step)
        self._progress(step)

    def _adapted(self, run: PolicyRun) -> Adapted[D]:
        outcome, prepared, selection = None, self._prepared, run.selection
        if selection is not None and prepared is not None:
            played = PlayedPolicy(tuple(round_ for round_, _ in self._rounds), selection)
            contest = Contest(played, prepared.evidence.entrants, seed=self._seed)
            for _, answers in self._rounds:
                contest.answer(answers)
            contest.stopped = run.stopped
            outcome = self._outcome
            outcome.prepared, outcome.contest, outcome.failure = prepared, contest, None
        return Adapted(
            self._case if prepared is None else prepared.case, outcome, self._samples or self._refused[:1],
            tuple(self._written_by), self._ledgers, self._steps, run.events, run.stopped,
        )  # fmt: skip
