"""One run of a spending command: where results, progress, brackets and files go."""

import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, nullcontext
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from caps.cli.calibrating import Calibrating
from caps.cli.listening import listen
from caps.cli.meter import Meter
from caps.cli.output import put, say, say_failed, stderr, stdout
from caps.cli.parcel import Parcel, pack
from caps.cli.stopping import say_stopped, unless_stopped
from caps.core.errors import InputError
from caps.core.settings import settings_of
from caps.core.types import Case
from caps.engines.base import Outcome, ReorderBuffer
from caps.files import file_errors
from caps.judging.recorded import RULE, counted
from caps.models.fleet_servers import ServerRecord
from caps.reports import calibration as calibrated
from caps.reports.console import table
from caps.runner import Runner, Session
from caps.runs.folder import RunFolder, known_cases, refuse_other_case, refuse_others
from caps.runs.result_lines import selection_line
from caps.runs.run_file import RunFile, run_file_of
from caps.runs.summary import Summary
from caps.studies.calibration import Calibration


class Run:
    """One run of `select`: where results, progress and files go."""

    def __init__(
        self,
        runner: Runner,
        *,
        limit: int | None,
        force: bool = False,
        quiet: bool,
        bracket: bool,
        lines: bool,
        first: Calibrating | None = None,
    ) -> None:
        self._first = first
        self._calibration: Calibration | None = None
        self._runner, self._quiet, self._bracket, self._lines = runner, quiet, bracket, lines
        self._limit, self._force = limit, force
        self._summary = Summary()
        self._rows: list[tuple[str, ...]] = []
        self._parcels = ReorderBuffer[Parcel]()
        self._guessed: Counter[str] = Counter()
        self._servers: Callable[[], list[ServerRecord]] = list

    async def until_done_or_stopped(
        self, source: Iterable[Case | InputError], total: int | None, out: Path | None, cases: str
    ) -> int:
        """Play all cases; on Ctrl-C or SIGTERM keep what was paid, and say how to go on."""
        code = await unless_stopped(self.play(source, total, out, cases))
        if code is not None:
            return code
        say_stopped(self._runner.journal_path, f" after {self._parcels.following} cases")
        return 130

    async def play(
        self, source: Iterable[Case | InputError], total: int | None, out: Path | None, cases: str
    ) -> int:
        """Play all cases; the exit code."""
        started = time.perf_counter()
        if out is not None and not self._force:
            source = self._checked(source, out, cases)
        async with self._runner.session(paid=self._summary.pay_trial) as ready:
            if self._first is not None:
                source = await self._calibrate(self._first, ready, source, total)
            with Meter(total, self._runner.price, hidden=self._quiet) as meter:
                ready.engine.watch = meter.hear
                listen(ready.engine, quiet=self._quiet)
                outcomes = ready.run(source, self._runner.strategy)
                kept = {} if self._calibration is None else self._judge_row(self._calibration, cases, ready)
                self._servers = ready.servers
                await self.deliver(outcomes, out, self._file(cases, ready), meter.advance, kept)
            if ready.findings is not None:
                self._summary.findings.unusable = ready.findings.unusable
        return self.close(time.perf_counter() - started)

    async def deliver(
        self,
        outcomes: AsyncGenerator[Outcome, None],
        out: Path | None,
        file: RunFile,
        advance: Callable[[], object] = int,
        judge: Mapping[str, Any] | None = None,
        *,
        locked: bool = False,
    ) -> None:
        """Count every outcome as it comes, and write it down when those before it are."""
        with (
            RunFolder(out, file, force=self._force, lock=not locked) if out is not None else nullcontext()
        ) as folder:
            if folder is not None and judge:
                folder.keep(calibrated.FILE, judge)
            async with aclosing(outcomes):
                async for outcome in outcomes:
                    self._count(outcome)
                    line = selection_line(outcome, self._runner.config, price=self._runner.price)
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
                folder.finish(self._summary.as_line(self._runner.price))

    async def _calibrate(
        self, first: Calibrating, ready: Session, source: Iterable[Case | InputError], total: int | None
    ) -> Iterable[Case | InputError]:
        """Freeze what the first cases tell of the judge; all cases, to be played with it."""
        cases = first.count if total is None else min(first.count, total)
        with Meter(cases, self._runner.price, hidden=self._quiet, doing="calibrating") as meter:
            ready.engine.watch = meter.hear
            found, informed, source = await first.learn(ready, source, advance=meter.advance)
        fitted = replace(self._runner.config, settings=settings_of(informed), judge_profile=None)
        self._runner = self._runner.with_config(fitted)
        self._calibration = found
        self._summary.ledger.add(found.ledger)
        if not self._quiet:
            say(calibrated.words(found), "yellow" if found.learned.silent else "dim")
        return source

    def _judge_row(self, found: Calibration, cases: str, ready: Session) -> dict[str, Any]:
        runner = self._runner
        partial = runner.endpoints.partial.model if runner.asks_model else runner.judge_name
        about = {
            "source": f"caps select {cases} --calibrate {0 if self._first is None else self._first.count}",
            "model": runner.judge_name,
            "model_e1": None if partial == runner.judge_name else partial,
            "confidence": ready.confidence,
            "seed": self._runner.config.seed,
        }
        return calibrated.judge_row(found, about)

    def _count(self, outcome: Outcome) -> None:
        self._summary.add(outcome)
        if outcome.prepared is not None and outcome.prepared.case.guessed:
            self._guessed[outcome.prepared.case.domain] += 1

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
            put(parcel.selection)

    def close(self, seconds: float) -> int:
        """Print what is left to print; the exit code."""
        if self._rows:
            columns = ("case", "answer", "winner", "clusters", "calls E1 + E2", "tokens", "note")
            stdout().print(table("", columns, self._rows, numbers_from=2))
        if not self._quiet:
            words = self._summary.as_text(self._runner.price, seconds, self._runner.config.gpu_hour_usd)
            say(words, "dim")
            if self._runner.config.recorded is not None:
                ledger = self._summary.ledger
                told = counted(ledger.substituted, ledger.unanswered, sum(ledger.calls.values()))
                say(f"recorded verdicts, {told}. {RULE}", "dim")
        if self._guessed and not self._quiet:
            guesses = ", ".join(f"{domain} {count}" for domain, count in self._guessed.items())
            say(f'domain guessed: {guesses}; say "domain" in a case to be sure', "dim")
        return 1 if self._summary.failed else 3 if self._summary.provisional else 0

    def _checked(
        self, source: Iterable[Case | InputError], out: Path, cases: str
    ) -> Iterable[Case | InputError]:
        """Look at the folder before anything is asked, as far as the run is known by then; all cases."""
        file = run_file_of(self._runner, cases=cases, limit=self._limit, confidence="", findings={})
        if self._first is not None:
            file = replace(file, calibration={"cases": self._first.count})
        with file_errors(f"--out {out}"):
            if out.is_dir():
                refuse_others(out, file)
        rest = iter(source)
        first = list(islice(rest, 1))
        if "-" in (cases, *known_cases(out)) and first and isinstance(first[0], Case):
            refuse_other_case(out, first[0])
        return chain(first, rest)

    def _file(self, cases: str, ready: Session) -> RunFile:
        """Everything that makes this run, without the keys."""
        file = run_file_of(
            self._runner,
            cases=cases,
            limit=self._limit,
            confidence=ready.confidence,
            findings={} if ready.findings is None else ready.findings.versions,
        )
        found = None if self._calibration is None else calibrated.row(self._calibration)
        return replace(file, calibration=found)
