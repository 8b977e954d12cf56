"""One run of `caps select`: results, progress, brackets and files."""

import shlex
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from caps.cli.output import FailureLog, say, stderr, stdout, write_result
from caps.cli.progress import JudgeProgress
from caps.core.errors import BatchWaitingError, InputError, UnreadableJudgeError
from caps.core.settings import settings_of
from caps.core.text import number, plural
from caps.core.types import Case, Usage
from caps.costs.prices import Price
from caps.engines.base import Engine, Outcome, ReorderBuffer
from caps.files import file_errors
from caps.judging.base import Ruling
from caps.judging.recorded import RULE, counted
from caps.models.servers import ServerRecord
from caps.reports.console import table
from caps.runs.folder import (
    RunFolder,
    refuse_other_case,
    refuse_other_run,
    refuse_other_shards,
)
from caps.runs.outcomes import outcome_of
from caps.runs.progress_file import ProgressFile
from caps.runs.result_lines import Line, json_lines, ruling_lines, selection_line
from caps.runs.run_file import RunFile, new_run_file, run_in
from caps.runs.shards import Shard
from caps.runs.summary import Summary
from caps.session.resolve import Resolved
from caps.session.session import Session, open_session

if TYPE_CHECKING:
    from caps.cli.calibrator import Calibrator

JUDGE_FILE = "judge.json"


@dataclass(frozen=True, slots=True)
class ResultPacket:
    """What is written about a case, kept until the cases before it are written."""

    name: str
    selection: bytes
    rulings: bytes
    failure: str | None
    picture: list[Text]
    row: tuple[str, ...] | None


def result_packet(outcome: Outcome, line: Line, *, rulings: bool, picture: bool, row: bool) -> ResultPacket:
    """The packet of an outcome, with only what will be written; `line` is its line of results."""
    chosen = outcome.failure is None
    drawn = []
    if picture and outcome.contest is not None and chosen:
        from caps.reports.bracket import draw  # noqa: PLC0415

        drawn = draw(outcome.contest)
    return ResultPacket(
        name=outcome.name,
        selection=json_lines([line]),
        rulings=json_lines(ruling_lines(outcome)) if rulings else b"",
        failure=outcome.failure,
        picture=drawn,
        row=_row(outcome, line) if row and chosen else None,
    )


MOST_ROWS = 20
NARROW = 80  # columns of a terminal in which a case takes one line
CASE_WIDTH, ANSWER_WIDTH = 18, 24
COLUMNS = ("case", "answer", "prob", "right?", "calls", "tokens")


def _row(outcome: Outcome, line: Line) -> tuple[str, ...]:
    """A case in one line of a terminal."""
    from caps.reports.answers import answer_text, domain_of, shortened_words  # noqa: PLC0415  (only for terminals)

    answer, result = "", "–"
    if outcome.prepared is not None:
        case, winner = outcome.prepared.case, line["winner"]
        answer = answer_text(case.candidates[winner], short=domain_of(case).short_answers)
        result = outcome_of(winner, [candidate.correct for candidate in case.candidates]) or "–"
    probability = line.get("probability")
    room = ANSWER_WIDTH + max(0, stdout().width - NARROW)
    return (
        shortened_words(line["id"], CASE_WIDTH), shortened_words(answer, room),
        "–" if probability is None else f"{probability:.0%}", f"{result}{'?' * bool(line['provisional'])}",
        str(sum(line["calls"].values())), number(line["tokens"]["asked"], 0),
    )  # fmt: skip


def report_batches(engine: Engine, *, quiet: bool) -> None:
    """Print the progress of batches unless `quiet`, and their problems in any case."""
    notices = getattr(engine, "notices", None)  # its module is loaded only for batches
    if notices is not None:
        notices.on_warning = lambda message: say(message, "yellow")
        if not quiet:
            notices.on_progress = say


Source = Iterable[Case | InputError]


def _each(*counters: Callable[[Ruling], object]) -> Callable[[Ruling], None]:
    """Tell several counters about every ruling."""

    def count(ruling: Ruling) -> None:
        for one in counters:
            one(ruling)

    return count


@dataclass(slots=True)
class Spending:
    """What a run has asked and paid for so far, also for cases that are not finished."""

    price: Price | None
    asks: int = 0
    usage: Usage = field(default_factory=lambda: Usage(0, 0))

    def count(self, ruling: Ruling) -> None:
        """Count the calls of a ruling that were paid now."""
        self.asks += 1
        self.usage += sum((one.usage for one in ruling.attempts if not one.replayed), start=Usage(0, 0))

    def __str__(self) -> str:
        usage = self.usage
        tokens = f"{number(usage.prompt, 0)} tokens read and {number(usage.output, 0)} written now"
        money = (
            "" if self.price is None else f", ${self.price.of(usage.prompt, usage.output, usage.cached):.4f}"
        )
        return f"{plural(self.asks, 'ask')}, {tokens}{money}"


class Run:
    """One run of `select`: writes results, progress and files."""

    def __init__(
        self,
        resolved: Resolved,
        *,
        limit: int | None,
        shard: Shard | None = None,
        force: bool = False,
        quiet: bool,
        bracket: bool,
        lines: bool,
        first: "Calibrator | None" = None,
    ) -> None:
        self._first = first
        self._out: Path | None = None
        self._resolved, self._quiet, self._bracket, self._lines = resolved, quiet, bracket, lines
        self._limit, self._shard, self._force = limit, shard, force
        self._summary = Summary()
        self._rows: list[tuple[str, ...]] = []
        self._failures = FailureLog()
        self._packets = ReorderBuffer[ResultPacket]()
        self._guessed: Counter[str] = Counter()
        self._reasons: dict[str, None] = {}  # in order, each once
        self._servers: Callable[[], list[ServerRecord]] = list
        self._live = ProgressFile(None, None)
        self._stopped: UnreadableJudgeError | None = None
        self._spending = Spending(resolved.price)

    def so_far(self) -> str:
        """How many cases are done, for the message of a run that is interrupted."""
        return f" after {plural(self._packets.following, 'case')}"

    async def play(
        self, source: Iterable[Case | InputError], total: int | None, out: Path | None, cases: str
    ) -> int:
        """Select in all cases; return the exit code."""
        self._out = out
        started = time.perf_counter()
        if out is not None and not self._force:
            source = self._checked(source, out, cases)
        async with open_session(self._resolved, paid=self._summary.add_trial) as ready:
            if self._first is not None:
                source = await self._calibrate(self._first, ready, source, total)
            with (
                JudgeProgress(total, self._resolved.price, hidden=self._quiet) as meter,
                ProgressFile(out, total, price=self._resolved.price) as self._live,
            ):
                ready.engine.watch = _each(meter.count, self._live.count, self._spending.count)
                if ready.findings is not None:
                    ready.findings.watch = meter.prepare
                report_batches(ready.engine, quiet=self._quiet)
                outcomes = ready.run(self._live.watch(source), self._resolved.strategy)
                kept = {} if self._first is None else self._first.judge_file(cases, ready)
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
    ) -> None:
        """Count every outcome as it arrives, and write it after those before it."""
        self._failures.hint = (
            "keep them all with --out DIR"
            if out is None
            else f"all of them are in {out / 'selections.jsonl'}"
        )
        with (
            self._failures,
            RunFolder(out, file, force=self._force) if out is not None else nullcontext() as folder,
        ):
            if folder is not None and judge:
                folder.write_json(JUDGE_FILE, judge)
            try:
                async with aclosing(outcomes):
                    async for outcome in outcomes:
                        self._count(outcome)
                        line = selection_line(outcome, self._resolved.config, price=self._resolved.price)
                        packet = result_packet(
                            outcome,
                            line,
                            rulings=folder is not None,
                            picture=self._bracket,
                            row=not self._lines,
                        )
                        advance()
                        for ready in self._packets.add(outcome.number, packet):
                            self._write(ready, folder)
            except BatchWaitingError as waiting:
                for name, failure in waiting.failed:
                    self._failures.add_case(name, failure)
                raise
            except UnreadableJudgeError as error:
                for ready in self._packets.drain():
                    self._write(ready, folder)
                self._stopped = error
            self._summary.servers = self._servers()
            if folder is not None and self._stopped is None:
                folder.finish(self._summary.as_line(self._resolved.price))

    async def _calibrate(
        self, first: "Calibrator", ready: Session, source: Iterable[Case | InputError], total: int | None
    ) -> Iterable[Case | InputError]:
        """Estimate the judge's accuracy on the first cases; return all cases."""
        cases = first.count if total is None else min(first.count, total)
        with JudgeProgress(cases, self._resolved.price, hidden=self._quiet, what="calibrating") as meter:
            ready.engine.watch = meter.count
            found, informed, source = await first.learn(ready, source, advance=meter.advance)
        fitted = replace(self._resolved.config, settings=settings_of(informed), judge_profile=None)
        self._resolved = self._resolved.with_config(fitted)
        self._summary.ledger.add(found.ledger)
        if not self._quiet:
            say(first.text(), "yellow" if found.learned.silent else "dim")
        return source

    def _count(self, outcome: Outcome) -> None:
        self._summary.add(outcome)
        self._live.finish(outcome.name)
        if outcome.prepared is not None and outcome.prepared.case.guessed:
            case = outcome.prepared.case
            self._guessed[case.domain] += 1
            self._reasons.setdefault(case.reason)

    def _write(self, packet: ResultPacket, folder: RunFolder | None) -> None:
        if folder is not None:
            folder.add(packet.selection, packet.rulings)
        if packet.failure is not None:
            self._failures.add_case(packet.name, packet.failure)
            return
        if self._bracket:
            say(f"case {packet.name}", "bold")
            for drawn in packet.picture:
                stderr().print(drawn)
        if packet.row is not None:
            self._rows.append(packet.row)
        else:
            write_result(packet.selection)

    def close(self, seconds: float) -> int:
        """Print table and summary; return the exit code, or raise what stopped the run."""
        if self._rows:
            stdout().print(table("", COLUMNS, self._rows[:MOST_ROWS], numbers_from=4))
            if len(self._rows) > MOST_ROWS:
                stdout().print(f"… and {number(len(self._rows) - MOST_ROWS, 0)} more", style="dim")
        if self._stopped is not None:
            kept = "every reply is in the journal" if self._resolved.journal else "there is no journal"
            cases = f"{plural(self._summary.cases, 'case')} finished"
            say(f"stopped after {seconds:.1f} s: {cases}; {self._spending}; {kept}", "yellow")
            raise self._stopped
        if not self._quiet:
            words = self._summary.as_text(self._resolved.price, seconds)
            say(words, "dim")
            if self._resolved.config.recorded is not None:
                ledger = self._summary.ledger
                counts = counted(ledger.substituted, ledger.unanswered, sum(ledger.calls.values()))
                say(f"recorded verdicts, {counts}. {RULE}", "dim")
        if self._guessed and not self._quiet:
            guesses = ", ".join(f"{domain} {count}" for domain, count in self._guessed.items())
            why = "; ".join(filter(None, self._reasons))
            say(f'guessed domains: {guesses} ({why}); --domain or "domain" in the cases states it', "dim")
        if self._out is not None and not self._quiet:
            say(f"where it went wrong, and why: caps report {shlex.quote(str(self._out))}", "dim")
        return 1 if self._summary.failed else 3 if self._summary.provisional else 0

    def _checked(
        self, source: Iterable[Case | InputError], out: Path, cases: str
    ) -> Iterable[Case | InputError]:
        """Check the folder before anything is asked; return all cases."""
        file = new_run_file(self._resolved, cases=cases, limit=self._limit, shard=self._shard, findings={})
        if self._first is not None:
            file = replace(file, calibration={"cases": self._first.count})
        with file_errors(f"--out {out}"):
            if out.is_dir():
                refuse_other_run(out, file)
            if self._shard is not None:
                refuse_other_shards(out.parent, file)
        rest = iter(source)
        first = list(islice(rest, 1))
        before = run_in(out)
        streamed = "-" in (cases, None if before is None else before.cases)
        if streamed and first and isinstance(first[0], Case):
            refuse_other_case(out, first[0])
        return chain(first, rest)

    def _file(self, cases: str, ready: Session) -> RunFile:
        """All settings of this run, without the keys."""
        file = new_run_file(
            self._resolved,
            cases=cases,
            limit=self._limit,
            shard=self._shard,
            learned=ready.learned,
            findings={} if ready.findings is None else ready.findings.versions,
        )
        return replace(file, calibration=None if self._first is None else self._first.row())
