"""HTTP building blocks: the parts of Starlette that the server uses, its responses, and client disconnects.

No other module imports Starlette, so its absence is reported in one place. When a client disconnects, the
work for it is cancelled, and the response ends only after the cancelled work has ended.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

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

__all__ = [  # what other modules import from Starlette
    "ASGIApp", "CORSMiddleware", "ClientDisconnect", "HTTPException", "Headers", "Message", "Middleware",
    "Receive", "Request", "Response", "Route", "Scope", "Send", "Starlette", "StreamingResponse",
]  # fmt: skip
T = TypeVar("T")
MESSAGES_PATH = "/v1/messages"


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


async def run_until_disconnect(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """The result of the work; `ClientDisconnect` if the client disconnects first."""
    async with watch_client(work, receive) as (task, disconnected):
        await finished(task, disconnected)
        return task.result()


async def finished(
    task: "asyncio.Task[Any]",
    disconnected: "asyncio.Task[None]",
    seconds: float | None = None,
    news: asyncio.Event | None = None,
) -> bool:
    """Wait for the work, at most for `seconds` or until there are news; return whether it is done.

    `ClientDisconnect` if the client disconnects before that.
    """
    arrived = [] if news is None else [asyncio.ensure_future(news.wait())]
    try:
        waiting = [task, disconnected, *arrived]
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in arrived:
            one.cancel()
    if disconnected.done() and not task.done():
        raise ClientDisconnect
    return task.done()


@asynccontextmanager
async def watch_client(
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
