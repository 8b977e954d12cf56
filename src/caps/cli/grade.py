"""`caps grade`: label every candidate as right or wrong."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from platformdirs import user_data_path

from caps.cli import options
from caps.cli.help import FILES, STRATEGY
from caps.cli.options import Cases, allow_named, named_domain
from caps.cli.output import FailureLog, say
from caps.cli.preflight import counted_source
from caps.cli.progress import Progress
from caps.config import options as options_of_runs
from caps.core.domains import Grade, Opening
from caps.core.errors import InputError
from caps.core.text import percent, plural
from caps.core.types import Case
from caps.datasets.case_files import write_case
from caps.evidence.domains import known_domains, with_stated_domain
from caps.files import Output as OutputFile
from caps.files import join_paths
from caps.journal.store import Journal, default_path
from caps.registry import GRADERS
from caps.session.parts import make_grader, make_graders
from caps.statistics.estimates import wilson
from caps.studies.grading import GradedCase, GradeStore

Explain = Annotated[
    bool,
    typer.Option(
        "--explain", rich_help_panel=FILES,
        help="Print for each candidate what is wrong, and what decided how answers compare.",
    ),
]  # fmt: skip
Seconds = Annotated[
    float,
    typer.Option(
        "--test-seconds", min=0.1, metavar="SECONDS", help="Processor time of a program for one test.",
        rich_help_panel=STRATEGY,
    ),
]  # fmt: skip
GraderName = Annotated[
    str | None,
    typer.Option(
        "--grader", metavar="NAME", help="Grade all cases with this grader; see caps list graders.",
        rich_help_panel=STRATEGY, autocompletion=options.completion(GRADERS.table),
    ),
]  # fmt: skip

_PASSED, _FAILED = "passed public tests", "failed public tests"


def grade(
    cases: Cases,
    output: options.CasesOutput = "-",
    explain: Explain = False,
    grader: GraderName = None,
    domain: options.Domain = None,
    fields: options.Fields = "",
    sandbox: options.Sandbox = "auto",
    test_seconds: Seconds = 10.0,
    journal: options.JournalFile = None,
    no_journal: options.NoJournal = False,
    limit: options.Limit = None,
    quiet: options.Quiet = False,
) -> None:
    """Label every candidate as right or wrong.

    Math is graded by comparing answers, code by running all hidden tests in the sandbox. Each candidate gets
    the field "correct", unless that cannot be decided. If a case has public tests only, candidates get
    "passed_public_tests" instead, since passing those proves nothing. Grades are stored in the journal, so
    nothing is graded twice.
    """
    allow_named(grader)
    stated_domain = named_domain(domain)
    where = None if no_journal else journal or default_path(user_data_path("caps"))
    run = GradeRun(explain=explain, quiet=quiet)
    name = options_of_runs()["sandbox"].check(sandbox, "--sandbox")
    graders = make_graders(name, test_seconds)
    if grader is not None:
        graders = dict.fromkeys(known_domains(), make_grader(grader, name, test_seconds))
    cases_of_files, total = counted_source(join_paths(cases), fields, limit)
    source = (with_stated_domain(case, stated_domain) for case in cases_of_files)
    # Opened before the event loop starts: opening a FIFO may block, and here Ctrl-C ends that.
    with OutputFile(output, option="--output", inputs=cases) as sink:
        code = asyncio.run(run.play(source, total, sink, graders, where))
    raise typer.Exit(code)


def _label(grade: Grade) -> str:
    if grade.passed_public_tests is not None:
        return _PASSED if grade.passed_public_tests else _FAILED
    return {True: "right", False: "wrong", None: "undecided"}[grade.correct]


def _explanation(grade: Grade) -> str:
    """What is wrong, or that it is right, with the two answers and the layer that decided."""
    words = grade.reason or "right"
    words += f": {grade.detail}" if grade.detail else ""
    return words + (f" ({grade.decided_by})" if grade.decided_by else "")


class GradeRun:
    """Grades one file and counts the labels."""

    def __init__(self, *, explain: bool = False, quiet: bool, what: str = "cases") -> None:
        self._explain, self._quiet, self._what = explain, quiet, what
        self._labels: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._layers: Counter[str] = Counter()
        self._failed = self._cases = 0
        self._failures = FailureLog()

    async def play(
        self,
        source: Iterable[Case | InputError],
        total: int | None,
        sink: OutputFile,
        graders: Mapping[str, Opening],
        journal: Path | None,
    ) -> int:
        """Grade all cases; the exit code."""
        with ExitStack() as stack:
            kept = None if journal is None else stack.enter_context(Journal.open(journal))
            book = GradeStore(graders, kept)
            progress = stack.enter_context(Progress(self._what, total, hidden=self._quiet))
            stack.enter_context(self._failures)
            try:
                async for graded in book.grade_all(source):
                    self._deliver(graded, sink)
                    progress.advance()
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
            self._failures.add_case("" if case is None else case.id, graded.failure)
        if case is None:
            return
        for place, one in enumerate(graded.grades):
            self._labels[_label(one)] += 1
            if one.reason:
                self._reasons[one.reason] += 1
            if one.decided_by:
                self._layers[one.decided_by] += 1
            if self._explain and (one.decided_by or not (one.correct or one.passed_public_tests)):
                say(f"case {case.id!r}, candidate {place}: {_explanation(one)}", "default")
        sink.write(write_case(case) + b"\n")

    def _summary(self) -> None:
        public = self._labels[_PASSED] + self._labels[_FAILED]
        total, right = self._labels.total() - public, self._labels["right"]
        if total:
            share = percent(right / total, wilson(right, total))
            wrong, undecided = self._labels["wrong"], self._labels["undecided"]
            counted = f"{plural(total, 'candidate')} in {plural(self._cases, 'case')}"
            words = f"{counted}: {right} right ({share} %), {wrong} wrong"
            say(words + (f", {undecided} undecided" if undecided else ""))
        if public:
            passed, failed = self._labels[_PASSED], self._labels[_FAILED]
            say(
                f"{plural(public, 'candidate')} without a label, because the case has public tests only: "
                f"{passed} {_PASSED}, {failed} {_FAILED}"
            )
        if self._reasons:
            say("; ".join(f"{reason} {count}" for reason, count in self._reasons.most_common()), "dim")
        if self._layers:
            counted = ", ".join(f"{layer} {count}" for layer, count in self._layers.most_common())
            say(f"answers compared: {counted}", "dim")
