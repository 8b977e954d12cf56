"""Several servers of one model used as one: calls with a common prefix go to the same server.

Rules that must not be broken:

* Where a call goes depends on its group, never on its reply: the journal's key knows no servers.
* A call that failed at one server is tried at the next; `attempts` counts what all of them may have billed.
* A key goes to the addresses it was given for, which are all that are listed, and no further.
"""

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
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
from caps.models.base import Completion, ConnectOptions, Request, Tell, ignore
from caps.models.faults import Retries
from caps.models.fleet_servers import (
    OUR_FAULT,
    FleetServer,
    HealthMonitor,
    HealthPolicy,
    ServerQueue,
    ServerRecord,
)
from caps.models.http import Exchange, HttpModel, Timeouts, itself

# The addresses of several servers of one model, as people write them.
#
# They stand behind one another with commas or blanks between, each with a weight if that is not 1:
# `http://a:8000/v1,http://b:8000/v1=2`. The weight ends the path, so a query stays what it is:
# `https://c/v1=2?api-version=3` has the weight 2.


# A comma inside an address parts nothing: the next address begins with its scheme.
_BETWEEN = re.compile(r"[\s,]+(?=[A-Za-z][A-Za-z0-9+.-]*://)")
_WEIGHED = re.compile(r"(https?://[^?#]*)=(\d+(?:\.\d+)?|\.\d+)((?:[?#].*)?)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class WeightedAddress:
    """One address of several, and its share of the work next to the others'."""

    url: str = field(repr=False)  # which may hold a password
    weight: float = 1.0


def join_addresses(addresses: str | Iterable[str] | None) -> str:
    """Several addresses as one text; one stays as it is."""
    if addresses is None or isinstance(addresses, str):
        return addresses or ""
    return ",".join(word for word in addresses if word.strip())


def split_addresses(words: str) -> list[str]:
    """The addresses in a text, in order."""
    return [word for word in _BETWEEN.split(words.strip(" \t\r\n,")) if word]


def is_fleet(words: str) -> bool:
    """Whether this means several addresses, or one with a weight."""
    return len(split_addresses(words)) > 1 or _WEIGHED.fullmatch(words.strip()) is not None


def parse_fleet(words: str) -> tuple[WeightedAddress, ...]:
    """The addresses of a fleet; one that is listed twice is one, of both weights."""
    weights: dict[str, float] = {}
    for word in split_addresses(words):
        weighed = _WEIGHED.fullmatch(word)
        url = word if weighed is None else weighed[1] + weighed[3]
        weight = 1.0 if weighed is None else float(weighed[2])
        if weight <= 0:
            raise SettingError(f"{shown_address(word)}: a weight is above 0; leave out who is to rest")
        weights[url] = weights.get(url, 0.0) + weight
    return tuple(WeightedAddress(url, weight) for url, weight in weights.items())


# Who of several is asked first: weighted rendezvous hashing; pure.
#
# Every group ranks all servers by itself, so that one more or less moves only its own share of the
# groups, and who is next in line for a group is the same for all its calls (Thaler and Ravishankar 1998).


T = TypeVar("T")
_STEPS = 1 << 64


def ranked(group: bytes, entries: Sequence[tuple[str, float, T]]) -> tuple[T, ...]:
    """What the entries (name, weight, value) stand for, first choice first.

    -w / ln(u) with an even u puts each first as often as its share of the weights.
    """
    digest = blake2b(group, digest_size=16).digest()

    def score(entry: tuple[str, float, T]) -> float:
        name, weight, _ = entry
        drawn = int.from_bytes(blake2b(digest + name.encode(), digest_size=8).digest(), "big")
        return -weight / math.log((drawn + 0.5) / _STEPS)

    return tuple(entry[2] for entry in sorted(entries, key=score, reverse=True))


# Which calls share a beginning, so that one server's prefix cache can serve them; pure.


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


AT_ONCE = Retries(most=0, loading=0.0, strangers=0)  # the next try belongs to another server
# Calls that wait at a server that is full, so that one is at hand that prefers it: about as many as it has.
LEAST_SURPLUS, MOST_SURPLUS = 8, 64  # benchmarks/fleet.py shows what that does for its cache


class FleetModel:
    """Chat completions from whichever of several servers; it may be used again after `close`.

    `retries` is the patience of a call with the fleet as a whole: how often it is tried, and how long it
    waits while nobody is up. `tell` hears of servers that leave and return.
    """

    def __init__(
        self,
        listed: Sequence[WeightedAddress],
        api_key: str | None = None,
        *,
        connections: int | Literal["auto"] = "auto",
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        care: HealthPolicy | None = None,
        tell: Tell = ignore,
        rng: Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._care, self._retries = care or HealthPolicy(), retries or Retries()
        self._servers = [
            FleetServer(
                HttpModel(
                    one.url, api_key, connections=connections, timeouts=timeouts, retries=AT_ONCE, rng=rng
                ),
                one.weight,
                self._care,
                lines_up=connections == "auto",
            )
            for one in listed
        ]
        # By what was listed: two that look alike once their queries are hidden are still two.
        self._ranks = [
            (one.url, one.weight, server) for one, server in zip(listed, self._servers, strict=True)
        ]
        self._most = self._retries.most + len(listed) - 1  # failures a call bears: one more a further server
        self._rng, self._clock = rng or Random(), clock
        self._line = ServerQueue(self._servers, clock)
        self._watch = HealthMonitor(
            self._servers, self._line, care=self._care, retries=self._retries, tell=tell, clock=clock
        )

    def __repr__(self) -> str:
        return f"FleetModel({self.address!r})"

    @property
    def address(self) -> str:
        """All addresses, as they may be shown."""
        return ", ".join(server.model.address for server in self._servers)

    @property
    def members(self) -> tuple[HttpModel, ...]:
        """The servers' own models, to be tried one by one."""
        return tuple(server.model for server in self._servers)

    @property
    def connections(self) -> int:
        """How many calls may be under way now, at all servers that are not out; one if there is none."""
        return max(1, sum(server.limit for server in self._servers))

    @property
    def surplus(self) -> int:
        """How many more should wait: who prefers a server that becomes free is found among them."""
        limits = (server.limit for server in self._servers if not server.out)
        return sum(min(MOST_SURPLUS, max(LEAST_SURPLUS, limit)) for limit in limits)

    def records(self) -> list[ServerRecord]:
        """What became of every server so far."""
        return [server.record(self._clock()) for server in self._servers]

    async def complete(self, request: Request) -> Completion:
        """Answer a request, at another server where one fails."""
        return await self.complete_and(request, itself)

    async def complete_and(self, request: Request, then: Callable[[Completion], Awaitable[T]]) -> T:
        """Answer a request, and do something with the reply before another call takes the connection."""

        def work(model: HttpModel, earlier: int) -> Awaitable[T]:
            return model.complete_and(
                request, lambda done: then(replace(done, attempts=done.attempts + earlier))
            )

        return await self._carried(group_of(request), work)

    async def exchange(
        self, write: Callable[[str], bytes], read: Callable[[Any], T], *, model: str
    ) -> Exchange[T]:
        """Send what `write` makes and `read` the reply, at another server where one fails."""

        async def work(one: HttpModel, earlier: int) -> Exchange[T]:
            done = await one.exchange(write, read, model=model)
            return done._replace(attempts=done.attempts + earlier)

        return await self._carried(group_of_body(write("max_tokens")), work)

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send bytes as they are to a server, to another if nobody takes the connection; never waits."""
        now = self._clock()
        order = ranked(group_of_body(body), self._ranks)
        order = tuple(sorted(order, key=lambda one: (not one.awake(now), not one.open(now))))
        async with AsyncExitStack() as stack:
            for server in order:
                try:
                    response = await stack.enter_async_context(server.model.post(path, body))
                except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                    self._watch.hear(server, UnreachableError(f"nobody answers at {server.model.address}"))
                    if server is order[-1]:
                        raise error from None
                else:
                    break
            yield response

    async def listing(self) -> tuple[int, Any]:
        """What the first server that answers says of its models; raises what aiohttp does, or `ValueError`.

        Those known to be up come first, but one may have died since it was last asked.
        """
        now = self._clock()
        *others, last = sorted(self._servers, key=lambda one: not one.awake(now))
        for server in others:
            with suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):
                return await server.model.listing()
        return await last.model.listing()

    def secrets(self, *, failed: bool) -> Secrets:
        """What may not stand in a reply that is passed on, whichever server sends it."""
        return Secrets(word for model in self.members for word in model.secrets(failed=failed).words)

    def hear(self, model: HttpModel, error: ModelError | None) -> None:
        """Take note of what trying one of the `members` came to."""
        server = next(server for server in self._servers if server.model is model)
        if error is None:
            server.known = True
        else:
            self._watch.hear(server, error)

    def nobody(self) -> ModelError:
        """Why nobody can be asked."""
        return self._watch.nobody()

    async def close(self) -> None:
        """End what is under way and close the connections."""
        await self._watch.close()
        for model in self.members:
            await model.close()

    async def _carried(self, group: bytes, work: Callable[[HttpModel, int], Awaitable[T]]) -> T:
        """Do some work at one server after the other; it is told the attempts that came to nothing before."""
        order, home = ranked(group, self._ranks), blake2b(group, digest_size=16).digest()
        failed: set[FleetServer] = set()
        attempts = failures = 0
        while True:
            server = await self._entered(order, home, failed, attempts)
            try:
                done = await work(server.model, attempts)
            except ModelError as error:
                problem = error
                self._watch.hear(server, error)
            else:
                server.served()
                return done
            finally:
                self._line.leave(server)
            attempts += problem.attempts
            problem.attempts = attempts
            failures += 1
            if isinstance(problem, OUR_FAULT) or failures > self._most:
                raise problem
            if server in failed:  # nobody else is there
                await asyncio.sleep(self._rng.uniform(0, self._watch.bound(failures - len(failed) - 1)))
            failed.add(server)

    async def _entered(
        self, order: Sequence[FleetServer], home: bytes, failed: set[FleetServer], attempts: int
    ) -> FleetServer:
        if self._watch.hopeless:
            raise self._watch.nobody(attempts)
        try:
            return await self._line.enter(order, home, failed=failed)
        except ModelError as error:
            error.attempts = attempts
            raise


def connect(wiring: ConnectOptions) -> FleetModel:
    """The model at several `http:` addresses."""
    return FleetModel(
        parse_fleet(wiring.address),
        wiring.api_key,
        connections=wiring.connections,
        timeouts=Timeouts(read=wiring.timeout),
        tell=wiring.tell,
    )
