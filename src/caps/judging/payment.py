"""Calls that are paid for: the journal is looked up, the budget is charged, and lost replies are estimated.

Invariants:

* A reply that the journal holds costs nothing now: only the share of its case is charged, as in the run that
  paid for it.
* A call that was sent and brought no reply may have been billed. Its usage is estimated and marked as such.
* Only an error that every other call would have too is raised: a refused key, an unknown model, or any
  failure of a server that has never replied.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from caps.core.errors import (
    AccessError,
    BrokenServerError,
    BusyError,
    CapsError,
    GarbledError,
    ModelError,
    RefusedError,
    TimedOutError,
    UnknownModelError,
    UnreachableError,
)
from caps.core.types import Unanswered, Usage
from caps.costs.budget import Budget, Shortage
from caps.judging.base import LOST, NOTHING, Attempt, Ruling
from caps.models.base import Completion, Model, Recalls, Request, estimate_prompt

DENSEST_BYTES = 2  # bytes per token of the densest text assumed; prose and code have three to four
CHAT_MARKUP = 64  # tokens a chat template may add
MOST_MEDIA = 5  # times the estimate: what the most expensive servers count for an image
USUAL_OUTPUT = 500  # tokens of a generated answer before there is any
USUAL_REPLY = 400  # tokens of a judge's reply before it has replied

LEAST_FAILURES = 3  # requests that a server refuses before it is said to refuse all

#: Failures after which the server may have written a whole reply, and billed it.
LOST_REPLIES = (TimedOutError, GarbledError)

#: Failures that may be those of the server; any other is of its request.
SERVER_FAILURES = (
    UnreachableError, BusyError, TimedOutError, BrokenServerError, RefusedError, GarbledError,
)  # fmt: skip

T = TypeVar("T")


class ReplyHistory:
    """What a model has replied so far; `expected` is the length of a reply in tokens before the first."""

    def __init__(self, expected: float) -> None:
        self._expected, self._replies, self._tokens = expected, 0, 0
        self._has_replied = False  # to a call: stored replies say nothing about the server now
        self._under_way = self._failures = 0
        self._changed = asyncio.Event()

    @property
    def usual_tokens(self) -> float:
        """Tokens of a usual reply."""
        return self._tokens / self._replies if self._replies else self._expected

    def add(self, reply: Completion) -> None:
        """Count a reply."""
        self._replies += 1
        self._tokens += reply.usage.output
        self._has_replied = self._has_replied or not reply.replayed

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call as under way."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._changed.set()

    async def affects_all(self, error: ModelError) -> bool:
        """Whether every other call would meet this error too.

        A server that has never replied fails for all, if no call that is under way brings a reply either. As
        a request may also be refused for its text, that must have happened to several.
        """
        if isinstance(error, AccessError | UnknownModelError):
            return True
        if not isinstance(error, SERVER_FAILURES):
            return False
        self._failures += 1
        while self._under_way and not self._has_replied:
            self._changed.clear()
            await self._changed.wait()
        may_be_the_text = isinstance(error, RefusedError | GarbledError) and self._failures < LEAST_FAILURES
        return not self._has_replied and not may_be_the_text


@dataclass(frozen=True, slots=True)
class NoReply:
    """A call without a reply: the cause in one word and in words, the error, and what it may have cost.

    `requests` is the number of requests that the server may have seen; `shortage` is what a budget lacks.
    """

    cause: str
    message: str = ""
    usage: Usage = NOTHING
    requests: int = 0
    shortage: Shortage | None = None
    error: ModelError | None = None

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The call as an attempt of a ruling; none if nothing was sent."""
        if self.shortage is not None:
            return ()
        return (Attempt("", self.usage, "", LOST, self.cause, 0.0, replayed=False, requests=self.requests),)

    def ruling(self, attempts: tuple[Attempt, ...]) -> Ruling:
        """The ruling on the ask that this call was for."""
        return Ruling(Unanswered(self.cause), attempts, shortage=self.shortage, error=self.error)


async def pay(
    model: Model, request: Request, budget: Budget, history: ReplyHistory, *, stored: Completion | None = None
) -> Completion | NoReply:
    """Answer a request before the deadline of a budget and charge it; `history` estimates a lost reply.

    `stored` is the reply that the journal holds, if the caller has looked.
    """
    sent = False

    async def call() -> Completion | Shortage:
        nonlocal sent
        recalled = stored
        if recalled is None and not budget.free:
            recalled = await recall(model, request)
        most = NOTHING if budget.free else at_most(request)
        charged = budget if recalled is None else budget.for_stored_replies()
        if (shortage := await charged.reserve(most)) is not None:
            return shortage
        spent, replayed = most, False  # the cost of an interrupted call is unknown
        sent = recalled is None
        try:
            completion = recalled or await model.complete(request)
            spent, replayed = completion.usage, completion.replayed
            return completion
        except LOST_REPLIES:
            raise
        except CapsError:
            spent = NOTHING
            raise
        finally:
            charged.settle(most, spent, replayed=replayed)

    failure: ModelError | None = None
    with history.call():
        try:
            reply = await (call() if budget.deadline is None else in_time(call(), budget.deadline))
        except TimeoutError:
            lost = int(sent)
            return NoReply("time", "no reply in time", lost_usage(request, lost, history), lost)
        except ModelError as error:
            failure = error
        else:
            if isinstance(reply, Completion):
                history.add(reply)
    if failure is not None:
        if await history.affects_all(failure):
            raise failure
        lost = failure.attempts if isinstance(failure, LOST_REPLIES) else 0
        usage = lost_usage(request, lost, history)
        return NoReply(failure.cause, str(failure), usage, failure.attempts, error=failure)
    if isinstance(reply, Shortage):
        return NoReply("budget", "the budget ended", shortage=reply)
    return reply


async def in_time(call: Coroutine[Any, Any, T], deadline: float) -> T:
    """Raise `TimeoutError` at a deadline."""
    async with asyncio.timeout_at(deadline):
        return await call


async def recall(model: Model, request: Request) -> Completion | None:
    """The stored reply to a request, if the model has a journal that holds one; nothing is sent."""
    return await model.recall(request) if isinstance(model, Recalls) else None


def at_most(request: Request) -> Usage:
    """The most that a request may cost: one token for two bytes of the prompt, and a full reply."""
    shown = sum(len(message.content.encode("utf-8", "replace")) for message in request.messages)
    media = sum(one.tokens for message in request.messages for one in message.media)
    return Usage(tokens_at_most(shown) + MOST_MEDIA * media, request.max_tokens)


def tokens_at_most(count: int) -> int:
    """The most tokens that this many bytes of a prompt may have."""
    return count // DENSEST_BYTES + CHAT_MARKUP


def lost_usage(request: Request, requests: int, history: ReplyHistory) -> Usage:
    """Estimate what requests cost whose replies were lost: their prompts, and replies of the usual length."""
    if not requests:
        return NOTHING
    output = min(round(history.usual_tokens), request.max_tokens)
    return Usage(requests * estimate_prompt(request.messages), requests * output, estimated=True)
