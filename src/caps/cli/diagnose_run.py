"""Having pairs judged with a bar to look at, and telling what came of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from caps.cli.output import bar, print_json, say, stdout
from caps.cli.picturing import put_out
from caps.cli.stopping import say_stopped, unless_stopped
from caps.files import write_file
from caps.reports import diagnosis as diagnosed
from caps.reports import diagnosis as diagnosed_rows
from caps.reports.console import shown
from caps.reports.diagnosis import JudgeLabel
from caps.reports.diagnosis_page import (
    diagnosis_page,
    diagnosis_pictures,
    proxy_page,
    proxy_pictures,
    stamp_of,
)
from caps.runner import Runner
from caps.studies.advice import Conclusion, conclude, measured_of
from caps.studies.diagnosis import DiagnosisRun, Plan, Subject, ask


async def judged_live(
    runner: Runner, scheduled: Sequence[Subject], plan: Plan, *, quiet: bool
) -> DiagnosisRun | None:
    """Ask; none on Ctrl-C or SIGTERM, with everything paid for in the journal."""
    columns = (TextColumn("pairs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with bar(*columns, hidden=quiet) as progress:
        pairs = progress.add_task("pairs", total=sum(len(subject.probe_pairs) for subject in scheduled))
        told = await unless_stopped(
            ask(runner, scheduled, plan, advance=lambda more: progress.advance(pairs, more))
        )
    if told is None:
        say_stopped(runner.journal_path)
    return told


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Where the findings of a diagnosis go: a terminal, JSON, a profile file."""

    cases: str | None
    plan: Plan
    found: Sequence[Subject]
    contests: int
    save: Path | None
    plots: Path | None
    html: Path | None
    date: str
    as_json: bool
    quiet: bool

    def tell(self, asked: DiagnosisRun, judge: JudgeLabel) -> int:
        """Say everything; the exit code."""
        for failure in asked.failures:
            say(f"failed: {failure}", "red")
        if not asked.looks:
            say("no pair was answered in full: nothing can be said of this judge", "red")
            return 3 if asked.ended else 1
        if self.plan.proxy:
            self._tell_proxy(asked, judge)
        else:
            self._tell_all(asked, judge)
        if asked.ended:
            say(f"the {asked.ended} ended before all pairs were asked", "yellow")
        return 1 if asked.failures else 3 if asked.ended else 0

    def _tell_proxy(self, asked: DiagnosisRun, judge: JudgeLabel) -> None:
        measured = measured_of(asked)
        page = proxy_page(measured, judge, made=self._made(asked, judge))
        put_out(proxy_pictures(measured), page, plots=self.plots, html=self.html)
        if self.as_json:
            print_json(diagnosed_rows.proxy_row(measured, asked))
            return
        stdout().print(diagnosed.proxy_figures(measured))
        _print([*diagnosed.remarks(measured, labelled=False), diagnosed.PROXY])

    def _tell_all(self, asked: DiagnosisRun, judge: JudgeLabel) -> None:
        with bar(hidden=self.quiet) as progress:
            counted = progress.add_task("simulated contests", total=self.contests)
            found = conclude(
                asked,
                self.found,
                seed=self.plan.seed,
                contests=self.contests,
                report=lambda done: progress.advance(counted, done),
            )
        line = diagnosed.command(
            self.cases or "CASES", found.chosen, judge.words, None if self.save is None else str(self.save)
        )
        if self.save is not None:
            row = diagnosed_rows.kept_row(found, asked, judge, date=self.date, seed=self.plan.seed)
            write_file(self.save, msgspec.json.format(msgspec.json.encode(row)) + b"\n", option="--save")
            say(f"profile: {self.save}")
        pictures = diagnosis_pictures(found.measured, found.options, found.chosen, stamp_of(judge))
        page = diagnosis_page(found, judge, line, pairs_most=self.plan.pairs, made=self._made(asked, judge))
        put_out(pictures, page, plots=self.plots, html=self.html)
        if self.as_json:
            print_json(diagnosed_rows.diagnosis_row(found, asked, judge, line))
        else:
            self._print_all(found, line, judge)

    def _made(self, asked: DiagnosisRun, judge: JudgeLabel) -> list[tuple[str, str]]:
        """How this diagnosis was made, for whoever reads its page later."""
        plan = self.plan
        told = {
            "cases": self.cases or "made up", "judge": judge.source, "model": judge.model,
            "model at E1": judge.model_e1,
            "confidence": asked.confidence, "date": self.date, "seed": plan.seed, "pairs at most": plan.pairs,
            "pairs of a case": plan.per_case, "stops when settled": "yes" if plan.stop else "no",
            "contests simulated": self.contests,
        }  # fmt: skip
        return [(name, str(value)) for name, value in told.items() if value is not None]

    def _print_all(self, found: Conclusion, line: str, judge: JudgeLabel) -> None:
        if judge.simulated:
            _print([f"{judge.source}: nothing below is about a model", ""])
        stdout().print(diagnosed.figures(found.measured))
        answer = diagnosed.judged_words(found.measured, pairs_most=self.plan.pairs)
        _print(["", *diagnosed.remarks(found.measured), "", *answer, ""])
        stdout().print(diagnosed.options_table(found.options, found.chosen))
        measure = diagnosed.paper_measure(found.options)
        advice = diagnosed.advice_words(found.measured, found.chosen)
        _print([*([measure] if measure else []), "", *advice, ""])
        stdout().print(shown(line), markup=False, soft_wrap=True)


def _print(lines: Iterable[str]) -> None:
    """Print sentences, broken between words where someone looks and nowhere else."""
    console = stdout()
    for words in lines:
        console.print(shown(words), markup=False, soft_wrap=not console.is_terminal)
