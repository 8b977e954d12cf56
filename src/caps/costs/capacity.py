"""Capacity planning: GPUs, CPU time and journal size for many problems, and which of them is the bottleneck.

The constants were measured on one core of a Xeon at 2.8 GHz: `python benchmarks/engine.py` for a call,
`python benchmarks/million.py` for the journal. The same commands measure your machine.
"""

from dataclasses import dataclass

from caps.core.text import CHARACTERS_PER_TOKEN

CALL_SECONDS = 340e-6  # CPU time of a call over HTTP with its ruling stored
CHARACTER_SECONDS = 12e-9  # CPU time for each character of its prompt
REPLAY_SECONDS = 240e-6  # CPU time of a ruling found in the journal
JOURNAL_ROWS = 20_000.0  # per second, by all processes that share a journal
CONNECTIONS = 64
RULING_BYTES = 500  # on disk, besides the text of the reply


@dataclass(frozen=True, slots=True)
class Load:
    """The work of a judge for some problems: calls, input and output tokens, consecutive rounds."""

    calls: float
    tokens: float
    output: float
    rounds: int

    @property
    def journal_bytes(self) -> float:
        """Size of the journal."""
        return self.calls * RULING_BYTES + CHARACTERS_PER_TOKEN * self.output

    @property
    def network_bytes(self) -> float:
        """Bytes over the network."""
        return CHARACTERS_PER_TOKEN * (self.tokens + self.output)

    @property
    def cpu_seconds(self) -> float:
        """Seconds of one core that caps itself needs."""
        return self.calls * CALL_SECONDS + CHARACTERS_PER_TOKEN * self.tokens * CHARACTER_SECONDS


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound on the duration, and the bottleneck that sets it."""

    seconds: float
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The resources of a judge; None is unknown and sets no bound.

    Rates are tokens per second of one GPU: `read_rate` for prompts, or for prompts and replies together if
    there is no `write_rate`. `calls_rate` is calls per second of one caps process; None uses the constants.
    """

    read_rate: float | None = None
    write_rate: float | None = None
    gpus: int = 1
    latency: float | None = None
    connections: int = CONNECTIONS
    calls_rate: float | None = None

    def gpu_seconds(self, load: Load) -> float | None:
        """Seconds of one GPU: reading, then writing, without overlap."""
        if self.read_rate is None:
            return None
        return load.tokens / self.read_rate + load.output / (self.write_rate or self.read_rate)

    def live(self, load: Load, processes: int = 1) -> Bound:
        """A live run with N processes, each with its own connections."""
        cpu_seconds = load.cpu_seconds if self.calls_rate is None else load.calls / self.calls_rate
        bounds = [Bound(cpu_seconds / processes, "our own work"), Bound(load.calls / JOURNAL_ROWS, "journal")]
        gpu_seconds = self.gpu_seconds(load)
        if gpu_seconds is not None:
            bounds.append(Bound(gpu_seconds / self.gpus, "GPUs"))
        if self.latency is not None:
            at_once = self.connections * processes
            bounds.append(Bound(load.calls * self.latency / at_once, "connections"))
            bounds.append(Bound(load.rounds * self.latency, "rounds"))
        return max(bounds, key=lambda bound: bound.seconds)

    def batch(self, load: Load, hours: float) -> Bound:
        """A batch run: one batch of at most `hours` for each round; all contests are replayed before each."""
        cpu_seconds = load.rounds * load.calls * REPLAY_SECONDS
        waiting = load.rounds * hours * 3600
        return Bound(waiting + cpu_seconds, "trips" if waiting >= cpu_seconds else "our own work")


def scale_load(load: Load, factor: float) -> Load:
    """The load of `factor` times as many problems; rounds do not add up."""
    return Load(load.calls * factor, load.tokens * factor, load.output * factor, load.rounds)
