"""Sampling in a few figures, and in a few lines."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from caps.core.types import Usage
from caps.costs.prices import Price
from caps.reports.console import number, percent
from caps.sampling.base import Sample, Sampled, Step


@dataclass(slots=True)
class Tally:
    """Running totals of draws and problems."""

    problems: int = 0
    failed: int = 0
    candidates: int = 0
    samples: int = 0
    replayed: int = 0
    cut: int = 0
    unranked: int = 0
    paid: Usage = field(default_factory=lambda: Usage(0, 0))
    lost: Counter[str] = field(default_factory=Counter)
    steps: list[list[Step]] = field(default_factory=list)

    def pay(self, usage: Usage) -> None:
        """Count what was paid for, but is no draw: trying the endpoint."""
        self.paid += usage

    def hear(self, sample: Sample) -> None:
        """Count a draw."""
        self.samples += 1
        self.replayed += sample.replayed
        self.cut += sample.finish == "length"
        if not sample.replayed:
            self.pay(sample.usage)
        if sample.candidate is None:
            self.lost[sample.cause] += 1

    def add(self, sampled: Sampled) -> None:
        """Count a problem."""
        self.problems += 1
        self.unranked += sampled.unranked
        if sampled.case is None:
            self.failed += 1
            return
        self.candidates += len(sampled.case.candidates)
        for place, step in enumerate(sampled.steps):
            if place == len(self.steps):
                self.steps.append([])
            self.steps[place].append(step)

    def as_line(self, price: Price | None) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "problems": self.problems,
            "failed": self.failed,
            "candidates": self.candidates,
            "samples": self.samples,
            "replayed": self.replayed,
            "cut": self.cut,
            "lost": dict(sorted(self.lost.items())),
            "tokens": {
                "billed": self.paid.prompt,
                "cached": self.paid.cached,
                "output": self.paid.output,
                "reasoning": self.paid.reasoning,
                "estimated": self.paid.estimated,
            },
            "usd": None if price is None else round(self._dollars(price), 6),
            "steps": [step_line(steps) for steps in self.steps],
        }

    def as_text(self, price: Price | None, seconds: float) -> str:
        """A few lines for people."""
        paid, about = self.paid, "about " if self.paid.estimated else ""
        cost = "unknown (give --price-input and --price-output)"
        lines = [
            f"{self.problems - self.failed} of {self.problems} problems sampled in {seconds:.1f} s: "
            f"{number(self.candidates, 0)} candidates, {number(self.samples, 0)} samples, "
            f"{number(self.replayed, 0)} of them from the journal",
            f"tokens: {about}{number(paid.prompt, 0)} billed ({number(paid.cached, 0)} cached), "
            f"{number(paid.output, 0)} written; cost: "
            + (cost if price is None else f"${self._dollars(price):.4f}"),
        ]
        if self.lost:
            causes = ", ".join(f"{cause} {count}" for cause, count in sorted(self.lost.items()))
            lines.append(f"samples that failed: {self.lost.total()} ({causes})")
        if self.cut:
            lines.append(f"samples cut by max_tokens: {self.cut}; raise it with --set max_tokens=…")
        if self.unranked:
            lines.append(f"populations nobody could rank, so that all of them were parents: {self.unranked}")
        return "\n".join([*lines, *(_step_text(place, steps) for place, steps in enumerate(self.steps))])

    def _dollars(self, price: Price) -> float:
        return price.of(self.paid.prompt, self.paid.output, self.paid.cached)


def step_line(steps: list[Step]) -> dict[str, Any]:
    """How good a step's populations are: the share with a right one in it, the mean share of right ones."""
    told = [step for step in steps if step.graded]
    if not told:
        return {"graded": 0, "pass_at_n": None, "pass_at_1": None}
    return {
        "graded": len(told),
        "pass_at_n": sum(step.right > 0 for step in told) / len(told),
        "pass_at_1": sum(step.right / step.graded for step in told) / len(told),
    }


def _step_text(place: int, steps: list[Step]) -> str:
    line = step_line(steps)
    return (
        f"step {place}: Pass@N {percent(line['pass_at_n'])} %, mean {percent(line['pass_at_1'])} % "
        f"of {line['graded']} problems with a known answer (equal final answers only)"
    )
