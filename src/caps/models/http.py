"""OpenAI-compatible HTTP endpoints: connection limits, timeouts, retries, clear errors.

Rules that must not be broken:

* The API key stands in the request's header only: no message, repr, log or exception chain has it, and what
  a server sends has it taken out before anyone reads it.
* No body is read without a limit: see `bodies`.
* A failed call is retried or raised as `ModelError`; `attempts` counts what the server may have billed.
* Nothing that may change a reply is set here, only in the request: the journal's key is made of that.
"""

import asyncio
import time
from asyncio import (
    AbstractEventLoop,
    CancelledError,
    Future,
    Task,
    TimerHandle,
    current_task,
    get_running_loop,
)
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import aiohttp
from msgspec.structs import replace
from yarl import URL

from caps.core.errors import SettingError
from caps.core.secrets import (
    Secrets,
    StreamScrubber,
    is_open_parameter,
    looks_secret,
    names_credential,
    shown_address,
)
from caps.models import faults
from caps.models.base import Completion, ConnectOptions, HasConnections, Request
from caps.models.faults import Attempts, Fault, Retries
from caps.models.wire import (
    NAME_CHARS,
    RENAMED,
    REPLY_BYTES,
    OversizedReplyError,
    decode,
    embedded_status,
    encode_body,
    printable,
    read_body,
    read_completion,
    read_start,
)

# How long a call may take. All calls of a model are given the same time, so one timer is enough for all.
#
# A timer for each, as aiohttp keeps, is a twentieth of all the work of a bare call.


class SharedTimeout:
    """Raises `TimeoutError` in a task that is inside for longer than `seconds`: `with patience:`.

    A task may be inside once at a time. Whoever else cancels it is heard.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # Until when each may stay, and how often someone wanted it cancelled when it came; in the order they
        # came, which is that of their ends.
        self._inside: dict[Task[Any], tuple[float, int]] = {}
        self._overdue: set[Task[Any]] = set()
        self._loop: AbstractEventLoop | None = None
        self._timer: TimerHandle | None = None

    def __enter__(self) -> None:
        loop, task = get_running_loop(), current_task()
        assert task is not None  # noqa: S101
        end = loop.time() + self._seconds
        self._inside[task] = end, task.cancelling()
        if self._timer is None or self._loop is not loop:
            self._loop, self._timer = loop, loop.call_at(end, self._look)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = current_task()
        assert task is not None  # noqa: S101
        _, cancelling = self._inside.pop(task)
        if task in self._overdue:
            self._overdue.remove(task)
            if task.uncancel() <= cancelling and kind is CancelledError:
                raise TimeoutError from error

    def _look(self) -> None:
        """Break off who has been inside for too long, and look again when the next may have been."""
        self._timer, loop = None, get_running_loop()
        now = loop.time()
        for task, (end, _) in self._inside.items():
            if end > now:
                self._timer = loop.call_at(end, self._look)
                return
            if task not in self._overdue:
                self._overdue.add(task)
                task.cancel()


# How many calls are under way at once: a fixed number, or as many as the server bears.
#
# Rules that must not be broken:
#
# * Whoever came first goes first, and a slot is never lost, whoever is cancelled when.
# * Entering and leaving take constant time.


class Gate:
    """Lets at most `limit` calls through: `async with gate as ticket`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.busy = 0
        self._tickets = 0
        self._waiting: deque[Future[None]] = deque()
        self._full = False  # whether anyone had to wait

    async def __aenter__(self) -> int:
        if self.busy < self.limit:  # then nobody waits: whoever could go was let go
            self.busy += 1
        else:
            await self._wait()
        self._tickets += 1
        return self._tickets

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.busy -= 1
        if self._waiting:
            self._let_in()

    def served(self, ticket: int, seconds: float) -> None:
        """Say that a call went well, and how long it took."""

    def strained(self, ticket: int) -> None:
        """Say that a call met a server under strain: too many requests, or no answer in time."""

    async def _wait(self) -> None:
        self._full = True
        turn = get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except CancelledError:
            if turn.done() and not turn.cancelled():
                self.busy -= 1  # let in and cancelled in the same moment: pass the slot on
                self._let_in()
            raise

    def _let_in(self) -> None:
        while self._waiting and self.busy < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():  # a cancelled one is skipped
                self.busy += 1
                turn.set_result(None)


class AutoGate(Gate):
    """Finds the limit by itself: doubles from `start` until the server shows strain, then grows by steps.

    The limit is halved at a sign of strain (once for all calls under way then), and when latency passes twice
    that of the best window, at a higher limit than then, without more calls per second for it. After such
    a cut the best is measured anew: the calls themselves may have become longer.
    """

    STEP = 2
    LEAST_WINDOW = 8
    SLOWER = 2.0
    GAIN = 1.1
    ALIKE = 1.1

    def __init__(self, *, start: int = 4, most: int = 256) -> None:
        super().__init__(start)
        self._most = most
        self._doubling = True
        self._last_cut = 0  # the last ticket given out before the limit was cut
        self._best: tuple[float, int] | None = None  # least latency, highest limit that had it
        self._open_window()

    def served(self, ticket: int, seconds: float) -> None:
        """Count a call of this window; a full window decides about the limit."""
        seconds = max(seconds, 1e-9)
        if ticket <= self._window_start:
            return
        self._count += 1
        self._seconds += seconds
        if self._count >= max(self.LEAST_WINDOW, self.limit):
            self._close_window(self._seconds / self._count)

    def strained(self, ticket: int) -> None:
        """Halve the limit, unless this call began before the last cut."""
        if ticket > self._last_cut:
            self._cut()

    def _open_window(self) -> None:
        self._window_start = self._tickets
        self._count = 0
        self._seconds = 0.0
        self._full = bool(self._waiting)

    def _close_window(self, latency: float) -> None:
        best, at = self._best or (latency, self.limit)
        if latency > self.SLOWER * best and self.limit > at and self.limit / latency < self.GAIN * at / best:
            self._best = None
            self._cut()
            return
        if latency <= self.ALIKE * best:
            self._best = (min(best, latency), self.limit)
        if self._full:
            grown = self.limit * 2 if self._doubling else self.limit + self.STEP
            self.limit = min(self._most, grown)
        self._open_window()
        self._let_in()

    def _cut(self) -> None:
        self.limit = max(1, self.limit // 2)
        self._doubling = False
        self._last_cut = self._tickets
        self._open_window()


def make_gate(connections: int | Literal["auto"]) -> Gate:
    """The gate a setting stands for."""
    if connections == "auto":
        return AutoGate()
    if isinstance(connections, bool) or not isinstance(connections, int) or connections < 1:
        raise SettingError(f"connections = {connections!r}: must be a whole number of at least 1, or 'auto'")
    return Gate(connections)


# The address of an endpoint as people write it.


def parse_base(base_url: str) -> URL:
    """A base URL; without a path `/v1` is meant, and the path of chat completions is taken off."""
    words = base_url.strip().rstrip("/").removesuffix("/chat/completions")
    try:
        url = URL(words)
    except ValueError:
        url = URL()
    if url.scheme not in {"http", "https"} or not url.host:
        raise SettingError(
            "the base URL must look like http://localhost:8000/v1 or https://host/v1"
            f", not {shown_address(base_url).rpartition('@')[2]!r}"
        )
    return url if url.path.strip("/") else url.with_path("/v1", keep_query=True)


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


class Exchange(NamedTuple, Generic[T]):
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
        self._patience = SharedTimeout(self._timeouts.read)
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
    ) -> Exchange[T]:
        """Send what `write` makes and `read` the reply, trying again where that may help.

        `write` is told what this server calls its limit on tokens; `read` raises `ValueError` for no reply.
        """
        return await self._exchange(write, read, itself, model=model, limit=REPLY_BYTES)

    async def _exchange(
        self,
        write: Callable[[str], bytes],
        read: Callable[[Any], T],
        then: Callable[[Exchange[T]], Awaitable[R]],
        *,
        model: str,
        limit: int,
    ) -> R:
        tries: Attempts | None = None
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
                    return await then(Exchange(outcome, latency, attempts + 1))
                self._known = self._known or outcome.seen
                if outcome.strained:
                    self._gate.strained(ticket)
                attempts += outcome.seen
                if outcome.renamed and limit_name != RENAMED:
                    self._limit_name = RENAMED
                    continue
                tries = tries or Attempts(self._retries, self._rng)
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

    def _pause(self, tries: Attempts, fault: Fault) -> float | None:
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


def connect(wiring: ConnectOptions) -> HttpModel:
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


# The seam to a model server that others stand before: one, or a fleet of them.


class Upstream(HasConnections, Protocol):
    """A model server whose own words can be sent and read."""

    @property
    def address(self) -> str:
        """Where it is, as it may be shown."""
        ...

    async def exchange(
        self, write: Callable[[str], bytes], read: Callable[[Any], T], *, model: str
    ) -> Exchange[T]:
        """Send what `write` makes and `read` the reply, trying again where that may help."""
        ...

    def post(self, path: str, body: bytes) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send bytes to a path below the base URL as they are; raises what aiohttp does."""
        ...

    async def listing(self) -> tuple[int, Any]:
        """Status, and what it says of its models; raises what aiohttp does, or `ValueError`."""
        ...

    def secrets(self, *, failed: bool) -> Secrets:
        """What may not stand in a reply that is passed on; short keys may, unless it is an error."""
        ...
