"""The door: who may come in, what is written down of every visit, and that every visit ends in an answer.

Rules that must not be broken:

* A key is compared in constant time, read from its header alone, and never written anywhere.
* Whatever breaks inside, a client gets an error object and never a trace.
* A request whose length is told twice is refused, and its connection closed.
"""

import asyncio
import hmac
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from traceback import extract_tb
from uuid import uuid4

from caps.core.errors import CapsError
from caps.server.admission import Limits, body_too_large
from caps.server.errors import ApiError, ClientDisconnected, to_api_error
from caps.server.http import ASGIApp, Message, Receive, Scope, Send, error_response, header
from caps.server.telemetry import JsonLog, Metrics

CLIENT_CLOSED_REQUEST = 499  # what proxies write down for a client that did not wait
HEALTH_PATH = "/health"


@dataclass(slots=True)
class RequestContext:
    """One request, as the log has it."""

    run: str = field(default_factory=lambda: uuid4().hex)
    start: float = field(default_factory=time.perf_counter)
    status: int = 0
    route: str = "other"
    allowed: bool = True
    facts: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMiddleware:
    """Stands before the app; without keys everyone may come in who calls the server by a name in `hosts`."""

    app: ASGIApp
    limits: Limits
    log: JsonLog
    metrics: Metrics
    address: str
    keys: Sequence[str] = field(default=(), repr=False)
    hosts: frozenset[str] = frozenset()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in and see it off."""
        if scope["type"] != "http":
            return
        context = scope["caps.context"] = RequestContext()

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.status = message["status"]
                own = (b"x-caps-run-id", context.run.encode())
                message = {**message, "headers": [*message["headers"], own]}
            await send(message)

        fault = ""
        try:
            self._check(scope, context)
            await self.app(scope, receive, noted)
        except ClientDisconnected:
            context.status = CLIENT_CLOSED_REQUEST
        except asyncio.CancelledError:
            if not context.status:
                stopped = ApiError(
                    503, "this server stops before it could answer", code="stopping", retry_after=5
                )
                await error_response(stopped)(scope, receive, noted)
            raise
        except Exception as error:
            fault = _fault_location(error) if not isinstance(error, ApiError | CapsError) else ""
            api_error = to_api_error(error, self.address)
            context.facts["error"] = api_error.code
            if not context.status:  # a reply that has begun is broken off: an end would look like a whole one
                await error_response(api_error)(scope, receive, noted)
        finally:
            self._note(scope, context, fault)

    def _check(self, scope: Scope, context: RequestContext) -> None:
        _check_framing(scope)
        context.allowed = self._is_known(header(scope, b"authorization"))
        if not context.allowed and scope["path"] != HEALTH_PATH:
            words = "this server wants a key it knows: Authorization: Bearer <key>"
            raise ApiError(401, words, code="invalid_api_key")
        # A page in a browser can make it send requests here, but not under this machine's own name.
        if self.hosts and _host(header(scope, b"host")) not in self.hosts:
            raise ApiError(403, "this server is not called by that name", code="wrong_host")
        if scope["method"] != "POST":
            return
        if header(scope, b"content-type").partition(";")[0].strip().lower() != "application/json":
            raise ApiError(415, "the body must be application/json", code="unsupported_media_type")
        size = header(scope, b"content-length")
        if size.isdecimal() and len(size) < 20 and int(size) > self.limits.max_body:
            raise body_too_large(self.limits)

    def _is_known(self, word: str) -> bool:
        scheme, _, given = word.partition(" ")
        digest = sha256(given.strip().encode()).digest()  # of one length, so that no length is told either
        known = [hmac.compare_digest(digest, sha256(key.encode()).digest()) for key in self.keys]
        return not self.keys or (any(known) and scheme.lower() == "bearer")

    def _note(self, scope: Scope, context: RequestContext, fault: str) -> None:
        seconds = time.perf_counter() - context.start
        self.metrics.record_request(context.route, context.status, seconds)
        level = "error" if fault else "info"
        self.log.write(
            "request",
            level=level,
            run=context.run,
            method=scope["method"],
            route=context.route,
            status=context.status,
            seconds=round(seconds, 4),
            fault=fault or None,
            **context.facts,
        )


def _check_framing(scope: Scope) -> None:
    """Refuse a body whose end another server might see elsewhere: what is behind it could be smuggled in."""
    names = [name for name, _ in scope["headers"]]
    chunked, told = b"transfer-encoding" in names, b"content-length" in names
    if chunked and (told or scope.get("http_version") == "1.0"):
        words = "a body has either a Content-Length or, in HTTP/1.1, a Transfer-Encoding"
        raise ApiError(400, words, code="ambiguous_length", close_connection=True)


def _host(word: str) -> str:
    name = word.rpartition(":")[0] if not word.endswith("]") and ":" in word else word
    return name.lower()


def _fault_location(error: BaseException) -> str:
    """Kind and place of a fault; its words may hold what a client said."""
    trace = extract_tb(error.__traceback__)
    where = f" at {trace[-1].filename.rpartition('/caps/')[2]}:{trace[-1].lineno}" if trace else ""
    return f"{type(error).__name__}{where}"
