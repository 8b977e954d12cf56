"""The figures of a run, counted from its lines, so that they are there before it ends."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from caps.core.types import Level, Usage
from caps.costs.closed_form import v1_infer_calls
from caps.costs.ledger import Ledger, Sums
from caps.costs.prices import Price
from caps.diagnostics.intervals import wilson
from caps.reports.lines import Line

Labels = Mapping[str, Sequence[bool | None]]


@dataclass(slots=True)
class Figures:
    """Totals of a run."""

    cases: int = 0
    failed: int = 0
    provisional: int = 0
    rescued: int = 0
    labelled: int = 0
    right: int = 0
    chance: float = 0.0  # right answers a random choice would find
    reachable: int = 0  # cases with a right candidate
    v1_calls: int = 0
    usd: float | None = None
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def pass_at_1(self) -> float | None:
        """Share of labelled cases whose chosen answer is right."""
        return self.right / self.labelled if self.labelled else None

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval of it."""
        return wilson(self.right, self.labelled)

    @property
    def total(self) -> Sums:
        """All tokens."""
        return self.ledger.total()

    @property
    def v1_tokens(self) -> float | None:
        """What V1-Infer's calls would read, at the mean size of a full pair here; unknown without one."""
        full = self.ledger.total(Level.FULL)
        if not full.pair_calls or not self.v1_calls:
            return None
        return self.v1_calls * full.pair_asked / full.pair_calls

    @property
    def malformed_rate(self) -> float | None:
        """Share of asks no reply to which could be read."""
        asks = self.total.calls
        return self.ledger.malformed.total() / asks if asks else None


def count(
    selections: Iterable[Line], calls: Mapping[str, list[Line]], labels: Labels, price: Price | None
) -> Figures:
    """Count everything once."""
    figures = Figures()
    for line in selections:
        figures.cases += 1
        for tries in by_ask(calls.get(line["id"], [])):
            _enter(figures.ledger, tries)
        if "winner" not in line:
            figures.failed += 1
            continue
        figures.provisional += line["provisional"]
        figures.rescued += line["rescued"] is not None
        figures.v1_calls += v1_infer_calls(len(line["order"])).full
        known = labels.get(line["id"], ())
        label = known[line["winner"]] if line["winner"] < len(known) else None
        if label is not None:
            figures.labelled += 1
            figures.right += label
            figures.chance += sum(map(bool, known)) / len(known)
            figures.reachable += any(known)
    figures.usd = None if price is None else price.of_sums(figures.total)
    return figures


def by_ask(lines: Iterable[Line]) -> list[list[Line]]:
    """The tries of each ask, in the order of the run."""
    asks: list[list[Line]] = []
    for line in lines:
        if line.get("attempt", 0) and asks:
            asks[-1].append(line)
        else:
            asks.append([line])
    return asks


def malformed(tries: Sequence[Line]) -> str | None:
    """Why no reply to an ask could be read, if none could."""
    last = tries[-1]
    heard = last.get("unanswered") in (None, "malformed")
    return last.get("cause") if heard else None


def _enter(ledger: Ledger, tries: list[Line]) -> None:
    last = tries[-1]
    usages = [
        (Usage(line["tokens"], line["output"], line["cached"]), line["replayed"])
        for line in tries
        if "attempt" in line
    ]
    level = Level(int(last["level"][1:]))
    ledger.record(last["stage"], level, usages, statement=0, pair="pair" in last)
    cause = malformed(tries)
    ledger.malformed += Counter([cause] if cause else [])
    silent = last.get("unanswered")
    ledger.unanswered += Counter([silent] if silent is not None else [])
