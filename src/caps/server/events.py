"""Server-sent events: what the stream of an API consists of, and the response that sends it."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from caps.engines.adaptive import Step
from caps.server.errors import ApiError
from caps.server.http import Receive, Scope, Send, StreamingResponse, finished, watch_client
from caps.server.requests import Body, ChatRequest


@dataclass(slots=True)
class Events(ABC):
    """The events of one streamed answer; `body` is that of the client's own request."""

    heartbeat: ClassVar[bytes] = b": keep-alive\n\n"  # keeps the connection alive until there is an answer
    request: ChatRequest
    body: Body
    run: str
    created: int = field(default_factory=lambda: int(time.time()))

    def opening(self) -> bytes:
        """The events that are sent once, before anything else."""
        return b""

    @abstractmethod
    def progress(self, step: Step) -> bytes:
        """An event that says how the request stands."""

    @abstractmethod
    def answer(self, completion: Body) -> Iterable[bytes]:
        """The events of a chat completion, to the end of the stream."""

    @abstractmethod
    def failure(self, error: ApiError) -> bytes:
        """The events of an error, to the end of the stream."""


class EventStreamResponse(StreamingResponse):
    """Server-sent events: heartbeats and news until the work is done, then the events of its completion.

    An error before the first heartbeat becomes the status of the response. After it, the error, as `fail`
    reports it, is an event.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        work: Coroutine[Any, Any, Body],
        *,
        events: Events,
        fail: Callable[[BaseException], ApiError],
        heartbeat: float,
        news: "News",
    ) -> None:
        super().__init__((), headers={"cache-control": "no-store"})  # the events are made when it is called
        self._work, self._events, self._fail = work, events, fail
        self._heartbeat, self._news = heartbeat, news

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the stream, without Starlette's watch for a disconnect, which would compete for `receive`."""
        async with watch_client(self._work, receive) as (task, disconnected):
            if await finished(task, disconnected, self._heartbeat, self._news.arrived):
                task.result()
            self.body_iterator = self._parts(task, disconnected)
            await self.stream_response(send)

    async def _parts(
        self, task: "asyncio.Task[Body]", disconnected: "asyncio.Task[None]"
    ) -> AsyncIterator[bytes]:
        yield self._events.opening()
        while not task.done():
            yield self._news.take() or self._events.heartbeat
            await finished(task, disconnected, self._heartbeat, self._news.arrived)
        yield self._news.take()
        error = task.exception()
        if error is not None:
            yield self._events.failure(self._fail(error))
            return
        for event in self._events.answer(task.result()):
            yield event


class News:
    """Events that are sent while the work goes on."""

    def __init__(self) -> None:
        self._events: list[bytes] = []
        self.arrived = asyncio.Event()

    def add(self, event: bytes) -> None:
        """Send an event as soon as possible."""
        self._events.append(event)
        self.arrived.set()

    def take(self) -> bytes:
        """The events that were not sent yet."""
        events, self._events = self._events, []
        self.arrived.clear()
        return b"".join(events)


def sse_event(value: object, name: str = "") -> bytes:
    """One event. JSON has no line break outside its strings, and inside them line breaks are escaped."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + msgspec.json.encode(value) + b"\n\n"
