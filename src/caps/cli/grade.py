"""`caps grade`: label every candidate as right or wrong."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from platformdirs import user_data_path
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from caps.building import make_grader, make_graders, open_journal
from caps.cli import options
from caps.cli.beforehand import opened
from caps.cli.config_options import allow_named, named_domain
from caps.cli.options import Cases
from caps.cli.output import bar, say
from caps.config import options as options_of_runs
from caps.core.errors import InputError
from caps.core.text import percent
from caps.core.types import Case
from caps.datasets.case_files import write_case
from caps.datasets.imports import count_cases, open_cases
from caps.evidence.domains import known_domains
from caps.files import Output as OutputFile
from caps.graders.base import Grade, Opening
from caps.journal.store import default_path
from caps.statistics.estimates import wilson
from caps.studies.grading import GradedCase, GradeStore

Output = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="Labelled cases; - is standard output.")
]
GraderName = Annotated[
    str | None,
    typer.Option("--grader", metavar="NAME", help="Grade all cases with this one: see caps list graders."),
]
Domain = Annotated[
    str | None, typer.Option("--domain", help="What cases are that do not say: see caps list domains.")
]
Explain = Annotated[bool, typer.Option("--explain", help="Say of each wrong candidate what was wrong.")]
Seconds = Annotated[float, typer.Option("--test-seconds", min=0.1, help="Seconds a program has for a test.")]

_PASSED, _FAILED = "passed public tests", "failed public tests"


def grade(
    cases: Cases,
    output: Output = "-",
    explain: Explain = False,
    grader: GraderName = None,
    domain: Domain = None,
    sandbox: options.Sandbox = "auto",
    test_seconds: Seconds = 10.0,
    journal: options.JournalFile = None,
    no_journal: options.NoJournal = False,
    limit: options.Limit = None,
    quiet: options.Quiet = False,
) -> None:
    """Label every candidate: math by equal answers, code by running all hidden tests in the sandbox.

    The cases come out with `correct` at each candidate; what cannot be decided gets no label. Where a case
    has public tests only, candidates get `passed_public_tests` instead: passing them is no proof. Grades
    are kept in the journal, so nothing is graded twice.
    """
    allow_named(grader)
    own = named_domain(domain)
    where = None if no_journal else journal or default_path(user_data_path("caps"))
    run = _Grading(explain=explain, quiet=quiet)
    name = options_of_runs()["sandbox"].check(sandbox, "--sandbox")
    graders = make_graders(name, test_seconds)
    if grader is not None:
        graders = dict.fromkeys(known_domains(), make_grader(grader, name, test_seconds))
    source = (_stated(case, own) for case in opened(partial(open_cases, cases), limit))
    counted = count_cases(cases)
    total = limit if counted is None else min(counted, limit or counted)
    # Opened before the event loop runs: a FIFO is waited for here, where Ctrl-C ends the wait.
    with OutputFile(output, option="--output", inputs=[cases]) as sink:
        code = asyncio.run(run.play(source, total, sink, graders, where))
    raise typer.Exit(code)


def _stated(case: Case | InputError, domain: str | None) -> Case | InputError:
    if domain is None or isinstance(case, InputError) or not case.guessed:
        return case
    return replace(case, domain=domain, guessed=False)


def _label(grade: Grade) -> str:
    if grade.passed_public_tests is not None:
        return _PASSED if grade.passed_public_tests else _FAILED
    return {True: "right", False: "wrong", None: "undecided"}[grade.correct]


class _Grading:
    """Grades one file and keeps count."""

    def __init__(self, *, explain: bool, quiet: bool) -> None:
        self._explain, self._quiet = explain, quiet
        self._labels: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._failed = self._cases = 0

    async def play(
        self,
        source: Iterable[Case | InputError],
        total: int | None,
        sink: OutputFile,
        graders: Mapping[str, Opening],
        journal: Path | None,
    ) -> int:
        """Grade all cases; the exit code."""
        progress = bar(
            TextColumn("cases"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TimeRemainingColumn(), hidden=self._quiet,
        )  # fmt: skip
        with ExitStack() as stack:
            kept = None if journal is None else stack.enter_context(open_journal(journal))
            book = GradeStore(graders, kept)
            stack.enter_context(progress)
            shown = progress.add_task("cases", total=total)
            try:
                async for graded in book.grade_all(source):
                    self._deliver(graded, sink)
                    progress.advance(shown)
                sink.finish()
            finally:
                await book.close()
        if not self._quiet:
            self._summary()
        return 1 if self._failed else 0

    def _deliver(self, graded: GradedCase, sink: OutputFile) -> None:
        self._cases += 1
        case = graded.case
        if graded.failure is not None:
            self._failed += 1
            named = "" if case is None else f"case {case.id!r}: "
            say(f"failed: {named}{graded.failure}", "red")
        if case is None:
            return
        for place, one in enumerate(graded.grades):
            self._labels[_label(one)] += 1
            if one.reason:
                self._reasons[one.reason] += 1
            if self._explain and not (one.correct or one.passed_public_tests):
                said = f": {one.detail}" if one.detail else ""
                say(f"case {case.id!r}, candidate {place}: {one.reason}{said}", "default")
        sink.write(write_case(case) + b"\n")

    def _summary(self) -> None:
        public = self._labels[_PASSED] + self._labels[_FAILED]
        total, right = self._labels.total() - public, self._labels["right"]
        if total:
            share = percent(right / total, wilson(right, total))
            wrong, undecided = self._labels["wrong"], self._labels["undecided"]
            words = f"{total} candidates of {self._cases} cases: {right} right ({share} %), {wrong} wrong"
            say(words + (f", {undecided} undecided" if undecided else ""))
        if public:
            passed, failed = self._labels[_PASSED], self._labels[_FAILED]
            say(
                f"{public} candidates without a label, since their cases have public tests only: "
                f"{passed} {_PASSED}, {failed} {_FAILED}"
            )
        if self._reasons:
            say("; ".join(f"{reason} {count}" for reason, count in self._reasons.most_common()), "dim")
