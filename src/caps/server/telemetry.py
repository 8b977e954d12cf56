"""Telemetry: log lines in JSON, and metrics for Prometheus.

Log lines contain no prompts and answers unless these are switched on, and never keys. No label of a metric
contains text from a client, so the number of time series is bounded.

No other module imports prometheus_client.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import msgspec

from caps.core.errors import MissingExtraError
from caps.core.text import printable_json
from caps.core.types import Usage
from caps.server.admission import Admission

MAX_TEXT = 200  # characters of a text in a log line
SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
WAITS = (0.001, 0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300)
PROBABILITIES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class JsonLog:
    """Writes one JSON object per line. `prompts` adds prompts and answers, `quiet` leaves only errors."""

    prompts: bool = False
    quiet: bool = False
    file: IO[str] = field(default_factory=lambda: sys.stderr)

    def write(self, event: str, *, level: str = "info", **fields: object) -> None:
        """Write one line. Texts are truncated and line breaks escaped, so an event is always one line."""
        if not self.quiet or level != "info":
            self._write(
                level, event, {name: _short(value) for name, value in fields.items() if value is not None}
            )

    def write_content(self, run: str, **content: object) -> None:
        """Write prompts and answers, if `prompts` is set."""
        if self.prompts:
            self._write("info", "content", {"run": run, **content})

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        line = {"time": round(time.time(), 3), "level": level, "event": event, **fields}
        self.file.write(printable_json(msgspec.json.encode(line)).decode() + "\n")
        self.file.flush()


def _short(value: object) -> object:
    return value[:MAX_TEXT] if isinstance(value, str) else value


class Metrics:
    """Counts requests, waits, answers, and the calls to the upstream with their tokens."""

    def __init__(self, admission: Admission) -> None:
        try:
            from prometheus_client import (  # noqa: PLC0415
                CollectorRegistry,
                Counter,
                Gauge,
                Histogram,
                generate_latest,
            )
        except ImportError:
            raise MissingExtraError("prometheus-client", "server", "caps serve") from None
        self._registry = CollectorRegistry()
        self._write = generate_latest

        def counter(name: str, about: str, *labels: str) -> Any:
            return Counter(f"caps_{name}", about, labels, registry=self._registry)

        self._requests = counter("requests", "Requests answered", "route", "status")

        def histogram(name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Any:
            return Histogram(f"caps_{name}", about, labels, buckets=buckets, registry=self._registry)

        parts = "by part (generation, verifier, forwarded)"
        self._seconds = histogram("request_seconds", "Seconds per request", SECONDS, "route")
        self._waits = histogram(
            "queue_seconds", "Seconds waited: requests to run, calls for a connection", WAITS, "queue"
        )
        self._probability = histogram(
            "probability", "Probability that the chosen answer is right", PROBABILITIES
        )
        self._upstream = histogram(
            "upstream_seconds", f"Seconds per answered call to the upstream, {parts}", SECONDS, "part"
        )
        self._errors = counter("upstream_errors", "Failed attempts at the upstream, by cause", "cause")
        self._tokens = counter(
            "tokens", f"Tokens that the upstream reported, {parts} and kind", "part", "kind"
        )
        self._calls = counter("calls", f"Calls whose usage the upstream reported, {parts}", "part")
        unreported = "cancelled calls and replies without usage"
        self._estimated_tokens = counter(
            "tokens_estimated", f"Estimated tokens of {unreported}, {parts} and kind", "part", "kind"
        )
        self._estimated_calls = counter("calls_estimated", f"Number of {unreported}, {parts}", "part")
        self._abandoned = counter(
            "abandoned_tokens", "Tokens of requests that failed or whose client left", "kind"
        )
        self._failed = counter("samples_failed", "Samples that failed")
        self._unanimous = counter("unanimous", "Answers selected without a judge call")
        self._provisional = counter("provisional", "Answers selected before the contest was complete")
        for name, about, value in (
            ("working", "Requests that run now", lambda: admission.working),
            ("waiting", "Requests that wait to run", lambda: admission.waiting),
        ):
            Gauge(f"caps_{name}", about, registry=self._registry).set_function(value)
        admission.on_wait = self._waits.labels("request").observe

    def record_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request and its duration."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def record_answer(self, usage: dict[str, Any], facts: dict[str, Any]) -> None:
        """Count an answer: its samples that failed, and how sure it is."""
        split = usage["caps"]
        self._failed.inc(facts.get("failed", 0))
        self._provisional.inc(bool(facts.get("provisional")))
        self._unanimous.inc(not split["verifier"]["calls"])
        if facts.get("probability") is not None:
            self._probability.observe(facts["probability"])

    def record_wait(self, queue: str, seconds: float) -> None:
        """Count a wait in a queue."""
        self._waits.labels(queue).observe(seconds)

    def record_upstream(self, part: str, seconds: float, cause: str | None) -> None:
        """Count the duration of a call, or the cause of its failure."""
        if cause is None:
            self._upstream.labels(part).observe(seconds)
        else:
            self._errors.labels(cause).inc()

    def record_call(self, part: str, usage: Usage) -> None:
        """Count a call and its tokens; estimates are counted apart from what the upstream reported."""
        call_counter = self._estimated_calls if usage.estimated else self._calls
        token_counter = self._estimated_tokens if usage.estimated else self._tokens
        call_counter.labels(part).inc()
        for kind, tokens in _kinds(usage):
            token_counter.labels(part, kind).inc(tokens)

    def record_abandoned(self, usage: Usage) -> None:
        """Count the tokens of a request that got no answer; they are in the tokens of its parts too."""
        for kind, tokens in _kinds(usage):
            self._abandoned.labels(kind).inc(tokens)

    def render(self) -> bytes:
        """The metrics in the text format of Prometheus."""
        return bytes(self._write(self._registry))


def _kinds(usage: Usage) -> Iterator[tuple[str, int]]:
    yield "prompt", usage.prompt
    yield "completion", usage.output
    yield "cached", usage.cached
    yield "reasoning", usage.reasoning
