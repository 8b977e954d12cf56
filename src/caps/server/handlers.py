"""Requests that are none of ours: sent on as they are, and what comes back likewise, streams included.

Where requests are taken: one method a route, each an ASGI app of its own.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from caps.core.secrets import Secrets, StreamScrubber
from caps.models.http import Upstream
from caps.models.wire import FORWARDED_BYTES, OversizedReplyError, limited
from caps.server.admission import Admission, BodyLimits
from caps.server.errors import ApiError, invalid_value, to_api_error
from caps.server.http import (
    ASGIApp,
    EventStreamResponse,
    RawHeaders,
    Receive,
    Response,
    Scope,
    Send,
    run_until_disconnect,
    send_last,
    send_more,
    send_start,
)
from caps.server.middleware import RequestContext
from caps.server.openai_format import Completion, completion_chunks
from caps.server.openapi import description
from caps.server.requests import ChatRequest, decode_body, wants_selection
from caps.server.service import SelectionService
from caps.server.telemetry import JsonLog, Metrics

PATHS = ("chat/completions", "completions", "embeddings", "responses")
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
# Neither cookies nor anything about the connection, which is another one.
KEPT_HEADERS = ("content-type", "retry-after", "retry-after-ms", "x-request-id")


@dataclass(frozen=True, slots=True)
class ForwardedResponse:
    """A reply that is the upstream's."""

    upstream: Upstream
    admission: Admission
    path: str
    body: bytes
    seconds: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send on, and back."""
        await run_until_disconnect(self._pass_on(send), receive)

    async def _pass_on(self, send: Send) -> None:
        until = asyncio.get_running_loop().time() + self.seconds
        async with self.admission.admit(until), self._response() as response:
            # Some servers repeat the key they were sent, which is not the client's.
            status = response.status if response.status < 600 else 502
            secrets = self.upstream.secrets(failed=status >= 400)
            scrubber = StreamScrubber(secrets)
            await send_start(send, status, _kept_headers(response, secrets))
            async for part in limited(response, FORWARDED_BYTES):
                if clean := scrubber.feed(part):
                    await send_more(send, clean)
            await send_last(send, scrubber.end())

    @asynccontextmanager
    async def _response(self) -> AsyncIterator[aiohttp.ClientResponse]:
        started = False
        try:
            async with self.upstream.post(self.path, self.body) as response:
                started = True
                yield response
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            fault = ApiError(502, "the model server cannot be reached", code="upstream_unreachable")
        except TimeoutError:
            fault = ApiError(504, "the model server did not reply in time", code="upstream_timeout")
        except OversizedReplyError:
            fault = ApiError(502, "the model server sent more than is passed on", code="upstream_oversized")
        except (aiohttp.ClientError, OSError):
            words = "the model server broke off" if started else "the model server sent no reply"
            fault = ApiError(502, words, code="upstream_server")
        else:
            return
        raise fault  # not where it was caught: what aiohttp raises may hold the request with its headers


def _kept_headers(response: aiohttp.ClientResponse, secrets: Secrets) -> RawHeaders:
    return [
        (name.lower().encode("latin-1"), secrets.scrub_text(value).encode("latin-1", "replace"))
        for name, value in response.headers.items()
        if (name.lower() in KEPT_HEADERS or name.lower().startswith("x-ratelimit-"))
        and name.isascii()
        and value.isprintable()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """Answers routes from a desk, and counts what answers took."""

    service: SelectionService
    bodies: BodyLimits
    log: JsonLog
    metrics: Metrics
    heartbeat: float

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A chat completion: selected for `caps/…`, else the upstream's own."""
        async with self.bodies.read(receive) as payload:
            body = decode_body(payload)
            if not wants_selection(body):
                await self._forwarded("chat/completions", payload)(scope, receive, send)
                return
            request, context = await self.service.read(body, payload), _context(scope)
            context.facts |= {"model": request.model, "n": request.config.samples, "stream": request.stream}
            if request.stream:
                await self._streamed(request, context)(scope, receive, send)
                return
            done = await run_until_disconnect(self.service.chat(request, context.run), receive)
            self._answered(context, done, request=request)
            await Response(done)(scope, receive, send)

    async def select(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A case in, a result out."""
        async with self.bodies.read(receive) as payload:
            context = _context(scope)
            line = await run_until_disconnect(
                self.service.select(decode_body(payload), payload, context.run), receive
            )
            self._count(context, line["usage"], line)
            await Response(line)(scope, receive, send)

    def forward(self, path: str) -> ASGIApp:
        """The app that sends requests on to a path."""

        async def forward(scope: Scope, receive: Receive, send: Send) -> None:
            async with self.bodies.read(receive) as payload:
                if wants_selection(decode_body(payload)):
                    raise invalid_value(
                        "model", "caps/… answers chat completions only: POST /v1/chat/completions"
                    )
                await self._forwarded(path, payload)(scope, receive, send)

        return forward

    async def models(self, scope: Scope, receive: Receive, send: Send) -> None:
        """All models, or the one that the path names."""
        listed, name = await self.service.models(), scope["path_params"].get("name")
        if name is not None:
            listed = next((row for row in listed["data"] if row["id"] == name), {})
            if not listed:
                raise ApiError(404, "there is no such model", code="model_not_found", param="model")
        await Response(listed)(scope, receive, send)

    async def health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whether answers can be had; who has no key learns no more than that."""
        told = await self.service.health()
        shown = told if _context(scope).allowed else {"status": told["status"]}
        await Response(shown, 200 if told["status"] == "ok" else 503)(scope, receive, send)

    async def metrics_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The page Prometheus reads."""
        await Response(self.metrics.render(), kind=PLAIN)(scope, receive, send)

    async def openapi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The description of all this."""
        await Response(description(self.service.config, self.service.limits))(scope, receive, send)

    def _streamed(self, request: ChatRequest, context: RequestContext) -> EventStreamResponse[Completion]:
        def write(done: Completion) -> Iterator[bytes]:
            self._answered(context, done, request=request)
            return completion_chunks(done, include_usage=request.include_usage)

        def fail(error: BaseException) -> ApiError:
            api_error = to_api_error(error, self.service.upstream.address)
            context.facts["error"] = api_error.code
            return api_error

        return EventStreamResponse(self.service.chat(request, context.run), write, fail, self.heartbeat)

    def _forwarded(self, path: str, payload: bytes) -> ForwardedResponse:
        return ForwardedResponse(
            self.service.upstream, self.service.admission, path, payload, self.service.limits.max_seconds
        )

    def _answered(self, context: RequestContext, done: Completion, *, request: ChatRequest) -> None:
        self._count(context, done["usage"], done["caps"])
        choices = [choice["message"] for choice in done["choices"]]
        self.log.write_text(context.run, messages=request.fields["messages"], choices=choices)

    def _count(self, context: RequestContext, usage: dict[str, Any], facts: dict[str, Any]) -> None:
        self.metrics.record_answer(usage, facts)
        kept = ("strategy", "domain", "samples", "failed", "clusters", "provisional", "causes")
        context.facts |= {name: facts[name] for name in kept if name in facts}
        context.facts |= {name: usage[name] for name in ("prompt_tokens", "completion_tokens")}
        context.facts["judge_calls"] = usage["caps"]["verifier"]["calls"]


def _context(scope: Scope) -> RequestContext:
    context = scope["caps.context"]
    assert isinstance(context, RequestContext)  # noqa: S101
    return context
