"""Several servers of one model used as one: calls with a common prefix go to the same server.

Rules that must not be broken:

* Routing depends on the group of a call, never on its reply: servers are not part of the journal key.
* A call that failed at one server is retried at the next; `attempts` counts what all of them may have billed.
* The API key is sent to the listed addresses only.
"""

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Any, Literal, TypeVar

import aiohttp
import msgspec
from msgspec.structs import replace

from caps.core.errors import ModelError, SettingError, UnreachableError
from caps.core.secrets import Secrets, shown_address
from caps.models.base import Completion, ConnectOptions, Notify, Request, ignore
from caps.models.faults import Retries
from caps.models.fleet_servers import (
    OUR_FAULT,
    FleetServer,
    HealthMonitor,
    HealthPolicy,
    ServerQueue,
    ServerRecord,
)
from caps.models.http import Exchange, HttpModel, Timeouts, identity

# --- Addresses of a fleet ---
#
# Addresses are separated by commas or blanks, each with an optional weight (default 1):
# `http://a:8000/v1,http://b:8000/v1=2`. The weight ends the path and comes before a query:
# `https://c/v1=2?api-version=3` has the weight 2.

# A comma within an address does not separate: the next address begins with its scheme.
_SEPARATOR = re.compile(r"[\s,]+(?=[A-Za-z][A-Za-z0-9+.-]*://)")
_WEIGHTED = re.compile(r"(https?://[^?#]*)=(\d+(?:\.\d+)?|\.\d+)((?:[?#].*)?)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class WeightedAddress:
    """One address of a fleet, with its share of the load relative to the others."""

    url: str = field(repr=False)  # may contain a password
    weight: float = 1.0


def join_addresses(addresses: str | Iterable[str] | None) -> str:
    """Join addresses into one string; a single string is returned unchanged."""
    if addresses is None or isinstance(addresses, str):
        return addresses or ""
    return ",".join(address for address in addresses if address.strip())


def split_addresses(text: str) -> list[str]:
    """Split a string into addresses, in order."""
    return [address for address in _SEPARATOR.split(text.strip(" \t\r\n,")) if address]


def is_fleet(text: str) -> bool:
    """Whether the text holds several addresses, or one with a weight."""
    return len(split_addresses(text)) > 1 or _WEIGHTED.fullmatch(text.strip()) is not None


def parse_fleet(text: str) -> tuple[WeightedAddress, ...]:
    """Parse the addresses of a fleet; the weights of an address listed twice are added."""
    weights: dict[str, float] = {}
    for address in split_addresses(text):
        weighted = _WEIGHTED.fullmatch(address)
        url = address if weighted is None else weighted[1] + weighted[3]
        weight = 1.0 if weighted is None else float(weighted[2])
        if weight <= 0:
            raise SettingError(
                f"{shown_address(address)}: a weight must be above 0; leave out unused servers"
            )
        weights[url] = weights.get(url, 0.0) + weight
    return tuple(WeightedAddress(url, weight) for url, weight in weights.items())


# --- Weighted rendezvous hashing (Thaler and Ravishankar 1998); pure ---
#
# Every group ranks all servers independently, so adding or removing a server moves only its share of the
# groups, and all calls of a group fail over in the same order.

T = TypeVar("T")
_HASH_RANGE = 1 << 64


def rank(group: bytes, entries: Sequence[tuple[str, float, T]]) -> tuple[T, ...]:
    """The values of the entries (name, weight, value), first choice first.

    The score -w / ln(u) with a uniform u puts each first in proportion to its weight.
    """
    digest = blake2b(group, digest_size=16).digest()

    def score(entry: tuple[str, float, T]) -> float:
        name, weight, _ = entry
        uniform = int.from_bytes(blake2b(digest + name.encode(), digest_size=8).digest(), "big")
        return -weight / math.log((uniform + 0.5) / _HASH_RANGE)

    return tuple(entry[2] for entry in sorted(entries, key=score, reverse=True))


# --- Groups of calls with a common prefix, which one server's prefix cache can serve; pure ---


class _Chat(msgspec.Struct):
    messages: list[msgspec.Raw]


class _Role(msgspec.Struct):
    role: Any = None


def group_of(request: Request) -> bytes:
    """The group named by a request, else its messages up to the first one of the user."""
    if request.group:
        return request.group.encode("utf-8", "surrogatepass")
    prefix: list[str] = []
    for message in request.messages:
        prefix.append(message.content)
        if message.role == "user":
            break
    return "\0".join(prefix).encode("utf-8", "surrogatepass")


def group_of_body(body: bytes) -> bytes:
    """The group of a serialized chat request; the whole body if it is anything else."""
    prefix: list[bytes] = []
    try:
        for raw in msgspec.json.decode(body, type=_Chat).messages:
            prefix.append(bytes(raw))
            if msgspec.json.decode(raw, type=_Role).role == "user":
                break
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body
    return b"\0".join(prefix) or body


NO_RETRIES = Retries(most=0, loading=0.0, most_unknown=0)  # the fleet retries at another server
# Calls queued per server beyond its limit, so that a free slot finds a call that prefers the server.
MIN_SURPLUS, MAX_SURPLUS = 8, 64  # benchmarks/fleet.py measures the effect on prefix caches


class FleetModel:
    """Chat completions from several servers; it can be used again after `close`.

    `retries` applies to a call on the fleet as a whole: how often it is tried, and how long it waits while no
    server is up. `notify` receives a message when a server goes down or returns.
    """

    def __init__(
        self,
        listed: Sequence[WeightedAddress],
        api_key: str | None = None,
        *,
        connections: int | Literal["auto"] = "auto",
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        health: HealthPolicy | None = None,
        notify: Notify = ignore,
        rng: Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._health, self._retries = health or HealthPolicy(), retries or Retries()
        self._servers = [
            FleetServer(
                HttpModel(
                    one.url, api_key, connections=connections, timeouts=timeouts, retries=NO_RETRIES, rng=rng
                ),
                one.weight,
                self._health,
                allow_queueing=connections == "auto",
            )
            for one in listed
        ]
        # By full URL: two addresses that differ only in their hidden queries are distinct.
        self._ranks = [
            (one.url, one.weight, server) for one, server in zip(listed, self._servers, strict=True)
        ]
        self._most = (
            self._retries.most + len(listed) - 1
        )  # failures a call tolerates: one more per further server
        self._rng, self._clock = rng or Random(), clock
        self._queue = ServerQueue(self._servers, clock)
        self._monitor = HealthMonitor(
            self._servers,
            self._queue,
            policy=self._health,
            retries=self._retries,
            notify=notify,
            clock=clock,
        )

    def __repr__(self) -> str:
        return f"FleetModel({self.address!r})"

    @property
    def address(self) -> str:
        """All addresses, without secrets."""
        return ", ".join(server.model.address for server in self._servers)

    @property
    def members(self) -> tuple[HttpModel, ...]:
        """The models of the individual servers."""
        return tuple(server.model for server in self._servers)

    @property
    def connections(self) -> int:
        """How many calls may run concurrently on all servers that are up; at least 1."""
        return max(1, sum(server.limit for server in self._servers))

    @property
    def surplus(self) -> int:
        """How many more calls should be queued, so that a free slot finds a call that prefers its server."""
        limits = (server.limit for server in self._servers if not server.out)
        return sum(min(MAX_SURPLUS, max(MIN_SURPLUS, limit)) for limit in limits)

    def expect(self, calls: int) -> None:
        """Announce calls that are about to start together; with one prefix, they all prefer one server."""
        for model in self.members:
            model.expect(calls)

    def records(self) -> list[ServerRecord]:
        """Statistics of every server so far."""
        return [server.record(self._clock()) for server in self._servers]

    async def complete(self, request: Request) -> Completion:
        """Answer a request, failing over to other servers."""
        return await self.complete_and(request, identity)

    async def complete_and(self, request: Request, then: Callable[[Completion], Awaitable[T]]) -> T:
        """Answer a request, and await `then(reply)` before another call takes the connection."""

        def work(model: HttpModel, earlier: int) -> Awaitable[T]:
            return model.complete_and(
                request, lambda done: then(replace(done, attempts=done.attempts + earlier))
            )

        return await self._run(group_of(request), work)

    async def exchange(
        self, write: Callable[[str], bytes], read: Callable[[Any], T], *, model: str
    ) -> Exchange[T]:
        """Send what `write` returns and parse the reply with `read`, failing over to other servers."""

        async def work(one: HttpModel, earlier: int) -> Exchange[T]:
            done = await one.exchange(write, read, model=model)
            return done._replace(attempts=done.attempts + earlier)

        return await self._run(group_of_body(write("max_tokens")), work)

    async def exchange_json(
        self, path: str, body: bytes, then: Callable[[Exchange[Any]], Awaitable[T]], *, model: str, limit: int
    ) -> T:
        """Send a body to a path, failing over to other servers; see `HttpModel.exchange_json`."""

        def work(one: HttpModel, earlier: int) -> Awaitable[T]:
            def counted(done: Exchange[Any]) -> Awaitable[T]:
                return then(done._replace(attempts=done.attempts + earlier))

            return one.exchange_json(path, body, counted, model=model, limit=limit)

        return await self._run(body, work)

    @asynccontextmanager
    async def post(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send bytes unchanged to a server, or to the next if it refuses the connection; never queues."""
        now = self._clock()
        order = rank(group_of_body(body), self._ranks)
        order = tuple(sorted(order, key=lambda one: (not one.is_available(now), not one.has_capacity(now))))
        async with AsyncExitStack() as stack:
            for server in order:
                try:
                    response = await stack.enter_async_context(server.model.post(path, body, headers))
                except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                    unreachable = UnreachableError(f"no server answers at {server.model.address}")
                    self._monitor.record_failure(server, unreachable)
                    if server is order[-1]:
                        raise error from None
                else:
                    break
            yield response

    async def listing(self) -> tuple[int, Any]:
        """The model list of the first server that answers; raises what aiohttp does, or `ValueError`.

        Servers believed to be up come first, but one may have died since its last call.
        """
        now = self._clock()
        *others, last = sorted(self._servers, key=lambda one: not one.is_available(now))
        for server in others:
            with suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):
                return await server.model.listing()
        return await last.model.listing()

    def secrets(self, *, failed: bool) -> Secrets:
        """The secrets to remove from a forwarded reply, whichever server sends it."""
        return Secrets(secret for model in self.members for secret in model.secrets(failed=failed).words)

    async def close(self) -> None:
        """Stop the health checks and close the connections."""
        await self._monitor.close()
        for model in self.members:
            await model.close()

    async def _run(self, group: bytes, work: Callable[[HttpModel, int], Awaitable[T]]) -> T:
        """Run `work(model, failed attempts so far)` on one server after another until it succeeds."""
        order, home = rank(group, self._ranks), blake2b(group, digest_size=16).digest()
        failed: set[FleetServer] = set()
        attempts = failures = 0
        while True:
            server = await self._acquire(order, home, failed, attempts)
            try:
                done = await work(server.model, attempts)
            except ModelError as error:
                problem = error
                self._monitor.record_failure(server, error)
            else:
                server.record_success()
                return done
            finally:
                self._queue.release(server)
            attempts += problem.attempts
            problem.attempts = attempts
            failures += 1
            if isinstance(problem, OUR_FAULT) or failures > self._most:
                raise problem
            if server in failed:  # no other server is available
                await asyncio.sleep(self._rng.uniform(0, self._monitor.bound(failures - len(failed) - 1)))
            failed.add(server)

    async def _acquire(
        self, order: Sequence[FleetServer], home: bytes, failed: set[FleetServer], attempts: int
    ) -> FleetServer:
        if self._monitor.exhausted:
            raise self._monitor.unavailable_error(attempts)
        try:
            return await self._queue.acquire(order, home, failed=failed)
        except ModelError as error:
            error.attempts = attempts
            raise


def connect(options: ConnectOptions) -> FleetModel:
    """Connect to a model at several `http:` addresses."""
    return FleetModel(
        parse_fleet(options.address),
        options.api_key,
        connections=options.connections,
        timeouts=Timeouts(read=options.timeout),
        notify=options.notify,
    )
