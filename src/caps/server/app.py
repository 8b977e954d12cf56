"""The application and its process: configuration, routes, connections, uvicorn, signals.

Invariants:

* On SIGTERM or SIGINT new requests are refused and running ones finish, for at most `grace` seconds.
* A connection that does not send a complete request head in time is closed.

No other module imports uvicorn.
"""

import asyncio
import logging
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from caps.core.errors import MissingExtraError, SettingError
from caps.core.secrets import shown_address
from caps.models.embedded import EmbeddedModel
from caps.models.endpoints import Endpoint, least_context
from caps.models.http import HttpModel
from caps.models.servers import ServersModel, Upstream
from caps.sampling.generators import read_sources
from caps.server.admission import Admission, Limits
from caps.server.anthropic_format import MESSAGES
from caps.server.auth import HEALTH_PATH, LIVE_PATH, READY_PATH, AuthMiddleware
from caps.server.errors import ApiError
from caps.server.handlers import FORWARDED_PATHS, Handlers
from caps.server.http import (
    MESSAGES_PATH,
    ASGIApp,
    CORSMiddleware,
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
from caps.server.kept_runs import KeptRuns
from caps.server.middleware import BodyLimitMiddleware, ErrorMiddleware, RequestContext, RequestLogMiddleware
from caps.server.openai_format import CHAT
from caps.server.responses_format import RESPONSES
from caps.server.selection import Selector
from caps.server.service import SelectionService
from caps.server.spending import Meter
from caps.server.telemetry import JsonLog, Metrics
from caps.server.virtual_models import ServedGenerator, VirtualModel, virtual_configs
from caps.server.web_pages import RecentRequests, docs, home
from caps.session.resolve import Resolved
from caps.session.session import Learned, open_findings
from caps.workers.texts import TextWorkers

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
BACKLOG = 2048
_ORIGIN = re.compile(r"https?://[^/\s?#@]+")
KEEP_ALIVE = 65  # seconds; longer than most clients keep idle connections, so that the client closes them


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The configuration of a server. Requests start from the config of `resolved`."""

    resolved: Resolved
    host: str = "127.0.0.1"
    port: int = 0
    keys: Sequence[str] = field(default=(), repr=False)
    allow_anyone: bool = False
    limits: Limits = field(default_factory=Limits)
    log: JsonLog = field(default_factory=JsonLog)
    keep: Path | None = None  # folder for the runs of requests
    cors: Sequence[str] = ()  # origins whose pages may use this server
    settings: str | None = None  # which settings came from which file, for the log

    def __post_init__(self) -> None:
        if any(not key.strip() or not key.isprintable() for key in self.keys):
            raise SettingError("--api-key: a key is empty or contains a line break or control character")
        if self.host not in LOOPBACK_HOSTS and not self.keys and not self.allow_anyone:
            raise SettingError(
                f"--host {self.host}: anyone who can reach this address could spend tokens: "
                "give --api-key, or --allow-anyone"
            )
        for origin in self.cors:
            _check_origin(origin, has_keys=bool(self.keys))
        if self.resolved.config.confidence == "auto":
            raise SettingError("--confidence auto is not possible on a server: give verbal or logprobs")
        if self.resolved.config.reply == "auto":
            raise SettingError("--reply auto is not possible on a server: give free, tags or json")
        virtual_configs(self.resolved.config)  # raises if a table is wrong

    @property
    def hosts(self) -> frozenset[str]:
        """The host names that requests must use; any, if keys protect the server or anyone is allowed."""
        return (
            frozenset() if self.keys or self.allow_anyone else LOOPBACK_HOSTS | {"[::1]", self.host.lower()}
        )


def _check_origin(origin: str, *, has_keys: bool) -> None:
    if origin == "*":
        if not has_keys:
            raise SettingError("--cors '*': any page could spend tokens: give --api-key, or name the origins")
    elif not _ORIGIN.fullmatch(origin):
        raise SettingError(
            f"--cors {origin!r}: must be an origin such as https://app.example, without a path"
        )


async def serve(config: ServerConfig) -> None:
    """Run a server until a signal stops it."""
    with listen(config.host, config.port) as sock:
        await _serve_on(config, sock)
    config.log.write("stopped")


async def _serve_on(config: ServerConfig, sock: socket.socket) -> None:
    async with open_app(config) as app:
        host = f"[{config.host}]" if ":" in config.host else config.host
        more = {} if config.settings is None else {"settings": config.settings}
        url = f"http://{host}:{sock.getsockname()[1]}/v1"
        config.log.write("listening", url=url, upstream=app.state.service.upstream.address, **more)
        await run_server(
            app, sock, grace=config.limits.grace, header_seconds=config.limits.body_seconds, log=config.log
        )


@asynccontextmanager
async def open_app(config: ServerConfig) -> AsyncIterator[Starlette]:
    """The application within its lifespan. What fails at the start is raised here, not logged by uvicorn."""
    app = create_app(config)
    async with app.router.lifespan_context(app):
        yield app


def create_app(config: ServerConfig) -> Starlette:
    """The application: routes, middleware, and a lifespan that connects `state.service`."""
    admission = Admission(config.limits)
    metrics = Metrics(admission)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with _open_service(config, admission, Meter(metrics)) as service:
            app.state.service = service
            yield

    app = Starlette(
        routes=_routes(
            Handlers(
                log=config.log,
                metrics=metrics,
                heartbeat=config.limits.heartbeat,
                recent=RecentRequests(config.limits.recent) if config.limits.recent else None,
            )
        ),
        middleware=[
            Middleware(RequestLogMiddleware, log=config.log, metrics=metrics),
            *(_cors(config.cors) if config.cors else ()),
            Middleware(ErrorMiddleware),
            Middleware(AuthMiddleware, keys=config.keys, hosts=config.hosts),
            Middleware(BodyLimitMiddleware, limits=config.limits),
        ],
        exception_handlers={HTTPException: _routing_error},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # a path that is spelled differently is not found
    return app


def _cors(origins: Sequence[str]) -> list[Middleware]:
    """Let the pages of some sites use this server from a browser."""
    shown = ["x-caps-run-id", "x-caps-probability", "x-request-id", "retry-after"]
    methods, headers = ["GET", "POST"], ["*"]
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=methods,
            allow_headers=headers,
            expose_headers=shown,
        )
    ]


class RecordedRoute(Route):
    """A route that records its path pattern for log and metrics; the path itself is chosen by the client."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request to this route, also one with a method it does not have."""
        RequestContext.of(scope).route = self.path
        await super().handle(scope, receive, send)


def _routes(handlers: Handlers) -> list[Route]:
    return [
        RecordedRoute("/v1/chat/completions", partial(handlers.answer, CHAT), methods=["POST"]),
        RecordedRoute("/v1/responses", partial(handlers.answer, RESPONSES), methods=["POST"]),
        RecordedRoute(MESSAGES_PATH, partial(handlers.answer, MESSAGES), methods=["POST"]),
        RecordedRoute(f"{MESSAGES_PATH}/count_tokens", handlers.count_tokens, methods=["POST"]),
        RecordedRoute("/v1/select", handlers.select, methods=["POST"]),
        *(RecordedRoute(f"/v1/{path}", handlers.forward, methods=["POST"]) for path in FORWARDED_PATHS),
        RecordedRoute("/v1/models", handlers.models),
        RecordedRoute("/v1/models/{name:path}", handlers.models),
        RecordedRoute(HEALTH_PATH, handlers.health),
        RecordedRoute(LIVE_PATH, handlers.live),
        RecordedRoute(READY_PATH, handlers.ready),
        RecordedRoute("/", home),
        RecordedRoute("/docs", docs),
        RecordedRoute("/recent", handlers.recent_requests),
        RecordedRoute("/metrics", handlers.metrics_page),
        RecordedRoute("/openapi.json", handlers.openapi),
    ]


async def _routing_error(request: Request, error: Exception) -> Response:
    """Raise the 404 or 405 of Starlette's router as an error of this API."""
    if isinstance(error, HTTPException) and error.status_code == 405:
        methods = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        message = f"{RequestContext.of(request.scope).route}: the method must be {methods}"
        raise ApiError(405, message, code="method_not_allowed", headers={"allow": methods}) from None
    raise ApiError(404, "no such path: GET /openapi.json describes all paths", code="not_found") from None


@asynccontextmanager
async def _open_service(
    config: ServerConfig, admission: Admission, meter: Meter
) -> AsyncIterator[SelectionService]:
    """The service with its connections and worker processes, which are closed at the end."""
    async with AsyncExitStack() as stack:
        resolved = config.resolved
        connect = partial(_connect, stack, resolved, meter)
        generator, places = resolved.generator, [spec.where for spec in resolved.judges if spec.where]
        assert generator is not None  # noqa: S101  (a server always has one)
        judging = places[0] if places else generator
        upstream = await connect(generator)
        same = (judging.base_url, judging.api_key) == (generator.base_url, generator.api_key)
        judge = upstream if same or resolved.config.judges else await connect(judging)
        several = dict.fromkeys(places) if resolved.config.judges else {}
        judges = {where: await connect(where) for where in several}
        is_set = resolved.config.context_tokens is not None
        learned = Learned(context=None if is_set else await least_context(judges or {judging: judge}))
        texts = TextWorkers()
        stack.push_async_callback(texts.close)
        findings = open_findings(resolved, None, texts)
        if findings is not None:
            stack.push_async_callback(findings.close)
        virtual = {}
        for name, changed in virtual_configs(resolved.config).items():
            seed = {"seed": str(changed.seed)}
            sources = read_sources(changed, resolved.keys, resolved.connector, seed)
            generators = [ServedGenerator(source, await connect(source.where)) for source in sources]
            virtual[name] = VirtualModel(name, changed, generators)
        yield SelectionService(
            upstream=upstream,
            selector=Selector(
                resolved,
                judge,
                findings,
                texts,
                judges,
                learned=learned,
                judge_tokens=config.limits.max_judge_tokens or None,
            ),
            config=resolved.config,
            model=generator.model or None,
            limits=config.limits,
            admission=admission,
            texts=texts,
            meter=meter,
            kept=None if config.keep is None else KeptRuns(config.keep, config.limits.keep_last, config.log),
            virtual=virtual,
        )


async def _connect(stack: AsyncExitStack, resolved: Resolved, meter: Meter, where: Endpoint) -> Upstream:
    """The model server at an address, whose calls the meter counts. For weights in a file, one is started."""
    model = resolved.connector.connect(where, resolved.config)
    stack.push_async_callback(model.close)
    upstream = await model.started() if isinstance(model, EmbeddedModel) else model
    if not isinstance(upstream, HttpModel | ServersModel):
        raise SettingError(
            f"{shown_address(where.base_url)}: caps serve needs an HTTP address or a GGUF file"
        )
    for server in upstream.members if isinstance(upstream, ServersModel) else (upstream,):
        server.observer = meter
    return upstream


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; its port is known before the server starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise SettingError(
            f"cannot listen on {host}:{port} ({error}): give another --host or --port"
        ) from None
    # Accepted connections inherit this. Without it a body sent after its head waits 40 ms for an ACK.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


async def run_server(
    app: ASGIApp, sock: socket.socket, *, grace: float, header_seconds: float, log: JsonLog
) -> None:
    """Serve until a signal arrives, then let running requests finish."""
    try:
        import h11  # noqa: PLC0415  (uvicorn's own)
        import uvicorn  # noqa: PLC0415
        from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("uvicorn", "server", "caps serve") from None

    class Server(uvicorn.Server):
        """Without uvicorn's signal handlers, which would raise the signal again at the end."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    class HeaderTimeoutProtocol(H11Protocol):
        """Closes connections that take too long to send a request head, the first or a later one."""

        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(header_seconds, transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            incomplete = self.conn.their_state is h11.IDLE  # a complete head would have changed the state
            if incomplete and self._timer is None:
                self._timer = self.loop.call_later(header_seconds, self.transport.close)
            elif not incomplete and self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self._timer is not None:
                self._timer.cancel()

    settings = uvicorn.Config(
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
    server = Server(settings)
    with (
        _logged(log, "server", "uvicorn.error", logging.WARNING),
        _logged(log, "upstream", "caps.models", logging.INFO),
        _logged(log, "journal", "caps.journal", logging.WARNING),
        _signals(lambda: _stop(server)),
    ):
        await server.serve(sockets=[sock])


def _stop(server: Any) -> None:
    """Stop after running requests on the first signal, at once on the second."""
    server.force_exit, server.should_exit = server.should_exit, True


@contextmanager
def _signals(on_signal: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    caught = (signal.SIGINT, signal.SIGTERM)
    before: dict[signal.Signals, Any] = {}
    for number in caught:
        try:
            loop.add_signal_handler(number, on_signal)
        except NotImplementedError:  # on Windows
            before[number] = signal.signal(number, lambda *_: loop.call_soon_threadsafe(on_signal))
    try:
        yield
    finally:
        for number in caught:
            if number in before:
                signal.signal(number, before[number])
            else:
                loop.remove_signal_handler(number)


@contextmanager
def _logged(log: JsonLog, event: str, name: str, level: int) -> Iterator[None]:
    """Write what a logger of Python says, from this level on, to the same log."""

    class Relay(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            log.write(event, level=record.levelname.lower(), message=record.getMessage())

    logger, relay = logging.getLogger(name), Relay(level)
    level_before, propagated_before = logger.level, logger.propagate
    logger.addHandler(relay)
    logger.setLevel(level)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(relay)
        logger.setLevel(level_before)
        logger.propagate = propagated_before
