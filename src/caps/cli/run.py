"""One run of a spending command: where results, progress, brackets and files go."""

import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from caps.assemble import Session, Setup, load_templates, make_prepare, session
from caps.cli.output import bar, say, stderr, stdout
from caps.cli.stopping import say_stopped, unless_stopped
from caps.core.errors import InputError
from caps.core.play import Strategy
from caps.core.settings import settings_of
from caps.core.types import Case
from caps.costs.prices import Price
from caps.engines.base import Outcome
from caps.evidence.anatomy import last_boxed
from caps.experiments.planning import forecast_case
from caps.judges.base import Bout, Ruling
from caps.reports.bracket import draw
from caps.reports.console import number, table
from caps.reports.lines import selection_line
from caps.reports.rundir import RunFolder, digests, versions
from caps.reports.summary import Summary


class Run:
    """One run of `select`: where results, progress and files go."""

    def __init__(
        self,
        setup: Setup,
        name: str,
        strategy: Strategy,
        seed: int,
        gpu_hour_usd: float | None,
        *,
        limit: int | None,
        quiet: bool,
        bracket: bool,
        lines: bool,
    ) -> None:
        self._setup, self._name, self._strategy, self._seed = setup, name, strategy, seed
        self._gpu_hour_usd, self._quiet, self._bracket, self._lines = gpu_hour_usd, quiet, bracket, lines
        self._limit = limit
        self._summary = Summary()
        self._rows: list[tuple[str, ...]] = []
        self._guessed: Counter[str] = Counter()
        self._templates = load_templates(setup.prompts)
        self._blind = make_prepare(setup.profile, setup.views)
        self._price: Price | None = None

    async def until_done_or_stopped(
        self, source: Iterable[Case | InputError], total: int | None, out: Path | None, cases: str
    ) -> int:
        """Play all cases; on Ctrl-C or SIGTERM keep what was paid, and say how to go on."""
        code = await unless_stopped(self.play(source, total, out, cases))
        if code is not None:
            return code
        say_stopped(self._setup.journal, f" after {self._summary.cases} cases")
        return 130

    async def play(
        self, source: Iterable[Case | InputError], total: int | None, out: Path | None, cases: str
    ) -> int:
        """Play all cases; the exit code."""
        started = time.perf_counter()
        async with session(self._setup) as ready:
            self._price = ready.price
            with ExitStack() as stack:
                meter = stack.enter_context(Meter(total, self._price, hidden=self._quiet))
                folder = None
                if out is not None:
                    folder = stack.enter_context(RunFolder(out, self._made_of(cases, ready)))
                ready.engine.watch = meter.hear
                async for outcome in ready.engine.run(source, self._strategy, seed=self._seed):
                    self._deliver(outcome, folder)
                    meter.advance()
                if folder is not None:
                    folder.finish(self._summary.as_line(self._price))
            if ready.findings is not None:
                self._summary.findings.unusable = ready.findings.unusable
        self._close(time.perf_counter() - started)
        return 1 if self._summary.failed else 3 if self._summary.provisional else 0

    def _deliver(self, outcome: Outcome, folder: RunFolder | None) -> None:
        self._summary.add(outcome)
        if outcome.bout is not None and not self._quiet:
            expected = forecast_case(outcome.bout, self._strategy, self._templates, seed=self._seed)
            self._summary.predict(outcome, expected.least, expected.most)
            self._count_saved(outcome.bout, expected.mean)
        if outcome.bout is not None and outcome.bout.case.guessed:
            self._guessed[outcome.bout.case.domain] += 1
        line = selection_line(outcome, strategy=self._name, seed=self._seed, price=self._price)
        if folder is not None:
            folder.add(outcome, line)
        if outcome.failure is not None:
            named = f"case {outcome.name!r}: " if outcome.name else ""
            say(f"failed: {named}{outcome.failure}", "red")
            return
        if self._bracket and outcome.contest is not None:
            say(f"case {outcome.name}", "bold")
            for drawn in draw(outcome.contest):
                stderr().print(drawn)
        if self._lines:
            sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
            sys.stdout.buffer.flush()
        else:
            self._rows.append(_row(line))

    def _count_saved(self, bout: Bout, expected: float) -> None:
        """Reckon what hard evidence saved on a case: the forecast without it, less that with it."""
        if any(one.found is not None for one in bout.case.candidates):
            bare = tuple(replace(one, found=None) for one in bout.case.candidates)
            blind = self._blind(replace(bout.case, candidates=bare))
            without = forecast_case(blind, self._strategy, self._templates, seed=self._seed)
            self._summary.findings.saved += without.mean - expected

    def _close(self, seconds: float) -> None:
        if self._rows:
            columns = ("case", "answer", "winner", "clusters", "calls E1 + E2", "tokens", "note")
            stdout().print(table("", columns, self._rows, numbers_from=2))
        if not self._quiet:
            words = self._summary.as_text(self._price, seconds, self._gpu_hour_usd)
            say(words, "dim")
        if self._guessed and not self._quiet:
            guesses = ", ".join(f"{domain} {count}" for domain, count in self._guessed.items())
            say(f'domain guessed: {guesses}; say "domain" in a case to be sure', "dim")

    def _made_of(self, cases: str, ready: Session) -> dict[str, Any]:
        """Everything that made this run, without the keys."""
        setup, strategy = self._setup, self._strategy
        partial = setup.endpoint_partial
        return {
            "cases": cases if cases == "-" or "://" in cases else str(Path(cases).resolve()),
            "strategy": {"name": self._name, **settings_of(strategy)},
            "seed": self._seed,
            "limit": self._limit,
            "model": setup.endpoint.model,
            "base_url": setup.endpoint.base_url,
            "model_e1": None if partial is None else partial.model,
            "base_url_e1": None if partial is None else partial.base_url,
            "judge": asdict(setup.judge) | {"confidence": ready.confidence},
            "extra": dict(setup.extra),
            "profile": setup.profile,
            "views": dict(setup.views),
            "merge_found": setup.merge_found,
            "findings": {} if ready.findings is None else ready.findings.versions,
            "journal": None if setup.journal is None else str(setup.journal.resolve()),
            "prompts_folder": None if setup.prompts is None else str(setup.prompts),
            "prompts": digests(self._templates),
            "budget": {"case": asdict(setup.case_budget), "total": asdict(setup.total_budget)},
            "price": None if self._price is None else asdict(self._price),
            "versions": versions(),
        }


class Meter:
    """The progress bar: cases, calls, tokens, money, time left."""

    def __init__(self, total: int | None, price: Price | None, *, hidden: bool) -> None:
        self._price, self._calls, self._tokens, self._dollars = price, 0, 0, 0.0
        self._progress = bar(
            TextColumn("cases"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[spent]}"),
            TimeElapsedColumn(), TimeRemainingColumn(), hidden=hidden,
        )  # fmt: skip
        self._bar = self._progress.add_task("cases", total=total, spent="")

    def __enter__(self) -> "Meter":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def hear(self, ruling: Ruling) -> None:
        """Count a ruling."""
        self._calls += 1
        for attempt in ruling.attempts:
            self._tokens += attempt.usage.prompt
            if self._price is not None and not attempt.replayed:
                usage = attempt.usage
                self._dollars += self._price.of(usage.prompt, usage.output, usage.cached)
        money = "" if self._price is None else f", ${self._dollars:.3f}"
        spent = f"{number(self._calls, 0)} calls, {number(self._tokens, 0)} tokens{money}"
        self._progress.update(self._bar, spent=spent)

    def advance(self) -> None:
        """Count a case."""
        self._progress.advance(self._bar)


def _row(line: dict[str, Any]) -> tuple[str, ...]:
    notes = [word for word in ("provisional",) if line[word]]
    if line["rescued"] is not None:
        notes.append("rescue")
    if line["malformed"]:
        notes.append(f"{line['malformed']} unreadable")
    last = last_boxed(line["text"]) or (line["text"].strip().splitlines() or [""])[-1]
    calls = line["calls"]
    return (
        line["id"], last[:40], str(line["winner"]), str(line["clusters"]), f"{calls['E1']} + {calls['E2']}",
        number(line["tokens"]["asked"], 0), ", ".join(notes),
    )  # fmt: skip
