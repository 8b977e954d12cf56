"""The model protocol: a request goes in, a completion comes out.

Rules that must not be broken:

* A completion depends on the fields of its request alone; what else may change a reply belongs in `extra`,
  because the journal's key is made of these fields.
* A model raises `ModelError` when it failed for good, and nothing else on purpose.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from caps.core.text import estimate_tokens
from caps.core.types import Message, TokenLogprob, Usage

T = TypeVar("T")

Tell: TypeAlias = Callable[[str], object]
"""Hears what a user should know while a run goes on."""


class Request(msgspec.Struct, frozen=True):
    """What is asked of a model; `draw` tells repeated looks apart, `extra` goes into the body as it is.

    Requests of one `group` begin alike and had better meet at one server; it changes no reply.
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


class Completion(msgspec.Struct, frozen=True):
    """A reply and what it took.

    `finish` is `stop`, `length` (cut by `max_tokens`), `content_filter`, `refusal`, another word of the
    server's, or empty when it gave none. `attempts` counts the requests the server may have billed.
    `replayed`: nothing was paid now; the reply, with its usage of then, is the journal's or a shared call's.
    `key` is where the journal keeps it, if one does.
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


class Model(Protocol):
    """Whatever completes a chat."""

    async def complete(self, request: Request) -> Completion:
        """Answer a request, or raise `ModelError`."""
        ...

    async def close(self) -> None:
        """Let go of what is held open."""
        ...


class HasConnections(Model, Protocol):
    """A model behind a number of connections."""

    @property
    def connections(self) -> int:
        """How many calls may be under way now."""
        ...


@runtime_checkable
class HoldsConnections(Protocol):
    """A model whose calls can keep their connections for a while after they are answered."""

    async def complete_and(self, request: Request, then: Callable[[Completion], Awaitable[T]]) -> T:
        """Answer a request, and do something with the reply before another call takes the connection."""
        ...


@runtime_checkable
class ListsModels(Protocol):
    """A model that knows the names served at its address."""

    async def names(self) -> tuple[str, ...]:
        """Names of the models served; empty when the server does not say."""
        ...


def ignore(words: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """What a backend is told about the model wanted of it; each takes what it can use.

    A backend is a function of this that returns a `Connected` model, named in the registry `MODELS`.
    """

    address: str = field(repr=False)  # which may hold a password
    model: str
    api_key: str | None = field(default=None, repr=False)
    connections: int | Literal["auto"] = "auto"
    timeout: float = 600.0
    context: int | None = None
    threads: int | None = None
    tell: Tell = ignore


def estimate_usage(messages: Iterable[Message], output: str) -> Usage:
    """Guess the tokens of a call; said to be an estimate."""
    return Usage(estimate_prompt(messages), estimate_tokens(output), estimated=True)


def estimate_prompt(messages: Iterable[Message]) -> int:
    """Guess the tokens of a prompt."""
    return sum(estimate_tokens(message.content) for message in messages)
