"""From settings to a server that listens: the composition of everything in this folder.

A server that listens; uvicorn is imported nowhere else.

Rules that must not be broken:

* On SIGTERM or SIGINT nobody new is let in, and whoever is inside gets an answer, as far as `grace` reaches.
* A connection that says nothing whole in time is closed.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from caps.core.errors import MissingExtraError, SettingError
from caps.core.secrets import shown_address
from caps.models.embedded import EmbeddedModel
from caps.models.fleet import FleetModel
from caps.models.http import HttpModel, Upstream
from caps.runner import Endpoint, Runner
from caps.server.admission import Admission, Limits
from caps.server.auth import HEALTH_PATH, AuthMiddleware
from caps.server.errors import ApiError
from caps.server.handlers import FORWARDED_PATHS, Handlers
from caps.server.http import (
    ASGIApp,
    HTTPException,
    Middleware,
    Receive,
    Request,
    Response,
    Route,
    Scope,
    Send,
    Starlette,
)
from caps.server.middleware import BodyLimitMiddleware, ErrorMiddleware, RequestContext, RequestLogMiddleware
from caps.server.selection import Selector
from caps.server.service import SelectionService
from caps.server.telemetry import JsonLog, Metrics
from caps.text_workers import TextWorkers

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
BACKLOG = 2048
KEEP_ALIVE = 65  # longer than most clients keep a connection: they hang up, not we


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Everything that makes a server; `runner` holds the config that requests start from."""

    runner: Runner
    host: str = "127.0.0.1"
    port: int = 0
    keys: Sequence[str] = field(default=(), repr=False)
    allow_anyone: bool = False
    limits: Limits = field(default_factory=Limits)
    heartbeat: float = 10.0
    grace: float = 60.0
    log: JsonLog = field(default_factory=JsonLog)
    settings: str | None = None  # the file that some came from

    def __post_init__(self) -> None:
        if any(not key.strip() or not key.isprintable() for key in self.keys):
            raise SettingError("an --api-key is empty, or has a line break or control character in it")
        if self.host not in LOOPBACK_HOSTS and not self.keys and not self.allow_anyone:
            raise SettingError(
                f"--host {self.host}: whoever reaches it could spend: give --api-key, or --allow-anyone"
            )
        if self.runner.config.confidence == "auto":
            raise SettingError("--confidence auto tries an endpoint before a run: verbal or logprobs?")
        _ = self.runner.strategy  # raises what is wrong with it

    @property
    def hosts(self) -> frozenset[str]:
        """Names a client must call the server by, where nothing else keeps others out."""
        return (
            frozenset() if self.keys or self.allow_anyone else LOOPBACK_HOSTS | {"[::1]", self.host.lower()}
        )


async def serve(serving: ServerConfig) -> None:
    """Listen until told to stop."""
    with listen(serving.host, serving.port) as sock:
        await _answer(serving, sock)
    serving.log.write("stopped")


async def _answer(serving: ServerConfig, sock: socket.socket) -> None:
    async with open_app(serving) as app:
        host = f"[{serving.host}]" if ":" in serving.host else serving.host
        more = {} if serving.settings is None else {"settings": serving.settings}
        url = f"http://{host}:{sock.getsockname()[1]}/v1"
        serving.log.write("listening", url=url, upstream=app.state.service.upstream.address, **more)
        await run(app, sock, grace=serving.grace, header_seconds=serving.limits.body_seconds, log=serving.log)


@asynccontextmanager
async def open_app(serving: ServerConfig) -> AsyncIterator[Starlette]:
    """The application within its lifespan. What fails at the start is raised here, not logged by uvicorn."""
    app = create_app(serving)
    async with app.router.lifespan_context(app):
        yield app


def create_app(serving: ServerConfig) -> Starlette:
    """The application: routes, middleware, and a lifespan that connects `state.service`."""
    admission = Admission(serving.limits)
    metrics = Metrics(admission)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with _open_service(serving, admission) as service:
            app.state.service = service
            yield

    app = Starlette(
        routes=_routes(Handlers(log=serving.log, metrics=metrics, heartbeat=serving.heartbeat)),
        middleware=[
            Middleware(RequestLogMiddleware, log=serving.log, metrics=metrics),
            Middleware(ErrorMiddleware),
            Middleware(AuthMiddleware, keys=serving.keys, hosts=serving.hosts),
            Middleware(BodyLimitMiddleware, limits=serving.limits),
        ],
        exception_handlers={HTTPException: _routing_error},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # a path that is spelled differently is not found
    return app


class RecordedRoute(Route):
    """A route that records its path pattern for log and metrics; the path itself is chosen by the client."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request to this route, also one with a method it does not have."""
        RequestContext.of(scope).route = self.path
        await super().handle(scope, receive, send)


def _routes(handlers: Handlers) -> list[Route]:
    return [
        RecordedRoute("/v1/chat/completions", handlers.chat, methods=["POST"]),
        RecordedRoute("/v1/select", handlers.select, methods=["POST"]),
        *(RecordedRoute(f"/v1/{path}", handlers.forward, methods=["POST"]) for path in FORWARDED_PATHS),
        RecordedRoute("/v1/models", handlers.models),
        RecordedRoute("/v1/models/{name:path}", handlers.models),
        RecordedRoute(HEALTH_PATH, handlers.health),
        RecordedRoute("/metrics", handlers.metrics_page),
        RecordedRoute("/openapi.json", handlers.openapi),
    ]


async def _routing_error(request: Request, error: Exception) -> Response:
    """Raise what Starlette's router says (404, 405) as an error of this API."""
    if isinstance(error, HTTPException) and error.status_code == 405:
        methods = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        message = f"{RequestContext.of(request.scope).route} answers to {methods}"
        raise ApiError(405, message, code="method_not_allowed", headers={"allow": methods}) from None
    raise ApiError(404, "there is nothing at this path; see /openapi.json", code="not_found") from None


@asynccontextmanager
async def _open_service(serving: ServerConfig, admission: Admission) -> AsyncIterator[SelectionService]:
    """The service with its connections and worker processes, which are closed at the end."""
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
        yield SelectionService(
            upstream=upstream,
            selector=Selector(runner, judge, findings, texts),
            config=runner.config,
            model=generator.model or None,
            limits=serving.limits,
            admission=admission,
            texts=texts,
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


def listen(host: str, port: int) -> socket.socket:
    """A socket that hears, so that its port is known before anyone is served."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise SettingError(f"cannot listen on {host}:{port} ({error}): give another --host, --port") from None
    # Those it accepts inherit this; else a body, sent after its head, waits 40 ms for an echo of that.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


async def run(
    app: ASGIApp, sock: socket.socket, *, grace: float, header_seconds: float, log: JsonLog
) -> None:
    """Serve until a signal comes, then let everyone finish."""
    try:
        import h11  # noqa: PLC0415  (uvicorn's own)
        import uvicorn  # noqa: PLC0415
        from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("uvicorn", "server", "caps serve") from None

    class Server(uvicorn.Server):
        """Without signals of its own: it would raise them again when it is done."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    class HeaderTimeoutProtocol(H11Protocol):
        """Hangs up on whoever takes too long over the head of a request, the first or a later one."""

        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._late = self.loop.call_later(header_seconds, transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            begun = self.conn.their_state is h11.IDLE  # and so not whole: a whole one is being answered
            if begun and self._late is None:
                self._late = self.loop.call_later(header_seconds, self.transport.close)
            elif not begun and self._late is not None:
                self._late.cancel()
                self._late = None

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self._late is not None:
                self._late.cancel()

    config = uvicorn.Config(
        app,
        http=HeaderTimeoutProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, round(grace)),
    )
    server = Server(config)
    with _uvicorn_warnings(log), _signals(lambda: _stop(server)):
        await server.serve(sockets=[sock])


def _stop(server: Any) -> None:
    """The first signal lets everyone finish, a second one does not."""
    server.force_exit, server.should_exit = server.should_exit, True


@contextmanager
def _signals(end: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    caught = (signal.SIGINT, signal.SIGTERM)
    for one in caught:
        loop.add_signal_handler(one, end)
    try:
        yield
    finally:
        for one in caught:
            loop.remove_signal_handler(one)


@contextmanager
def _uvicorn_warnings(log: JsonLog) -> Iterator[None]:
    """What uvicorn has to warn of goes to the same log."""

    class Relay(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            log.write("server", level=record.levelname.lower(), message=record.getMessage())

    logger, relay = logging.getLogger("uvicorn.error"), Relay(logging.WARNING)
    logger.addHandler(relay)
    propagates, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.removeHandler(relay)
        logger.propagate = propagates
