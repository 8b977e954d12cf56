"""What comes in during one turn of an event loop is dealt with together."""

from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Coalescer(Generic[T]):
    """Gathers items for so many turns of the event loop they come from, then deals with them at once.

    A turn of an idle loop takes no time that anyone would notice; one of a busy loop brings more items.
    """

    def __init__(self, deal: Callable[[list[T]], None], *, turns: int = 1) -> None:
        self._deal, self._turns = deal, turns
        self._waiting: dict[AbstractEventLoop, list[T]] = {}

    def add(self, item: T, loop: AbstractEventLoop | None = None) -> None:
        """Take an item in; `loop` is the running one, for those who have it at hand."""
        loop = loop or get_running_loop()
        waiting = self._waiting.get(loop)
        if waiting is not None:
            waiting.append(item)
            return
        self._waiting[loop] = [item]
        loop.call_soon(self._turn, loop, self._turns)

    def take(self) -> list[T]:
        """All that is waiting, of every loop; it is not dealt with any more."""
        taken = list[T]()
        for loop in list(self._waiting):
            taken += self._waiting.pop(loop, [])
        return taken

    def _turn(self, loop: AbstractEventLoop, left: int) -> None:
        if left > 1:
            loop.call_soon(self._turn, loop, left - 1)
            return
        items = self._waiting.pop(loop, None)
        if items is not None:  # else they were taken
            self._deal(items)
