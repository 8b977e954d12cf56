"""Summaries of runs and of sampling."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from caps.core.text import number, percent, plural
from caps.core.types import Level, Usage
from caps.costs.ledger import Baseline, Ledger, Sums
from caps.costs.prices import Price
from caps.engines.base import Outcome
from caps.judging.base import UNREAD
from caps.judging.several import JudgeTotals, add_rulings
from caps.models.servers import ServerRecord
from caps.runs.outcomes import Outcomes
from caps.runs.result_lines import (
    FindingsSummary,
    Line,
    ledger_lines,
    server_lines,
    servers_text,
    tokens_line,
    totals_line,
    usage_of,
)
from caps.sampling.base import Sample, Sampled, Step

Labels = Mapping[str, Sequence[bool | None]]


@dataclass(slots=True)
class Figures:
    """Totals of a run, counted from its outcomes or its result lines; also of a run that is still going."""

    cases: int = 0
    failed: int = 0
    provisional: int = 0
    stated: int = 0  # choices with a probability
    calibrated: int = 0  # those whose probability was fitted to such cases
    rescued: int = 0
    outcomes: Outcomes = field(default_factory=Outcomes)
    baseline: Baseline = field(default_factory=Baseline)
    usd: float | None = None
    ledger: Ledger = field(default_factory=Ledger)

    def add_failure(self) -> None:
        """Count a case without a choice."""
        self.cases += 1
        self.failed += 1

    def add_choice(
        self,
        winner: int,
        labels: Sequence[bool | None],
        *,
        provisional: bool,
        rescued: bool,
        facts: Mapping[str, Any],
    ) -> None:
        """Count the choice of a case; `labels` of its candidates may be missing."""
        self.cases += 1
        self.provisional += provisional
        self.rescued += rescued
        self.stated += facts.get("probability") is not None
        self.calibrated += bool(facts.get("calibrated"))
        self.outcomes.add(winner, labels)

    @property
    def pass_at_1(self) -> float | None:
        """Share of labelled cases whose chosen answer is right."""
        return self.outcomes.accuracy

    @property
    def total(self) -> Sums:
        """Sums over all stages and levels."""
        return self.ledger.total()

    @property
    def unreadable_rate(self) -> float | None:
        """Share of replies that cannot be read."""
        replies = self.total.attempts
        return self.ledger.unreadable.total() / replies if replies else None


@dataclass(slots=True)
class Summary(Figures):
    """Running totals of a run; `trial` is the usage of endpoint checks, which belongs to no case."""

    trial: Usage = field(default_factory=lambda: Usage(0, 0))
    findings: FindingsSummary = field(default_factory=FindingsSummary)
    judges: dict[str, JudgeTotals] = field(default_factory=dict)  # empty for one judge
    servers: list[ServerRecord] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one case."""
        self.ledger.add(outcome.ledger)
        add_rulings(self.judges, (judged.ruling for judged in outcome.judged))
        chosen, prepared = outcome.selection, outcome.prepared
        if chosen is None or prepared is None:
            self.add_failure()
            return
        self.findings.add(prepared)
        self.baseline.add(outcome.v1_characters, outcome.v1_tokens)
        self.add_choice(
            chosen.winner,
            [candidate.correct for candidate in prepared.case.candidates],
            provisional=chosen.provisional,
            rescued=bool(chosen.rescued),
            facts=chosen.facts,
        )

    def add_trial(self, usage: Usage) -> None:
        """Count a call that checked an endpoint."""
        self.trial += usage

    def as_line(self, price: Price | None) -> dict[str, Any]:
        """Return the totals as plain data."""
        total = self.total
        return {
            "cases": self.cases,
            "failed": self.failed,
            "provisional": self.provisional,
            "rescued": self.rescued,
            "pass_at_1": self.outcomes.accuracy,
            "labelled": self.outcomes.labelled,
            "outcomes": self.outcomes.as_line(),
            "calls": self.ledger.calls,
            "attempts": total.attempts,
            "tokens": tokens_line(self.ledger),
            "trial": {"billed": self.trial.prompt, "cached": self.trial.cached, "output": self.trial.output},
            "rho": self.ledger.rho,
            "token_share_of_v1_infer": self.baseline.share(total),
            "usd": None if price is None else self._dollars(price),
            "malformed": dict(self.ledger.malformed),
            "unreadable": dict(self.ledger.unreadable),
            "unanswered": dict(self.ledger.unanswered),
            **blocked_line(self.ledger),
            **({"substituted": dict(self.ledger.substituted)} if self.ledger.substituted else {}),
            "findings": self.findings.as_line(),
            **totals_line(self.judges),
            "by_stage": ledger_lines(self.ledger),
            **({"servers": server_lines(self.servers)} if self.servers else {}),
        }

    def as_text(self, price: Price | None, seconds: float) -> str:
        """Return the totals as a few lines of text."""
        total, calls = self.total, self.ledger.calls
        about = "about " if self.ledger.estimated else ""
        lines = [
            f"{number(self.cases - self.failed, 0)} of {plural(self.cases, 'case')} selected in "
            f"{seconds:.1f} s; {plural(calls['E1'], 'call')} on partial views (E1), "
            f"{number(calls['E2'], 0)} on full views (E2)",
            f"tokens: {about}{number(total.asked, 0)} asked, {number(total.billed, 0)} billed "
            f"({number(total.cached, 0)} cached), {number(total.output, 0)} written{self._trial_text()}; "
            f"{_rho(self.ledger.rho)}; {percent(self.baseline.share(total))} % of V1-Infer's reading",
            f"cost: {self._money(price)}",
        ]
        if self.outcomes.labelled:
            lines.append(self.outcomes.as_text())
        lines += self.findings.as_text()
        lines += [f"judge {name}: {totals.as_text()}" for name, totals in self.judges.items()]
        lines += servers_text(self.servers)
        if self.ledger.unreadable:
            replies = f"{_counts_text(self.ledger.unreadable)} of {number(total.attempts, 0)}"
            ties = plural(self.ledger.malformed.total(), "question")
            lines.append(f"unreadable replies: {replies}; {ties} without a readable reply, counted as ties")
        if self.ledger.unanswered:
            lines.append(f"calls unanswered: {_counts_text(self.ledger.unanswered)}")
        return "\n".join([*lines, *blocked_text(self.ledger)])

    def _trial_text(self) -> str:
        tokens = self.trial.prompt + self.trial.output
        return f", {number(tokens, 0)} to try the endpoint" if tokens else ""

    def _dollars(self, price: Price) -> float:
        trial, usd = self.trial, self.trial.usd
        if usd is None:
            usd = price.of(trial.prompt, trial.output, trial.cached)
        return price.of_sums(self.total) + usd

    def _money(self, price: Price | None) -> str:
        if price is None:
            return "unknown (give --price-input and --price-output)"
        about = "about " if self.ledger.estimated else ""
        return f"{about}${self._dollars(price):.4f}"


def _rho(rho: float | None) -> str:
    return "rho not measured" if rho is None else f"rho {rho:.3f} measured"


def blocked_line(ledger: Ledger) -> dict[str, Any]:
    """Return what the smallest call reserves that a budget had no room for, and what was left of it."""
    if not ledger.blocked:
        return {}
    rows = {
        setting: {"call_reserves": round(reserves, 6), "left": round(left, 6)}
        for setting, (reserves, left) in sorted(ledger.blocked.items())
    }
    return {"budget_ended": rows}


def blocked_text(ledger: Ledger) -> list[str]:
    """Say of each budget that ended what a call reserves, and what was left of it."""
    return [
        f"--{setting.replace('_', '-')} ended: a call reserves at least {_amount(setting, reserves)} (its "
        f"prompt and a reply of --max-tokens), and {_amount(setting, left)} were left; raise the budget, or "
        "lower --max-tokens"
        for setting, (reserves, left) in sorted(ledger.blocked.items())
    ]


def _amount(setting: str, value: float) -> str:
    return f"${value:.6f}" if setting.endswith("usd") else f"{number(value, 0)} tokens"


def _counts_text(counts: Counter[str]) -> str:
    causes = ", ".join(f"{cause} {count}" for cause, count in sorted(counts.items()))
    return f"{counts.total()} ({causes})"


def count_figures(
    selections: Iterable[Line], calls: Mapping[str, list[Line]], labels: Labels, price: Price | None
) -> Figures:
    """Count the totals of a run from its lines."""
    figures = Figures()
    for line in selections:
        for attempts in group_by_ask(calls.get(line["id"], [])):
            _record_ask(figures.ledger, attempts)
        if "winner" not in line:
            figures.add_failure()
            continue
        figures.add_choice(
            line["winner"],
            labels.get(line["id"], ()),
            provisional=line["provisional"],
            rescued=line["rescued"] is not None,
            facts=line,
        )
        if "v1_infer" in line:
            figures.baseline.add(**line["v1_infer"])
    figures.usd = None if price is None else price.of_sums(figures.total)
    return figures


def ledgers_by_case(calls: Iterable[Line]) -> dict[str, Ledger]:
    """The ledger of each case, from the lines of all calls."""
    ledgers: dict[str, Ledger] = {}
    for attempts in group_by_ask(calls):
        _record_ask(ledgers.setdefault(str(attempts[0]["case"]), Ledger()), attempts)
    return ledgers


def group_by_ask(lines: Iterable[Line]) -> list[list[Line]]:
    """Group call lines into the attempts of each ask, in the order of the run."""
    asks: list[list[Line]] = []
    for line in lines:
        if line.get("attempt", 0) and asks:
            asks[-1].append(line)
        else:
            asks.append([line])
    return asks


def malformed_cause(attempts: Sequence[Line]) -> str | None:
    """Return why no reply to an ask could be read, if none could."""
    last = attempts[-1]
    if "opinions" in last:  # the last call is that of one of several judges
        return last.get("malformed")
    return last.get("cause") if last.get("unanswered") in (None, "malformed") else None


def _record_ask(ledger: Ledger, attempts: list[Line]) -> None:
    last = attempts[-1]
    usages = [(usage_of(line), line["replayed"]) for line in attempts if "attempt" in line]
    level = Level(int(last["level"][1:]))
    ledger.record(last["stage"], level, usages, statement=0, pair="pair" in last)
    ledger.unreadable.update(line["cause"] or "" for line in attempts if line.get("how") == UNREAD)
    if cause := malformed_cause(attempts):
        ledger.malformed[cause] += 1
    if (reason := last.get("unanswered")) is not None:
        ledger.unanswered[reason] += 1


@dataclass(slots=True)
class SamplingSummary:
    """Running totals of samples and problems."""

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

    def add_usage(self, usage: Usage) -> None:
        """Count the usage of a call that is no sample, such as an endpoint check."""
        self.paid += usage

    def add_sample(self, sample: Sample) -> None:
        """Count a sample."""
        self.samples += 1
        self.replayed += sample.replayed
        self.cut += sample.finish == "length"
        if not sample.replayed:
            self.add_usage(sample.usage)
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
        for index, step in enumerate(sampled.steps):
            if index == len(self.steps):
                self.steps.append([])
            self.steps[index].append(step)

    def as_line(self, price: Price | None) -> dict[str, Any]:
        """Return the totals as plain data."""
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
        """Return the totals as a few lines of text."""
        paid, about = self.paid, "about " if self.paid.estimated else ""
        cost = "unknown (give --price-input and --price-output)"
        lines = [
            f"{self.problems - self.failed} of {plural(self.problems, 'problem')} sampled in "
            f"{seconds:.1f} s: {plural(self.candidates, 'candidate')}, {plural(self.samples, 'sample')}, "
            f"{number(self.replayed, 0)} of them from the journal",
            f"tokens: {about}{number(paid.prompt, 0)} billed ({number(paid.cached, 0)} cached), "
            f"{number(paid.output, 0)} written; cost: "
            + (cost if price is None else f"{about}${self._dollars(price):.4f}"),
        ]
        if self.lost:
            lines.append(f"failed samples: {_counts_text(self.lost)}")
        if self.cut:
            lines.append(f"samples cut off by max_tokens: {self.cut}; raise it with --set max_tokens=…")
        if self.unranked:
            lines.append(
                f"populations without a ranking, of which all members became parents: {self.unranked}"
            )
        return "\n".join([*lines, *(_step_text(index, steps) for index, steps in enumerate(self.steps))])

    def _dollars(self, price: Price) -> float:
        return price.of(self.paid.prompt, self.paid.output, self.paid.cached)


def step_line(steps: list[Step]) -> dict[str, Any]:
    """Return the share of a step's populations with a right candidate, and the mean share of right ones."""
    graded = [step for step in steps if step.graded]
    if not graded:
        return {"graded": 0, "pass_at_n": None, "pass_at_1": None}
    return {
        "graded": len(graded),
        "pass_at_n": sum(step.right > 0 for step in graded) / len(graded),
        "pass_at_1": sum(step.right / step.graded for step in graded) / len(graded),
    }


def _step_text(index: int, steps: list[Step]) -> str:
    line = step_line(steps)
    return (
        f"step {index}: Pass@N {percent(line['pass_at_n'])} %, mean {percent(line['pass_at_1'])} % "
        f"of {plural(line['graded'], 'problem')} with a known answer (equal final answers only)"
    )
