"""Several servers of one model as one: calls that share a beginning meet at one server, while that has room.

Rules that must not be broken:

* Where a call goes depends on its group, never on its reply: the journal's key knows no servers.
* A call that failed at one server is tried at the next; `attempts` counts what all of them may have billed.
* A key goes to the addresses it was given for, which are all that are listed, and no further.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from hashlib import blake2b
from random import Random
from typing import Any, Literal, TypeVar

import aiohttp
from msgspec.structs import replace

from caps.core.errors import ModelError, UnreachableError
from caps.core.secrets import Secrets
from caps.models.base import Completion, Request, Tell, Wiring, unheard
from caps.models.fleet_addresses import Listed, parse_fleet
from caps.models.fleet_line import Line
from caps.models.fleet_server import OUR_FAULT, Care, Record, Server
from caps.models.fleet_watch import Watch
from caps.models.grouping import group_of, group_of_body
from caps.models.http import Exchanged, HttpModel, Timeouts, itself
from caps.models.rendezvous import ranked
from caps.models.retries import Retries

AT_ONCE = Retries(most=0, loading=0.0, strangers=0)  # the next try belongs to another server
# Calls that wait at a server that is full, so that one is at hand that prefers it: about as many as it has.
LEAST_SURPLUS, MOST_SURPLUS = 8, 64  # benchmarks/fleet.py shows what that does for its cache

T = TypeVar("T")


class FleetModel:
    """Chat completions from whichever of several servers; it may be used again after `close`.

    `retries` is the patience of a call with the fleet as a whole: how often it is tried, and how long it
    waits while nobody is up. `tell` hears of servers that leave and return.
    """

    def __init__(
        self,
        listed: Sequence[Listed],
        api_key: str | None = None,
        *,
        connections: int | Literal["auto"] = "auto",
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        care: Care | None = None,
        tell: Tell = unheard,
        rng: Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._care, self._retries = care or Care(), retries or Retries()
        self._servers = [
            Server(
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
        self._line = Line(self._servers, clock)
        self._watch = Watch(
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

    def records(self) -> list[Record]:
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
    ) -> Exchanged[T]:
        """Send what `write` makes and `read` the reply, at another server where one fails."""

        async def work(one: HttpModel, earlier: int) -> Exchanged[T]:
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
        failed: set[Server] = set()
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
        self, order: Sequence[Server], home: bytes, failed: set[Server], attempts: int
    ) -> Server:
        if self._watch.hopeless:
            raise self._watch.nobody(attempts)
        try:
            return await self._line.enter(order, home, failed=failed)
        except ModelError as error:
            error.attempts = attempts
            raise


def connect(wiring: Wiring) -> FleetModel:
    """The model at several `http:` addresses."""
    return FleetModel(
        parse_fleet(wiring.address),
        wiring.api_key,
        connections=wiring.connections,
        timeouts=Timeouts(read=wiring.timeout),
        tell=wiring.tell,
    )
