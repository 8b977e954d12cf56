"""Several servers of one model: calls whose prompts begin alike go to the same server.

Rules that must not be broken:

* The order in which a call prefers the servers depends on the beginning of its prompt and on the addresses
  only, so that all processes send it to the same server, whose prefix cache then serves it. Servers are not
  part of the journal key.
* No call waits while a server has room for it. A server with room takes the call that prefers it most, of
  several the oldest; so none waits for ever.
* A server that fails is out for a while, and its calls go on at the others; `attempts` counts what all of
  them may have billed.
* The API key is sent to the listed addresses only.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Any, Literal, TypeAlias, TypeVar

import aiohttp
import msgspec
from msgspec.structs import replace

from caps.core.errors import (
    AccessError,
    ModelError,
    RefusedError,
    TooLongError,
    UnknownModelError,
    UnreachableError,
)
from caps.core.secrets import Secrets, split_addresses
from caps.files import UNDECODABLE
from caps.models.base import Completion, ConnectOptions, Notify, Request, ignore
from caps.models.faults import Attempts, Retries
from caps.models.http import NO_LIST, Call, Exchange, HttpConnection, HttpModel, Timeouts

T = TypeVar("T")


def join_addresses(addresses: str | Iterable[str] | None) -> str:
    """Join addresses into one string; a single string is returned unchanged."""
    if addresses is None or isinstance(addresses, str):
        return addresses or ""
    return ",".join(address for address in addresses if address.strip())


def rank(prefix: bytes, addresses: Iterable[str]) -> list[str]:
    """Addresses in the order in which a prefix prefers them: rendezvous hashing (Thaler, Ravishankar 1998).

    A server that is added or removed changes the first choice of its share of the prefixes only.
    """
    digest = blake2b(prefix, digest_size=16).digest()
    return sorted(addresses, key=lambda address: blake2b(digest + address.encode(), digest_size=8).digest())


class _Chat(msgspec.Struct):
    messages: list[msgspec.Raw]


class _Role(msgspec.Struct):
    role: Any = None


def prefix_of(request: Request) -> bytes:
    """The group that a request names, else its messages up to the first one of the user."""
    if request.group:
        return request.group.encode("utf-8", "surrogatepass")
    prefix: list[str] = []
    for message in request.messages:
        prefix.append(message.content)
        if message.role == "user":
            break
    return "\0".join(prefix).encode("utf-8", "surrogatepass")


def prefix_of_body(body: bytes) -> bytes:
    """The messages of a serialized chat request up to the first one of the user; else the whole body."""
    prefix: list[bytes] = []
    try:
        for raw in msgspec.json.decode(body, type=_Chat).messages:
            prefix.append(bytes(raw))
            if msgspec.json.decode(raw, type=_Role).role == "user":
                break
    except UNDECODABLE:
        return body
    return b"\0".join(prefix) or body


STREAK = 3  # failures in a row that take a server out
TICK = 0.002  # seconds: a timer may be a little early
REFUSES_ALL = (AccessError, UnknownModelError)
DOWN = (UnreachableError, *REFUSES_ALL)
OUR_FAULT = (TooLongError, RefusedError)  # the request would fail at any server


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """What became of the calls to a server; `problem` is why it is out, or last was."""

    address: str
    calls: int
    failed: int
    out: bool
    problem: str


class _Server:
    """One server: its load, what became of its calls, and until when it is out.

    It is out for the time it asks for, and after `STREAK` failures in a row, or one if it is down, for as
    long as a call would wait for a retry: longer each time. Then it gets one call at a time until one
    succeeds.
    """

    def __init__(self, model: HttpModel, retries: Retries, *, adapts: bool) -> None:
        self.model = model
        self.load = 0
        self.error: ModelError | None = None  # that took it out last
        self.out_until = 0.0
        self.streak = 0  # failures since the last success; one that says it is down counts as `STREAK`
        self._calls = self._failed = 0
        self._retries, self._adapts = retries, adapts

    @property
    def is_out(self) -> bool:
        """Whether it gets no calls for now."""
        return time.monotonic() < self.out_until

    @property
    def connections(self) -> int:
        """How many calls may run concurrently."""
        if self.is_out:
            return 0
        return 1 if self.streak >= STREAK else self.model.connections

    @property
    def has_room(self) -> bool:
        """Whether it takes one more call; a limit that adapts grows only if a call waits for it."""
        may_wait = self._adapts and self.streak < STREAK and not self.is_out
        return self.load < self.connections + may_wait

    def record_success(self) -> bool:
        """Record a successful call; returns whether the server is back after it was out."""
        self._calls += 1
        if self.is_out:  # the call began before
            return False
        back = self.streak >= STREAK
        self.streak = 0
        return back

    def record_failure(self, error: ModelError) -> float:
        """Record a failed call; returns for how many seconds it takes the server out."""
        self._failed += 1
        if self.is_out:
            return 0.0
        seconds = error.wait or 0.0
        is_down = isinstance(error, DOWN) or seconds > self._retries.max_retry_after
        self.streak = max(self.streak + 1, STREAK if is_down else 0)
        if self.streak >= STREAK:
            seconds = max(seconds, self._retries.bound(self.streak - STREAK))
        if seconds:
            self.error, self.out_until = error, time.monotonic() + seconds
        return seconds

    def record(self) -> ServerRecord:
        """What became of its calls so far."""
        out = self.is_out or self.streak >= STREAK
        problem = "" if self.error is None else str(self.error)
        return ServerRecord(self.model.address, self._calls, self._failed, out, problem)


class ServersModel:
    """Chat completions from several servers of one model; it can be used again after `close`.

    `retries` says how often a call that failed at every server is tried again, and how long failing servers
    are out. `notify` receives a message when a server is out or back.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        api_key: str | None = None,
        *,
        connections: int | Literal["auto"] = "auto",
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        notify: Notify = ignore,
    ) -> None:
        self._retries, self._notify, self._rng = retries or Retries(), notify, Random()
        once = Retries(most=0, loading=0.0, most_unknown=0)  # a failed call goes to another server
        # By full address: two that differ in their hidden queries only are distinct.
        self._servers: dict[str, _Server] = {}
        for address in dict.fromkeys(addresses):
            model = HttpModel(address, api_key, connections=connections, timeouts=timeouts, retries=once)
            self._servers[address] = _Server(model, self._retries, adapts=connections == "auto")
        # The calls that wait, oldest first, each with the servers it may use; None lets it choose again.
        self._waiting: dict[asyncio.Future[_Server | None], Sequence[_Server]] = {}

    def __repr__(self) -> str:
        return f"ServersModel({self.address!r})"

    @property
    def address(self) -> str:
        """All addresses, without secrets."""
        return ", ".join(model.address for model in self.members)

    @property
    def members(self) -> tuple[HttpModel, ...]:
        """The models of the individual servers."""
        return tuple(server.model for server in self._servers.values())

    @property
    def connections(self) -> int:
        """How many calls may run concurrently at all servers that are up; at least 1."""
        return max(1, sum(server.connections for server in self._servers.values()))

    @property
    def surplus(self) -> int:
        """How many more calls should wait, so that one that prefers a server is there when it has room."""
        return self.connections

    def expect(self, calls: int) -> None:
        """Announce calls that are about to start together; with one prefix, they all prefer one server."""
        for server in self._servers.values():
            server.model.expect(calls)
            self._fill(server)

    def records(self) -> list[ServerRecord]:
        """What became of the calls to each server so far."""
        return [server.record() for server in self._servers.values()]

    async def complete(self, request: Request) -> Completion:
        """Answer a request at one of the servers."""
        async with self.held_connection() as connection:
            return await connection.complete(request)

    @asynccontextmanager
    async def held_connection(self) -> AsyncIterator["_ServersConnection"]:
        """A connection for one call, which no other call takes before the block of `async with` ends."""
        async with AsyncExitStack() as held:
            yield _ServersConnection(self, held)

    @asynccontextmanager
    async def post(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send bytes unchanged to a server, or to the next if it refuses the connection; never waits."""
        order = self._order(prefix_of_body(body))
        order.sort(key=lambda server: (server.is_out, not server.has_room))
        async with AsyncExitStack() as stack:
            for server in order:
                try:
                    response = await stack.enter_async_context(server.model.post(path, body, headers))
                    break
                except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                    address = server.model.address
                    self._record_failure(server, UnreachableError(f"no server answers at {address}"))
                    if server is order[-1]:
                        raise error from None
            yield response

    async def listing(self) -> tuple[int, Any]:
        """The model list of the first server that answers; raises what aiohttp does, or `ValueError`."""
        *others, last = sorted(self._servers.values(), key=lambda server: server.is_out)
        for server in others:
            with suppress(*NO_LIST):
                return await server.model.listing()
        return await last.model.listing()

    def secrets(self, *, failed: bool) -> Secrets:
        """The secrets to remove from a forwarded reply, whichever server sends it."""
        return Secrets(secret for model in self.members for secret in model.secrets(failed=failed).words)

    async def close(self) -> None:
        """Close the connections."""
        for model in self.members:
            await model.close()

    async def run(
        self, prefix: bytes, held: AsyncExitStack, call: Callable[[HttpConnection], Awaitable[T]]
    ) -> tuple[T, int]:
        """Make a call at one server after the other until one answers; its connection is in `held` then.

        Returns the reply, and the attempts that the servers before may have billed.
        """
        order, tries = self._order(prefix), Attempts(self._retries, self._rng)
        failed: set[_Server] = set()
        error: ModelError | None = None
        while True:
            up = [server for server in order if not server.is_out]
            if failed.issuperset(up):
                await self._wait_for_retry(tries, error, up, refused=len(failed) == len(order))
                up = [server for server in order if not server.is_out]
            server = await self._acquire([server for server in up if server not in failed] or up)
            if server is None:
                continue
            held.callback(self._release, server)
            connection = await held.enter_async_context(server.model.held_connection())
            attempts = 0 if error is None else error.attempts
            try:
                reply = await call(connection)
            except ModelError as problem:
                problem.attempts += attempts
                if isinstance(problem, OUR_FAULT):
                    raise
                self._record_failure(server, problem)
                await held.aclose()
                failed.add(server)
                error = problem
            else:
                if server.record_success():
                    self._notify(f"{server.model.address} is back")
                return reply, attempts

    def _order(self, prefix: bytes) -> list[_Server]:
        return [self._servers[address] for address in rank(prefix, self._servers)]

    async def _acquire(self, servers: Sequence[_Server]) -> _Server | None:
        """A place at one of these servers, the first that has room; None if the call should choose again."""
        for server in servers:
            if server.has_room:
                server.load += 1
                return server
        if not servers:
            return None
        assigned: asyncio.Future[_Server | None] = asyncio.get_running_loop().create_future()
        self._waiting[assigned] = servers
        try:
            return await assigned
        except asyncio.CancelledError:
            place = None if assigned.cancelled() else assigned.result()
            if place is not None:
                self._release(place)  # assigned and cancelled at the same time: pass the place on
            raise
        finally:
            self._waiting.pop(assigned, None)

    def _release(self, server: _Server) -> None:
        server.load -= 1
        self._fill(server)

    def _fill(self, server: _Server) -> None:
        """Give a server that has room the waiting calls that prefer it most, of several the oldest."""
        while server.has_room and (assigned := self._next(server)) is not None:
            del self._waiting[assigned]
            server.load += 1
            assigned.set_result(server)

    def _next(self, server: _Server) -> "asyncio.Future[_Server | None] | None":
        for place in range(len(self._servers)):
            for assigned, servers in self._waiting.items():
                if place < len(servers) and servers[place] is server and not assigned.done():
                    return assigned
        return None

    async def _wait_for_retry(
        self, tries: Attempts, error: ModelError | None, up: Sequence[_Server], *, refused: bool
    ) -> None:
        """Wait until a call that every server up has failed can be tried again, or raise why it cannot.

        A call that every server has `refused` for its key or model is not tried again.
        """
        servers, now = self._servers.values(), time.monotonic()
        asked = None if error is None else error.wait
        if not up:
            asked = max(0.0, min(server.out_until for server in servers) - now)
        has_answered = any(server.model.known for server in servers)
        pause = tries.pause(loading=False, known=has_answered, asked=asked, now=now)
        hopeless = all(isinstance(server.error, REFUSES_ALL) for server in servers)
        if hopeless and (refused or not up):
            raise self._all_out(error)
        if pause is None:
            raise self._all_out(error) if error is None or not up else error
        await asyncio.sleep(pause)

    def _all_out(self, last: ModelError | None) -> ModelError:
        """The error that says why no server is available, of the common type if there is one."""
        errors = [server.error for server in self._servers.values() if server.error is not None]
        kinds = {type(error) for error in errors}
        kind = kinds.pop() if len(kinds) == 1 else UnreachableError
        reasons = "; ".join(dict.fromkeys(map(str, errors)))
        attempts = 0 if last is None else last.attempts
        return kind(f"none of the {len(self._servers)} servers is available: {reasons}", attempts=attempts)

    def _record_failure(self, server: _Server, error: ModelError) -> None:
        seconds = server.record_failure(error)
        if seconds:
            if server.streak == STREAK:
                self._notify(f"a server is unavailable, its calls go to the others: {error}")
            self._wake()
            asyncio.get_running_loop().call_later(seconds + TICK, self._wake)

    def _wake(self) -> None:
        """Let the waiting calls choose again, since a server went out or returned."""
        waiting, self._waiting = self._waiting, {}
        for assigned in waiting:
            if not assigned.done():
                assigned.set_result(None)


class _ServersConnection:
    """A connection to whichever server answers."""

    def __init__(self, servers: ServersModel, held: AsyncExitStack) -> None:
        self._servers, self._held = servers, held

    async def complete(self, request: Request) -> Completion:
        """Answer a request at one of the servers."""
        done, before = await self._servers.run(
            prefix_of(request), self._held, lambda connection: connection.complete(request)
        )
        return replace(done, attempts=done.attempts + before) if before else done

    async def send(self, call: Call[T]) -> Exchange[T]:
        """Make a call at one of the servers."""
        done, before = await self._servers.run(
            prefix_of_body(call.write("max_tokens")), self._held, lambda connection: connection.send(call)
        )
        return done._replace(attempts=done.attempts + before)


#: A model server, or several servers of one model, whose requests and replies can be forwarded.
Upstream: TypeAlias = HttpModel | ServersModel


def connect(options: ConnectOptions) -> ServersModel:
    """Connect to a model at several `http:` addresses."""
    return ServersModel(
        split_addresses(options.address),
        options.api_key,
        connections=options.connections,
        timeouts=Timeouts(read=options.timeout),
        notify=options.notify,
    )
