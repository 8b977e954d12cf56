"""A model that says what it is told to: for tests and documentation, deterministic."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from caps.core.errors import RefusedError
from caps.models.base import Completion, Request, estimate_usage

Line: TypeAlias = str | Completion | Exception


class ScriptedModel:
    """Replies by a function of the request, or line by line in the order of calls; an exception is raised."""

    def __init__(self, reply: Callable[[Request], Line] | Sequence[Line]) -> None:
        self.requests: list[Request] = []
        self._reply = reply

    @property
    def calls(self) -> int:
        """How often it was asked."""
        return len(self.requests)

    async def complete(self, request: Request) -> Completion:
        """Answer by the script, one turn of the event loop later."""
        self.requests.append(request)
        line = self._line(request, len(self.requests) - 1)
        await asyncio.sleep(0)
        if isinstance(line, Exception):
            raise line
        if isinstance(line, Completion):
            return line
        return Completion(line, "stop", estimate_usage(request.messages, line), model=request.model)

    async def close(self) -> None:
        """Nothing is held open."""

    def _line(self, request: Request, number: int) -> Line:
        if callable(self._reply):
            return self._reply(request)
        if number < len(self._reply):
            return self._reply[number]
        return RefusedError(f"the script has {len(self._reply)} lines and was asked for one more")
