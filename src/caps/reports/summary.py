"""The end of a run in a few figures, and in a few lines."""

from dataclasses import dataclass, field
from typing import Any

from caps.core.types import Level, Usage
from caps.costs.closed_form import v1_infer_calls
from caps.costs.ledger import Ledger
from caps.costs.prices import Price
from caps.diagnostics.intervals import wilson
from caps.engines.base import Outcome
from caps.models.fleet_server import Record
from caps.reports.console import number, percent
from caps.reports.found import FoundSummary
from caps.reports.lines import ledger_lines, tokens_line
from caps.reports.servers import server_lines, servers_text


@dataclass(slots=True)
class Summary:
    """Running totals of a run; `trial` is what trying the endpoints took, which is on no case's account."""

    cases: int = 0
    failed: int = 0
    provisional: int = 0
    rescued: int = 0
    labelled: int = 0
    right: int = 0
    v1_calls: int = 0
    trial: Usage = field(default_factory=lambda: Usage(0, 0))
    ledger: Ledger = field(default_factory=Ledger)
    findings: FoundSummary = field(default_factory=FoundSummary)
    servers: list[Record] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one case."""
        self.cases += 1
        self.ledger.add(outcome.ledger)
        chosen, bout = outcome.selection, outcome.bout
        if chosen is None or bout is None:
            self.failed += 1
            return
        self.findings.add(bout)
        self.provisional += chosen.provisional
        self.rescued += bool(chosen.rescued)
        self.v1_calls += v1_infer_calls(len(bout.case.candidates)).full
        label = bout.case.candidates[chosen.winner].correct
        if label is not None:
            self.labelled += 1
            self.right += label

    def pay_trial(self, usage: Usage) -> None:
        """Count a call that tried an endpoint."""
        self.trial += usage

    @property
    def v1_share(self) -> float | None:
        """Asked tokens over what V1-Infer's calls would take at the mean size of a full pair here."""
        full = self.ledger.total(Level.FULL)
        if not full.pair_calls or not self.v1_calls:
            return None
        return self.ledger.total().asked / (self.v1_calls * full.pair_asked / full.pair_calls)

    def as_line(self, price: Price | None) -> dict[str, Any]:
        """All of it as plain data."""
        total = self.ledger.total()
        return {
            "cases": self.cases,
            "failed": self.failed,
            "provisional": self.provisional,
            "rescued": self.rescued,
            "pass_at_1": self.right / self.labelled if self.labelled else None,
            "labelled": self.labelled,
            "calls": self.ledger.calls,
            "attempts": total.attempts,
            "tokens": tokens_line(self.ledger),
            "trial": {"billed": self.trial.prompt, "cached": self.trial.cached, "output": self.trial.output},
            "rho": self.ledger.rho,
            "token_share_of_v1_infer": self.v1_share,
            "usd": None if price is None else self._dollars(price),
            "malformed": dict(self.ledger.malformed),
            "unanswered": dict(self.ledger.unanswered),
            "findings": self.findings.as_line(),
            "by_stage": ledger_lines(self.ledger),
            **({"servers": server_lines(self.servers)} if self.servers else {}),
        }

    def as_text(self, price: Price | None, seconds: float, gpu_hour_usd: float | None) -> str:
        """A few lines for people."""
        total, calls = self.ledger.total(), self.ledger.calls
        about = "about " if self.ledger.estimated else ""
        lines = [
            f"{self.cases - self.failed} of {self.cases} cases selected in {seconds:.1f} s; "
            f"{number(calls['E1'], 0)} calls at E1, {number(calls['E2'], 0)} at E2",
            f"tokens: {about}{number(total.asked, 0)} asked, {number(total.billed, 0)} billed "
            f"({number(total.cached, 0)} cached), {number(total.output, 0)} written{self._tried()}; "
            f"{_rho(self.ledger.rho)}; {percent(self.v1_share)} % of V1-Infer's reading",
            f"cost: {self._money(price, seconds, gpu_hour_usd)}",
        ]
        if self.labelled:
            share = percent(self.right / self.labelled, wilson(self.right, self.labelled))
            lines.append(f"right: {self.right} of {self.labelled} labelled ({share} %)")
        lines += self.findings.as_text()
        lines += servers_text(self.servers)
        troubles = [
            (self.ledger.malformed, "unreadable replies counted as ties"),
            (self.ledger.unanswered, "calls unanswered"),
        ]
        for counts, words in troubles:
            if counts:
                causes = ", ".join(f"{cause} {count}" for cause, count in sorted(counts.items()))
                lines.append(f"{words}: {counts.total()} ({causes})")
        return "\n".join(lines)

    def _tried(self) -> str:
        tokens = self.trial.prompt + self.trial.output
        return f", {number(tokens, 0)} to try the endpoint" if tokens else ""

    def _dollars(self, price: Price) -> float:
        trial = self.trial
        return price.of_sums(self.ledger.total()) + price.of(trial.prompt, trial.output, trial.cached)

    def _money(self, price: Price | None, seconds: float, gpu_hour_usd: float | None) -> str:
        if gpu_hour_usd is not None:
            return f"${seconds / 3600 * gpu_hour_usd:.4f} of GPU time"
        if price is None:
            return "unknown (give --price-input and --price-output, or --gpu-hour-usd)"
        return f"${self._dollars(price):.4f}"


def _rho(rho: float | None) -> str:
    return "rho not measured" if rho is None else f"rho {rho:.3f} measured"
