"""Log lines: JSON, one an event, without prompts, answers and keys unless asked for.

Figures for Prometheus; its package is imported nowhere else.

No label takes a word of a client's, so the number of series has a bound.
"""

import sys
import time
from dataclasses import dataclass, field
from typing import IO, Any

import msgspec

from caps.core.errors import MissingExtraError
from caps.core.text import printable_json
from caps.server.admission import Admission

MAX_TEXT = 200
SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")


@dataclass(frozen=True, slots=True)
class JsonLog:
    """Writes lines; `prompts` lets what clients and models say in, `quiet` everything out but faults."""

    prompts: bool = False
    quiet: bool = False
    file: IO[str] = field(default_factory=lambda: sys.stderr)

    def write(self, event: str, *, level: str = "info", **fields: object) -> None:
        """Write one line; texts are cut, and line breaks in them escaped, so a line is a line."""
        if self.quiet and level == "info":
            return
        line = {"time": round(time.time(), 3), "level": level, "event": event}
        line |= {name: _short(value) for name, value in fields.items() if value is not None}
        self.file.write(printable_json(msgspec.json.encode(line)).decode() + "\n")
        self.file.flush()

    def write_text(self, run: str, **words: object) -> None:
        """Write what was said, if that is wanted."""
        if self.prompts:
            line = {"time": round(time.time(), 3), "level": "info", "event": "words", "run": run, **words}
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
            "caps_request_seconds", "Time of a request", ["route"], buckets=SECONDS, registry=self._registry
        )
        self._tokens = counter("tokens", "Tokens, by what they were for", "part", "kind")
        self._calls = counter("calls", "Upstream calls, by what they were for", "part")
        self._failed = counter("samples_failed", "Samples that never came in")
        self._unanimous = counter("unanimous", "Answers that needed no judge")
        self._provisional = counter("provisional", "Answers chosen before the contest was over")
        self._saved = counter("samples_saved", "Samples not drawn because the answers had settled")
        for name, about, value in (
            ("working", "Requests under way", lambda: admission.working),
            ("waiting", "Requests that wait for their turn", lambda: admission.waiting),
        ):
            Gauge(f"caps_{name}", about, registry=self._registry).set_function(value)

    def record_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def record_answer(self, usage: dict[str, Any], facts: dict[str, Any]) -> None:
        """Count what an answer took."""
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
        """The page Prometheus reads."""
        return bytes(self._write(self._registry))
