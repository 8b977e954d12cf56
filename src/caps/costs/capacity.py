"""What many problems take: the judge's GPUs, our own processes, the journal, and which of them is done last.

Our own part is measured, on one core of a Xeon at 2.8 GHz: `python benchmarks/engine.py` for a call,
`python benchmarks/million.py` for the journal. The same two commands tell the figures of your machine.
"""

from dataclasses import dataclass

from caps.core.text import CHARACTERS_PER_TOKEN

CALL_SECONDS = 340e-6  # of the processor, for a call over HTTP with its ruling stored
CHARACTER_SECONDS = 12e-9  # and for each character of its prompt
KNOWN_SECONDS = 240e-6  # for a ruling found in the journal instead
JOURNAL_ROWS = 20_000.0  # stored a second, by all processes that share a journal
CONNECTIONS = 64
RULING_BYTES = 500  # on disk, beside the words of the reply


@dataclass(frozen=True, slots=True)
class Load:
    """What some problems ask of a judge: calls, tokens read and written, rounds that wait for one another."""

    calls: float
    tokens: float
    output: float
    rounds: int

    @property
    def stored(self) -> float:
        """Bytes of the journal that keeps all of it."""
        return self.calls * RULING_BYTES + CHARACTERS_PER_TOKEN * self.output

    @property
    def moved(self) -> float:
        """Bytes over the network."""
        return CHARACTERS_PER_TOKEN * (self.tokens + self.output)

    @property
    def ours(self) -> float:
        """Seconds of one core for all calls, whoever judges."""
        return self.calls * CALL_SECONDS + CHARACTERS_PER_TOKEN * self.tokens * CHARACTER_SECONDS


@dataclass(frozen=True, slots=True)
class Bound:
    """How long something takes at least, and what it waits for."""

    seconds: float
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What there is to judge with; a figure that is None is unknown and bounds nothing.

    Rates are tokens a second of one GPU: `read_rate` of prompts, or of prompts and replies together where
    there is no `write_rate`. `calls_rate` stands for what one process of ours can do, instead of what was
    measured.
    """

    read_rate: float | None = None
    write_rate: float | None = None
    gpus: int = 1
    latency: float | None = None
    connections: int = CONNECTIONS
    calls_rate: float | None = None

    def gpu_seconds(self, load: Load) -> float | None:
        """Seconds of one GPU: reading, then writing, as if neither could hide behind the other."""
        if self.read_rate is None:
            return None
        return load.tokens / self.read_rate + load.output / (self.write_rate or self.read_rate)

    def live(self, load: Load, processes: int = 1) -> Bound:
        """Asked as we go, by so many processes with connections of their own."""
        ours = load.ours if self.calls_rate is None else load.calls / self.calls_rate
        bounds = [Bound(ours / processes, "our own work"), Bound(load.calls / JOURNAL_ROWS, "journal")]
        gpu_seconds = self.gpu_seconds(load)
        if gpu_seconds is not None:
            bounds.append(Bound(gpu_seconds / self.gpus, "GPUs"))
        if self.latency is not None:
            at_once = self.connections * processes
            bounds.append(Bound(load.calls * self.latency / at_once, "connections"))
            bounds.append(Bound(load.rounds * self.latency, "rounds"))
        return max(bounds, key=lambda bound: bound.seconds)

    def batch(self, load: Load, hours: float) -> Bound:
        """A trip for each round, of so many hours at most; before each, all contests are played anew."""
        ours = load.rounds * load.calls * KNOWN_SECONDS
        waited = load.rounds * hours * 3600
        return Bound(waited + ours, "trips" if waited >= ours else "our own work")


def scaled(load: Load, factor: float) -> Load:
    """The same for so many times as many problems; rounds do not add up."""
    return Load(load.calls * factor, load.tokens * factor, load.output * factor, load.rounds)
