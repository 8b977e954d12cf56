"""Handlers: one method per route of the API, and responses that are forwarded from the upstream."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from caps.core.secrets import Secrets, StreamScrubber
from caps.engines.adaptive import Step
from caps.models.base import estimate_prompt
from caps.models.wire import FORWARDED_BYTES, OversizedReplyError, limited
from caps.server.anthropic_format import counted_to_chat, model_list, model_row
from caps.server.errors import ApiError, invalid_value, to_api_error
from caps.server.events import Events, EventStreamResponse, News
from caps.server.formats import ApiFormat
from caps.server.http import (
    ASGIApp,
    JsonResponse,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    StreamingResponse,
    is_anthropic,
    run_until_disconnect,
)
from caps.server.middleware import RequestContext
from caps.server.openapi import description
from caps.server.requests import Body, ChatRequest, decode_body, wants_selection
from caps.server.service import SelectionService
from caps.server.spending import FORWARDED, ForwardedUsage
from caps.server.telemetry import JsonLog, Metrics
from caps.server.web_pages import RecentRequests, recent_response

FORWARDED_PATHS = ("completions", "embeddings")
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
# Cookies and headers about the connection are not forwarded: they belong to the connection to the upstream.
PASSED_HEADERS = ("anthropic-version", "anthropic-beta")  # of requests; all others are the gateway's own
KEPT_HEADERS = ("content-type", "retry-after", "retry-after-ms", "x-request-id")


@dataclass(frozen=True, slots=True)
class ForwardedResponse:
    """The upstream's own response, with its status, some of its headers, and its body as it arrives."""

    service: SelectionService
    path: str
    body: bytes
    headers: Mapping[str, str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Forward the request, and send the response on."""
        await run_until_disconnect(self._forward(send), receive)

    async def _forward(self, send: Send) -> None:
        deadline = asyncio.get_running_loop().time() + self.service.limits.max_seconds
        async with (
            self.service.admission.admit(deadline),
            self._response() as response,
            self._counted(response) as usage,
        ):
            # Some servers repeat the key they were sent, which belongs to this gateway and not to the client.
            status = response.status if 200 <= response.status < 600 else 502
            secrets = self.service.upstream.secrets(failed=status >= 400)
            stream = StreamingResponse(_scrubbed(response, StreamScrubber(secrets), usage), status)
            stream.raw_headers = _kept_headers(response, secrets)
            await stream.stream_response(send)

    @asynccontextmanager
    async def _counted(self, response: aiohttp.ClientResponse) -> AsyncIterator[ForwardedUsage]:
        """Count what the reply spends, also if the client leaves before its end."""
        started, usage = time.perf_counter(), ForwardedUsage()
        try:
            yield usage
        except BaseException:
            seconds = time.perf_counter() - started
            self.service.meter.count_abandoned(FORWARDED, len(self.body), seconds, usage.events or None)
            raise
        seconds = time.perf_counter() - started
        if 200 <= response.status < 400:
            self.service.meter.count(FORWARDED, usage.read(len(self.body)), seconds)
        else:
            self.service.meter.on_fault(
                seconds,
                "busy" if response.status == 429 else "refused" if 400 <= response.status < 500 else "server",
            )

    @asynccontextmanager
    async def _response(self) -> AsyncIterator[aiohttp.ClientResponse]:
        started = False
        try:
            async with self.service.upstream.post(self.path, self.body, self.headers) as response:
                started = True
                yield response
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            fault = ApiError(502, "the model server cannot be reached", code="upstream_unreachable")
        except TimeoutError:
            fault = ApiError(504, "the model server did not reply in time", code="upstream_timeout")
        except OversizedReplyError:
            fault = ApiError(
                502,
                f"the reply of the model server is larger than {FORWARDED_BYTES:,} bytes",
                code="upstream_oversized",
            )
        except (aiohttp.ClientError, OSError):
            message = (
                "the model server closed the connection" if started else "the model server sent no reply"
            )
            fault = ApiError(502, message, code="upstream_server")
        else:
            return
        self.service.meter.on_fault(0.0, fault.code.removeprefix("upstream_"))
        raise fault  # outside the handlers: an exception of aiohttp may hold the request and its headers


async def _scrubbed(
    response: aiohttp.ClientResponse, scrubber: StreamScrubber, usage: ForwardedUsage
) -> AsyncIterator[bytes]:
    async for part in limited(response, FORWARDED_BYTES):
        usage.feed(part)
        if clean := scrubber.feed(part):
            yield clean
    if rest := scrubber.end():
        yield rest


def _kept_headers(response: aiohttp.ClientResponse, secrets: Secrets) -> list[tuple[bytes, bytes]]:
    return [
        (name.lower().encode("latin-1"), secrets.scrub_text(value).encode("latin-1", "replace"))
        for name, value in response.headers.items()
        if (name.lower() in KEPT_HEADERS or name.lower().startswith("x-ratelimit-"))
        and name.isascii()
        and value.isprintable()
    ]


async def _read_body(request: Request) -> tuple[bytes, dict[str, Any]]:
    """The bytes of a body, and the JSON object that they are."""
    payload = await request.body()
    return payload, await decode_body(payload, _service(request).texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """One method per route; each answers a request with an ASGI response."""

    log: JsonLog
    metrics: Metrics
    heartbeat: float
    recent: RecentRequests | None = None

    async def answer(self, api: ApiFormat, request: Request) -> ASGIApp:
        """An answer in the form of an API: selected for `caps/…`, else the upstream's own."""
        service = _service(request)
        payload, body = await _read_body(request)
        if not wants_selection(body):
            return _forwarded(request, payload)
        chat = await service.parse_chat(body, payload, api.to_chat)
        context = RequestContext.of(request.scope)
        context.facts |= {"model": chat.model, "n": chat.config.samples, "stream": chat.stream}
        if chat.stream:
            return self._stream(service, chat, context, api.events(chat, body, context.run))
        completion = await run_until_disconnect(service.chat(chat, context.run), request.receive)
        self._record_completion(context, chat, completion)
        return JsonResponse(api.answer(completion, body), headers=_probability_header(completion["caps"]))

    async def count_tokens(self, request: Request) -> ASGIApp:
        """The tokens of a message that is not sent: estimated for `caps/…`, else the upstream's own count."""
        payload, body = await _read_body(request)
        if not wants_selection(body):
            return _forwarded(request, payload)
        chat = await _service(request).parse_chat(body, payload, counted_to_chat)
        tokens = estimate_prompt(chat.problem.messages)
        return JsonResponse({"input_tokens": tokens, "caps": {"estimated": True}})

    async def select(self, request: Request) -> ASGIApp:
        """A case in, a result line out; with `dry_run`, what it is expected to cost."""
        context = RequestContext.of(request.scope)
        payload, body = await _read_body(request)
        dry_run = body.pop("dry_run", False)
        if not isinstance(dry_run, bool):
            raise invalid_value("dry_run", "must be true or false")
        if dry_run:
            forecast = _service(request).forecast(body, payload)
            return JsonResponse(await run_until_disconnect(forecast, request.receive))
        work = _service(request).select(body, payload, context.run)
        line = await run_until_disconnect(work, request.receive)
        self._record(context, line["usage"], line)
        return JsonResponse(line, headers=_probability_header(line))

    async def forward(self, request: Request) -> ASGIApp:
        """Any other request of the OpenAI API, forwarded to the same path."""
        payload, body = await _read_body(request)
        if wants_selection(body):
            raise invalid_value(
                "model", "caps/… models answer POST /v1/chat/completions, /v1/responses and /v1/messages only"
            )
        return _forwarded(request, payload)

    async def models(self, request: Request) -> ASGIApp:
        """All models, or the one that the path names."""
        listed, name = await _service(request).models(), request.path_params.get("name")
        if name is not None:
            listed = next((row for row in listed["data"] if row["id"] == name), {})
            if not listed:
                raise ApiError(
                    404, "no such model: GET /v1/models lists them", code="model_not_found", param="model"
                )
        if is_anthropic(request.scope):
            listed = model_list(listed) if name is None else model_row(listed)
        return JsonResponse(listed)

    async def health(self, request: Request) -> ASGIApp:
        """Whether the upstream answers; clients without a key see the status only."""
        health = await _service(request).health()
        authenticated = RequestContext.of(request.scope).authenticated
        shown = health if authenticated else {"status": health["status"]}
        return JsonResponse(shown, 200 if health["status"] == "ok" else 503)

    async def live(self, request: Request) -> ASGIApp:  # noqa: ARG002
        """Whether this process answers; nothing else is asked, so an outage of the upstream does not show."""
        return JsonResponse({"status": "live"})

    async def ready(self, request: Request) -> ASGIApp:
        """Whether requests can be answered now: the upstream is asked."""
        health = await _service(request).health()
        ready = health["status"] == "ok"
        return JsonResponse({"status": "ready" if ready else "not ready"}, 200 if ready else 503)

    async def metrics_page(self, request: Request) -> ASGIApp:  # noqa: ARG002
        """The metrics in the text format of Prometheus."""
        return Response(self.metrics.render(), media_type=PROMETHEUS_TEXT)

    async def openapi(self, request: Request) -> ASGIApp:
        """The OpenAPI description of this server."""
        service = _service(request)
        return JsonResponse(description(service.config, service.limits))

    async def recent_requests(self, request: Request) -> ASGIApp:  # noqa: ARG002
        """The recent requests of this process, if they are kept."""
        return recent_response(self.recent)

    def _stream(
        self, service: SelectionService, chat: ChatRequest, context: RequestContext, events: Events
    ) -> EventStreamResponse:
        news = News()

        def follow(step: Step) -> None:
            if chat.include_progress:
                news.add(events.progress(step))

        async def work() -> Body:
            completion = await service.chat(chat, context.run, follow)
            self._record_completion(context, chat, completion)
            return completion

        def fail(error: BaseException) -> ApiError:
            api_error = to_api_error(error, service.upstream.address)
            context.facts["error"] = api_error.code
            return api_error

        return EventStreamResponse(work(), events=events, fail=fail, heartbeat=self.heartbeat, news=news)

    def _record_completion(self, context: RequestContext, chat: ChatRequest, completion: Body) -> None:
        self._record(context, completion["usage"], completion["caps"])
        choices = [choice["message"] for choice in completion["choices"]]
        if self.recent is not None:
            self.recent.add(context, chat, completion, time.perf_counter() - context.start)
        self.log.write_content(context.run, messages=chat.fields["messages"], choices=choices)

    def _record(self, context: RequestContext, usage: dict[str, Any], facts: dict[str, Any]) -> None:
        self.metrics.record_answer(usage, facts)
        kept = ("strategy", "domain", "samples", "failed", "clusters", "provisional", "causes")
        context.facts |= {name: facts[name] for name in kept if name in facts}
        context.facts |= {name: usage[name] for name in ("prompt_tokens", "completion_tokens")}
        context.facts["judge_calls"] = usage["caps"]["verifier"]["calls"]


def _probability_header(facts: dict[str, Any]) -> dict[str, str]:
    """The header with the probability that the choice is right, if the strategy gives one."""
    probability = facts.get("probability")
    return {} if probability is None else {"x-caps-probability": str(probability)}


def _service(request: Request) -> SelectionService:
    service = request.app.state.service
    assert isinstance(service, SelectionService)  # noqa: S101
    return service


def _forwarded(request: Request, payload: bytes) -> ForwardedResponse:
    path = RequestContext.of(request.scope).route.removeprefix("/v1/")
    headers = {name: request.headers[name] for name in PASSED_HEADERS if name in request.headers}
    return ForwardedResponse(_service(request), path, payload, headers)
