"""From settings to a server that listens: the composition of everything in this folder."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from socket import socket

from caps.assemble import Endpoint, Setup, connected, make_strategy
from caps.core.errors import SettingError
from caps.core.secrets import shown_address
from caps.models.embedded import EmbeddedModel
from caps.models.fleet import FleetModel
from caps.models.http import HttpModel
from caps.models.upstream import Upstream
from caps.server.app import make_router
from caps.server.bodies import Bodies
from caps.server.choosing import Bench
from caps.server.counter import Counter
from caps.server.crowd import Crowd
from caps.server.desk import Desk
from caps.server.door import Door
from caps.server.logs import Log
from caps.server.metrics import Metrics
from caps.server.rules import Defaults, Limits
from caps.server.running import listen, run

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Everything that makes a server; `judging` is how and by whom answers are judged."""

    upstream: Endpoint
    judging: Setup
    judge: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    keys: Sequence[str] = field(default=(), repr=False)
    anyone: bool = False
    defaults: Defaults = field(default_factory=Defaults)
    limits: Limits = field(default_factory=Limits)
    heartbeat: float = 10.0
    grace: float = 60.0
    log: Log = field(default_factory=Log)

    def __post_init__(self) -> None:
        if any(not key.strip() or not key.isprintable() for key in self.keys):
            raise SettingError("an --api-key is empty, or has a line break or control character in it")
        if self.host not in LOOPBACK and not self.keys and not self.anyone:
            raise SettingError(
                f"--host {self.host}: whoever reaches it could spend: give --api-key, or --allow-anyone"
            )
        make_strategy(self.defaults.strategy, self.defaults.changes)  # raises what is wrong with it

    @property
    def hosts(self) -> frozenset[str]:
        """Names a client must call the server by, where nothing else keeps others out."""
        return frozenset() if self.keys or self.anyone else LOOPBACK | {"[::1]", self.host.lower()}


async def serve(serving: Serving) -> None:
    """Listen until told to stop."""
    with listen(serving.host, serving.port) as heard:
        await _answer(serving, heard)
    serving.log.say("stopped")


async def _answer(serving: Serving, heard: socket) -> None:
    async with opened(serving) as door:
        host = f"[{serving.host}]" if ":" in serving.host else serving.host
        serving.log.say("listening", url=f"http://{host}:{heard.getsockname()[1]}/v1", upstream=door.address)
        await run(door, heard, grace=serving.grace, patience=serving.limits.reading, log=serving.log)


@asynccontextmanager
async def opened(serving: Serving) -> AsyncIterator[Door]:
    """The app, with its connections; closed in the end."""
    limits, log = serving.limits, serving.log
    async with AsyncExitStack() as stack:
        upstream = await _connect(stack, serving.upstream, serving.judging)
        judging = serving.judging.endpoint
        same = (judging.base_url, judging.api_key) == (serving.upstream.base_url, serving.upstream.api_key)
        judge = upstream if same else await _connect(stack, judging, serving.judging)
        crowd = Crowd(limits)
        metrics = Metrics(crowd)
        desk = Desk(
            upstream=upstream,
            bench=Bench(judge, serving.judging, serving.judge),
            model=serving.upstream.model or None,
            defaults=serving.defaults,
            limits=limits,
            crowd=crowd,
        )
        counter = Counter(
            desk=desk, bodies=Bodies(limits), log=log, metrics=metrics, heartbeat=serving.heartbeat
        )
        yield Door(
            app=make_router(counter),
            limits=limits,
            log=log,
            metrics=metrics,
            address=upstream.address,
            keys=serving.keys,
            hosts=serving.hosts,
        )


async def _connect(stack: AsyncExitStack, where: Endpoint, setup: Setup) -> Upstream:
    """The model server at an address; weights in a file get one of their own."""
    model = connected(where, setup)
    stack.push_async_callback(model.close)
    if isinstance(model, EmbeddedModel):
        return await model.started()
    if isinstance(model, HttpModel | FleetModel):
        return model
    raise SettingError(
        f"{shown_address(where.base_url)}: caps serve stands before an HTTP address or a GGUF file"
    )
