"""The clerk of a run that is played in several processes: one journal and one account for all of them.

Rules that must not be broken:

* A worker is answered only after the commit that holds its row.
* What a dead worker had set aside counts as spent: its calls may have been billed.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from caps.core.errors import CapsError, JournalError
from caps.core.types import Usage
from caps.costs.prices import Price
from caps.engines.bench import Equip
from caps.engines.budget import Budget, Total
from caps.journal.rows import Reply
from caps.journal.store import Journal
from caps.judges.base import NOTHING

T = TypeVar("T")


@dataclass(slots=True)
class Life:
    """A worker from its start to its end, and what it has set aside."""

    number: int
    held: Counter[Usage] = field(default_factory=Counter)


class Terms(NamedTuple):
    """What a worker is told when it enters: which life this is, how to equip its bench, what is kept."""

    life: int
    equip: Equip
    journaled: bool
    limited: bool


class Clerk:
    """Keeps journal and account on the machine where the journal's file lies, and the terms of work."""

    def __init__(
        self, equip: Equip, path: Path | None, budget: Budget, price: Price | None, *, durable: bool
    ) -> None:
        self._equip, self._limited = equip, budget.spends
        self._journal = None if path is None else Journal.open(path, durable=durable)
        self._total = Total(budget, price)
        self._lives: dict[str, Life] = {}

    async def enter(self, worker: str) -> Terms:
        """Begin a worker's life; whatever it held in an earlier one is spent."""
        number = 0
        if worker in self._lives:
            earlier = self._lives[worker]
            number = earlier.number + 1
            for most in earlier.held.elements():
                self._total.settle(most, most)
        self._lives[worker] = Life(number)
        return Terms(number, self._equip, self._journal is not None, self._limited)

    async def recall(self, key: str) -> Reply | None:
        """The reply under a key."""
        return self._kept.get(key)

    async def append(self, reply: Reply) -> Reply:
        """Store a reply."""
        return await self._kept.append(reply)

    async def recall_fact(self, kind: str, key: str) -> Any:
        """The fact under a kind and key."""
        return self._kept.fact(kind, key)

    async def record(self, kind: str, key: str, value: object) -> Any:
        """Store a fact."""
        return await self._kept.record(kind, key, value)

    async def reserve(self, worker: str, life: int, most: Usage) -> bool:
        """Set aside what a call may cost; a worker that died while it waited gets nothing."""
        if not await self._total.reserve(most):
            return False
        if self._lives[worker].number != life:
            self._total.settle(most, NOTHING)
            return False
        self._lives[worker].held[most] += 1
        return True

    async def settle(self, worker: str, life: int, most: Usage, spent: Usage) -> None:
        """Close a call, unless it was closed when its worker died."""
        if self._lives[worker].number == life:
            self._lives[worker].held[most] -= 1
            self._total.settle(most, spent)

    async def leave(self) -> None:
        """Store what was handed in and let go of the journal."""
        if self._journal is not None:
            self._journal.close()

    @property
    def _kept(self) -> Journal:
        if self._journal is None:
            raise JournalError("no journal is kept in this run")
        return self._journal


async def heard(reply: Awaitable[T]) -> T:
    """What a call in another process returned; an error of ours is raised as it was there."""
    try:
        return await reply
    except Exception as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, CapsError):
            raise cause from None
        raise


class JournalAfar:
    """A journal that a clerk keeps."""

    def __init__(self, clerk: Any) -> None:
        self._clerk = clerk

    async def recall(self, key: str) -> Reply | None:
        """The reply under a key."""
        return await _kept(self._clerk.recall.remote(key))

    async def append(self, reply: Reply) -> Reply:
        """Store a reply and return, after the commit that holds it, the one that stands under its key."""
        return await _kept(self._clerk.append.remote(reply))

    async def recall_fact(self, kind: str, key: str) -> Any:
        """The fact under a kind and key, or None."""
        return await _kept(self._clerk.recall_fact.remote(kind, key))

    async def record(self, kind: str, key: str, value: object) -> Any:
        """Store a fact and return, after its commit, the one that stands."""
        return await _kept(self._clerk.record.remote(kind, key, value))


class PotAfar:
    """An account that a clerk keeps for several workers.

    Only the first in line asks: were all to wait with the clerk, whoever gives back could not get through.
    """

    limited = True

    def __init__(self, clerk: Any, worker: str, life: int) -> None:
        self._clerk, self._worker, self._life = clerk, worker, life
        self._line = asyncio.Lock()

    async def reserve(self, most: Usage) -> bool:
        """Set aside what a call may cost, waiting while others may give back enough."""
        async with self._line:
            return await _kept(self._clerk.reserve.remote(self._worker, self._life, most))

    def settle(self, most: Usage, spent: Usage) -> None:
        """Close a call."""
        self._clerk.settle.remote(self._worker, self._life, most, spent)


async def _kept(reply: Awaitable[T]) -> T:
    """What the clerk says; without one nothing may be paid for."""
    try:
        return await heard(reply)
    except CapsError:
        raise
    except Exception as error:
        raise JournalError(
            f"whoever keeps the journal cannot be reached ({type(error).__name__}): run the same command "
            "again; what was stored is safe"
        ) from None
