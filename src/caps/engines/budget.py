"""Budgets that hold: what a call may cost at most is set aside before it is sent.

Rules that must not be broken:

* What is spent and set aside never passes the limit.
* A case's own budget counts what is asked, wherever the reply comes from, so a replay decides alike.
* A run's budget counts what is paid now; a call that does not fit waits while others may still give back.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from caps.core.errors import SettingError
from caps.core.types import Usage
from caps.costs.prices import Price
from caps.judging.base import NOTHING

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLimits:
    """Limits on tokens (read and written), dollars and seconds; none is no limit."""

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
    """Spending against a budget; whoever has no limit keeps none."""

    def __init__(self, budget: BudgetLimits, price: Price | None) -> None:
        if budget.usd is not None and price is None:
            raise SettingError(
                "a budget in dollars needs a price: give --price-input and --price-output, or limit tokens"
            )
        self._budget, self._price = budget, price
        self.tokens = self.held_tokens = 0
        self.usd = self.held_usd = 0.0

    def dollars(self, usage: Usage) -> float:
        """What a usage costs, if that is known."""
        return 0.0 if self._price is None else self._price.of(usage.prompt, usage.output, usage.cached)

    def fits(self, most: Usage) -> bool:
        """Whether a call that may cost this much can still be made."""
        tokens, usd = self._budget.tokens, self._budget.usd
        if tokens is not None and self.tokens + self.held_tokens + _tokens(most) > tokens:
            return False
        return usd is None or self.usd + self.held_usd + self.dollars(most) <= usd + ROUNDING

    def hold(self, most: Usage) -> None:
        """Set aside what a call may cost."""
        self.held_tokens += _tokens(most)
        self.held_usd += self.dollars(most)

    def settle(self, most: Usage, spent: Usage) -> None:
        """Give back what was set aside and take what was spent."""
        self.held_tokens -= _tokens(most)
        self.held_usd -= self.dollars(most)
        self.tokens += _tokens(spent)
        self.usd += self.dollars(spent)


class BudgetPool(Protocol):
    """What all cases of a run pay from."""

    limited: bool

    async def reserve(self, most: Usage) -> bool:
        """Set aside what a call may cost, waiting while others may give back enough."""
        ...

    def settle(self, most: Usage, spent: Usage) -> None:
        """Close a call."""
        ...


class RunBudget:
    """The account of a whole run, shared by all its cases."""

    def __init__(self, budget: BudgetLimits, price: Price | None) -> None:
        self.account = Account(budget, price)
        self.limited = budget.spends
        self._freed = asyncio.Event()

    async def reserve(self, most: Usage) -> bool:
        """Set aside what a call may cost, waiting while others may give back enough."""
        if not self.limited:
            return True
        while not self.account.fits(most):
            if self.account.held_tokens == 0:
                return False
            self._freed.clear()
            await self._freed.wait()
        self.account.hold(most)
        return True

    def settle(self, most: Usage, spent: Usage) -> None:
        """Close a call."""
        if self.limited:
            self.account.settle(most, spent)
            self._freed.set()


class CaseBudget:
    """What one case may spend: its own account, the run's, and time until a deadline."""

    def __init__(
        self, budget: BudgetLimits, price: Price | None, total: BudgetPool, *, deadline: float | None = None
    ) -> None:
        self._account, self._total = Account(budget, price), total
        self.limited = budget.spends
        self.free = not self.limited and not total.limited
        self.deadline = deadline

    def covers(self, most: Usage) -> bool:
        """Whether the case's own budget is enough for this, come what may."""
        return not self.limited or self._account.fits(most)

    async def reserve(self, most: Usage) -> bool:
        """Set aside what a call may cost; false where a budget has ended."""
        if self.limited:
            if not self._account.fits(most):
                return False
            self._account.hold(most)
        if await self._total.reserve(most):
            return True
        if self.limited:
            self._account.settle(most, NOTHING)
        return False

    def settle(self, most: Usage, spent: Usage, *, replayed: bool) -> None:
        """Close a call: the case counts what was asked, the run what was paid now."""
        if self.limited:
            self._account.settle(most, spent)
        self._total.settle(most, NOTHING if replayed else spent)


def _tokens(usage: Usage) -> int:
    return usage.prompt + usage.output
