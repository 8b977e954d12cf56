"""`caps export`: winners, candidates and judged pairs for other tools."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from caps.cli.import_ import Output
from caps.cli.options import completion
from caps.cli.output import FailureLog, say
from caps.core.errors import InputError, SettingError
from caps.core.text import plural
from caps.core.types import Case
from caps.datasets.exports import EXPORTS, OF_A_RUN, Chosen, inspect_log, pairs, preferences
from caps.datasets.imports import open_cases
from caps.datasets.verdicts import DEFAULT_JUDGE_NAME, RecordCollector, write_recorded
from caps.files import Output as OutputFile
from caps.runs.folder import RunRecord, read_rulings, read_run, recorded_answers
from caps.runs.result_lines import Line
from caps.runs.run_file import judges_of

PREFERENCES = "preferences"
PAIRS = "dpo"
VERDICTS = "verdicts"
INSPECT = "inspect"
FORMATS = (*EXPORTS, PREFERENCES, PAIRS, VERDICTS)
LEFT_OUT = {
    "labels": "left out: {} whose labels contradict the judge",
    "margin": "left out: {} that the judge left even, or below the margin",
    "partial": "left out: {} of partial views; --any-evidence takes them too",
}

Source = Annotated[
    str,
    typer.Argument(
        metavar="RUN|CASES", help="Folder of a run, to write its winners; or cases, to write all candidates."
    ),
]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help=f"Format to write: {', '.join(FORMATS)}.",
        autocompletion=completion(FORMATS),
    ),
]
Verdicts = Annotated[
    bool,
    typer.Option("--verdicts", help="Write all answers of the run's judge, for --recorded; a --format."),
]
JudgeName = Annotated[
    str | None,
    typer.Option("--judge-name", metavar="NAME", help="Name of the judge in --verdicts. Default: its model."),
]
CasesFile = Annotated[
    str | None,
    typer.Option("--cases", metavar="FILE", help="The cases of the run, if the file has moved since."),
]
FullOnly = Annotated[
    bool | None,
    typer.Option(
        "--full-evidence/--any-evidence",
        help="Preferences and dpo: only comparisons of full candidates (E2), or also those of partial views. "
        "Default: full for dpo, any for preferences.",
        show_default=False,
    ),
]
Chat = Annotated[
    bool, typer.Option("--chat", help="Preferences and dpo: write chat messages instead of texts.")
]
Margin = Annotated[
    float,
    typer.Option(
        "--margin",
        min=0,
        max=1,
        metavar="X",
        help="dpo: least mean weight of the verdicts on a pair, 0 to 1.",
    ),
]


def export(
    source: Source,
    format_: FormatName = None,
    verdicts: Verdicts = False,
    judge_name: JudgeName = None,
    cases: CasesFile = None,
    full_evidence: FullOnly = None,
    chat: Chat = False,
    margin: Margin = 0.0,
    output: Output = None,
) -> None:
    """Write winners, candidates or judged pairs for another tool.

    best and csv are answers with their prompts, sft chats with the winner, rewards all completions of a case
    with normalised rewards. Preferences are the decided comparisons of a run, one per line: prompt, chosen,
    rejected, weight, level; dpo has each pair of texts once, unless its labels contradict the judge.
    Verdicts are all answers of its judge; with them, caps select --recorded chooses again without the judge.
    """
    if verdicts and format_ not in (None, VERDICTS):
        raise SettingError(f"--verdicts is --format {VERDICTS}: leave out --format {format_}")
    format_ = VERDICTS if verdicts else format_
    if format_ not in FORMATS:
        given = "is missing" if format_ is None else f"{format_!r}"
        raise SettingError(f"--format {given}: must be one of {', '.join(FORMATS)}")
    left_out = Counter[str]()
    run = Path(source) if Path(source).is_dir() else None
    selected = _ExportSource(run, source, cases, any_cases=format_ == VERDICTS)
    if format_ in (PREFERENCES, PAIRS, *OF_A_RUN) and selected.run is None:
        raise SettingError(f"--format {format_} needs the folder of a run (caps select --out), not {source}")
    if format_ in (PREFERENCES, PAIRS) and selected.run is not None:
        write = preferences if format_ == PREFERENCES else partial(pairs, margin=margin, left_out=left_out)
        full_only = format_ == PAIRS if full_evidence is None else full_evidence
        games = read_rulings(selected.run)
        chunks = selected.counted(write(selected.by_name(), games, full_only=full_only, chat=chat))
    elif format_ == VERDICTS:
        chunks = selected.counted(selected.recorded(judge_name))
    elif format_ == INSPECT:
        now = datetime.now(tz=UTC).isoformat(timespec="seconds")
        chunks = inspect_log(selected.chosen(), created=now)
    else:
        chunks = iter(EXPORTS[format_](selected.chosen()))
    with OutputFile(output or "-", option="--output", inputs=[selected.source]) as sink, selected.failures:
        for chunk in chunks:
            sink.write(chunk)
        sink.finish()
    noun = {PREFERENCES: "pair", PAIRS: "pair", VERDICTS: "answer"}.get(format_, "case")
    say(f"{plural(selected.count, noun)} exported")
    for reason, count in left_out.items():
        say(LEFT_OUT[reason].format(plural(count, "game" if reason == "partial" else "pair")))
    raise typer.Exit(1 if selected.failed else 0)


class _ExportSource:
    """What is exported: the cases, with the selections of a run if there is one."""

    def __init__(self, run: Path | None, source: str, cases: str | None, *, any_cases: bool = False) -> None:
        self.run, self.count, self.failed = run, 0, 0
        self.failures = FailureLog()
        self._record: RunRecord | None = None if run is None else read_run(run)
        self._cases = cases or (source if self._record is None else self._record.file.cases)
        self.source = self._cases
        if self._record is not None and self._record.missing:
            say(self._record.missing, "yellow")
        if run is not None and self._cases == "-" and not any_cases:
            raise InputError(f"{run}: this run read standard input: name the file of its cases with --cases")

    def by_name(self) -> Mapping[str, Case]:
        """The cases by id."""
        return {case.id: case for case in self._good()}

    def recorded(self, name: str | None) -> Iterator[bytes]:
        """The answers of the run's judge, each once, with digests of the texts where the cases are known."""
        if self.run is None or self._record is None:
            raise SettingError(f"--verdicts needs the folder of a run (caps select --out), not {self.source}")
        config, book = self._record.file.config, RecordCollector()
        judge = name or config.recorded_judge or judges_of(config)[0] or DEFAULT_JUDGE_NAME
        texts: Mapping[str, Case] = {}
        try:
            texts = {} if self._cases == "-" else self.by_name()
        except InputError as error:
            say(f"without digests of the texts: {error}", "yellow")
        for one in recorded_answers(self.run, judge, texts):
            if book.add(one, str(self.run)):
                yield write_recorded(one)

    def chosen(self) -> Iterator[Chosen]:
        """Each case with its winner, or with all its candidates if there is no run."""
        for case in self._good():
            ids = self._ids(case)
            if ids:
                self.count += 1
                yield Chosen(case, ids, self._selection(case) or {})

    def counted(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        """The same lines, counted."""
        for line in lines:
            self.count += 1
            yield line

    def _good(self) -> Iterator[Case]:
        record = self._record
        for case in open_cases(self._cases) if record is None else record.file.read_cases(self._cases):
            if isinstance(case, InputError):
                self.failed += 1
                self.failures.add(str(case))
            else:
                self._check(case)
                yield case

    def _ids(self, case: Case) -> tuple[int, ...]:
        if self._record is None:
            return tuple(range(len(case.candidates)))
        line = self._selection(case)
        if line is None:
            self.failed += 1
            self.failures.add_case(case.id, "the run has no selection for it")
            return ()
        return (line["winner"],)

    def _selection(self, case: Case) -> Line | None:
        line = None if self._record is None else self._record.selections.get(case.id)
        return line if line is not None and isinstance(line.get("winner"), int) else None

    def _check(self, case: Case) -> None:
        """Refuse cases that are not those of the run: its positions would point to other candidates."""
        line = self._selection(case)
        if line is None:
            return
        winner = line["winner"]
        if not (0 <= winner < len(case.candidates) and case.candidates[winner].text == line.get("text")):
            raise InputError(f"{self._cases}: case {case.id!r} has changed since the run")
