"""What engines share: a case under way, and what became of it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from caps.core.contest import Contest
from caps.core.play import Strategy
from caps.core.types import Answer, Ask, Case, Pairing, Round, Selection
from caps.costs.ledger import Ledger
from caps.judges.base import Bout, Ruling

Prepare = Callable[[Case], Bout]


@dataclass(frozen=True, slots=True)
class Judged:
    """One ask of a contest with its ruling."""

    stage: str
    ask: Ask
    ruling: Ruling


@dataclass(slots=True)
class Outcome:
    """What became of a case: a selection, or the reason why there is none; and all it took."""

    number: int
    name: str
    bout: Bout | None = None
    contest: Contest | None = None
    judged: list[Judged] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    failure: str | None = None

    @property
    def selection(self) -> Selection | None:
        """The selection, unless the case failed."""
        return None if self.failure is not None or self.contest is None else self.contest.selection


class Play:
    """A contest under way: the answers of its pending round, as they come in."""

    def __init__(self, number: int, bout: Bout, strategy: Strategy, seed: int) -> None:
        self.outcome = Outcome(number, bout.case.id, bout)
        self.contest = Contest(strategy, bout.described.entrants, seed=f"{seed}/{bout.case.id}")
        self.outcome.contest = self.contest
        self.bout = bout
        self._rulings: dict[int, Ruling] = {}

    @property
    def round(self) -> Round | None:
        """What is pending."""
        return self.contest.pending

    @property
    def depth(self) -> int:
        """How many rounds are behind."""
        return len(self.contest.transcript)

    def tell(self, place: int, ruling: Ruling) -> bool:
        """Take the ruling on one ask of the round; true when that was the last and the contest moved on."""
        round_ = self.contest.pending
        if round_ is None:
            return False
        self._rulings[place] = ruling
        if len(self._rulings) < len(round_.asks):
            return False
        rulings, self._rulings = [self._rulings[i] for i in range(len(round_.asks))], {}
        for ask, given in zip(round_.asks, rulings, strict=True):
            self._enter(round_.stage, ask, given)
        answers: list[Answer] = [given.answer for given in rulings]
        self.contest.answer(answers)
        if self.contest.pending is None:
            self._conclude()
        return True

    def _enter(self, stage: str, ask: Ask, ruling: Ruling) -> None:
        """Write an ask and its ruling down, in the order of the round, not of arrival."""
        outcome = self.outcome
        outcome.judged.append(Judged(stage, ask, ruling))
        usages = [(attempt.usage, attempt.replayed) for attempt in ruling.attempts]
        pair = isinstance(ask, Pairing)
        outcome.ledger.record(stage, ask.level, usages, statement=self.bout.statement, pair=pair)
        if ruling.malformed is not None:
            outcome.ledger.malformed[ruling.malformed] += 1
        if ruling.unanswered is not None:
            outcome.ledger.unanswered[ruling.unanswered] += 1

    def _conclude(self) -> None:
        """A contest in which nobody ever answered chose nothing."""
        judged = self.outcome.judged
        if judged and all(one.ruling.unanswered is not None for one in judged):
            causes = ", ".join(
                f"{cause} ({count})" for cause, count in self.outcome.ledger.unanswered.items()
            )
            self.outcome.failure = f"none of its {len(judged)} judge calls was answered: {causes}"
