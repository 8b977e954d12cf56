"""Spans and metrics of a run through OpenTelemetry; no other module imports it.

A case is a span `caps.case` with one span `caps.judge` for each question to the judge; an answer that is
generated is a span `caps.generate`. They hold ids, sizes, costs and results, never a prompt, a candidate, a
reply or the words of an error. They belong to the span that is current where the run is started.

A program that has set up OpenTelemetry gets them in its own pipeline. Otherwise they are sent with OTLP over
HTTP, as the environment variables of OpenTelemetry (`OTEL_EXPORTER_OTLP_ENDPOINT` and so on) say.
"""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

from caps.core.errors import InputError, MissingExtraError, ModelError
from caps.core.play import Strategy
from caps.core.types import (
    Answer,
    Ask,
    Case,
    Pairing,
    Pick,
    Rating,
    Round,
    Solo,
    Unanswered,
    Usage,
    Verdict,
)
from caps.costs.budget import Budget
from caps.costs.prices import Price
from caps.engines.base import Outcome, PerCase
from caps.engines.local import LocalEngine
from caps.judging.base import Judge, PreparedCase, Ruling
from caps.models.base import Completion, Model, Request

SCOPE = "caps"
_growing: ContextVar[bool] = ContextVar("caps_growing", default=False)  # a case that still gets candidates


class Instruments(NamedTuple):
    """A tracer and what counts; made once for the providers of a program."""

    tracer: Any
    cases: Any
    calls: Any
    tokens: Any
    usd: Any
    seconds: Any


class Tracing:
    """Writes the spans and metrics of one engine or sampler."""

    def __init__(self) -> None:
        self._trace, spans, meters = _providers()
        self._to = _instruments(spans, meters)
        self._open: dict[int, Any] = {}  # spans of cases, by the id of what was prepared for them

    def judge(self, judge: Judge) -> "TracedJudge":
        """The judge with a span for each question."""
        return TracedJudge(judge, self)

    def model(self, model: Model) -> "TracedModel":
        """A generating model with a span for each answer."""
        return TracedModel(model, self)

    def span(self, name: str, prepared: PreparedCase | None = None) -> Any:
        """Start a span, inside that of its case if there is one."""
        if prepared is None or _growing.get():
            return self._to.tracer.start_span(name)
        parent = self._open.get(id(prepared))
        if parent is None:
            parent = self._open[id(prepared)] = self._to.tracer.start_span("caps.case")
        return self._to.tracer.start_span(name, context=self._trace.set_span_in_context(parent))

    def end_case(self, outcome: Outcome, price: Price | None) -> None:
        """End the span of a case with its result and costs."""
        span = self._open.pop(id(outcome.prepared), None) or self._to.tracer.start_span("caps.case")
        total, chosen = outcome.ledger.total(), outcome.selection
        usd = None if price is None else price.of_sums(total)
        values: dict[str, Any] = {
            "caps.case.id": outcome.name,
            "caps.calls": total.calls,
            "gen_ai.usage.input_tokens": total.billed,
            "gen_ai.usage.output_tokens": total.output,
            "caps.usd": usd,
        }
        if outcome.prepared is not None:
            values["caps.domain"] = outcome.prepared.case.domain
            values["caps.candidates"] = len(outcome.prepared.case.candidates)
        if chosen is not None:
            values["caps.winner"] = chosen.winner
            values["caps.probability"] = chosen.facts.get("probability")
            values["caps.provisional"] = chosen.provisional
        self.finish(span, values, "" if chosen is not None else "not selected")
        self._to.cases.add(1, {"caps.outcome": "selected" if chosen is not None else "failed"})
        if usd is not None:
            self._to.usd.add(usd)

    def stop(self) -> None:
        """End the spans of cases that were not finished."""
        while self._open:
            _, span = self._open.popitem()
            self.finish(span, {}, "stopped")

    def finish(self, span: Any, values: dict[str, Any], error: str = "") -> None:
        """End a span with its attributes."""
        span.set_attributes({name: value for name, value in values.items() if value is not None})
        if error:
            span.set_attribute("error.type", error)
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        span.end()

    def count(self, kind: str, usage: Usage, seconds: float, *, replayed: bool) -> None:
        """Count a call."""
        self._to.calls.add(1, {"caps.kind": kind, "caps.replayed": replayed})
        if not replayed:
            self._to.tokens.add(usage.prompt, {"caps.kind": kind, "gen_ai.token.type": "input"})
            self._to.tokens.add(usage.output, {"caps.kind": kind, "gen_ai.token.type": "output"})
            self._to.seconds.record(seconds, {"caps.kind": kind})


class TracedJudge:
    """A judge with a span for each question."""

    def __init__(self, judge: Judge, tracing: Tracing) -> None:
        self._judge, self._tracing = judge, tracing

    async def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Ruling:
        """Ask the judge."""
        span = self._tracing.span("caps.judge", prepared)
        values: dict[str, Any] = {
            "caps.case.id": prepared.case.id,
            "caps.ask": "pair" if isinstance(ask, Pairing) else "rating" if isinstance(ask, Solo) else "pick",
            "caps.level": str(ask.level),
            "caps.shown": list(ask.entrants),
        }
        try:
            ruling = await self._judge.rule(prepared, ask, budget)
        except BaseException as error:
            self._tracing.finish(span, values, _kind(error))
            raise
        for one in ruling.attempts:
            self._tracing.count("judge", one.usage, one.latency, replayed=one.replayed)
        paid = [one.usage for one in ruling.attempts if not one.replayed]
        values |= {
            "gen_ai.usage.input_tokens": sum(one.prompt for one in paid),
            "gen_ai.usage.output_tokens": sum(one.output for one in paid),
            "caps.cached_tokens": sum(one.cached for one in paid),
            "caps.attempts": len(ruling.attempts),
            "caps.replayed": bool(ruling.attempts) and not paid,
            "caps.answer": _answer(ruling.answer),
        }
        self._tracing.finish(span, values, "unanswered" if isinstance(ruling.answer, Unanswered) else "")
        return ruling

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:
        """As the judge says."""
        return self._judge.max_usage(prepared, ask)


class TracedModel:
    """A generating model with a span for each answer."""

    def __init__(self, model: Model, tracing: Tracing) -> None:
        self._model, self._tracing = model, tracing

    async def complete(self, request: Request) -> Completion:
        """Let the model answer."""
        span = self._tracing.span("caps.generate")
        values: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": request.model}
        try:
            reply = await self._model.complete(request)
        except BaseException as error:
            self._tracing.finish(span, values, _kind(error))
            raise
        self._tracing.count("generate", reply.usage, reply.latency, replayed=reply.replayed)
        values |= {
            "gen_ai.usage.input_tokens": 0 if reply.replayed else reply.usage.prompt,
            "gen_ai.usage.output_tokens": 0 if reply.replayed else reply.usage.output,
            "gen_ai.response.finish_reasons": [reply.finish],
            "caps.replayed": reply.replayed,
        }
        self._tracing.finish(span, values)
        return reply

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()


class TracedEngine(LocalEngine):
    """An engine whose cases are spans; set `tracing` before the first run, and give it a traced judge."""

    tracing: Tracing

    async def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase, *, seed: int
    ) -> AsyncGenerator[Outcome, None]:
        """Run all cases, and end the span of each with its outcome."""
        try:
            async with aclosing(super().run(cases, strategy, seed=seed)) as outcomes:
                async for outcome in outcomes:
                    self.tracing.end_case(outcome, self._price)
                    yield outcome
        finally:
            self.tracing.stop()

    async def ask(
        self, prepared: PreparedCase, round_: Round, budget: Budget, patience: float | None = None
    ) -> tuple[Outcome, tuple[Answer, ...]]:
        """Ask one round about a case that still grows: its questions belong to the span of the caller."""
        token = _growing.set(True)
        try:
            return await super().ask(prepared, round_, budget, patience)
        finally:
            _growing.reset(token)


def _answer(answer: Answer) -> str | float | None:
    if isinstance(answer, Verdict):
        return "TIE" if answer.a == answer.b else "A" if answer.a > answer.b else "B"
    if isinstance(answer, Rating):
        return answer.value
    return answer.winner if isinstance(answer, Pick) else None


def _kind(error: BaseException) -> str:
    """The kind of an error without its words, which may quote a prompt."""
    return error.cause if isinstance(error, ModelError) else type(error).__name__


def _providers() -> tuple[Any, Any, Any]:
    """The API of spans and the providers of the program; if it has set up none, those that send with OTLP."""
    try:
        from opentelemetry import metrics, trace  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("opentelemetry-sdk", "otel", "--otel") from None
    spans, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
    if isinstance(spans, trace.ProxyTracerProvider):
        spans, meters = _sending()
    return trace, spans, meters


@cache
def _instruments(spans: Any, meters: Any) -> Instruments:
    meter = meters.get_meter(SCOPE)
    return Instruments(
        spans.get_tracer(SCOPE),
        meter.create_counter("caps.cases", "1", "cases, by how they ended"),
        meter.create_counter("caps.calls", "1", "calls to models"),
        meter.create_counter("caps.tokens", "1", "tokens that were paid for"),
        meter.create_counter("caps.usd", "USD", "what the judge cost, where the price is known"),
        meter.create_histogram("caps.call.duration", "s", "seconds of a call"),
    )


@cache
def _sending() -> tuple[Any, Any]:
    """Providers that send with OTLP over HTTP; what is left is sent when the program ends."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("opentelemetry-exporter-otlp-proto-http", "otel", "--otel") from None
    named = str(Resource.create().attributes.get("service.name", "unknown_service"))
    resource = Resource.create({"service.name": SCOPE} if named.startswith("unknown_service") else {})
    spans = TracerProvider(resource=resource)
    spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource=resource)
    return spans, meters
