"""Figures for Prometheus; its package is imported nowhere else.

No label takes a word of a client's, so the number of series has a bound.
"""

from typing import Any

from caps.core.errors import MissingExtraError
from caps.server.crowd import Crowd

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")


class Metrics:
    """Counts requests, samples, judge calls and tokens."""

    def __init__(self, crowd: Crowd) -> None:
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
            ("working", "Requests under way", lambda: crowd.working),
            ("waiting", "Requests that wait for their turn", lambda: crowd.waiting),
        ):
            Gauge(f"caps_{name}", about, registry=self._registry).set_function(value)

    def visited(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def answered(self, usage: dict[str, Any], facts: dict[str, Any]) -> None:
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

    def page(self) -> bytes:
        """The page Prometheus reads."""
        return bytes(self._write(self._registry))
