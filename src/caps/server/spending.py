"""What requests spend at the upstream, also those that are abandoned, that fail or that are forwarded.

Every call to the upstream is counted when it ends, for the request in whose context it runs. A call that is
cancelled is estimated: its prompt by its length, its output by its time and the usual speed. So is a reply
without usage.

Invariant: counting never fails and never changes a reply.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from caps.core.types import Usage
from caps.models.wire import read_usage
from caps.server.telemetry import Metrics

VERIFIER, GENERATION, FORWARDED = "verifier", "generation", "forwarded"
CHARACTERS_PER_TOKEN = 4
TAIL_BYTES = 64 << 10  # the end of a forwarded reply, where its usage is
NOTHING = Usage(0, 0)


@dataclass(slots=True)
class Spending:
    """Calls of one request and their tokens, by part: generation, verifier, forwarded."""

    usage: dict[str, Usage] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)

    def add(self, part: str, usage: Usage) -> None:
        """Count a call."""
        self.calls[part] += 1
        self.usage[part] = self.usage.get(part, NOTHING) + usage

    @property
    def total(self) -> Usage:
        """The tokens of all parts."""
        return sum(self.usage.values(), start=NOTHING)


_current: ContextVar[Spending | None] = ContextVar("spending", default=None)
_part: ContextVar[str] = ContextVar("part", default=VERIFIER)


@contextmanager
def spending_of_request(spending: Spending) -> Iterator[None]:
    """Calls within, also those of tasks that are started within, count for this request."""
    token = _current.set(spending)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def spending_for(part: str) -> Iterator[None]:
    """Calls within count for this part of a request; without it, they are the verifier's."""
    token = _part.set(part)
    try:
        yield
    finally:
        _part.reset(token)


class Meter:
    """Observes the calls of models, and counts them in the metrics and for their requests."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._output, self._seconds = 0, 0.0  # of calls that reported their usage, for the usual speed

    def on_wait(self, seconds: float) -> None:
        """A call waited for a connection."""
        self._metrics.record_wait("connection", seconds)

    def on_fault(self, seconds: float, cause: str) -> None:
        """An attempt failed."""
        self._metrics.record_upstream(_part.get(), seconds, cause)

    def on_reply(self, seconds: float, reply: Any, body: bytes) -> None:
        """A call was answered with this JSON."""
        usage = read_usage(reply, len(body) // CHARACTERS_PER_TOKEN)
        self.count(_part.get(), usage, seconds)

    def on_abandoned(self, seconds: float, body: bytes) -> None:
        """A call was cancelled after it was sent; the server may have billed its part."""
        self.count_abandoned(_part.get(), len(body), seconds)

    def count(self, part: str, usage: Usage, seconds: float) -> None:
        """Count an answered call."""
        self._metrics.record_upstream(part, seconds, None)
        if not usage.estimated:
            self._output += usage.output
            self._seconds += seconds
        self._add(part, usage)

    def count_abandoned(self, part: str, size: int, seconds: float, output: int | None = None) -> None:
        """Count a call that was cancelled; `size` of its request in bytes, `output` tokens if known."""
        usual = self._output / self._seconds if self._seconds else 0.0
        written = round(usual * seconds) if output is None else output
        self._add(part, Usage(size // CHARACTERS_PER_TOKEN, written, estimated=True))

    def _add(self, part: str, usage: Usage) -> None:
        self._metrics.record_call(part, usage)
        if (spending := _current.get()) is not None:
            spending.add(part, usage)


class ForwardedUsage:
    """The usage of a forwarded reply, read from its bytes as they pass through."""

    def __init__(self) -> None:
        self._tail = b""
        self._events = 0

    def feed(self, piece: bytes) -> None:
        """Take note of the next bytes."""
        self._events += piece.count(b"\ndata:") + piece.startswith(b"data:")
        self._tail = (self._tail + piece)[-TAIL_BYTES:]

    @property
    def events(self) -> int:
        """Events of a stream so far; most servers send one per token."""
        return self._events

    def read(self, size: int) -> Usage:
        """The usage reported last, else an estimate; `size` of the request in bytes."""
        text = self._tail.decode("utf-8", "replace")
        place = text.rfind('"usage"')
        while place >= 0:
            start = text.find(":", place) + 1
            try:
                usage, _ = json.JSONDecoder().raw_decode(text[start:].lstrip())
            except (ValueError, RecursionError):
                usage = None
            if isinstance(usage, dict):
                return read_usage({"usage": usage}, size // CHARACTERS_PER_TOKEN)
            place = text.rfind('"usage"', 0, place)
        written = self._events or len(self._tail) // CHARACTERS_PER_TOKEN
        return Usage(size // CHARACTERS_PER_TOKEN, written, estimated=True)
