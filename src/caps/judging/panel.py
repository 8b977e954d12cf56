"""A panel of judges: every ask goes to several of them, and `core.panel` combines what they answer.

Rules that must not be broken:

* Every reply of a member is stored and charged by itself, under the key it would have without the panel.
* What a member answered is part of the ruling, so a run can be rebuilt and replayed.
* A member that fails does not stop the others. Only if every member meets an error that would stop a single
  judge is it raised.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace as changed

from caps.core.errors import CapsError, ModelError, NotRecordedError, RefusedError, TooLongError
from caps.core.panel import Member, Mode, Opinion, PanelRule
from caps.core.text import printable_line
from caps.core.types import Ask, Unanswered, Usage
from caps.costs.prices import Price
from caps.judging.base import NOTHING, Budget, Judge, PreparedCase, Ruling, Shortage, together
from caps.models.base import Notify, ignore

EXHAUSTED = ("budget", "time")
#: Reasons for no answer that say nothing about whether the judge works.
NO_FAILURE = (*EXHAUSTED, TooLongError.cause, RefusedError.cause, "malformed")
OUT = "out"  # why a member that keeps failing was not asked
FAILURES_TO_REST = 3  # in a row
REST_SECONDS = 60.0
LONGEST_REASON = 200

_Answered: TypeAlias = tuple[str, Ruling, ModelError | None]
_AskOne: TypeAlias = Callable[[Member], Coroutine[Any, Any, _Answered]]


class PricedJudge(NamedTuple):
    """A judge of a panel, and the price of its tokens, if it is known."""

    judge: Judge
    price: Price | None = None


class PanelJudge:
    """Answers asks with several judges; see the module's docstring.

    `mode` is `all` or `cascade`. A panel that answers from records (`waits` is false) asks one member after
    the other, and asks all of them before it reports what is missing, so that one batch can hold all of it.
    """

    def __init__(
        self,
        rule: PanelRule,
        judges: Mapping[str, PricedJudge],
        *,
        mode: Mode,
        waits: bool = True,
        warn: Notify = ignore,
    ) -> None:
        self._rule, self._judges, self._mode, self._waits = rule, judges, mode, waits
        self._health = {name: _Health(partial(self._report, warn, name)) for name in judges}

    async def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Ruling:
        """Ask the members that answer this level, and combine their answers."""
        members = self._rule.asked_at(ask.level)
        rested = [one for one in members if not self._waits or self._health[one.name].may_ask()]
        asked = rested or members  # if all of them keep failing, each ask still tries
        out = {one.name: Ruling(Unanswered(OUT)) for one in members if one not in asked}
        ask_one = partial(self._ask, prepared, ask, budget)
        if self._mode == "cascade":
            found = await self._one_by_one(ask, asked, ask_one)
        elif self._waits and (not budget.limited or budget.covers(self.max_usage(prepared, ask))):
            found = await together([ask_one(one) for one in asked])
        else:
            found = await self._in_turn(asked, ask_one)
        errors = [error for _, _, error in found if error is not None]
        if len(errors) == len(members):
            raise errors[0]
        rulings = {name: ruling for name, ruling, _ in found}
        if self._mode == "all" or len(found) == len(asked):  # a cascade came to those that rest
            rulings |= out
        return self._combined(ask, [(one.name, rulings[one.name]) for one in members if one.name in rulings])

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:
        """All members, all tries."""
        each = [
            _priced(judge.max_usage(prepared, ask), price)
            for judge, price in (self._judges[one.name] for one in self._rule.asked_at(ask.level))
        ]
        return sum(each, start=NOTHING)

    async def _one_by_one(self, ask: Ask, members: Sequence[Member], ask_one: _AskOne) -> list[_Answered]:
        """Ask until the answer is settled."""
        found: list[_Answered] = []
        opinions: list[Opinion] = []
        for member in members:
            answered = await ask_one(member)
            found.append(answered)
            opinions += _readable([answered[:2]])
            if self._rule.settled(ask, opinions):
                break
        return found

    async def _in_turn(self, members: Sequence[Member], ask_one: _AskOne) -> list[_Answered]:
        """Ask all, one after the other; a missing record is reported after the last."""
        found: list[_Answered] = []
        missing: NotRecordedError | None = None
        for member in members:
            try:
                found.append(await ask_one(member))
            except NotRecordedError as error:
                missing = error
        if missing is not None:
            raise missing
        return found

    async def _ask(self, prepared: PreparedCase, ask: Ask, budget: Budget, member: Member) -> _Answered:
        """Ask one member; an error that would stop a single judge is returned beside its ruling."""
        (judge, price), health = self._judges[member.name], self._health[member.name]
        charged = budget if price is None or budget.free else PricedBudget(budget, price)
        try:
            ruling = await judge.rule(prepared, ask, charged)
        except ModelError as error:
            health.failed(str(error), for_good=True)
            return member.name, Ruling(Unanswered(error.cause)), error
        except CapsError:
            raise
        except Exception as error:
            reason = printable_line(f"{type(error).__name__}: {error}")[:LONGEST_REASON]
            health.failed(reason)
            return member.name, Ruling(Unanswered(reason)), None
        if ruling.unanswered is None or ruling.unanswered in NO_FAILURE:
            health.answered()
        else:
            health.failed(ruling.unanswered)
        return member.name, ruling, None

    def _combined(self, ask: Ask, rulings: Sequence[tuple[str, Ruling]]) -> Ruling:
        """One ruling with the calls and opinions of all members."""
        attempts = tuple(
            changed(attempt, judge=name, usage=_priced(attempt.usage, self._judges[name].price))
            for name, ruling in rulings
            for attempt in ruling.attempts
        )
        opinions = tuple(Opinion(name, ruling.answer) for name, ruling in rulings)
        substituted = tuple(dict.fromkeys(one for _, ruling in rulings for one in ruling.substituted))
        readable = _readable(rulings)
        if readable:
            answer = self._rule.combine(ask, readable)
            return Ruling(answer, attempts, substituted=substituted, opinions=opinions)
        unread = [ruling for _, ruling in rulings if ruling.malformed is not None]
        if unread:
            first = unread[0]
            return Ruling(first.answer, attempts, first.malformed, opinions=opinions, sample=first.sample)
        reasons = [str(ruling.unanswered) for _, ruling in rulings]
        reason = next((one for one in reasons if one in EXHAUSTED), reasons[0])
        shortage = next((ruling.shortage for _, ruling in rulings if ruling.shortage is not None), None)
        return Ruling(Unanswered(reason), attempts, opinions=opinions, shortage=shortage)

    def _report(self, warn: Notify, name: str, reason: str) -> None:
        others = ", ".join(one for one in self._judges if one != name)
        warn(f"judge {name!r} failed ({reason}); the panel goes on with {others}, and tries it again later")


class PricedBudget:
    """A budget that is charged at the price of one member."""

    free = False

    def __init__(self, inner: Budget, price: Price) -> None:
        self._inner, self._price = inner, price
        self.limited, self.deadline = inner.limited, inner.deadline

    def covers(self, most: Usage) -> bool:
        """Whether the case's own share is enough for this."""
        return self._inner.covers(_priced(most, self._price))

    async def reserve(self, most: Usage) -> Shortage | None:
        """Reserve the most that a call may cost."""
        return await self._inner.reserve(_priced(most, self._price))

    def settle(self, most: Usage, spent: Usage, *, replayed: bool) -> None:
        """Replace the reservation of a call by its cost."""
        self._inner.settle(_priced(most, self._price), _priced(spent, self._price), replayed=replayed)

    def for_stored_replies(self) -> "PricedBudget":
        """The same budget for replies that are stored."""
        return PricedBudget(self._inner.for_stored_replies(), self._price)


class _Health:
    """Whether a member answers: after several failures in a row it rests, and is then tried once more."""

    def __init__(self, report: Callable[[str], object]) -> None:
        self._report, self._failures, self._reported = report, 0, False
        self._rests_until: float | None = None

    def may_ask(self) -> bool:
        """Whether it is asked now; after its rest, one ask tries it."""
        if self._rests_until is None:
            return True
        now = asyncio.get_running_loop().time()
        if now < self._rests_until:
            return False
        self._rests_until = now + REST_SECONDS
        return True

    def answered(self) -> None:
        """It works."""
        self._failures, self._rests_until, self._reported = 0, None, False

    def failed(self, reason: str, *, for_good: bool = False) -> None:
        """It failed once more; the first rest is reported."""
        self._failures = FAILURES_TO_REST if for_good else self._failures + 1
        if self._failures < FAILURES_TO_REST:
            return
        try:
            self._rests_until = asyncio.get_running_loop().time() + REST_SECONDS
        except RuntimeError:  # answers from records need no event loop, and no rest
            return
        if not self._reported:
            self._reported = True
            self._report(reason)


def _readable(rulings: Sequence[tuple[str, Ruling]]) -> list[Opinion]:
    """The opinions that count: answers that could be read."""
    return [
        Opinion(name, ruling.answer)
        for name, ruling in rulings
        if ruling.unanswered is None and ruling.malformed is None
    ]


def _priced(usage: Usage, price: Price | None) -> Usage:
    """The usage with its cost, if the price is known."""
    if price is None:
        return usage
    return replace(usage, usd=price.of(usage.prompt, usage.output, usage.cached))
