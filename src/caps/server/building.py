"""From settings to a server that listens: the composition of everything in this folder."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from socket import socket

from caps.core.errors import SettingError
from caps.core.secrets import shown_address
from caps.models.embedded import EmbeddedModel
from caps.models.fleet import FleetModel
from caps.models.http import HttpModel, Upstream
from caps.runner import Endpoint, Runner
from caps.server.app import make_router
from caps.server.bodies import Bodies
from caps.server.choosing import Selector
from caps.server.counter import Counter
from caps.server.crowd import Crowd
from caps.server.desk import Desk
from caps.server.door import Door
from caps.server.logs import Log
from caps.server.metrics import Metrics
from caps.server.rules import Limits
from caps.server.running import listen, run
from caps.text_workers import TextWorkers

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Everything that makes a server; `runner` holds the config that requests start from."""

    runner: Runner
    host: str = "127.0.0.1"
    port: int = 0
    keys: Sequence[str] = field(default=(), repr=False)
    anyone: bool = False
    limits: Limits = field(default_factory=Limits)
    heartbeat: float = 10.0
    grace: float = 60.0
    log: Log = field(default_factory=Log)
    settings: str | None = None  # the file that some came from

    def __post_init__(self) -> None:
        if any(not key.strip() or not key.isprintable() for key in self.keys):
            raise SettingError("an --api-key is empty, or has a line break or control character in it")
        if self.host not in LOOPBACK and not self.keys and not self.anyone:
            raise SettingError(
                f"--host {self.host}: whoever reaches it could spend: give --api-key, or --allow-anyone"
            )
        if self.runner.config.confidence == "auto":
            raise SettingError("--confidence auto tries an endpoint before a run: verbal or logprobs?")
        _ = self.runner.strategy  # raises what is wrong with it

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
        more = {} if serving.settings is None else {"settings": serving.settings}
        url = f"http://{host}:{heard.getsockname()[1]}/v1"
        serving.log.say("listening", url=url, upstream=door.address, **more)
        await run(door, heard, grace=serving.grace, patience=serving.limits.reading, log=serving.log)


@asynccontextmanager
async def opened(serving: Serving) -> AsyncIterator[Door]:
    """The app, with its connections; closed in the end."""
    limits, log = serving.limits, serving.log
    async with AsyncExitStack() as stack:
        runner = serving.runner
        generator, judging, _ = runner.endpoints
        upstream = await _connect(stack, generator, runner)
        same = (judging.base_url, judging.api_key) == (generator.base_url, generator.api_key)
        judge = upstream if same else await _connect(stack, judging, runner)
        texts = TextWorkers()
        stack.push_async_callback(texts.close)
        findings = runner.findings(None, texts)
        if findings is not None:
            stack.push_async_callback(findings.close)
        crowd = Crowd(limits)
        metrics = Metrics(crowd)
        desk = Desk(
            upstream=upstream,
            selector=Selector(runner, judge, findings, texts),
            config=runner.config,
            model=generator.model or None,
            limits=limits,
            crowd=crowd,
            texts=texts,
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


async def _connect(stack: AsyncExitStack, where: Endpoint, runner: Runner) -> Upstream:
    """The model server at an address; weights in a file get one of their own."""
    model = runner.connected(where)
    stack.push_async_callback(model.close)
    if isinstance(model, EmbeddedModel):
        return await model.started()
    if isinstance(model, HttpModel | FleetModel):
        return model
    raise SettingError(
        f"{shown_address(where.base_url)}: caps serve stands before an HTTP address or a GGUF file"
    )
