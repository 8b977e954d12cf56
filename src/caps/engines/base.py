"""What engines share: a case under way, and what became of it."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import msgspec

from caps.core.contest import Contest
from caps.core.errors import InputError
from caps.core.play import Strategy
from caps.core.types import Ask, Case, Pairing, Round, Selection, Usage
from caps.costs.ledger import Ledger
from caps.judging.base import Budget, Judge, PreparedCase, Ruling, UnlimitedBudget
from caps.judging.preparation import CasePreparation
from caps.text_workers import TextWorkers

Prepare = Callable[[Case], PreparedCase]
T = TypeVar("T")

ENDED = ("budget", "time")
HEARD = (None, "malformed", *ENDED)  # a judge that spoke unreadably, or was not asked, did not fail


class AskRuling(msgspec.Struct, frozen=True):
    """One ask of a contest with its ruling."""

    stage: str
    ask: Ask
    ruling: Ruling


@dataclass(slots=True)
class Outcome:
    """What became of a case: a selection, or the reason why there is none; and all it took."""

    number: int
    name: str
    prepared: PreparedCase | None = None
    contest: Contest | None = None
    judged: list[AskRuling] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    failure: str | None = None

    @property
    def selection(self) -> Selection | None:
        """The selection, unless the case failed."""
        return None if self.failure is not None or self.contest is None else self.contest.selection


@dataclass(frozen=True, slots=True)
class PerCase:
    """A strategy of its own for each case, in the order of input."""

    strategies: Sequence[Strategy]


class Engine(Protocol):
    """Whoever plays a stream of cases; `watch` hears every ruling as it comes in."""

    watch: Callable[[Ruling], object]

    def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase, *, seed: int
    ) -> AsyncGenerator[Outcome, None]:
        """Play all cases and yield what became of each as it is known; its number is its place in the input.

        No more than a bounded number of cases is begun while one before them is not over.
        """
        ...


class ReorderBuffer(Generic[T]):
    """Whatever comes early waits for those before it; `following` is the number that is waited for."""

    def __init__(self) -> None:
        self.following = 0
        self._waiting: dict[int, T] = {}

    def add(self, number: int, item: T) -> Iterator[T]:
        """Take one in; those whose turn it is now."""
        self._waiting[number] = item
        while self.following in self._waiting:
            yield self._waiting.pop(self.following)
            self.following += 1


async def in_order(outcomes: AsyncGenerator[Outcome, None]) -> AsyncGenerator[Outcome, None]:
    """The outcomes in the order of input; whoever stops listening ends the run."""
    lineup = ReorderBuffer[Outcome]()
    async with aclosing(outcomes):
        async for outcome in outcomes:
            for ready in lineup.add(outcome.number, outcome):
                yield ready


def is_long(case: Case, prepare: Prepare, texts: TextWorkers | None) -> bool:
    """Whether a case should be prepared in another process, and can be."""
    return texts is not None and isinstance(prepare, CasePreparation) and prepare.is_long(case)


async def prepare_case(
    case: Case, prepare: Prepare, texts: TextWorkers | None, until: float | None = None
) -> PreparedCase:
    """A case made ready, a long one in another process; `SlowTextError` where that takes too long."""
    if texts is None or not isinstance(prepare, CasePreparation) or not prepare.is_long(case):
        return prepare(case)
    return await prepare.in_worker(case, texts, until)


class CaseRun:
    """A contest under way: the answers of its pending round, as they come in.

    Where its own budget might not last for a whole round, its asks go out one by one, so that what it can
    afford does not depend on which reply comes first.
    """

    def __init__(
        self, number: int, prepared: PreparedCase, strategy: Strategy, seed: int, budget: Budget | None = None
    ) -> None:
        self.outcome = Outcome(number, prepared.case.id, prepared)
        self.contest = Contest(strategy, prepared.evidence.entrants, seed=f"{seed}/{prepared.case.id}")
        self.outcome.contest = self.contest
        self.prepared = prepared
        self.budget = budget or UnlimitedBudget()
        self._one_by_one = False
        self._rulings: dict[int, Ruling] = {}

    @property
    def round(self) -> Round | None:
        """What is pending."""
        return self.contest.pending

    @property
    def depth(self) -> int:
        """How many rounds are behind."""
        return len(self.contest.transcript)

    def ask_at(self, place: int) -> Ask:
        """What is asked at a place of the pending round."""
        assert self.contest.pending is not None  # noqa: S101
        return self.contest.pending.asks[place]

    def begin(self, judge: Judge) -> list[int]:
        """Places of a new round that may go out now: all of them, or the first where money might end."""
        places = self.waiting()
        self._one_by_one = False
        if self.budget.limited and self.round is not None:
            max_usage = sum(
                (judge.max_usage(self.prepared, ask) for ask in self.round.asks), start=Usage(0, 0)
            )
            self._one_by_one = not self.budget.covers(max_usage)
        return places[:1] if self._one_by_one else places

    def follow(self) -> list[int]:
        """Places that may go out after a ruling that was not the last of its round."""
        return self.waiting()[:1] if self._one_by_one else []

    def waiting(self) -> list[int]:
        """Places of the pending round without a ruling, in order."""
        round_ = self.contest.pending
        return [] if round_ is None else [i for i in range(len(round_.asks)) if i not in self._rulings]

    def tell(self, place: int, ruling: Ruling) -> bool:
        """Take the ruling on one ask of the round; true when that was the last and the contest moved on.

        Where the money or the time has ended, it has ended for the rest of the round too; a round that got
        no answer for that reason is the last.
        """
        round_ = self.contest.pending
        if round_ is None:
            return False
        self._rulings[place] = ruling
        if self._one_by_one and ruling.unanswered in ENDED:
            self._rulings |= dict.fromkeys(self.waiting(), Ruling(ruling.answer))
        if len(self._rulings) < len(round_.asks):
            return False
        rulings, self._rulings = [self._rulings[i] for i in range(len(round_.asks))], {}
        for ask, given in zip(round_.asks, rulings, strict=True):
            self._enter(round_.stage, ask, given)
        if all(given.unanswered in ENDED for given in rulings):
            self.contest.stop(str(rulings[0].unanswered))
        else:
            self.contest.answer([given.answer for given in rulings])
        if self.contest.pending is None:
            self._conclude()
        return True

    def _enter(self, stage: str, ask: Ask, ruling: Ruling) -> None:
        """Write an ask and its ruling down, in the order of the round, not of arrival."""
        outcome = self.outcome
        outcome.judged.append(AskRuling(stage, ask, ruling))
        usages = [(attempt.usage, attempt.replayed) for attempt in ruling.attempts]
        pair = isinstance(ask, Pairing)
        outcome.ledger.record(stage, ask.level, usages, statement=self.prepared.statement, pair=pair)
        if ruling.malformed is not None:
            outcome.ledger.malformed[ruling.malformed] += 1
        if ruling.unanswered is not None:
            outcome.ledger.unanswered[ruling.unanswered] += 1
        outcome.ledger.substituted.update(ruling.substituted)

    def _conclude(self) -> None:
        """A contest in which every call failed chose nothing."""
        self.prepared.forget()
        judged = self.outcome.judged
        if judged and all(one.ruling.unanswered not in HEARD for one in judged):
            causes = ", ".join(
                f"{cause} ({count})" for cause, count in self.outcome.ledger.unanswered.items()
            )
            self.outcome.failure = f"none of its {len(judged)} judge calls was answered: {causes}"
