"""Totals of a panel: what each of its judges was asked, and how often they disagree."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from caps.core.panel import disagreement
from caps.core.text import percent, plural
from caps.core.types import Ask, Unanswered
from caps.judging.base import Ruling


@dataclass(slots=True)
class PanelSummary:
    """Running totals of a panel; empty for a single judge."""

    asked: Counter[str] = field(default_factory=Counter)  # asks by judge
    unanswered: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, Counter[str]] = field(default_factory=dict)
    games: int = 0  # asks that two judges or more answered
    divided: int = 0  # those in which not all gave the panel's answer
    apart: float = 0.0  # sum of the shares that differ

    def add(self, rulings: Iterable[tuple[Ask, Ruling]]) -> None:
        """Count the rulings of a case."""
        for ask, ruling in rulings:
            for one in ruling.opinions:
                self.asked[one.judge] += 1
                if isinstance(one.answer, Unanswered):
                    self.unanswered[one.judge] += 1
                    self.reasons.setdefault(one.judge, Counter())[one.answer.reason] += 1
            share = disagreement(ask, ruling.answer, ruling.opinions)
            if share is not None:
                self.games += 1
                self.divided += share > 0
                self.apart += share

    @property
    def disagreement(self) -> float | None:
        """Mean share of judges that differ from the panel; None if no two answered the same ask."""
        return self.apart / self.games if self.games else None

    def as_line(self) -> dict[str, Any]:
        """The totals as plain data; empty for a single judge."""
        if not self.asked:
            return {}
        shown = self.disagreement
        return {
            "panel": {
                "disagreement": None if shown is None else round(shown, 4),
                "games": self.games,
                "divided": self.divided,
                "asked": dict(self.asked),
                "unanswered": {
                    name: dict(sorted(found.items())) for name, found in sorted(self.reasons.items())
                },
            }
        }

    def as_text(self) -> list[str]:
        """One line, and one for each judge that left asks unanswered; empty for a single judge."""
        if not self.asked:
            return []
        asked = ", ".join(f"{name} {count:,}" for name, count in self.asked.items())
        lines = [f"panel: asks of {asked}"]
        if self.games:
            lines[0] += (
                f"; {self.divided:,} of {plural(self.games, 'ask')} answered by several were not unanimous "
                f"(disagreement {percent(self.disagreement)} %)"
            )
        for name, reasons in sorted(self.reasons.items()):
            causes = ", ".join(f"{cause} {count}" for cause, count in sorted(reasons.items()))
            lines.append(
                f"panel: judge {name} left {self.unanswered[name]:,} of {plural(self.asked[name], 'ask')} "
                f"unanswered ({causes})"
            )
        return lines
