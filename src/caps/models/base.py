"""The model protocol: a request goes in, a completion comes out.

Rules that must not be broken:

* A completion depends only on the fields of its request, because they form the journal key. Any other setting
  that may change a reply belongs in `extra`.
* A model raises `ModelError` on permanent failure, and nothing else on purpose.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from caps.core.errors import SettingError
from caps.core.text import estimate_tokens
from caps.core.types import Message, TokenLogprob, Usage

Notify: TypeAlias = Callable[[str], object]
"""Receives messages for the user while a run is in progress."""


class Request(msgspec.Struct, frozen=True):
    """A chat request; `draw` distinguishes repeated samples, `extra` is merged into the body unchanged.

    Requests of one `group` share a prompt prefix and are best sent to the same server. `cache_at` are places
    in the last message up to which other requests have the same text, to be marked for the server's cache.
    Neither changes a reply, so neither is part of the journal key. `attempt` is: a request that is made again
    because no reply of earlier runs could be read is stored beside them.
    """

    messages: tuple[Message, ...]
    model: str
    template: str = ""
    max_tokens: int = 1024
    temperature: float = 0.0
    top_p: float | None = None
    seed: int | None = None
    top_logprobs: int = 0
    draw: int = 0
    extra: Mapping[str, object] = msgspec.field(default_factory=dict)
    group: str = ""
    cache_at: tuple[int, ...] = ()
    attempt: int = 0


class Completion(msgspec.Struct, frozen=True):
    """A reply with its usage.

    `finish` is `stop`, `length` (cut by `max_tokens`), `content_filter`, `refusal`, another reason from the
    server, or empty when it gave none. `attempts` counts the requests the server may have billed.
    `replayed`: nothing was paid now; the reply and its original usage come from the journal or a shared call.
    `key` is the journal key, if the reply is stored; `stored_at` is when one that was recalled was stored.
    """

    text: str
    finish: str
    usage: Usage
    reasoning: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    model: str = ""
    latency: float = 0.0
    attempts: int = 1
    replayed: bool = False
    key: str = ""
    stored_at: float = 0.0


class Model(Protocol):
    """A chat completion backend."""

    async def complete(self, request: Request) -> Completion:
        """Answer a request, or raise `ModelError`."""
        ...

    async def close(self) -> None:
        """Release connections and other resources."""
        ...


class HasConnections(Model, Protocol):
    """A model with a limited number of connections."""

    @property
    def connections(self) -> int:
        """How many calls may run concurrently."""
        ...


class Connection(Protocol):
    """A place among the calls that a model runs at once."""

    async def complete(self, request: Request) -> Completion:
        """Answer a request, or raise `ModelError`."""
        ...


@runtime_checkable
class HoldsConnections(Protocol):
    """A model whose calls can keep their connection until the caller has processed the reply."""

    def held_connection(self) -> AbstractAsyncContextManager[Connection]:
        """A connection for one call, which no other call takes before the block of `async with` ends."""
        ...


@runtime_checkable
class Recalls(Protocol):
    """A model that stores its replies."""

    async def recall(self, request: Request) -> Completion | None:
        """The stored reply to a request, in place of `complete`; nothing is sent."""
        ...


def model_name(model: object) -> str:
    """The name of a model object, under which its replies are stored; `SettingError` if it is no model."""
    missing = [name for name in ("complete", "close") if not callable(getattr(model, name, None))]
    if isinstance(model, type) or missing:
        lack = "is a class, not an object" if isinstance(model, type) else f"has no method {missing[0]!r}"
        raise SettingError(
            f"model {type(model).__qualname__}: {lack}; give a name, or an object like caps.Model"
        )
    name = getattr(model, "name", None)
    return name if isinstance(name, str) and name else type(model).__qualname__


def ignore(message: str) -> None:
    """Discard a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """Settings for connecting to a model; each backend uses the ones that apply to it.

    A backend is a function from `ConnectOptions` to a `HasConnections` model, listed in `MODELS`.
    """

    address: str = field(repr=False)  # may contain a password
    model: str
    api_key: str | None = field(default=None, repr=False)
    connections: int | Literal["auto"] = "auto"
    timeout: float = 600.0
    context: int | None = None
    threads: int | None = None
    notify: Notify = ignore


def estimate_usage(messages: Iterable[Message], output: str) -> Usage:
    """Estimate the usage of a call, marked as an estimate."""
    return Usage(estimate_prompt(messages), estimate_tokens(output), estimated=True)


def estimate_prompt(messages: Iterable[Message]) -> int:
    """Estimate the tokens of a prompt."""
    return sum(
        estimate_tokens(message.content) + sum(one.tokens for one in message.media) for message in messages
    )
