"""`caps export`: selections and judgements for other tools."""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from caps.cli.import_ import Output
from caps.cli.output import say
from caps.core.errors import InputError, SettingError
from caps.core.types import Case
from caps.datasets.exports import EXPORTS, Chosen, preferences
from caps.datasets.imports import open_cases
from caps.datasets.verdicts import UNNAMED, RecordBook, write_recorded
from caps.files import Output as OutputFile
from caps.runs.folder import RunRecord, read_rulings, read_run, recorded_answers
from caps.runs.result_lines import Line
from caps.runs.run_file import judges_of

PREFERENCES = "preferences"
VERDICTS = "verdicts"

Source = Annotated[
    str, typer.Argument(metavar="RUN|CASES", help="A folder made with --out: the winners; or cases: all.")
]
FormatName = Annotated[
    str | None, typer.Option("--format", help=f"{', '.join(EXPORTS)}, {PREFERENCES} or {VERDICTS}.")
]
Verdicts = Annotated[
    bool,
    typer.Option("--verdicts", help="All answers of the run's judge, for --recorded: --format verdicts."),
]
JudgeName = Annotated[
    str | None,
    typer.Option("--judge-name", metavar="NAME", help="Verdicts: what to call the judge [its model]."),
]
CasesFile = Annotated[
    str | None, typer.Option("--cases", help="Where the cases of the run lie now, if not where they lay.")
]
FullOnly = Annotated[
    bool, typer.Option("--full-evidence", help="Preferences: only games judged on whole candidates (E2).")
]
Chat = Annotated[bool, typer.Option("--chat", help="Preferences: chat messages instead of texts.")]


def export(
    source: Source,
    format_: FormatName = None,
    verdicts: Verdicts = False,
    judge_name: JudgeName = None,
    cases: CasesFile = None,
    full_evidence: FullOnly = False,
    chat: Chat = False,
    output: Output = None,
) -> None:
    """Write winners, candidates or judged pairs in the format of another tool.

    Preferences are the decided games of a run, one a line: prompt, chosen, rejected, weight, level. Verdicts
    are all answers of its judge: with them, caps select --recorded chooses again without the judge.
    """
    known = (*EXPORTS, PREFERENCES, VERDICTS)
    if verdicts and format_ not in (None, VERDICTS):
        raise SettingError(f"--verdicts is --format {VERDICTS}: leave out --format {format_}")
    format_ = VERDICTS if verdicts else format_
    if format_ not in known:
        given = "is missing" if format_ is None else f"{format_!r}"
        raise SettingError(f"--format {given}: must be one of {', '.join(known)}")
    run = Path(source) if Path(source).is_dir() else None
    told = _Told(run, source, cases, any_cases=format_ == VERDICTS)
    if format_ == PREFERENCES:
        if told.run is None:
            raise SettingError(f"--format {PREFERENCES} needs a run made with --out; {source} is none")
        games = preferences(told.by_name(), read_rulings(told.run), full_only=full_evidence, chat=chat)
        chunks = told.counted(games)
    elif format_ == VERDICTS:
        chunks = told.counted(told.recorded(judge_name))
    else:
        chunks = iter(EXPORTS[format_](told.chosen()))
    with OutputFile(output or "-", option="--output", inputs=[told.source]) as sink:
        for chunk in chunks:
            sink.write(chunk)
        sink.finish()
    say(f"{told.count} { {PREFERENCES: 'pairs', VERDICTS: 'answers'}.get(format_, 'cases') } exported")
    raise typer.Exit(1 if told.failed else 0)


class _Told:
    """What is exported: the cases, with a run's selections where there is one."""

    def __init__(self, run: Path | None, source: str, cases: str | None, *, any_cases: bool = False) -> None:
        self.run, self.count, self.failed = run, 0, 0
        self._record: RunRecord | None = None if run is None else read_run(run)
        file = None if self._record is None else self._record.file
        self._cases = cases or (source if file is None else file.cases)
        self.source = self._cases
        self._limit = None if file is None else file.limit
        if run is not None and self._cases == "-" and not any_cases:
            raise InputError(f"{run}: this run read standard input; say with --cases where the cases lie")

    def by_name(self) -> Mapping[str, Case]:
        """The cases by id."""
        return {case.id: case for case in self._good()}

    def recorded(self, name: str | None) -> Iterator[bytes]:
        """The answers of the run's judge, each once, with digests of the texts where the cases are known."""
        if self.run is None or self._record is None:
            raise SettingError(f"--verdicts needs a run made with --out; {self.source} is none")
        config, book = self._record.file.config, RecordBook()
        judge = name or config.recorded_judge or judges_of(config)[0] or UNNAMED
        texts: Mapping[str, Case] = {}
        try:
            texts = {} if self._cases == "-" else self.by_name()
        except InputError as error:
            say(f"without digests of the texts: {error}", "yellow")
        for one in recorded_answers(self.run, judge, texts):
            if book.add(one, str(self.run)):
                yield write_recorded(one)

    def chosen(self) -> Iterator[Chosen]:
        """Each case with its winner, or with all its candidates where no run chose one."""
        for case in self._good():
            ids = self._ids(case)
            if ids:
                self.count += 1
                yield Chosen(case, ids)

    def counted(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        """The same lines, counted."""
        for line in lines:
            self.count += 1
            yield line

    def _good(self) -> Iterator[Case]:
        for case in islice(open_cases(self._cases), self._limit):
            if isinstance(case, InputError):
                self.failed += 1
                say(f"failed: {case}", "red")
            else:
                self._check(case)
                yield case

    def _ids(self, case: Case) -> tuple[int, ...]:
        if self._record is None:
            return tuple(range(len(case.candidates)))
        line = self._selection(case)
        if line is None:
            self.failed += 1
            say(f"failed: case {case.id!r}: the run has no selection for it", "red")
            return ()
        return (line["winner"],)

    def _selection(self, case: Case) -> Line | None:
        line = None if self._record is None else self._record.selections.get(case.id)
        return line if line is not None and isinstance(line.get("winner"), int) else None

    def _check(self, case: Case) -> None:
        """Refuse cases that are not those of the run: its positions would point at other candidates."""
        line = self._selection(case)
        if line is None:
            return
        winner = line["winner"]
        if not (0 <= winner < len(case.candidates) and case.candidates[winner].text == line.get("text")):
            raise InputError(f"{self._cases}: case {case.id!r} has changed since the run")
