"""One run of a spending command: where results, progress, brackets and files go."""

import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from caps.assemble import Session, Setup, make_prepare, session, templates_for
from caps.cli.calibrating import Calibrating
from caps.cli.listening import listen
from caps.cli.meter import Meter
from caps.cli.output import say, say_failed, stderr, stdout
from caps.cli.parcel import Parcel, pack
from caps.cli.stopping import say_stopped, unless_stopped
from caps.core.errors import InputError
from caps.core.play import Strategy
from caps.core.types import Case
from caps.engines.base import Lineup, Outcome
from caps.experiments.calibration import Calibration
from caps.experiments.planning import forecast_case
from caps.judges.base import Bout
from caps.models.fleet_server import Record
from caps.reports import calibrated
from caps.reports.console import table
from caps.reports.lines import selection_line
from caps.reports.made import made_of
from caps.reports.rundir import RunFolder
from caps.reports.summary import Summary

REHEARSED = 20  # cases; a forecast plays a case many times, which a long run need not wait for


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
        first: Calibrating | None = None,
    ) -> None:
        self._first = first
        self._calibration: Calibration | None = None
        self._setup, self._name, self._strategy, self._seed = setup, name, strategy, seed
        self._gpu_hour_usd, self._quiet, self._bracket, self._lines = gpu_hour_usd, quiet, bracket, lines
        self._limit = limit
        self._summary = Summary()
        self._rows: list[tuple[str, ...]] = []
        self._parcels = Lineup[Parcel]()
        self._guessed: Counter[str] = Counter()
        self._templates = templates_for(setup)
        self._blind = make_prepare(setup.profile, setup.views)
        self._price = setup.price
        self._servers: Callable[[], list[Record]] = list

    async def until_done_or_stopped(
        self, source: Iterable[Case | InputError], total: int | None, out: Path | None, cases: str
    ) -> int:
        """Play all cases; on Ctrl-C or SIGTERM keep what was paid, and say how to go on."""
        code = await unless_stopped(self.play(source, total, out, cases))
        if code is not None:
            return code
        say_stopped(self._setup.journal, f" after {self._parcels.following} cases")
        return 130

    async def play(
        self, source: Iterable[Case | InputError], total: int | None, out: Path | None, cases: str
    ) -> int:
        """Play all cases; the exit code."""
        started = time.perf_counter()
        async with session(self._setup, paid=self._summary.pay_trial) as ready:
            self._price = ready.price
            if self._first is not None:
                source = await self._calibrate(self._first, ready, source, total)
            with Meter(total, ready.price, hidden=self._quiet) as meter:
                ready.engine.watch = meter.hear
                listen(ready.engine, quiet=self._quiet)
                outcomes = ready.engine.run(source, self._strategy, seed=self._seed)
                kept = {} if self._calibration is None else self._judge_row(self._calibration, cases, ready)
                self._servers = ready.servers
                await self.deliver(outcomes, out, self._made_of(cases, ready), meter.advance, kept)
            if ready.findings is not None:
                self._summary.findings.unusable = ready.findings.unusable
        return self.close(time.perf_counter() - started)

    async def deliver(
        self,
        outcomes: AsyncGenerator[Outcome, None],
        out: Path | None,
        made: dict[str, Any],
        advance: Callable[[], object] = int,
        judge: Mapping[str, Any] | None = None,
    ) -> None:
        """Count every outcome as it comes, and write it down when those before it are."""
        with RunFolder(out, made) if out is not None else nullcontext() as folder:
            if folder is not None and judge:
                folder.keep(calibrated.FILE, judge)
            async with aclosing(outcomes):
                async for outcome in outcomes:
                    self._count(outcome)
                    line = selection_line(outcome, strategy=self._name, seed=self._seed, price=self._price)
                    parcel = pack(
                        outcome,
                        line,
                        rulings=folder is not None,
                        picture=self._bracket,
                        row=not self._lines,
                    )
                    advance()
                    for ready in self._parcels.add(outcome.number, parcel):
                        self._write(ready, folder)
            self._summary.servers = self._servers()
            if folder is not None:
                folder.finish(self._summary.as_line(self._price))

    async def _calibrate(
        self, first: Calibrating, ready: Session, source: Iterable[Case | InputError], total: int | None
    ) -> Iterable[Case | InputError]:
        """Freeze what the first cases tell of the judge; all cases, to be played with it."""
        cases = first.count if total is None else min(first.count, total)
        with Meter(cases, self._price, hidden=self._quiet, doing="calibrating") as meter:
            ready.engine.watch = meter.hear
            found, self._strategy, source = await first.learn(
                ready, source, seed=self._seed, advance=meter.advance
            )
        self._calibration = found
        self._summary.ledger.add(found.ledger)
        if not self._quiet:
            say(calibrated.words(found), "yellow" if found.learnt.silent else "dim")
        return source

    def _judge_row(self, found: Calibration, cases: str, ready: Session) -> dict[str, Any]:
        partial = self._setup.endpoint_partial
        about = {
            "source": f"caps select {cases} --calibrate {0 if self._first is None else self._first.count}",
            "model": self._setup.endpoint.model,
            "model_e1": None if partial is None else partial.model,
            "confidence": ready.confidence,
            "seed": self._seed,
        }
        return calibrated.judge_row(found, about)

    def _count(self, outcome: Outcome) -> None:
        self._summary.add(outcome)
        if outcome.bout is not None and not self._quiet and outcome.number < REHEARSED:
            expected = forecast_case(outcome.bout, self._strategy, self._templates, seed=self._seed)
            self._summary.predict(outcome, expected.least, expected.most)
            self._count_saved(outcome.bout, expected.mean)
        if outcome.bout is not None and outcome.bout.case.guessed:
            self._guessed[outcome.bout.case.domain] += 1

    def _write(self, parcel: Parcel, folder: RunFolder | None) -> None:
        if folder is not None:
            folder.add(parcel.selection, parcel.rulings)
        if parcel.failure is not None:
            say_failed(parcel.name, parcel.failure)
            return
        if self._bracket:
            say(f"case {parcel.name}", "bold")
            for drawn in parcel.picture:
                stderr().print(drawn)
        if parcel.row is not None:
            self._rows.append(parcel.row)
        else:
            sys.stdout.buffer.write(parcel.selection)
            sys.stdout.buffer.flush()

    def _count_saved(self, bout: Bout, expected: float) -> None:
        """Forecast what hard evidence saved on a case: what it would ask without, less that with it."""
        if any(one.found is not None for one in bout.case.candidates):
            bare = tuple(replace(one, found=None) for one in bout.case.candidates)
            blind = self._blind(replace(bout.case, candidates=bare))
            without = forecast_case(blind, self._strategy, self._templates, seed=self._seed)
            self._summary.findings.save(without.mean - expected)

    def close(self, seconds: float) -> int:
        """Print what is left to print; the exit code."""
        if self._rows:
            columns = ("case", "answer", "winner", "clusters", "calls E1 + E2", "tokens", "note")
            stdout().print(table("", columns, self._rows, numbers_from=2))
        if not self._quiet:
            words = self._summary.as_text(self._price, seconds, self._gpu_hour_usd)
            say(words, "dim")
        if self._guessed and not self._quiet:
            guesses = ", ".join(f"{domain} {count}" for domain, count in self._guessed.items())
            say(f'domain guessed: {guesses}; say "domain" in a case to be sure', "dim")
        return 1 if self._summary.failed else 3 if self._summary.provisional else 0

    def _made_of(self, cases: str, ready: Session) -> dict[str, Any]:
        """Everything that made this run, without the keys."""
        made = made_of(
            self._setup,
            cases=cases,
            name=self._name,
            strategy=self._strategy,
            seed=self._seed,
            limit=self._limit,
            confidence=ready.confidence,
            findings={} if ready.findings is None else ready.findings.versions,
            price=ready.price,
        )
        return made | {
            "calibration": None if self._calibration is None else calibrated.row(self._calibration)
        }
