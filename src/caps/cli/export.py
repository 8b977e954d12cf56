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
from caps.files import Output as OutputFile
from caps.runs.folder import RunRecord, read_rulings, read_run
from caps.runs.result_lines import Line

PREFERENCES = "preferences"

Source = Annotated[
    str, typer.Argument(metavar="RUN|CASES", help="A folder made with --out: the winners; or cases: all.")
]
FormatName = Annotated[str, typer.Option("--format", help=f"{', '.join(EXPORTS)} or {PREFERENCES}.")]
CasesFile = Annotated[
    str | None, typer.Option("--cases", help="Where the cases of the run lie now, if not where they lay.")
]
FullOnly = Annotated[
    bool, typer.Option("--full-evidence", help="Preferences: only games judged on whole candidates (E2).")
]
Chat = Annotated[bool, typer.Option("--chat", help="Preferences: chat messages instead of texts.")]


def export(
    source: Source,
    format_: FormatName,
    cases: CasesFile = None,
    full_evidence: FullOnly = False,
    chat: Chat = False,
    output: Output = None,
) -> None:
    """Write winners, candidates or judged pairs in the format of another tool.

    Preferences are the decided games of a run, one a line: prompt, chosen, rejected, weight, level.
    """
    if format_ not in (*EXPORTS, PREFERENCES):
        raise SettingError(f"--format {format_!r}: must be one of {', '.join((*EXPORTS, PREFERENCES))}")
    selected = _ExportSource(Path(source) if Path(source).is_dir() else None, source, cases)
    if format_ == PREFERENCES:
        if selected.run is None:
            raise SettingError(f"--format {PREFERENCES} needs a run made with --out; {source} is none")
        games = preferences(
            selected.by_name(), read_rulings(selected.run), full_only=full_evidence, chat=chat
        )
        chunks = selected.counted(games)
    else:
        chunks = iter(EXPORTS[format_](selected.chosen()))
    with OutputFile(output or "-", option="--output", inputs=[selected.source]) as sink:
        for chunk in chunks:
            sink.write(chunk)
        sink.finish()
    say(f"{selected.count} {'pairs' if format_ == PREFERENCES else 'cases'} exported")
    raise typer.Exit(1 if selected.failed else 0)


class _ExportSource:
    """What is exported: the cases, with a run's selections where there is one."""

    def __init__(self, run: Path | None, source: str, cases: str | None) -> None:
        self.run, self.count, self.failed = run, 0, 0
        self._record: RunRecord | None = None if run is None else read_run(run)
        file = None if self._record is None else self._record.file
        self._cases = cases or (source if file is None else file.cases)
        self.source = self._cases
        self._limit = None if file is None else file.limit
        if run is not None and self._cases == "-":
            raise InputError(f"{run}: this run read standard input; say with --cases where the cases lie")

    def by_name(self) -> Mapping[str, Case]:
        """The cases by id."""
        return {case.id: case for case in self._good()}

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
