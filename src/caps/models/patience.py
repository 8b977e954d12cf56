"""How long a call may take. All calls of a model are given the same time, so one timer is enough for all.

A timer for each, as aiohttp keeps, is a twentieth of all the work of a bare call.
"""

from asyncio import AbstractEventLoop, CancelledError, Task, TimerHandle, current_task, get_running_loop
from types import TracebackType
from typing import Any


class Patience:
    """Raises `TimeoutError` in a task that is inside for longer than `seconds`: `with patience:`.

    A task may be inside once at a time. Whoever else cancels it is heard.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # Until when each may stay, and how often someone wanted it cancelled when it came; in the order they
        # came, which is that of their ends.
        self._inside: dict[Task[Any], tuple[float, int]] = {}
        self._overdue: set[Task[Any]] = set()
        self._loop: AbstractEventLoop | None = None
        self._timer: TimerHandle | None = None

    def __enter__(self) -> None:
        loop, task = get_running_loop(), current_task()
        assert task is not None  # noqa: S101
        end = loop.time() + self._seconds
        self._inside[task] = end, task.cancelling()
        if self._timer is None or self._loop is not loop:
            self._loop, self._timer = loop, loop.call_at(end, self._look)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = current_task()
        assert task is not None  # noqa: S101
        _, cancelling = self._inside.pop(task)
        if task in self._overdue:
            self._overdue.remove(task)
            if task.uncancel() <= cancelling and kind is CancelledError:
                raise TimeoutError from error

    def _look(self) -> None:
        """Break off who has been inside for too long, and look again when the next may have been."""
        self._timer, loop = None, get_running_loop()
        now = loop.time()
        for task, (end, _) in self._inside.items():
            if end > now:
                self._timer = loop.call_at(end, self._look)
                return
            if task not in self._overdue:
                self._overdue.add(task)
                task.cancel()
