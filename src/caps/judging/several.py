"""A judge made of judges: an ask goes to every judge of its level, and their answers are averaged by weight.

Rules that must not be broken:

* Every reply is stored and charged by itself, under the key and at the price that it has if its judge judges
  alone.
* What each judge answered is part of the ruling, so a run can be rebuilt and replayed.
* A judge that fails, or whose replies cannot be read, leaves the mean of the others. Only if no judge answers
  is the ask a tie or unanswered, as it is with one judge.
"""

import math
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from msgspec.structs import replace as changed

from caps.core.errors import CapsError, ModelError, NotRecordedError
from caps.core.text import number, percent, plural
from caps.core.types import Answer, Ask, Level, Pick, Rating, Unanswered, Usage, Verdict
from caps.costs.budget import Budget, at_price, priced
from caps.costs.prices import Price
from caps.judging.base import (
    EXHAUSTED,
    NOTHING,
    UNREAD,
    Judge,
    Opinion,
    PreparedCase,
    Ruling,
    short_reason,
    together,
)
from caps.models.base import Notify, ignore

DECIMALS = 9  # of a mean rating: equal ratings must have exactly their own mean
FAR_RATING = 3.0  # points; a rating this far from the mean disagrees with it


@dataclass(frozen=True, slots=True)
class WeightedJudge:
    """One of several judges: its name, its weight, the levels it answers, and the price of its tokens."""

    name: str
    judge: Judge
    weight: float = 1.0
    levels: frozenset[Level] = frozenset({Level.PARTIAL, Level.FULL})
    price: Price | None = None


_Ruled: TypeAlias = tuple[WeightedJudge, Ruling]
_AskJudge: TypeAlias = Callable[[WeightedJudge], Coroutine[Any, Any, _Ruled]]


class SeveralJudges:
    """Answers asks with several judges; see the module's docstring.

    A judge whose error every other call would meet too, such as a refused key, is not asked again, and `warn`
    is told. Judges that answer from records (`waits` is false) are asked one after the other, and all of them
    before a missing record is reported, so that one batch can hold all requests.
    """

    def __init__(self, judges: Sequence[WeightedJudge], *, waits: bool = True, warn: Notify = ignore) -> None:
        self._judges, self._waits, self._warn = judges, waits, warn
        self._failed: dict[str, ModelError] = {}

    async def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Ruling:
        """Ask the judges of this level, and average their answers."""
        judges = self._judges_of(ask)
        ask_judge = partial(self._ask, prepared, ask, budget)
        if self._waits and (not budget.limited or budget.covers(self.max_usage(prepared, ask))):
            rulings = await together([ask_judge(judge) for judge in judges])
        else:
            rulings = await _in_turn(judges, ask_judge)
        if all(judge.name in self._failed and not ruling.replied for judge, ruling in rulings):
            raise self._failed[judges[0].name]
        return combined(rulings)

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:
        """All judges, all tries."""
        usages = [priced(one.judge.max_usage(prepared, ask), one.price) for one in self._judges_of(ask)]
        return sum(usages, start=NOTHING)

    def _judges_of(self, ask: Ask) -> list[WeightedJudge]:
        return [judge for judge in self._judges if ask.level in judge.levels]

    async def _ask(self, prepared: PreparedCase, ask: Ask, budget: Budget, judge: WeightedJudge) -> _Ruled:
        """Ask one judge; whatever goes wrong with it leaves the ask unanswered by it."""
        if judge.name in self._failed:
            return judge, Ruling(Unanswered(self._failed[judge.name].cause))
        try:
            return judge, await judge.judge.rule(prepared, ask, at_price(budget, judge.price))
        except ModelError as error:
            if judge.name not in self._failed:
                self._failed[judge.name] = error
                self._warn(f"judge {judge.name!r} failed ({error}); this run continues without it")
            return judge, Ruling(Unanswered(error.cause), error=error)
        except CapsError:
            raise
        except Exception as error:
            return judge, Ruling(Unanswered(short_reason(error)), error=error)


async def _in_turn(judges: Iterable[WeightedJudge], ask_judge: _AskJudge) -> list[_Ruled]:
    """Ask the judges one after the other; a missing record is reported after the last."""
    rulings: list[_Ruled] = []
    missing: NotRecordedError | None = None
    for judge in judges:
        try:
            rulings.append(await ask_judge(judge))
        except NotRecordedError as error:
            missing = error
    if missing is not None:
        raise missing
    return rulings


def combined(rulings: Sequence[_Ruled]) -> Ruling:
    """One ruling with the mean answer, and the calls and answers of all judges."""
    attempts = tuple(
        changed(attempt, judge=judge.name, usage=priced(attempt.usage, judge.price))
        for judge, ruling in rulings
        for attempt in ruling.attempts
    )
    opinions = tuple(Opinion(judge.name, ruling.answer, ruling.malformed) for judge, ruling in rulings)
    substituted = tuple(dict.fromkeys(word for _, ruling in rulings for word in ruling.substituted))
    readable = [(judge.weight, ruling.answer) for judge, ruling in rulings if ruling.readable]
    if readable:
        return Ruling(average(readable), attempts, substituted=substituted, opinions=opinions)
    unread = [ruling for _, ruling in rulings if ruling.malformed is not None]
    if unread:
        return changed(unread[0], attempts=attempts, opinions=opinions)
    reasons = [str(ruling.unanswered) for _, ruling in rulings]
    reason = next((one for one in reasons if one in EXHAUSTED), reasons[0])
    shortage = next((ruling.shortage for _, ruling in rulings if ruling.shortage is not None), None)
    error = next((ruling.error for _, ruling in rulings if ruling.error is not None), None)
    return Ruling(Unanswered(reason), attempts, opinions=opinions, shortage=shortage, error=error)


def average(answers: Sequence[tuple[float, Answer]]) -> Answer:
    """The mean of answers to one ask, each with its weight; of picks, the one with the most weight.

    Of picks with the same weight, the one that was named first counts.
    """
    verdicts = [(weight, answer) for weight, answer in answers if isinstance(answer, Verdict)]
    if verdicts:
        return Verdict(_mean((w, one.a) for w, one in verdicts), _mean((w, one.b) for w, one in verdicts))
    ratings = [(weight, answer.value) for weight, answer in answers if isinstance(answer, Rating)]
    if ratings:
        return Rating(_mean(ratings))
    votes: dict[int, float] = {}
    for weight, answer in answers:
        if isinstance(answer, Pick):
            votes[answer.winner] = votes.get(answer.winner, 0.0) + weight
    return Pick(max(votes, key=lambda candidate: votes[candidate]))


def _mean(values: Iterable[tuple[float, float]]) -> float:
    weighted = list(values)
    total = math.fsum(weight for weight, _ in weighted)
    return round(math.fsum(weight * value for weight, value in weighted) / total, DECIMALS)


def agrees(answer: Answer, mean: Answer) -> bool:
    """Whether an answer prefers the same candidate as the mean, or is a rating near it."""
    if isinstance(answer, Verdict) and isinstance(mean, Verdict):
        return answer.outcome == mean.outcome
    if isinstance(answer, Rating) and isinstance(mean, Rating):
        return abs(answer.value - mean.value) < FAR_RATING
    return answer == mean


@dataclass(slots=True)
class JudgeTotals:
    """What one of several judges was asked, how far it agrees with the mean, and what it cost.

    `compared` counts its answers to asks that another judge answered too, and `agreed` those of them that
    agree with the mean. `unreadable` counts replies. `billed` and `output` are tokens paid in this run.
    """

    asks: int = 0
    unanswered: Counter[str] = field(default_factory=Counter)
    unreadable: int = 0
    compared: int = 0
    agreed: int = 0
    billed: int = 0
    output: int = 0
    usd: float | None = None

    @property
    def agreement(self) -> float | None:
        """The share of its compared answers that agree with the mean."""
        return self.agreed / self.compared if self.compared else None

    def pay(self, usage: Usage) -> None:
        """Add what a call cost."""
        self.billed += usage.prompt
        self.output += usage.output
        if usage.usd is not None:
            self.usd = (self.usd or 0.0) + usage.usd

    def add_line(self, line: Mapping[str, Any]) -> None:
        """Add what `as_line` wrote."""
        for name in ("asks", "unreadable", "compared", "agreed", "billed", "output"):
            setattr(self, name, getattr(self, name) + line[name])
        self.unanswered.update(line["unanswered"])
        if line["usd"] is not None:
            self.usd = (self.usd or 0.0) + line["usd"]

    def as_line(self) -> dict[str, Any]:
        """The totals as plain data."""
        return {
            "asks": self.asks,
            "unanswered": dict(sorted(self.unanswered.items())),
            "unreadable": self.unreadable,
            "compared": self.compared,
            "agreed": self.agreed,
            "billed": self.billed,
            "output": self.output,
            "usd": None if self.usd is None else round(self.usd, 6),
        }

    def as_text(self) -> str:
        """The totals in words."""
        words = plural(self.asks, "ask")
        if self.unanswered:
            causes = ", ".join(f"{cause} {count}" for cause, count in sorted(self.unanswered.items()))
            words += f", {number(self.unanswered.total(), 0)} unanswered ({causes})"
        if self.unreadable:
            words += f", {number(self.unreadable, 0)} unreadable replies"
        if self.compared:
            words += f", agrees with the mean in {percent(self.agreement)} %"
        cost = "" if self.usd is None else f", {self.usd:.4f} USD"
        return f"{words}; {number(self.billed, 0)} tokens billed, {number(self.output, 0)} written{cost}"


def add_rulings(totals: dict[str, JudgeTotals], rulings: Iterable[Ruling]) -> None:
    """Add rulings to the totals of each of several judges, by name; those of one judge add nothing."""
    for ruling in rulings:
        answers = [one for one in ruling.opinions if one.readable]
        for opinion in ruling.opinions:
            judge = totals.setdefault(opinion.judge, JudgeTotals())
            judge.asks += 1
            if isinstance(opinion.answer, Unanswered):
                judge.unanswered[opinion.answer.reason] += 1
            if opinion.readable and len(answers) > 1:
                judge.compared += 1
                judge.agreed += agrees(opinion.answer, ruling.answer)
        for attempt in ruling.attempts:
            if attempt.judge:
                totals[attempt.judge].unreadable += attempt.how == UNREAD
                if not attempt.replayed:
                    totals[attempt.judge].pay(attempt.usage)
