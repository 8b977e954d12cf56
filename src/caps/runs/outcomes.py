"""How choices turned out where labels are known: right, missed or impossible, and the recovery.

A wrong choice is *missed* if some candidate is labelled right, and *impossible* if none is: no other choice
would have helped. The ceiling is the share of cases with a right candidate. The *recovery* is the share of
the possible gain over a random candidate that was reached: (right - random) / (possible - random).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from caps.core.text import number, percent
from caps.statistics.estimates import wilson

Outcome: TypeAlias = Literal["right", "missed", "impossible"]
Labels: TypeAlias = Sequence[bool | None]


def outcome_of(winner: int | None, labels: Labels) -> Outcome | None:
    """How a choice turned out; None if it has no label. Candidates without a label count as wrong."""
    label = labels[winner] if winner is not None and winner < len(labels) else None
    if label is None:
        return None
    return "right" if label else "missed" if any(labels) else "impossible"


@dataclass(slots=True)
class Outcomes:
    """Counts of labelled choices; `random` is the expected number of right random candidates."""

    right: int = 0
    missed: int = 0
    impossible: int = 0
    random: float = 0.0

    def add(self, winner: int | None, labels: Labels) -> None:
        """Count the choice of a case, if it has a label."""
        outcome = outcome_of(winner, labels)
        if outcome is not None:
            setattr(self, outcome, getattr(self, outcome) + 1)
            self.random += sum(map(bool, labels)) / len(labels)

    @property
    def labelled(self) -> int:
        """Choices with a label."""
        return self.right + self.missed + self.impossible

    @property
    def possible(self) -> int:
        """Cases with a right candidate."""
        return self.right + self.missed

    def share(self, count: float) -> float | None:
        """A count as a share of the labelled choices."""
        return count / self.labelled if self.labelled else None

    @property
    def accuracy(self) -> float | None:
        """Share of right choices."""
        return self.share(self.right)

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson interval of the accuracy."""
        return wilson(self.right, self.labelled)

    @property
    def recovery(self) -> float | None:
        """The share of the possible gain over a random candidate that was reached."""
        return recovered_share(self.right, self.random, self.possible)

    def as_line(self) -> dict[str, Any]:
        """Return the counts and shares as plain data."""
        return {
            "right": self.right,
            "missed": self.missed,
            "impossible": self.impossible,
            "ceiling": self.share(self.possible),
            "random": self.share(self.random),
            "recovery": self.recovery,
        }

    def counts_text(self) -> str:
        """Say how many choices turned out how: 32 right, 1 missed, 7 impossible."""
        return ", ".join(
            f"{number(getattr(self, name), 0)} {name}" for name in ("right", "missed", "impossible")
        )

    def as_text(self) -> str:
        """Return one line about the labelled choices."""
        accuracy = percent(self.accuracy, self.interval)
        return (
            f"labelled: {self.counts_text()} (no right candidate); {accuracy} % right, "
            f"at most {percent(self.share(self.possible))} % possible, "
            f"{percent(self.share(self.random))} % by a random candidate{recovery_text(self.recovery)}"
        )


def sum_outcomes(lines: Iterable[Mapping[str, Any]]) -> Outcomes:
    """The outcomes of several parts of a run, from their lines."""
    total = Outcomes()
    for line in lines:
        part = Outcomes(line["right"], line["missed"], line["impossible"])
        total.right += part.right
        total.missed += part.missed
        total.impossible += part.impossible
        total.random += (line["random"] or 0.0) * part.labelled
    return total


def recovered_share(right: float, random: float, possible: float) -> float | None:
    """(right - random) / (possible - random); None where no choice can differ from a random one."""
    return (right - random) / (possible - random) if possible - random > 1e-9 else None


def recovery_text(value: float | None) -> str:
    """The recovery as the end of a sentence; empty if there is none."""
    return "" if value is None else f"; recovery {percent(value)} %"
