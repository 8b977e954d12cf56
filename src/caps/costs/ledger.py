"""The ledger: tokens asked and paid, by stage and level.

* `asked`: input tokens of every call of a contest, also those answered by the journal: the verifier cost of
  the paper.
* `billed`: the part of `asked` that was sent in this run.
* `cached`: the part of `billed` that the server read from its prefix cache.
* `output`, `reasoning`: tokens the model wrote in this run; reasoning is part of output.
* `statement`: the part of `asked` that is the problem statement, estimated.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from caps.core.text import CHARACTERS_PER_TOKEN
from caps.core.types import Level, Usage


@dataclass(slots=True)
class Sums:
    """Totals over calls."""

    calls: int = 0
    attempts: int = 0
    asked: int = 0
    billed: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    statement: int = 0
    pair_calls: int = 0
    pair_asked: int = 0
    usd: float = 0.0  # of calls with a price of their own

    def add(self, other: "Sums") -> None:
        """Add other totals."""
        for spec in fields(self):
            setattr(self, spec.name, getattr(self, spec.name) + getattr(other, spec.name))


@dataclass(slots=True)
class Baseline:
    """Tokens that V1-Infer would read of some cases with the same judge, summed case by case.

    Its characters are computed; how many tokens the judge counts for them is measured on what it was asked
    about the same case. A case without a call takes the mean of the others.
    """

    measured: float = 0.0
    measured_characters: float = 0.0
    other_characters: float = 0.0

    def add(self, characters: float, tokens: float | None) -> None:
        """Add one case; `tokens` of None if the judge was asked nothing about it."""
        if tokens is None:
            self.other_characters += characters
        else:
            self.measured += tokens
            self.measured_characters += characters

    @property
    def tokens(self) -> float:
        """All tokens; 0 if no case can be compared with V1-Infer."""
        rate = 1 / CHARACTERS_PER_TOKEN
        if self.measured_characters:
            rate = self.measured / self.measured_characters
        return self.measured + rate * self.other_characters

    def share(self, total: Sums) -> float | None:
        """The asked tokens as a share of the baseline; None if the judge does not count tokens."""
        uncounted = total.calls > 0 and not total.asked
        return None if uncounted or not self.tokens else total.asked / self.tokens


@dataclass(slots=True)
class Ledger:
    """Tokens by stage and level, and what went wrong, by cause.

    `unreadable` counts replies, `malformed` asks without any readable reply, `unanswered` asks without one.
    `blocked` holds, by the setting of a budget, what the smallest call reserves that it had no room for, and
    what was left of it.
    """

    lines: dict[tuple[str, Level], Sums] = field(default_factory=dict)
    malformed: Counter[str] = field(default_factory=Counter)
    unreadable: Counter[str] = field(default_factory=Counter)
    unanswered: Counter[str] = field(default_factory=Counter)
    substituted: Counter[str] = field(default_factory=Counter)
    estimated: bool = False
    blocked: dict[str, tuple[float, float]] = field(default_factory=dict)

    def block(self, setting: str, reserves: float, left: float) -> None:
        """Record a call that a budget had no room for; the smallest of each budget is kept."""
        self.blocked[setting] = min((reserves, left), self.blocked.get(setting, (reserves, left)))

    def record(
        self, stage: str, level: Level, usages: Iterable[tuple[Usage, bool]], *, statement: int, pair: bool
    ) -> None:
        """Record one ask: the usage of each of its calls, and whether it came from the journal."""
        line = self.lines.get((stage, level))
        if line is None:
            line = self.lines[stage, level] = Sums()
        line.calls += 1
        for index, (usage, replayed) in enumerate(usages):
            line.attempts += 1
            line.asked += usage.prompt
            line.statement += min(statement, usage.prompt)
            if pair and index == 0 and usage.prompt:
                line.pair_calls += 1
                line.pair_asked += usage.prompt
            if not replayed:
                line.billed += usage.prompt
                line.cached += usage.cached
                line.output += usage.output
                line.reasoning += usage.reasoning
                line.usd += usage.usd or 0.0
            self.estimated = self.estimated or usage.estimated

    def add(self, other: "Ledger") -> None:
        """Add all of another ledger."""
        for key, sums in other.lines.items():
            self.lines.setdefault(key, Sums()).add(sums)
        self.malformed.update(other.malformed)
        self.unreadable.update(other.unreadable)
        self.unanswered.update(other.unanswered)
        self.substituted.update(other.substituted)
        self.estimated = self.estimated or other.estimated
        for setting, (reserves, left) in other.blocked.items():
            self.block(setting, reserves, left)

    def total(self, level: Level | None = None) -> Sums:
        """Totals over all stages, for one level or all."""
        total = Sums()
        for (_, line_level), sums in self.lines.items():
            if level in (None, line_level):
                total.add(sums)
        return total

    @property
    def calls(self) -> dict[str, int]:
        """Asks at each level."""
        return {str(level): self.total(level).calls for level in (Level.PARTIAL, Level.FULL)}

    @property
    def rho(self) -> float | None:
        """Measured T_1 / T_2: mean input of a pair at E1 over that at E2; None if one is missing."""
        partial, full = self.total(Level.PARTIAL), self.total(Level.FULL)
        if not partial.pair_calls or not full.pair_asked:
            return None
        return (partial.pair_asked / partial.pair_calls) / (full.pair_asked / full.pair_calls)
