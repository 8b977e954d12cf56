"""What engines share: outcomes, running cases and the engine protocol."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

import msgspec

from caps.core.contest import Contest
from caps.core.errors import UNREADABLE_CASE, InputError
from caps.core.play import Strategy
from caps.core.text import shortened_line
from caps.core.types import Ask, Case, Pairing, Round, Selection, Usage
from caps.costs.budget import Budget, UnlimitedBudget
from caps.costs.ledger import Ledger
from caps.judging.base import EXHAUSTED, UNREAD, Judge, PreparedCase, Ruling
from caps.judging.preparation import CasePreparation, PromptSizes
from caps.workers.texts import TextWorkers

LONGEST_ERROR = 500  # characters of an error in the reason why a case failed
T = TypeVar("T")
Prefix = tuple[object, ...]  # the empty one: the problem

NOT_FAILED = (None, "malformed", *EXHAUSTED)  # the judge replied, or was not asked


class AskRuling(msgspec.Struct, frozen=True):
    """One ask of a contest with its ruling."""

    stage: str
    ask: Ask
    ruling: Ruling


@dataclass(slots=True)
class Outcome:
    """The result of a case: its contest or the reason why it failed, with all rulings and costs.

    `error` is the last exception that left an ask unanswered, or failed the case. `v1_characters` counts what
    V1-Infer reads of it, `asked_characters` the prompts whose tokens the judge counted.
    """

    number: int
    name: str
    prepared: PreparedCase | None = None
    contest: Contest | None = None
    judged: list[AskRuling] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    failure: str | None = None
    error: Exception | None = None
    v1_characters: float = 0.0
    asked_characters: int = 0

    @property
    def v1_tokens(self) -> float | None:
        """Tokens that V1-Infer would read, as the judge counts them; None if it was asked nothing."""
        if not self.asked_characters:
            return None
        asked = sum(one.usage.prompt for judged in self.judged for one in judged.ruling.attempts)
        return self.v1_characters * asked / self.asked_characters

    @property
    def selection(self) -> Selection | None:
        """The selection, unless the case failed; provisional if no reply of the judge could be read."""
        if self.failure is not None or self.contest is None:
            return None
        chosen = self.contest.selection
        return replace(chosen, provisional=True) if self.is_unread else chosen

    @property
    def is_unread(self) -> bool:
        """Whether a judge was asked and replied, and none of its replies could be read."""
        return any(one.ruling.replied for one in self.judged) and not any(
            one.ruling.readable for one in self.judged
        )

    @property
    def cause(self) -> str | None:
        """Why the selection is provisional: `budget`, `time`, `unreadable`, or why calls had no answer."""
        if self.selection is None or not self.selection.provisional:
            return None
        stopped = None if self.contest is None else self.contest.stopped
        if stopped is None and self.is_unread:
            return "unreadable"
        causes = self.ledger.unanswered.most_common(1)
        return stopped or (causes[0][0] if causes else None)


def unreadable_case(number: int, error: InputError) -> Outcome:
    """The outcome of a line that is no case; its name is its place, since results are kept by name."""
    return Outcome(number, f"{UNREADABLE_CASE}{error.case_number or number + 1}", failure=str(error))


@dataclass(frozen=True, slots=True)
class PerCase:
    """A separate strategy for each case, in input order."""

    strategies: Sequence[Strategy]


def strategy_for(number: int, strategy: Strategy | PerCase) -> Strategy:
    """The strategy of one case."""
    return strategy.strategies[number] if isinstance(strategy, PerCase) else strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A Ray cluster: its address, or None for one started on this machine, and its number of workers."""

    address: str | None = None
    workers: int = 2


class Engine(Protocol):
    """Runs a stream of cases; `watch` is called with every ruling."""

    watch: Callable[[Ruling], object]

    def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase, *, seed: int
    ) -> AsyncGenerator[Outcome, None]:
        """Run all cases and yield each outcome when it is known, numbered by input position.

        The number of cases started ahead of an unfinished one is bounded.
        """
        ...


class ReorderBuffer(Generic[T]):
    """Restores input order: an early item waits for those before it; `following` is the next number."""

    def __init__(self) -> None:
        self.following = 0
        self._waiting: dict[int, T] = {}

    def add(self, number: int, item: T) -> Iterator[T]:
        """Add one item and yield all that are now in order."""
        self._waiting[number] = item
        while self.following in self._waiting:
            yield self._waiting.pop(self.following)
            self.following += 1

    def drain(self) -> Iterator[T]:
        """Yield what still waits, in order, although items before it are missing."""
        for number in sorted(self._waiting):
            yield self._waiting.pop(number)


async def in_order(outcomes: AsyncGenerator[Outcome, None]) -> AsyncGenerator[Outcome, None]:
    """Yield outcomes in input order; closing this generator ends the run."""
    buffer = ReorderBuffer[Outcome]()
    async with aclosing(outcomes):
        async for outcome in outcomes:
            for ready in buffer.add(outcome.number, outcome):
                yield ready


async def prepare_case(
    case: Case, prepare: CasePreparation, texts: TextWorkers | None, until: float | None = None
) -> PreparedCase:
    """Prepare a case, a long one in a worker process; `SlowTextError` if that takes too long."""
    if texts is None or not prepare.is_long(case):
        return prepare(case)
    return await prepare.in_worker(case, texts, until)


class CaseRun:
    """A running contest, with the rulings on its pending round so far.

    If the case's budget might not cover a whole round, its asks are sent one by one. Otherwise the order of
    replies would decide what the case can afford. With `warm_prefix` an ask waits while the beginning of its
    prompt is on its way to the server for the first time: the problem, then problem and slot A.
    """

    def __init__(
        self,
        number: int,
        prepared: PreparedCase,
        strategy: Strategy,
        seed: int,
        budget: Budget | None = None,
        *,
        warm_prefix: bool = False,
    ) -> None:
        self.outcome = Outcome(number, prepared.case.id, prepared)
        self.contest = Contest(strategy, prepared.evidence.entrants, seed=f"{seed}/{prepared.case.id}")
        self.outcome.contest = self.contest
        self.prepared = prepared
        self._sizes = PromptSizes(prepared)
        self.outcome.v1_characters = self._sizes.v1_infer()
        self.budget = budget or UnlimitedBudget()
        self._one_by_one = False
        self._rulings: dict[int, Ruling] = {}
        self._warm_prefix = warm_prefix
        self._warm: set[Prefix] = set()  # beginnings of prompts that the server has read
        self._sent: set[int] = set()  # asks of this round

    @property
    def round(self) -> Round | None:
        """The pending round; None when the contest is over."""
        return self.contest.pending

    @property
    def depth(self) -> int:
        """Number of finished rounds."""
        return len(self.contest.transcript)

    def ask_at(self, index: int) -> Ask:
        """One ask of the pending round."""
        assert self.contest.pending is not None  # noqa: S101
        return self.contest.pending.asks[index]

    def start_round(self, judge: Judge) -> list[int]:
        """Indices of the asks of a new round to send now: all, or the first if the budget may run out."""
        indices = self.open_asks()
        self._one_by_one = False
        if self.budget.limited and self.round is not None:
            max_usage = sum(
                (judge.max_usage(self.prepared, ask) for ask in self.round.asks), start=Usage(0, 0)
            )
            self._one_by_one = not self.budget.covers(max_usage)
        self._sent.clear()
        return indices[:1] if self._one_by_one else self._wave() if self._warm_prefix else indices

    def next_asks(self) -> list[int]:
        """Indices of the asks to send after a ruling that did not finish the round."""
        if self._one_by_one:
            return self.open_asks()[:1]
        return self._wave() if self._warm_prefix else []

    def _wave(self) -> list[int]:
        """Indices of the asks whose prompts share no beginning that another one is to bring first."""
        under_way = {self._prefix(index) for index in self._sent if index not in self._rulings}
        wave = []
        for index in self.open_asks():
            prefix = self._prefix(index)
            waits_for_problem = () not in self._warm and under_way
            waits_for_prefix = prefix not in self._warm and prefix in under_way
            if index not in self._sent and not waits_for_problem and not waits_for_prefix:
                wave.append(index)
                under_way.add(prefix)
        self._sent.update(wave)
        return wave

    def _prefix(self, index: int) -> "Prefix":
        """What a prompt has after the problem: the first candidate, as template and level show it."""
        ask = self.ask_at(index)
        return (type(ask).__name__, ask.level, ask.entrants[0])

    def open_asks(self) -> list[int]:
        """Indices of the asks of the pending round that have no ruling, in order."""
        round_ = self.contest.pending
        return [] if round_ is None else [i for i in range(len(round_.asks)) if i not in self._rulings]

    def record_ruling(self, index: int, ruling: Ruling) -> bool:
        """Record the ruling on one ask; true if it completed the round and the contest moved on.

        When budget or time runs out, the remaining asks of the round get the same ruling. A round without
        any answer for that reason is the last.
        """
        round_ = self.contest.pending
        if round_ is None:
            return False
        self._rulings[index] = ruling
        if self._warm_prefix:
            self._warm |= {(), self._prefix(index)}
        if self._one_by_one and ruling.unanswered in EXHAUSTED:
            self._rulings |= dict.fromkeys(self.open_asks(), Ruling(ruling.answer))
        if len(self._rulings) < len(round_.asks):
            return False
        rulings, self._rulings = [self._rulings[i] for i in range(len(round_.asks))], {}
        for ask, one in zip(round_.asks, rulings, strict=True):  # in round order, not in order of arrival
            self._record(round_.stage, ask, one)
        if all(one.unanswered in EXHAUSTED for one in rulings):
            self.contest.stop(str(rulings[0].unanswered))
        else:
            self.contest.answer([one.answer for one in rulings])
        if self.contest.pending is None:
            self._finish()
        return True

    def _record(self, stage: str, ask: Ask, ruling: Ruling) -> None:
        outcome = self.outcome
        outcome.judged.append(AskRuling(stage, ask, ruling))
        usages = [(attempt.usage, attempt.replayed) for attempt in ruling.attempts]
        if any(usage.prompt for usage, _ in usages):
            outcome.asked_characters += self._sizes.estimate(ask)
        pair = isinstance(ask, Pairing)
        outcome.ledger.record(stage, ask.level, usages, statement=self.prepared.statement, pair=pair)
        for attempt in ruling.attempts:
            if attempt.how == UNREAD:
                outcome.ledger.unreadable[attempt.cause or ""] += 1
        if ruling.malformed is not None:
            outcome.ledger.malformed[ruling.malformed] += 1
        outcome.error = ruling.error or outcome.error
        if ruling.unanswered is not None:
            outcome.ledger.unanswered[ruling.unanswered] += 1
        if ruling.substituted:
            outcome.ledger.substituted.update(ruling.substituted)
        if (shortage := ruling.shortage) is not None and shortage.setting:
            outcome.ledger.block(shortage.setting, shortage.reserves, shortage.left)

    def _finish(self) -> None:
        """Release the prepared texts; a contest in which every call failed is a failed case."""
        self.prepared.forget()
        judged = self.outcome.judged
        if judged and all(one.ruling.unanswered not in NOT_FAILED for one in judged):
            causes = ", ".join(
                f"{cause} ({count})" for cause, count in self.outcome.ledger.unanswered.items()
            )
            error = self.outcome.error
            last = "" if error is None else f". The last error: {shortened_line(str(error), LONGEST_ERROR)}"
            self.outcome.failure = f"none of its {len(judged)} judge calls was answered: {causes}{last}"
