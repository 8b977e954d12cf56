"""The words of ASGI that the modules here share.

Replies, whole or as a stream of events, and an eye on whether the client is still there.

When it hangs up, the work for it is cancelled and waited for.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from caps.server.errors import ApiError, ClientDisconnected

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
RawHeaders: TypeAlias = list[tuple[bytes, bytes]]


def header(scope: Scope, name: bytes) -> str:
    """The first header of a name, or nothing."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


async def send_start(send: Send, status: int, headers: RawHeaders) -> None:
    """Send status and headers."""
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def send_more(send: Send, body: bytes) -> None:
    """Send a part of a body, with more to come."""
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def send_last(send: Send, body: bytes = b"") -> None:
    """Send the last part of a body."""
    await send({"type": "http.response.body", "body": body, "more_body": False})


T = TypeVar("T")
HEARTBEAT = b": still at it\n\n"
EVENTS: RawHeaders = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]


@dataclass(frozen=True, slots=True)
class Response:
    """A whole reply: JSON, unless its bytes are given."""

    content: object
    status: int = 200
    kind: str = "application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send it."""
        body = self.content if isinstance(self.content, bytes) else msgspec.json.encode(self.content)
        size = str(len(body)).encode()
        headers = [(b"content-type", self.kind.encode()), (b"content-length", size), *self.headers]
        await send_start(send, self.status, headers)
        await send_last(send, body)


def error_response(api_error: ApiError) -> Response:
    """An error object, with how long to wait where that is known."""
    headers = [] if api_error.retry_after is None else [(b"retry-after", str(api_error.retry_after).encode())]
    headers += [(b"connection", b"close")] if api_error.close_connection else []
    return Response(api_error.body(), api_error.status, headers=tuple(headers))


@dataclass(frozen=True, slots=True)
class EventStreamResponse(Generic[T]):
    """A reply of events: heartbeats until the work is done, then what `write` makes of it.

    What fails before the first heartbeat still becomes a status; after that an error is an event too, in the
    words of `fail`.
    """

    work: Coroutine[Any, Any, T]
    write: Callable[[T], Iterable[bytes]]
    fail: Callable[[BaseException], ApiError]
    heartbeat: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the stream."""
        async with _watch_client(self.work, receive) as (task, gone):
            if await _finished(task, gone, self.heartbeat):
                task.result()
            await send_start(send, 200, EVENTS)
            while not task.done():
                await send_more(send, HEARTBEAT)
                await _finished(task, gone, self.heartbeat)
            error = task.exception()
            for piece in self.write(task.result()) if error is None else [sse_event(self.fail(error).body())]:
                await send_more(send, piece)
            await send_last(send)


async def run_until_disconnect(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Do the work while the client is there."""
    async with _watch_client(work, receive) as (task, gone):
        await _finished(task, gone, None)
        return task.result()


async def _finished(task: "asyncio.Task[Any]", gone: "asyncio.Task[None]", seconds: float | None) -> bool:
    """Whether the work is done after so many seconds; raises `Gone` when nobody waits for it."""
    await asyncio.wait({task, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    if gone.done() and not task.done():
        raise ClientDisconnected
    return task.done()


@asynccontextmanager
async def _watch_client(
    work: Coroutine[Any, Any, T], receive: Receive
) -> "AsyncIterator[tuple[asyncio.Task[T], asyncio.Task[None]]]":
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        yield task, gone
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def sse_event(value: object) -> bytes:
    """One event: JSON has no line break outside its texts, and none inside that is not escaped."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"
