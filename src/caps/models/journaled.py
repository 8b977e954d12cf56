"""Any model, with a journal around it: what was paid once is never asked again.

Rules that must not be broken:

* A reply is in the journal before anyone sees it, and what is returned is what the journal holds: a live run
  and its replay read the same words.
* Every payment is reported by exactly one completion with `replayed=False`.
"""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec

from caps.core.types import TokenLogprob, Usage
from caps.journal.keys import prompt_digest, request_key
from caps.journal.rows import Reply
from caps.journal.store import Journal
from caps.models.base import Completion, Model, Request
from caps.models.wire import finite


class _Flight:
    """A call under way, those who wait for it, and whether one of them has reported its cost."""

    def __init__(self, task: "asyncio.Task[Completion]") -> None:
        self.task = task
        self.waiting = 0
        self.reported = False


class JournaledModel:
    """Looks a request up, else asks and stores; identical requests under way at once are asked once.

    The journal is the caller's to close: several models may share it.
    """

    def __init__(self, inner: Model, journal: Journal) -> None:
        self.inner = inner
        self.journal = journal
        self._flights: dict[str, _Flight] = {}

    async def complete(self, request: Request) -> Completion:
        """Answer from the journal, from a call under way, or by a new call; failures are not stored."""
        digest = prompt_digest(request.messages)
        key = request_key(request, digest=digest)
        flight = self._flights.get(key)
        if flight is None:
            stored = self.journal.get(key)
            if stored is not None:
                return replace(to_completion(stored), replayed=True)
            flight = _Flight(asyncio.ensure_future(self._ask(key, digest, request)))
            self._flights[key] = flight
        return await self._board(key, flight)

    async def close(self) -> None:
        """Close the model inside; the journal stays open."""
        await self.inner.close()

    async def _board(self, key: str, flight: _Flight) -> Completion:
        """Wait for a call together with others; it is given up only when nobody waits any more."""
        flight.waiting += 1
        try:
            completion = await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting:
                # Forgotten at once: who asks for the same in the next moment must not join a cancelled call.
                self._flights.pop(key, None)
                flight.task.cancel()
        if flight.reported:
            return replace(completion, replayed=True)
        flight.reported = True
        return completion

    async def _ask(self, key: str, digest: str, request: Request) -> Completion:
        paid = await self.inner.complete(request)
        standing = to_completion(await self.journal.append(to_reply(key, digest, request, paid)))
        # Another process may have stored its reply first: its words stand, but this is what was paid here.
        return replace(standing, usage=paid.usage, latency=paid.latency, attempts=paid.attempts)


def to_reply(key: str, digest: str, request: Request, completion: Completion) -> Reply:
    """A completion as the journal keeps it."""
    usage = completion.usage
    return Reply(
        key=key,
        at=0.0,
        model=request.model,
        served=completion.model,
        template=request.template,
        prompt_digest=digest,
        finish=completion.finish,
        text=completion.text,
        reasoning=completion.reasoning,
        prompt_tokens=usage.prompt,
        output_tokens=usage.output,
        cached_tokens=usage.cached,
        reasoning_tokens=usage.reasoning,
        estimated=usage.estimated,
        logprobs=_pack(completion.logprobs),
        latency=completion.latency,
        attempts=completion.attempts,
    )


def to_completion(reply: Reply) -> Completion:
    """What the journal kept, as it was returned then."""
    return Completion(
        reply.text,
        reply.finish,
        Usage(
            reply.prompt_tokens,
            reply.output_tokens,
            reply.cached_tokens,
            reply.reasoning_tokens,
            reply.estimated,
        ),
        reply.reasoning,
        _unpack(reply.logprobs),
        reply.served,
        reply.latency,
        reply.attempts,
        key=reply.key,
    )


def _pack(logprobs: tuple[TokenLogprob, ...]) -> str | None:
    if not logprobs:
        return None
    rows = [
        (item.token, finite(item.logprob), [(token, finite(value)) for token, value in item.top])
        for item in logprobs
    ]
    return msgspec.json.encode(rows).decode()


def _unpack(packed: str | None) -> tuple[TokenLogprob, ...]:
    rows: list[Any] = msgspec.json.decode(packed) if packed else []
    return tuple(
        TokenLogprob(token, logprob, tuple((other, value) for other, value in top))
        for token, logprob, top in rows
    )
