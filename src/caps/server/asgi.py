"""The words of ASGI that the modules here share."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]


def header(scope: Scope, name: bytes) -> str:
    """The first header of a name, or nothing."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


async def send_start(send: Send, status: int, headers: Headers) -> None:
    """Send status and headers."""
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def send_more(send: Send, body: bytes) -> None:
    """Send a part of a body, with more to come."""
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def send_last(send: Send, body: bytes = b"") -> None:
    """Send the last part of a body."""
    await send({"type": "http.response.body", "body": body, "more_body": False})
