"""Models backed by the journal: a reply that was paid for is never requested again.

Rules that must not be broken:

* A reply is in the journal before anyone sees it, and what is returned is what the journal holds: a live run
  and its replay read the same words.
* Every payment is reported by exactly one completion with `replayed=False`.
* A call keeps its connection until its reply is stored, so a kill loses no more replies than there are
  connections; only a model that is not `Holding`, where nothing is paid, may take the next call before.
"""

import asyncio
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from caps.core.types import TokenLogprob, Usage
from caps.journal.keys import prompt_digest, request_key
from caps.journal.records import Reply, ReplyStore
from caps.models.base import Completion, HoldsConnections, Model, Request
from caps.models.wire import finite

Flight: TypeAlias = "asyncio.Future[Completion | None]"


class JournaledModel:
    """Looks a request up, else asks and stores; identical requests under way at once are asked once.

    The journal is the caller's to close: several models may share it.
    """

    def __init__(self, inner: Model, journal: ReplyStore) -> None:
        self.inner = inner
        self.journal = journal
        self._holding = inner if isinstance(inner, HoldsConnections) else None
        # What is under way, with a future where someone else waits for it too.
        self._flights: dict[str, Flight | None] = {}

    async def complete(self, request: Request) -> Completion:
        """Answer from the journal, from a call under way, or by a new call; failures are not stored."""
        digest = prompt_digest(request.messages)
        key = request_key(request, digest=digest)
        while key in self._flights:
            shared = await self._join(key)
            if shared is not None:
                return replace(shared, replayed=True)
        # Look and ask for all who want the same; if this one leaves, the call ends and another asks.
        self._flights[key] = None
        outcome: Completion | None = None
        failure: Exception | None = None
        try:
            stored = await self.journal.recall(key)
            if stored is not None:
                outcome = to_completion(stored, replayed=True)
            else:
                outcome = await self._ask(key, digest, request)
            return outcome
        except Exception as error:
            failure = error
            raise
        finally:
            flight = self._flights.pop(key)
            if flight is not None:
                _land(flight, outcome, failure)

    async def close(self) -> None:
        """Close the model inside; the journal stays open."""
        await self.inner.close()

    async def _join(self, key: str) -> Completion | None:
        """Wait for a call under way; none if whoever made it left."""
        flight = self._flights[key]
        if flight is None:
            flight = self._flights[key] = asyncio.get_running_loop().create_future()
        return await asyncio.shield(flight)

    async def _ask(self, key: str, digest: str, request: Request) -> Completion:
        async def store(paid: Completion) -> tuple[Completion, Reply, Reply]:
            reply = to_reply(key, digest, request, paid)
            return paid, reply, await self.journal.append(reply)

        if self._holding is None:
            paid, reply, standing = await store(await self.inner.complete(request))
        else:
            paid, reply, standing = await self._holding.complete_and(request, store)
        if reply.logprobs is None and _words(standing) == _words(reply):
            return replace(paid, key=key)
        # Another process stored its reply first: its words stand, but this is what was paid here.
        return replace(
            to_completion(standing), usage=paid.usage, latency=paid.latency, attempts=paid.attempts
        )


def _land(flight: Flight, outcome: Completion | None, failure: Exception | None) -> None:
    """Tell those who waited what became of a call."""
    if failure is None:
        flight.set_result(outcome)
    else:
        flight.set_exception(failure)
        flight.exception()  # whoever waited may have left


_words = attrgetter("text", "reasoning", "finish", "served", "logprobs")


def to_reply(key: str, digest: str, request: Request, completion: Completion) -> Reply:
    """A completion as the journal keeps it."""
    usage = completion.usage
    return Reply(
        key,
        0.0,
        request.model,
        completion.model,
        request.template,
        digest,
        completion.finish,
        completion.text,
        completion.reasoning,
        usage.prompt,
        usage.output,
        usage.cached,
        usage.reasoning,
        usage.estimated,
        _pack(completion.logprobs),
        completion.latency,
        completion.attempts,
    )


def to_completion(reply: Reply, *, replayed: bool = False) -> Completion:
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
        replayed,
        reply.key,
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
