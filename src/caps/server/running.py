"""A server that listens; uvicorn is imported nowhere else.

Rules that must not be broken:

* On SIGTERM or SIGINT nobody new is let in, and whoever is inside gets an answer, as far as `grace` reaches.
* A connection that says nothing whole in time is closed.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from caps.core.errors import MissingExtraError, SettingError
from caps.server.asgi import App
from caps.server.logs import Log

BACKLOG = 2048
KEEP_ALIVE = 65  # longer than most clients keep a connection: they hang up, not we


def listen(host: str, port: int) -> socket.socket:
    """A socket that hears, so that its port is known before anyone is served."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        heard = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise SettingError(f"cannot listen on {host}:{port} ({error}): give another --host, --port") from None
    # Those it accepts inherit this; else a body, sent after its head, waits 40 ms for an echo of that.
    heard.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return heard


async def run(app: App, heard: socket.socket, *, grace: float, patience: float, log: Log) -> None:
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

    class Timely(H11Protocol):
        """Hangs up on whoever takes too long over the head of a request, the first or a later one."""

        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._late = self.loop.call_later(patience, transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            begun = self.conn.their_state is h11.IDLE  # and so not whole: a whole one is being answered
            if begun and self._late is None:
                self._late = self.loop.call_later(patience, self.transport.close)
            elif not begun and self._late is not None:
                self._late.cancel()
                self._late = None

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self._late is not None:
                self._late.cancel()

    config = uvicorn.Config(
        app,
        http=Timely,
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
    with _relayed(log), _signals(lambda: _end(server)):
        await server.serve(sockets=[heard])


def _end(server: Any) -> None:
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
def _relayed(log: Log) -> Iterator[None]:
    """What uvicorn has to warn of goes to the same log."""

    class Relay(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            log.say("server", level=record.levelname.lower(), message=record.getMessage())

    logger, relay = logging.getLogger("uvicorn.error"), Relay(logging.WARNING)
    logger.addHandler(relay)
    propagates, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.removeHandler(relay)
        logger.propagate = propagates
