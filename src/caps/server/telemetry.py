"""Telemetry: log lines in JSON, and metrics for Prometheus.

Log lines contain no prompts and answers unless these are switched on, and never keys. No label of a metric
contains text from a client, so the number of time series is bounded.

No other module imports prometheus_client.
"""

import sys
import time
from dataclasses import dataclass, field
from typing import IO, Any

import msgspec

from caps.core.errors import MissingExtraError
from caps.core.text import printable_json
from caps.server.admission import Admission

MAX_TEXT = 200  # characters of a text in a log line
SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")


@dataclass(frozen=True, slots=True)
class JsonLog:
    """Writes one JSON object per line. `prompts` adds prompts and answers, `quiet` leaves only errors."""

    prompts: bool = False
    quiet: bool = False
    file: IO[str] = field(default_factory=lambda: sys.stderr)

    def write(self, event: str, *, level: str = "info", **fields: object) -> None:
        """Write one line. Texts are truncated and line breaks escaped, so an event is always one line."""
        if self.quiet and level == "info":
            return
        line = {"time": round(time.time(), 3), "level": level, "event": event}
        line |= {name: _short(value) for name, value in fields.items() if value is not None}
        self.file.write(printable_json(msgspec.json.encode(line)).decode() + "\n")
        self.file.flush()

    def write_content(self, run: str, **content: object) -> None:
        """Write prompts and answers, if `prompts` is set."""
        if self.prompts:
            line = {"time": round(time.time(), 3), "level": "info", "event": "content", "run": run, **content}
            self.file.write(printable_json(msgspec.json.encode(line)).decode() + "\n")
            self.file.flush()


def _short(value: object) -> object:
    return value[:MAX_TEXT] if isinstance(value, str) else value


class Metrics:
    """Counts requests, samples, judge calls and tokens."""

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
        self._seconds = Histogram(
            "caps_request_seconds", "Seconds per request", ["route"], buckets=SECONDS, registry=self._registry
        )
        self._tokens = counter("tokens", "Tokens, by part (generation, verifier) and kind", "part", "kind")
        self._calls = counter("calls", "Calls to the upstream, by part (generation, verifier)", "part")
        self._failed = counter("samples_failed", "Samples that failed")
        self._unanimous = counter("unanimous", "Answers selected without a judge call")
        self._provisional = counter("provisional", "Answers selected before the contest was complete")
        self._saved = counter("samples_saved", "Samples saved by early exit")
        for name, about, value in (
            ("working", "Requests that run now", lambda: admission.working),
            ("waiting", "Requests that wait to run", lambda: admission.waiting),
        ):
            Gauge(f"caps_{name}", about, registry=self._registry).set_function(value)

    def record_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request and its duration."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def record_answer(self, usage: dict[str, Any], facts: dict[str, Any]) -> None:
        """Count the samples, calls and tokens of an answer."""
        split = usage["caps"]
        for part in ("generation", "verifier"):
            spent = split.get(part, {"calls": 0})
            self._calls.labels(part).inc(spent["calls"])
            for kind in TOKENS:
                self._tokens.labels(part, kind.removesuffix("_tokens")).inc(spent.get(kind, 0))
        self._failed.inc(facts.get("failed", 0))
        self._provisional.inc(bool(facts.get("provisional")))
        self._unanimous.inc(not split["verifier"]["calls"])
        self._saved.inc(split.get("early_exit", {}).get("saved_samples", 0))

    def render(self) -> bytes:
        """The metrics in the text format of Prometheus."""
        return bytes(self._write(self._registry))
