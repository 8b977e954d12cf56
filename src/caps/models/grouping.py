"""Which calls share a beginning, so that one server's prefix cache can serve them; pure."""

from typing import Any

import msgspec

from caps.models.base import Request


class _Chat(msgspec.Struct):
    messages: list[msgspec.Raw]


class _Role(msgspec.Struct):
    role: Any = None


def group_of(request: Request) -> bytes:
    """The group a request names; else its beginning, up to the first words of the user."""
    if request.group:
        return request.group.encode("utf-8", "surrogatepass")
    begun: list[str] = []
    for message in request.messages:
        begun.append(message.content)
        if message.role == "user":
            break
    return "\0".join(begun).encode("utf-8", "surrogatepass")


def group_of_body(body: bytes) -> bytes:
    """The same of a chat request as it is sent; anything else is a group of its own."""
    begun: list[bytes] = []
    try:
        for raw in msgspec.json.decode(body, type=_Chat).messages:
            begun.append(bytes(raw))
            if msgspec.json.decode(raw, type=_Role).role == "user":
                break
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body
    return b"\0".join(begun) or body
