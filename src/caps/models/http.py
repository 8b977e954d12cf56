"""Any OpenAI-compatible endpoint over HTTP: limits, timeouts, retries, and errors that say what to do.

Rules that must not be broken:

* The API key stands in the request's header only: no message, repr, log or exception chain has it, and what
  a server sends has it taken out before anyone reads it.
* No body is read without a limit: see `bodies`.
* A failed call is retried or raised as `ModelError`; `attempts` counts what the server may have billed.
* Nothing that may change a reply is set here, only in the request: the journal's key is made of that.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import aiohttp
from msgspec.structs import replace
from yarl import URL

from caps.core.errors import SettingError
from caps.core.secrets import Secrets, StreamScrubber, is_open_parameter, looks_secret, names_credential
from caps.models import faults
from caps.models.addresses import parse_base
from caps.models.base import Completion, Request, Wiring
from caps.models.bodies import REPLY_BYTES, OversizedReplyError, read_body, read_start
from caps.models.faults import Fault
from caps.models.limits import make_gate
from caps.models.patience import Patience
from caps.models.retries import Retries, Tries
from caps.models.wire import (
    NAME_CHARS,
    RENAMED,
    decode,
    embedded_status,
    encode_body,
    printable,
    read_completion,
)

# Shorter than the 5 s after which uvicorn hangs up: a request sent into that moment would be lost.
KEEPALIVE_SECONDS = 4.0
LOGPROBS_BYTES = 4 * REPLY_BYTES  # of a reply with log-probabilities, which take most of it
SCRUBBED_AT_ONCE = 64 << 10  # bytes: others get their turn in between
SHARE_TO_CONNECT = 0.9  # of the time for a reply, at most: who takes no connection is told from who is slow

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to wait for a connection, and for a whole reply from the first moment on."""

    connect: float = 10.0
    read: float = 600.0


class Exchanged(NamedTuple, Generic[T]):
    """What was read out of a reply, how long it took, and how many requests the server may have billed."""

    value: T
    latency: float
    attempts: int


class HttpModel:
    """Chat completions at a base URL such as `http://localhost:8000/v1`; without a path, `/v1` is meant.

    It may be used again, in another event loop too, after `close`.
    """

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
        self.address = str(base.with_user(None).with_query(None))  # as it may be shown: no password, no query
        self._base = base
        self._places: dict[str, URL] = {}
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._own_headers = bool(headers)  # which aiohttp, unlike the key, would carry to another host
        if api_key and api_key.strip():
            self._headers["Authorization"] = f"Bearer {api_key.strip()}"
        if any(not word.isprintable() for word in self._headers.values()):
            raise SettingError("the API key or a header has a line break or control character in it")
        if base.user is not None and any(name.lower() == "authorization" for name in self._headers):
            raise SettingError(
                f"{self.address}: the base URL has a user in it and an API key is given too, and only one of "
                "them can be sent: leave one out (--api-key '' leaves out a key of the environment)"
            )
        given = [(api_key or "").strip(), *(headers or {}).values(), base.password or base.user or ""]
        asked = {name: value for name, value in base.query.items() if not is_open_parameter(name)}
        self._secrets = Secrets([*given, *(value or name for name, value in asked.items())])
        given += [value or name for name, value in asked.items() if not value or names_credential(name)]
        self._in_replies = Secrets(filter(looks_secret, given))
        self._timeouts = timeouts or Timeouts()
        self._patience = Patience(self._timeouts.read)
        to_connect = min(self._timeouts.connect, SHARE_TO_CONNECT * self._timeouts.read)
        # Chat completions, of which there are many, share the timer of `_patience`; others have one each.
        self._own_timer = aiohttp.ClientTimeout(total=self._timeouts.read, sock_connect=to_connect)
        self._no_timer = aiohttp.ClientTimeout(total=None, sock_connect=to_connect)
        self._retries = retries or Retries()
        self._rng = rng or Random()
        self._clock = clock
        self._gate = make_gate(connections)
        self._session: aiohttp.ClientSession | None = None
        self._known = False  # whether anyone ever took a connection at this address
        self._limit_name = "max_tokens"

    def __repr__(self) -> str:
        return f"HttpModel({self.address!r})"

    @property
    def connections(self) -> int:
        """How many calls may be under way now."""
        return self._gate.limit

    @property
    def limit_name(self) -> str:
        """What this server calls its limit on tokens, as far as it has said."""
        return self._limit_name

    async def complete(self, request: Request) -> Completion:
        """Answer a request, trying again where that may help."""
        return await self.complete_and(request, itself)

    async def complete_and(self, request: Request, then: Callable[[Completion], Awaitable[R]]) -> R:
        """Answer a request, and do something with the reply before another call takes the connection."""
        return await self._exchange(
            lambda limit_name: encode_body(request, limit_name=limit_name),
            lambda reply: read_completion(reply, request),
            lambda done: then(replace(done.value, latency=done.latency, attempts=done.attempts)),
            model=request.model,
            limit=LOGPROBS_BYTES if request.top_logprobs else REPLY_BYTES,
        )

    async def exchange(
        self, write: Callable[[str], bytes], read: Callable[[Any], T], *, model: str
    ) -> Exchanged[T]:
        """Send what `write` makes and `read` the reply, trying again where that may help.

        `write` is told what this server calls its limit on tokens; `read` raises `ValueError` for no reply.
        """
        return await self._exchange(write, read, itself, model=model, limit=REPLY_BYTES)

    async def _exchange(
        self,
        write: Callable[[str], bytes],
        read: Callable[[Any], T],
        then: Callable[[Exchanged[T]], Awaitable[R]],
        *,
        model: str,
        limit: int,
    ) -> R:
        tries: Tries | None = None
        attempts = 0
        # A call keeps its slot while it waits for its next try: trouble lowers the pressure by itself.
        async with self._gate as ticket:
            while True:
                limit_name = self._limit_name
                started = time.perf_counter()
                outcome = await self._send(write(limit_name), read, model, limit)
                if not isinstance(outcome, Fault):
                    self._known = True
                    latency = time.perf_counter() - started
                    self._gate.served(ticket, latency)
                    return await then(Exchanged(outcome, latency, attempts + 1))
                self._known = self._known or outcome.seen
                if outcome.strained:
                    self._gate.strained(ticket)
                attempts += outcome.seen
                if outcome.renamed and limit_name != RENAMED:
                    self._limit_name = RENAMED
                    continue
                tries = tries or Tries(self._retries, self._rng)
                pause = self._pause(tries, outcome)
                if pause is None:
                    break
                await asyncio.sleep(pause)
        # Raised here, not where it was caught: what aiohttp raises may hold the request with its headers.
        outcome.error.attempts = attempts
        raise outcome.error

    def post(self, path: str, body: bytes) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send bytes to a path below the base URL, once and as they are; raises what aiohttp does."""
        return self.call("POST", path, data=body)

    def call(
        self, verb: str, path: str, *, allow_redirects: bool = False, **more: Any
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Call any path below the base URL, once; raises what aiohttp does."""
        session = self._session or self._open()
        follow = allow_redirects and not self._own_headers
        return session.request(verb, self._at(path), allow_redirects=follow, **more)

    async def names(self) -> tuple[str, ...]:
        """Names of the models served; empty when the server does not say."""
        try:
            _, listed = await self.listing()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return ()
        rows = listed.get("data") if isinstance(listed, dict) else None
        if not isinstance(rows, list):
            return ()
        found = [row.get("id") for row in rows if isinstance(row, dict)]
        return tuple(printable(name, NAME_CHARS) for name in found if isinstance(name, str))

    async def listing(self) -> tuple[int, Any]:
        """Status, and what the server says of its models; raises what aiohttp does, or `ValueError`."""
        async with self._open().get(self._at("models"), allow_redirects=False) as response:
            if response.status != 200:
                return response.status, None
            return response.status, decode(await self._scrubbed(await read_body(response)))

    def scrub(self, payload: bytes) -> bytes:
        """Take the secrets out of what a server said: some repeat the key they refuse."""
        return self._secrets.scrub(payload)

    def secrets(self, *, failed: bool) -> Secrets:
        """What may not stand in a reply that is passed on; short keys may, unless it is an error."""
        return self._secrets if failed else self._in_replies

    def quotable(self, payload: bytes) -> Any:
        """The body of an error without secrets: decoded first, since an encoding may hide them."""
        return self._secrets.scrub_value(_decoded(payload)) or self.scrub(payload)

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _send(self, body: bytes, read: Callable[[Any], T], model: str, limit: int) -> T | Fault:
        """Send bytes and read the reply; whatever happens on the way is a `Fault`."""
        try:
            with self._patience:
                data = aiohttp.BytesPayload(body)  # what aiohttp would make of the bytes, after a search
                call = self.call("POST", "chat/completions", data=data, timeout=self._no_timer)
                async with call as response:
                    status, headers = response.status, response.headers
                    fine = status == 200
                    payload = await (read_body(response, limit) if fine else read_start(response))
                    if fine:
                        payload = await self._scrubbed(payload)
        except OversizedReplyError as error:
            return faults.oversized(self.address, error.limit)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return faults.unreachable(self.address, str(error) or type(error).__name__)
        except TimeoutError:
            return faults.timed_out(self.address, self._timeouts.read)
        except (aiohttp.ClientError, OSError) as error:
            return faults.broken_off(self.address, type(error).__name__)
        return self._read(status, headers, payload, read, model)

    def _read(
        self, status: int, headers: Mapping[str, str], payload: bytes, read: Callable[[Any], T], model: str
    ) -> T | Fault:
        reply = _decoded(payload)
        failed = status if status != 200 else embedded_status(reply)
        if failed is not None:
            where, now, said = self.address, self._clock(), self.quotable(payload)
            return faults.refused(failed, said, headers, address=where, model=model, now=now)
        try:
            if reply is None:
                raise ValueError(f"no JSON, but {self.scrub(payload)[:80].decode('utf-8', 'replace')!r}")
            return read(reply)
        except ValueError as error:
            return faults.garbled(self.address, str(error))

    async def _scrubbed(self, payload: bytes) -> bytes:
        """A reply without secrets; a long one is looked through in parts."""
        if len(payload) <= SCRUBBED_AT_ONCE:
            return self._in_replies.scrub(payload)
        scrubber, parts = StreamScrubber(self._in_replies), []
        for start in range(0, len(payload), SCRUBBED_AT_ONCE):
            parts.append(scrubber.feed(payload[start : start + SCRUBBED_AT_ONCE]))
            await asyncio.sleep(0)
        return b"".join([*parts, scrubber.end()])

    def _at(self, path: str) -> URL:
        if path not in self._places:
            self._places[path] = (self._base / path).with_query(self._base.query)
        return self._places[path]

    def _pause(self, tries: Tries, fault: Fault) -> float | None:
        if not fault.retry:
            return None
        return tries.pause(loading=fault.loading, known=self._known, asked=fault.wait, now=time.monotonic())

    def _open(self) -> aiohttp.ClientSession:
        """The session, made inside the running loop when it is first needed."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS),
                timeout=self._own_timer,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def connect(wiring: Wiring) -> HttpModel:
    """The model at an `http:` address."""
    timeouts = Timeouts(read=wiring.timeout)
    return HttpModel(wiring.address, wiring.api_key, connections=wiring.connections, timeouts=timeouts)


async def itself(value: T) -> T:
    """What to do with a reply that is only wanted."""
    return value


def _decoded(payload: bytes) -> Any:
    try:
        return decode(payload)
    except ValueError:
        return None
