"""OpenAI-compatible HTTP endpoints: connection limits, timeouts, retries, clear errors.

Rules that must not be broken:

* The log names addresses, causes and times, never texts: a server's message may repeat the prompt.
* The API key appears in the request header only: no message, repr, log or exception chain contains it, and it
  is removed from what a server sends before anything reads it.
* No body is read without a limit: see `wire`.
* A failed call is retried or raised as `ModelError`; `attempts` counts what the server may have billed.
* Nothing that may change a reply is set here, only in the request, which forms the journal key.
"""

import asyncio
import logging
import time
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from random import Random
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import aiohttp
from msgspec.structs import replace
from yarl import URL

from caps.core.errors import SettingError, UnknownModelError
from caps.core.secrets import (
    Secrets,
    StreamScrubber,
    is_open_parameter,
    looks_secret,
    names_credential,
    shown_address,
)
from caps.core.text import printable_line
from caps.models import faults
from caps.models.base import Completion, ConnectOptions, Request
from caps.models.faults import Attempts, Fault, Retries
from caps.models.limits import SharedTimeout, make_gate
from caps.models.wire import (
    NAME_CHARS,
    RENAMED,
    REPLY_BYTES,
    decode,
    embedded_status,
    encode_body,
    model_rows,
    read_body,
    read_completion,
    read_start,
)


def parse_base(base_url: str) -> URL:
    """Parse a base URL; the path defaults to `/v1`, and a path of chat completions is removed."""
    text = base_url.strip().rstrip("/").removesuffix("/chat/completions")
    try:
        url = URL(text)
    except ValueError:
        url = URL()
    if url.scheme not in {"http", "https"} or not url.host:
        raise SettingError(
            "the base URL must look like http://localhost:8000/v1 or https://host/v1"
            f", not {shown_address(base_url).rpartition('@')[2]!r}"
        )
    return url if url.path.strip("/") else url.with_path("/v1", keep_query=True)


CHAT = "chat/completions"
NO_LIST = (aiohttp.ClientError, OSError, TimeoutError, ValueError)  # why a server does not list its models
# Shorter than the 5 s after which uvicorn closes a connection: a request sent at that moment would be lost.
KEEPALIVE_SECONDS = 4.0
MOST_NAMES = 10  # of served models in an error message
LOGPROBS_BYTES = 4 * REPLY_BYTES  # limit of a reply with log-probabilities, which are most of it
SCRUB_CHUNK = 64 << 10  # bytes: the event loop runs other tasks in between
CONNECT_SHARE = 0.9  # of the read timeout at most: distinguishes an unreachable server from a slow one

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to wait for a connection, and for a whole reply including the connection."""

    connect: float = 10.0
    read: float = 600.0


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """What is sent to a path of a server, and how its reply of at most `limit` bytes is read.

    `write` receives the name of the output token limit; `read` raises `ValueError` if there is no reply. A
    path that begins with a slash is below the root of the server, outside `/v1`.
    """

    path: str
    write: Callable[[str], bytes]
    read: Callable[[Any], T]
    model: str
    limit: int = REPLY_BYTES


class Exchange(NamedTuple, Generic[T]):
    """The parsed reply, its latency, and how many requests the server may have billed."""

    value: T
    latency: float
    attempts: int


class CallObserver(Protocol):
    """Learns of the calls of a model, in the context of the caller; it must not raise."""

    def on_wait(self, seconds: float) -> None:
        """A call waited for a connection."""
        ...

    def on_fault(self, seconds: float, cause: str) -> None:
        """An attempt failed after so many seconds; see `ModelError.cause`."""
        ...

    def on_reply(self, seconds: float, reply: Any, body: bytes) -> None:
        """An attempt was answered with this JSON."""
        ...

    def on_abandoned(self, seconds: float, body: bytes) -> None:
        """The caller was cancelled while an attempt was under way."""
        ...


class HttpModel:
    """Chat completions at a base URL such as `http://localhost:8000/v1`; the path defaults to `/v1`.

    It can be used again after `close`, also in another event loop. An `observer` learns of all its calls but
    those of `post`.
    """

    observer: CallObserver | None = None

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        connections: int | Literal["auto"] = "auto",
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        headers: Mapping[str, str] | None = None,
        rng: Random | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        base = parse_base(base_url)
        self.address = str(base.with_user(None).with_query(None))  # without secrets: no password, no query
        self._base = base
        self._urls: dict[str, URL] = {}
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._own_headers = bool(headers)  # aiohttp, unlike for the key, would send them to another host
        if api_key and api_key.strip():
            self._headers["Authorization"] = f"Bearer {api_key.strip()}"
        if any(not value.isprintable() for value in self._headers.values()):
            raise SettingError("the API key or a header contains a line break or control character")
        if base.user is not None and any(name.lower() == "authorization" for name in self._headers):
            raise SettingError(
                f"{self.address}: the base URL has a user in it and an API key is given too, and only one of "
                "them can be sent: leave one out (--api-key '' leaves out a key of the environment)"
            )
        credentials = [(api_key or "").strip(), *(headers or {}).values(), base.password or base.user or ""]
        parameters = {name: value for name, value in base.query.items() if not is_open_parameter(name)}
        self._secrets = Secrets([*credentials, *(value or name for name, value in parameters.items())])
        credentials += [
            value or name for name, value in parameters.items() if not value or names_credential(name)
        ]
        self._reply_secrets = Secrets(filter(looks_secret, credentials))
        self._timeouts = timeouts or Timeouts()
        self._timeout = SharedTimeout(self._timeouts.read)
        connect_timeout = min(self._timeouts.connect, CONNECT_SHARE * self._timeouts.read)
        # Chat completions share the timer of `_timeout`; other calls have one each.
        self._own_timer = aiohttp.ClientTimeout(total=self._timeouts.read, sock_connect=connect_timeout)
        self._no_timer = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout)
        self._retries = retries or Retries()
        self._rng = rng or Random()
        self._clock = clock
        self._gate = make_gate(connections, self.address)
        self._session: aiohttp.ClientSession | None = None
        self.known = False  # whether the address ever accepted a connection
        self._limit_name = "max_tokens"

    def __repr__(self) -> str:
        return f"HttpModel({self.address!r})"

    @property
    def connections(self) -> int:
        """How many calls may run concurrently."""
        return self._gate.limit

    def expect(self, calls: int) -> None:
        """Announce calls that are about to start together, so that an unknown server gets them at once."""
        self._gate.expect(calls)

    @property
    def limit_name(self) -> str:
        """The name of the output token limit on this server, as far as known."""
        return self._limit_name

    def held_connection(self) -> "HttpConnection":
        """A connection for one call, which no other call takes before the block of `async with` ends."""
        return HttpConnection(self)

    async def complete(self, request: Request) -> Completion:
        """Answer a request, with retries."""
        async with HttpConnection(self) as connection:
            return await connection.complete(request)

    async def _offer(self, wanted: str) -> str:
        """The names of the models that are served, the nearest first, for an error message."""
        names = await self.names()
        near = get_close_matches(wanted, names, n=MOST_NAMES, cutoff=0.4)
        ordered = near + sorted(set(names) - set(near))
        more = f" and {len(ordered) - MOST_NAMES} more" if len(ordered) > MOST_NAMES else ""
        return f": it offers {', '.join(ordered[:MOST_NAMES])}{more}" if ordered else ""

    def post(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send bytes unchanged to a path below the base URL, without retries; raises what aiohttp does."""
        return self.call("POST", path, data=body, headers=headers)

    def call(
        self, verb: str, path: str, *, allow_redirects: bool = False, **more: Any
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Call a path below the base URL, without retries; raises what aiohttp does."""
        session = self._session or self._open()
        follow = allow_redirects and not self._own_headers
        return session.request(verb, self._url(path), allow_redirects=follow, **more)

    async def names(self) -> tuple[str, ...]:
        """Names of the models served; empty when the server does not say."""
        try:
            _, listed = await self.listing()
        except NO_LIST:
            return ()
        return tuple(printable_line(row["id"][:NAME_CHARS]) for row in model_rows(listed) or ())

    async def listing(self) -> tuple[int, Any]:
        """Status and model list of the server; raises what aiohttp does, or `ValueError`."""
        async with self._open().get(self._url("models"), allow_redirects=False) as response:
            if response.status != 200:
                return response.status, None
            return response.status, decode(await self._scrubbed(await read_body(response)))

    def scrub(self, payload: bytes) -> bytes:
        """Remove secrets from a server's message: some repeat the key they refuse."""
        return self._secrets.scrub(payload)

    def secrets(self, *, failed: bool) -> Secrets:
        """The secrets to remove from a forwarded reply; short keys only if it is an error."""
        return self._secrets if failed else self._reply_secrets

    def quotable(self, payload: bytes) -> Any:
        """The body of an error without secrets; decoded first, since an encoding may hide them."""
        return self._secrets.scrub_value(_decoded(payload)) or self.scrub(payload)

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _attempt(
        self, path: str, body: bytes, read: Callable[[Any], T], model: str, limit: int
    ) -> T | Fault:
        """Send bytes once and parse the reply; every failure becomes a `Fault`."""
        try:
            with self._timeout:
                data = aiohttp.BytesPayload(body)  # saves aiohttp the lookup of the payload type
                call = self.call("POST", path, data=data, timeout=self._no_timer)
                async with call as response:
                    status, headers = response.status, response.headers
                    fine = status == 200
                    payload = await (read_body(response, limit) if fine else read_start(response))
                    if fine and self._reply_secrets:
                        payload = await self._scrubbed(payload)
        except faults.NO_REPLY as error:
            return faults.no_reply(error, self.address, self._timeouts.read, chat=path == CHAT)
        return self._read(status, headers, payload, read, model, path="" if path == CHAT else path)

    def _read(
        self,
        status: int,
        headers: Mapping[str, str],
        payload: bytes,
        read: Callable[[Any], T],
        model: str,
        *,
        path: str,
    ) -> T | Fault:
        reply = _decoded(payload)
        failed = status if status != 200 else embedded_status(reply)
        if failed is not None:
            error, now = self.quotable(payload), self._clock()
            return faults.refused(
                failed, error, headers, address=self.address, model=model, now=now, path=path
            )
        try:
            if reply is None:
                raise ValueError(f"no JSON, but {self.scrub(payload)[:80].decode('utf-8', 'replace')!r}")
            return read(reply)
        except ValueError as error:
            return faults.garbled(self.address, str(error), path=path)

    async def _scrubbed(self, payload: bytes) -> bytes:
        """A reply without secrets; a long one is processed in chunks."""
        if len(payload) <= SCRUB_CHUNK:
            return self._reply_secrets.scrub(payload)
        scrubber, parts = StreamScrubber(self._reply_secrets), []
        for start in range(0, len(payload), SCRUB_CHUNK):
            parts.append(scrubber.feed(payload[start : start + SCRUB_CHUNK]))
            await asyncio.sleep(0)
        return b"".join([*parts, scrubber.end()])

    def _url(self, path: str) -> URL:
        if path not in self._urls:
            outside = path.startswith("/") and self._base.name == "v1"
            base = self._base.parent if outside else self._base
            self._urls[path] = (base / path.removeprefix("/")).with_query(self._base.query)
        return self._urls[path]

    def _open(self) -> aiohttp.ClientSession:
        """The session, created in the running loop on first use."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS),
                timeout=self._own_timer,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


class HttpConnection:
    """A place among the calls that may run at a server at once: `async with model.held_connection() as it`.

    A call keeps it while it waits for a retry, so failures reduce the load.
    """

    __slots__ = ("_model", "_ticket")

    def __init__(self, model: HttpModel) -> None:
        self._model = model

    async def __aenter__(self) -> "HttpConnection":
        model, arrived = self._model, time.perf_counter()
        self._ticket = await model._gate.__aenter__()
        if model.observer is not None:
            model.observer.on_wait(time.perf_counter() - arrived)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._model._gate.__aexit__()

    async def complete(self, request: Request) -> Completion:
        """Answer a request, with retries."""
        limit = LOGPROBS_BYTES if request.top_logprobs else REPLY_BYTES
        call = Call(
            CHAT,
            lambda limit_name: encode_body(request, limit_name=limit_name),
            lambda reply: read_completion(reply, request),
            request.model,
            limit,
        )
        done = await self.send(call)
        return replace(done.value, latency=done.latency, attempts=done.attempts)

    async def send(self, call: Call[T]) -> Exchange[T]:
        """Make a call, with retries."""
        server = self._model
        tries: Attempts | None = None
        attempts = overloads = 0
        while True:
            limit_name = server._limit_name
            started = time.perf_counter()
            body = call.write(limit_name)
            if server.observer is None:
                outcome = await server._attempt(call.path, body, call.read, call.model, call.limit)
            else:
                attempt = partial(server._attempt, call.path, body, model=call.model, limit=call.limit)
                outcome = await _observed(server.observer, body, call.read, attempt)
            if not isinstance(outcome, Fault):
                server.known = True
                latency = time.perf_counter() - started
                server._gate.on_success(self._ticket, latency)
                _log.debug("%s answered in %.2f s", server.address, latency)
                return Exchange(outcome, latency, attempts + 1)
            server.known = server.known or outcome.seen
            overloads = overloads + 1 if outcome.overloaded else 0
            if overloads:
                server._gate.on_overload(self._ticket, overloads)
            attempts += outcome.seen
            if outcome.renamed and limit_name != RENAMED:
                server._limit_name = RENAMED
                continue
            tries = tries or Attempts(server._retries, server._rng)
            pause = tries.pause_after(outcome, known=server.known)
            kind = type(outcome.error).__name__
            if pause is None:
                _log.info("%s: %s; the call failed for good", server.address, kind)
                break
            _log.info("%s: %s; the call is made again in %.1f s", server.address, kind, pause)
            await asyncio.sleep(pause)
        # Raised outside the handler: exceptions of aiohttp may contain the request with its headers.
        error = outcome.error
        if isinstance(error, UnknownModelError):
            error = UnknownModelError(f"{error}{await server._offer(call.model)}")
        error.attempts = attempts
        raise error


async def _observed(
    observer: CallObserver,
    body: bytes,
    read: Callable[[Any], T],
    send: Callable[[Callable[[Any], T]], Awaitable[T | Fault]],
) -> T | Fault:
    """Send bytes with `send`, and tell the observer."""
    started, received = time.perf_counter(), list[Any]()

    def read_and_keep(reply: Any) -> T:
        received.append(reply)
        return read(reply)

    try:
        outcome = await send(read_and_keep)
    except CancelledError:
        observer.on_abandoned(time.perf_counter() - started, body)
        raise
    seconds = time.perf_counter() - started
    if isinstance(outcome, Fault):
        observer.on_fault(seconds, outcome.error.cause)
    if received:  # also a reply that cannot be used was paid for
        observer.on_reply(seconds, received[0], body)
    return outcome


def connect(options: ConnectOptions) -> HttpModel:
    """Connect to the model at an `http:` address."""
    timeouts = Timeouts(read=options.timeout)
    return HttpModel(options.address, options.api_key, connections=options.connections, timeouts=timeouts)


def _decoded(payload: bytes) -> Any:
    try:
        return decode(payload)
    except ValueError:
        return None
