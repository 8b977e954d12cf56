"""Replies, whole or as a stream of events, and an eye on whether the client is still there.

When it hangs up, the work for it is cancelled and waited for.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from caps.server.answers import event
from caps.server.asgi import Headers, Receive, Scope, Send, send_last, send_more, send_start
from caps.server.refusals import Gone, Refusal

T = TypeVar("T")
HEARTBEAT = b": still at it\n\n"
EVENTS: Headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]


@dataclass(frozen=True, slots=True)
class Reply:
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


def error_reply(refusal: Refusal) -> Reply:
    """An error object, with how long to wait where that is known."""
    headers = [] if refusal.wait is None else [(b"retry-after", str(refusal.wait).encode())]
    headers += [(b"connection", b"close")] if refusal.closes else []
    return Reply(refusal.body(), refusal.status, headers=tuple(headers))


@dataclass(frozen=True, slots=True)
class Events(Generic[T]):
    """A reply of events: heartbeats until the work is done, then what `write` makes of it.

    What fails before the first heartbeat still becomes a status; after that an error is an event too, in the
    words of `fail`.
    """

    work: Coroutine[Any, Any, T]
    write: Callable[[T], Iterable[bytes]]
    fail: Callable[[BaseException], Refusal]
    heartbeat: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the stream."""
        async with _watched(self.work, receive) as (task, gone):
            if await _done(task, gone, self.heartbeat):
                task.result()
            await send_start(send, 200, EVENTS)
            while not task.done():
                await send_more(send, HEARTBEAT)
                await _done(task, gone, self.heartbeat)
            error = task.exception()
            for piece in self.write(task.result()) if error is None else [event(self.fail(error).body())]:
                await send_more(send, piece)
            await send_last(send)


async def attended(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Do the work while the client is there."""
    async with _watched(work, receive) as (task, gone):
        await _done(task, gone, None)
        return task.result()


async def _done(task: "asyncio.Task[Any]", gone: "asyncio.Task[None]", seconds: float | None) -> bool:
    """Whether the work is done after so many seconds; raises `Gone` when nobody waits for it."""
    await asyncio.wait({task, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    if gone.done() and not task.done():
        raise Gone
    return task.done()


@asynccontextmanager
async def _watched(
    work: Coroutine[Any, Any, T], receive: Receive
) -> "AsyncIterator[tuple[asyncio.Task[T], asyncio.Task[None]]]":
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_until_gone(receive))
    try:
        yield task, gone
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
