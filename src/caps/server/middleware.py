"""Middleware around every request: its id, log line and metrics, error objects, and limits of bodies.

Invariants:

* Whatever fails, the client gets an error object and never a traceback.
* A response that has started is never completed after an error: a clean end would make it look whole.
* A body counts as held until its request has been answered.
"""

import asyncio
import time
from dataclasses import dataclass, field
from traceback import extract_tb
from uuid import uuid4

from caps.core.errors import CapsError
from caps.server.admission import Limits
from caps.server.errors import ApiError, to_api_error
from caps.server.http import ASGIApp, ClientDisconnect, Headers, Message, Receive, Scope, Send, error_response
from caps.server.spending import Spending, spending_of_request
from caps.server.telemetry import JsonLog, Metrics

CLIENT_CLOSED_REQUEST = 499  # the status that proxies log for a client that disconnected
CONTEXT = "caps.context"


@dataclass(slots=True)
class RequestContext:
    """One request: `facts` are fields of its log line, `status` is 0 until a response starts."""

    run: str = field(default_factory=lambda: uuid4().hex)
    start: float = field(default_factory=time.perf_counter)
    status: int = 0
    route: str = "other"
    authenticated: bool = True
    fault: str = ""
    facts: dict[str, object] = field(default_factory=dict)
    spending: Spending = field(default_factory=Spending)

    @property
    def answered(self) -> bool:
        """Whether the client got an answer, as far as this server knows."""
        return 200 <= self.status < 400 and "error" not in self.facts

    @classmethod
    def of(cls, scope: Scope) -> "RequestContext":
        """The context of a request that `RequestLogMiddleware` has seen."""
        context = scope[CONTEXT]
        assert isinstance(context, cls)  # noqa: S101
        return context


class RequestLogMiddleware:
    """Gives a request its id (the header `x-caps-run-id`), and writes its log line and metrics."""

    def __init__(self, app: ASGIApp, *, log: JsonLog, metrics: Metrics) -> None:
        self.app, self._log, self._metrics = app, log, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and record it when it has ended."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        context = scope[CONTEXT] = RequestContext()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.status = message["status"]
                run_id = (b"x-caps-run-id", context.run.encode())
                message = {**message, "headers": [*message["headers"], run_id]}
            await send(message)

        try:
            with spending_of_request(context.spending):
                await self.app(scope, receive, send_with_id)
        finally:
            self._record(context, method=scope["method"])

    def _record(self, context: RequestContext, *, method: str) -> None:
        seconds = time.perf_counter() - context.start
        self._metrics.record_request(context.route, context.status, seconds)
        spent = context.spending.total
        if not context.answered:
            self._metrics.record_abandoned(spent)
        if context.spending.calls:  # what an answer reports of its own usage is kept
            reported = {"prompt_tokens": spent.prompt, "completion_tokens": spent.output}
            context.facts = {**reported, **context.facts}
        self._log.write(
            "request",
            level="error" if context.fault else "info",
            run=context.run,
            method=method,
            route=context.route,
            status=context.status,
            seconds=round(seconds, 4),
            fault=context.fault or None,
            **context.facts,
        )


class ErrorMiddleware:
    """Turns exceptions into error objects, as long as no response has started."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and send an error object for what it raises."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        context = RequestContext.of(scope)
        try:
            await self.app(scope, receive, send)
        except ClientDisconnect:
            context.status = CLIENT_CLOSED_REQUEST
        except asyncio.CancelledError:
            if not context.status:
                stopping = ApiError(
                    503, "this server is stopping: try again later", code="stopping", retry_after=5
                )
                await error_response(stopping, scope, context.run)(scope, receive, send)
            raise
        except Exception as error:
            if not isinstance(error, ApiError | CapsError):
                context.fault = _fault_location(error)
            api_error = to_api_error(error, scope["app"].state.service.upstream.address)
            context.facts["error"] = api_error.code
            if not context.status:
                await error_response(api_error, scope, context.run)(scope, receive, send)


class BodyLimitMiddleware:
    """Limits the size of a body, the time it may take to arrive, and the bytes of all bodies held at once.

    The declared type and length are checked before anything is read, the bytes that arrive as the application
    receives them.
    """

    def __init__(self, app: ASGIApp, *, limits: Limits) -> None:
        self.app, self.limits = app, limits
        self.held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with a `receive` that keeps to the limits."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] == "POST":
            self._check_headers(Headers(scope=scope))
        size, complete, deadline = 0, False, None

        async def receive_within_limits() -> Message:
            nonlocal size, complete, deadline
            if complete:
                return await receive()
            if deadline is None:
                deadline = asyncio.get_running_loop().time() + self.limits.body_seconds
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                words = f"the body did not arrive within {self.limits.body_seconds:g} seconds"
                raise ApiError(408, words, code="request_timeout") from None
            if message["type"] == "http.request":
                arrived = len(message.get("body", b""))
                size += arrived
                self.held += arrived
                complete = not message.get("more_body", False)
                self._check_size(size)
            return message

        try:
            await self.app(scope, receive_within_limits, send)
        finally:
            self.held -= size

    def _check_headers(self, headers: Headers) -> None:
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise ApiError(
                415,
                "the body must be JSON: send Content-Type: application/json",
                code="unsupported_media_type",
            )
        length = headers.get("content-length", "")
        if length.isdecimal() and len(length) < 20 and int(length) > self.limits.max_body:
            raise self._too_large()

    def _check_size(self, size: int) -> None:
        if size > self.limits.max_body:
            raise self._too_large()
        if self.held > self.limits.max_held:
            raise ApiError(
                503,
                "the requests in progress hold too much memory: try again later",
                code="too_busy",
                retry_after=1,
            )

    def _too_large(self) -> ApiError:
        words = f"the body is larger than {self.limits.max_body:,} bytes"
        return ApiError(413, words, code="request_too_large")


def _fault_location(error: BaseException) -> str:
    """Type and place of an unexpected error. Its message is left out: it may quote what a client sent."""
    trace = extract_tb(error.__traceback__)
    where = f" at {trace[-1].filename.rpartition('/caps/')[2]}:{trace[-1].lineno}" if trace else ""
    return f"{type(error).__name__}{where}"
