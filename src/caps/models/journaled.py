"""Models backed by the journal: a reply that was paid for is never requested again.

Rules that must not be broken:

* A reply is stored before it is returned, and the stored reply is what is returned: a live run and its replay
  read the same text.
* Every payment is reported by exactly one completion with `replayed=False`.
* A call is claimed before its reply is looked for, so that of several processes only one pays for it.
* A call keeps its connection until its reply is stored, so a kill loses at most one reply per connection.
  Only a model without `HoldsConnections`, where nothing is paid, may take the next call earlier.
"""

import asyncio
from contextlib import nullcontext
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from caps.core.errors import NotRecordedError
from caps.core.types import TokenLogprob, Usage
from caps.journal.records import Reply, ReplyStore, prompt_digest, request_key
from caps.journal.store import Journal
from caps.models.base import Completion, HoldsConnections, Model, Request
from caps.models.wire import finite

Flight: TypeAlias = "asyncio.Future[Completion | None]"


class JournaledModel:
    """Answers from the journal, else calls the model and stores the reply; duplicates share a call.

    The caller closes the journal: several models may share it.
    """

    def __init__(self, inner: Model, journal: ReplyStore) -> None:
        self.inner = inner
        self.journal = journal
        self._holding = inner if isinstance(inner, HoldsConnections) else None
        # Calls in progress, with a future if another call waits for the same reply.
        self._flights: dict[str, Flight | None] = {}
        self._claims = journal.claims

    async def complete(self, request: Request) -> Completion:
        """Answer from the journal, from a call in progress, or by a new call; failures are not stored."""
        digest = prompt_digest(request.messages)
        key = request_key(request, digest=digest)
        while key in self._flights:
            shared = await self._join(key)
            if shared is not None:
                return replace(shared, replayed=True)
        # One task makes the call for all duplicates; if it is cancelled, another one starts over.
        self._flights[key] = None
        outcome: Completion | None = None
        failure: Exception | None = None
        try:
            if self._claims is not None and not self._claims.take_now(key):
                await self._claims.take(key)
            stored = await self.journal.recall(key)
            if stored is not None:
                outcome = to_completion(stored, replayed=True)
            else:
                outcome = await self._call(key, digest, request)
            return outcome
        except Exception as error:
            failure = error
            raise
        finally:
            flight = self._flights.pop(key)
            if self._claims is not None:
                self._claims.release(key)
            if flight is not None:
                _resolve(flight, outcome, failure)

    async def recall(self, request: Request) -> Completion | None:
        """The reply that the journal holds."""
        return recalled(await self.journal.recall(request_key(request)))

    async def close(self) -> None:
        """Close the inner model; the journal stays open."""
        await self.inner.close()

    async def _join(self, key: str) -> Completion | None:
        """Wait for a call in progress; None if it was cancelled."""
        flight = self._flights[key]
        if flight is None:
            flight = self._flights[key] = asyncio.get_running_loop().create_future()
        return await asyncio.shield(flight)

    async def _call(self, key: str, digest: str, request: Request) -> Completion:
        async with (
            nullcontext(self.inner) if self._holding is None else self._holding.held_connection() as inner
        ):
            paid = await inner.complete(request)
            reply = to_reply(key, digest, request, paid)
            stored = await self.journal.append(reply)
        if reply.logprobs is None and _content(stored) == _content(reply):
            return replace(paid, key=key)
        # Another process stored its reply first: return that text, with the usage that was paid here.
        return replace(to_completion(stored), usage=paid.usage, latency=paid.latency, attempts=paid.attempts)


def _resolve(flight: Flight, outcome: Completion | None, failure: Exception | None) -> None:
    """Pass the result of a call to the tasks that wait for it."""
    if failure is None:
        flight.set_result(outcome)
    else:
        flight.set_exception(failure)
        flight.exception()  # marks it as retrieved: all waiters may have been cancelled


_content = attrgetter("text", "reasoning", "finish", "served", "logprobs")


def to_reply(key: str, digest: str, request: Request, completion: Completion) -> Reply:
    """Convert a completion to a journal record."""
    usage = completion.usage
    return Reply(
        key, 0.0, request.model, completion.model, request.template, digest,
        completion.finish, completion.text, completion.reasoning,
        usage.prompt, usage.output, usage.cached, usage.reasoning, usage.estimated,
        _pack(completion.logprobs), completion.latency, completion.attempts,
    )  # fmt: skip


def to_completion(reply: Reply, *, replayed: bool = False) -> Completion:
    """Convert a journal record to the completion that was returned originally."""
    tokens = (reply.prompt_tokens, reply.output_tokens, reply.cached_tokens, reply.reasoning_tokens)
    return Completion(
        reply.text, reply.finish, Usage(*tokens, reply.estimated), reply.reasoning, _unpack(reply.logprobs),
        reply.served, reply.latency, reply.attempts, replayed, reply.key,
    )  # fmt: skip


def recalled(stored: Reply | None) -> Completion | None:
    """A stored reply with the time at which it was stored; None if there is none."""
    return None if stored is None else replace(to_completion(stored, replayed=True), stored_at=stored.at)


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


# --- A model that answers from the journal only and makes no requests ---


class ReplayedModel:
    """Replies as the journal holds them; what it does not hold raises `NotRecordedError`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def complete(self, request: Request) -> Completion:
        """Answer from the journal, at once."""
        stored = await self.recall(request)
        if stored is None:
            raise NotRecordedError(f"no reply to this {request.template!r} prompt is in the journal")
        return stored

    async def recall(self, request: Request) -> Completion | None:
        """The reply that the journal holds."""
        return recalled(self._journal.get(request_key(request)))

    async def close(self) -> None:
        """Nothing is held open."""
