"""Budgets as those see them who spend: reserve the most that a call may cost, then settle what it cost."""

from dataclasses import replace
from typing import Protocol

import msgspec

from caps.core.types import Usage
from caps.costs.prices import Price


class Shortage(msgspec.Struct, frozen=True):
    """Why a budget has no room for a call: the setting that limits it, what the call reserves, what is left.

    Both numbers are in the unit of the setting: tokens or dollars.
    """

    setting: str
    reserves: float
    left: float


class Budget(Protocol):
    """A budget for calls: each call reserves its maximum before it and settles its cost after it."""

    free: bool  # it counts nothing
    limited: bool
    deadline: float | None  # a time of the event loop's clock

    def covers(self, most: Usage) -> bool:
        """Whether the case's own share is enough for this, whatever other cases spend."""
        ...

    async def reserve(self, most: Usage) -> Shortage | None:
        """Reserve the most that a call may cost, unless too little is left: then what is lacking."""
        ...

    def settle(self, most: Usage, spent: Usage, *, replayed: bool) -> None:
        """Replace the reservation of a call by its cost."""
        ...

    def for_stored_replies(self) -> "Budget":
        """The same budget for replies that are stored: they cost nothing now, so no total can refuse them."""
        ...


class UnlimitedBudget:
    """A budget without limits."""

    free = True
    limited = False
    deadline: float | None = None

    def covers(self, most: Usage) -> bool:  # noqa: ARG002
        """Always True."""
        return True

    async def reserve(self, most: Usage) -> Shortage | None:  # noqa: ARG002
        """Nothing is ever lacking."""
        return None

    def settle(self, most: Usage, spent: Usage, *, replayed: bool) -> None:
        """Count nothing."""

    def for_stored_replies(self) -> "UnlimitedBudget":
        """The same."""
        return self


class PricedBudget:
    """A budget whose calls cost what their own model costs; whatever it is charged adds up."""

    free = False

    def __init__(self, inner: Budget, price: Price) -> None:
        self._inner, self._price = inner, price
        self.limited, self.deadline = inner.limited, inner.deadline

    def covers(self, most: Usage) -> bool:
        """Whether the case's own share is enough for this."""
        return self._inner.covers(priced(most, self._price))

    async def reserve(self, most: Usage) -> Shortage | None:
        """Reserve the most that a call may cost."""
        return await self._inner.reserve(priced(most, self._price))

    def settle(self, most: Usage, spent: Usage, *, replayed: bool) -> None:
        """Replace the reservation of a call by its cost."""
        self._inner.settle(priced(most, self._price), priced(spent, self._price), replayed=replayed)

    def for_stored_replies(self) -> "PricedBudget":
        """The same budget for replies that are stored."""
        return PricedBudget(self._inner.for_stored_replies(), self._price)


def priced(usage: Usage, price: Price | None) -> Usage:
    """The usage with its cost, if the price is known."""
    if price is None:
        return usage
    return replace(usage, usd=price.of(usage.prompt, usage.output, usage.cached))


def at_price(budget: Budget, price: Price | None) -> Budget:
    """The same budget for calls to a model with a price of its own."""
    return budget if price is None or budget.free else PricedBudget(budget, price)
