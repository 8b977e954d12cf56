"""A deterministic model with scripted replies, for tests and documentation."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from caps.core.errors import RefusedError
from caps.models.base import Completion, Request, estimate_usage

ScriptedReply: TypeAlias = str | Completion | Exception


class ScriptedModel:
    """Replies with a function of the request, or with a list in order of calls; an exception is raised."""

    def __init__(self, reply: Callable[[Request], ScriptedReply] | Sequence[ScriptedReply]) -> None:
        self.requests: list[Request] = []
        self._reply = reply

    @property
    def calls(self) -> int:
        """The number of requests so far."""
        return len(self.requests)

    async def complete(self, request: Request) -> Completion:
        """Answer from the script, one iteration of the event loop later."""
        self.requests.append(request)
        reply = self._next_reply(request, len(self.requests) - 1)
        await asyncio.sleep(0)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Completion):
            return reply
        return Completion(reply, "stop", estimate_usage(request.messages, reply), model=request.model)

    async def close(self) -> None:
        """Do nothing: no resources are held."""

    def _next_reply(self, request: Request, number: int) -> ScriptedReply:
        if callable(self._reply):
            return self._reply(request)
        if number < len(self._reply):
            return self._reply[number]
        return RefusedError(f"the script has {len(self._reply)} lines and was asked for one more")
