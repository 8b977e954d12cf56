"""HTTP building blocks: the parts of Starlette that the server uses, its responses, and client disconnects.

No other module imports Starlette, so its absence is reported in one place. When a client disconnects, the
work for it is cancelled, and the response ends only after the cancelled work has ended.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from caps.core.errors import MissingExtraError
from caps.server.errors import ApiError, anthropic_error

try:
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.middleware.cors import CORSMiddleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError:
    raise MissingExtraError("starlette", "server", "caps serve") from None

__all__ = [
    "HEARTBEAT",
    "MESSAGES_PATH",
    "ASGIApp",
    "CORSMiddleware",
    "ClientDisconnect",
    "EventStreamResponse",
    "EventWriter",
    "HTTPException",
    "Headers",
    "JsonResponse",
    "Message",
    "Middleware",
    "News",
    "Receive",
    "Request",
    "Response",
    "Route",
    "Scope",
    "Send",
    "Starlette",
    "StreamingResponse",
    "error_response",
    "is_anthropic",
    "run_until_disconnect",
    "sse_event",
]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
MESSAGES_PATH = "/v1/messages"
HEARTBEAT = b": keep-alive\n\n"


class JsonResponse(Response):
    """A JSON response, encoded by msgspec."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Encode the content."""
        return msgspec.json.encode(content)


def is_anthropic(scope: Scope) -> bool:
    """Whether a client speaks the API of Anthropic: by the path, or by the header of its version."""
    path = scope["path"]
    return (
        path == MESSAGES_PATH
        or path.startswith(MESSAGES_PATH + "/")
        or "anthropic-version" in Headers(scope=scope)
    )


def error_response(error: ApiError, scope: Scope, run: str) -> JsonResponse:
    """The error object of the client's API, with the headers of the error."""
    body = anthropic_error(error, run) if is_anthropic(scope) else error.body()
    return JsonResponse(body, error.status, headers=error.headers)


class EventWriter(Protocol[T_contra]):
    """The events of one stream: before the work is done, for its result, and for an error."""

    def opening(self) -> bytes:
        """The events that are sent once, before anything else."""
        ...

    @property
    def heartbeat(self) -> bytes:
        """What keeps the connection alive while the work goes on."""
        ...

    def answer(self, completion: T_contra, /) -> Iterable[bytes]:
        """The events of a result, to the end of the stream."""
        ...

    def failure(self, error: ApiError) -> bytes:
        """The events of an error, to the end of the stream."""
        ...


class EventStreamResponse(StreamingResponse, Generic[T]):
    """Server-sent events: heartbeats until the work is done, then what `writer` makes of its result.

    An error before the first heartbeat becomes the status of the response. After it, the error, as `fail`
    reports it, is an event.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        work: Coroutine[Any, Any, T],
        *,
        writer: EventWriter[T],
        fail: Callable[[BaseException], ApiError],
        heartbeat: float,
        news: "News | None" = None,
    ) -> None:
        super().__init__((), headers={"cache-control": "no-store"})  # the events are made when it is called
        self._work, self._writer, self._fail, self._heartbeat = work, writer, fail, heartbeat
        self._news = news or News()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the stream, without Starlette's watch for a disconnect, which would compete for `receive`."""
        async with _watch_client(self._work, receive) as (task, disconnected):
            if await _finished(task, disconnected, self._heartbeat, self._news):
                task.result()
            self.body_iterator = self._events(task, disconnected)
            await self.stream_response(send)

    async def _events(
        self, task: "asyncio.Task[T]", disconnected: "asyncio.Task[None]"
    ) -> AsyncIterator[bytes]:
        if opening := self._writer.opening():
            yield opening
        while not task.done():
            events = self._news.take()
            yield b"".join(events) or self._writer.heartbeat
            await _finished(task, disconnected, self._heartbeat, self._news)
        if events := self._news.take():
            yield b"".join(events)
        error = task.exception()
        if error is not None:
            yield self._writer.failure(self._fail(error))
            return
        for event in self._writer.answer(task.result()):
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

    def take(self) -> list[bytes]:
        """The events that were not sent yet."""
        events, self._events = self._events, []
        self.arrived.clear()
        return events


def sse_event(value: object, name: str = "") -> bytes:
    """One event. JSON has no line break outside its strings, and inside them line breaks are escaped."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + msgspec.json.encode(value) + b"\n\n"


async def run_until_disconnect(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """The result of the work; `ClientDisconnect` if the client disconnects first."""
    async with _watch_client(work, receive) as (task, disconnected):
        await _finished(task, disconnected, None)
        return task.result()


async def _finished(
    task: "asyncio.Task[Any]",
    disconnected: "asyncio.Task[None]",
    seconds: float | None,
    news: News | None = None,
) -> bool:
    """Whether the work is done within `seconds`, or before there are news.

    `ClientDisconnect` if the client is gone before that.
    """
    waits: set[asyncio.Task[Any]] = {task, disconnected}
    arrived = None if news is None else asyncio.ensure_future(news.arrived.wait())
    try:
        waiting = waits if arrived is None else {*waits, arrived}
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if arrived is not None:
            arrived.cancel()
    if disconnected.done() and not task.done():
        raise ClientDisconnect
    return task.done()


@asynccontextmanager
async def _watch_client(
    work: Coroutine[Any, Any, T], receive: Receive
) -> "AsyncIterator[tuple[asyncio.Task[T], asyncio.Task[None]]]":
    """Two tasks, the work and the wait for a disconnect; both have ended when the context ends."""
    task, disconnected = asyncio.ensure_future(work), asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        yield task, disconnected
    finally:
        for one in (task, disconnected):
            one.cancel()
        await asyncio.gather(task, disconnected, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
