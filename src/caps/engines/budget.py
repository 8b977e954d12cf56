"""Budgets as hard limits: the maximum cost of a call is reserved before it is sent.

Rules that must not be broken:

* Spending plus reservations never exceeds the limit.
* A case's budget counts every reply, also those from the journal, so that a replay decides the same.
* A run's budget counts what is paid now; a call that does not fit waits while reservations are open. A reply
  that the journal holds is charged to its case only: no total refuses what costs nothing.
"""

import asyncio
from copy import copy
from dataclasses import dataclass
from typing import Protocol

from caps.core.errors import SettingError
from caps.core.types import Usage
from caps.costs.budget import Shortage
from caps.costs.prices import Price
from caps.judging.base import NOTHING

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLimits:
    """Limits on tokens (input and output), dollars and seconds; None is no limit."""

    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "usd", "seconds"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise SettingError(f"budget of {name} = {value!r}: must be a number of at least 0")

    @property
    def spends(self) -> bool:
        """Whether tokens or dollars are limited."""
        return self.tokens is not None or self.usd is not None


class Account:
    """Spending and reservations against a budget; `total` if it is that of a whole run."""

    def __init__(self, budget: BudgetLimits, price: Price | None, *, total: bool = False) -> None:
        if budget.usd is not None and price is None:
            raise SettingError(
                "a budget in dollars needs a price: give --price-input and --price-output, or limit tokens"
            )
        self._budget, self._price = budget, price
        self._setting = "budget_total" if total else "budget"
        self.tokens = self.reserved_tokens = 0
        self.usd = self.reserved_usd = 0.0

    def dollars(self, usage: Usage) -> float:
        """Cost of a usage: what it states itself, else at the account's price; 0 without either."""
        if usage.usd is not None or self._price is None:
            return usage.usd or 0.0
        return self._price.of(usage.prompt, usage.output, usage.cached)

    def shortage(self, max_usage: Usage) -> Shortage | None:
        """What is lacking for a call of at most this usage; None if the budget has room for it."""
        tokens, usd = self._budget.tokens, self._budget.usd
        if tokens is not None:
            left = tokens - self.tokens - self.reserved_tokens
            if _tokens(max_usage) > left:
                return Shortage(f"{self._setting}_tokens", _tokens(max_usage), left)
        if usd is not None:
            dollars, dollars_left = self.dollars(max_usage), usd - self.usd - self.reserved_usd
            if dollars > dollars_left + ROUNDING:
                return Shortage(f"{self._setting}_usd", dollars, max(0.0, dollars_left))
        return None

    def reserve(self, max_usage: Usage) -> None:
        """Reserve the maximum usage of a call."""
        self.reserved_tokens += _tokens(max_usage)
        self.reserved_usd += self.dollars(max_usage)

    def settle(self, max_usage: Usage, spent: Usage) -> None:
        """Replace a reservation by what was spent."""
        self.reserved_tokens -= _tokens(max_usage)
        self.reserved_usd -= self.dollars(max_usage)
        self.tokens += _tokens(spent)
        self.usd += self.dollars(spent)


class BudgetPool(Protocol):
    """The budget that all cases of a run share."""

    limited: bool

    async def reserve(self, max_usage: Usage) -> Shortage | None:
        """Reserve the maximum usage of a call; wait while open reservations may free enough."""
        ...

    def settle(self, max_usage: Usage, spent: Usage) -> None:
        """Settle a call."""
        ...


class RunBudget:
    """The budget of a whole run, shared by all its cases."""

    def __init__(self, budget: BudgetLimits, price: Price | None) -> None:
        self.account = Account(budget, price, total=True)
        self.limited = budget.spends
        self._freed = asyncio.Event()

    async def reserve(self, max_usage: Usage) -> Shortage | None:
        """Reserve the maximum usage of a call; wait while open reservations may free enough."""
        if not self.limited:
            return None
        while (shortage := self.account.shortage(max_usage)) is not None:
            if self.account.reserved_tokens == 0:
                return shortage
            self._freed.clear()
            await self._freed.wait()
        self.account.reserve(max_usage)
        return None

    def settle(self, max_usage: Usage, spent: Usage) -> None:
        """Settle a call."""
        if self.limited:
            self.account.settle(max_usage, spent)
            self._freed.set()


class CaseBudget:
    """The budget of one case: its own limits, the run's, and a deadline."""

    def __init__(
        self, budget: BudgetLimits, price: Price | None, pool: BudgetPool, *, deadline: float | None = None
    ) -> None:
        self._account, self._pool = Account(budget, price), pool
        self.limited = budget.spends
        self.free = not self.limited and not pool.limited
        self.deadline = deadline

    def covers(self, max_usage: Usage) -> bool:
        """Whether the case's own budget has room for this usage."""
        return not self.limited or self._account.shortage(max_usage) is None

    async def reserve(self, max_usage: Usage) -> Shortage | None:
        """Reserve the maximum usage of a call, unless a budget is exhausted."""
        if self.limited:
            shortage = self._account.shortage(max_usage)
            if shortage is not None:
                return shortage
            self._account.reserve(max_usage)
        shortage = await self._pool.reserve(max_usage)
        if shortage is not None and self.limited:
            self._account.settle(max_usage, NOTHING)
        return shortage

    def for_stored_replies(self) -> "CaseBudget":
        """The case's own budget without that of the run."""
        view = copy(self)
        view._pool = RunBudget(BudgetLimits(), None)
        return view

    def settle(self, max_usage: Usage, spent: Usage, *, replayed: bool) -> None:
        """Settle a call: the case counts every reply, the run only what was paid now."""
        if self.limited:
            self._account.settle(max_usage, spent)
        self._pool.settle(max_usage, NOTHING if replayed else spent)


class PoolOfCase:
    """The budget of a case as the pool of a smaller one: what the smaller one spends counts for both."""

    def __init__(self, whole: CaseBudget) -> None:
        self._whole, self.limited = whole, not whole.free

    async def reserve(self, max_usage: Usage) -> Shortage | None:
        """Reserve the maximum usage of a call."""
        return await self._whole.reserve(max_usage)

    def settle(self, max_usage: Usage, spent: Usage) -> None:
        """Settle a call."""
        self._whole.settle(max_usage, spent, replayed=False)


def _tokens(usage: Usage) -> int:
    return usage.prompt + usage.output
