"""`caps bench`: a study of suites x strategies x seeds, its tables next to the paper's."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from platformdirs import user_data_path

from caps.assemble import Endpoint, Setup, reply_for
from caps.cli import given, options
from caps.cli.output import JsonFlag, bar, print_json, say, stdout, telling
from caps.experiments.bench import Bench
from caps.experiments.lots import Lot, MakeSetup, lots_of, narrowed
from caps.experiments.results import claim_folder
from caps.experiments.study import SIMULATED, Method, Study, Suite
from caps.experiments.study_file import load_study
from caps.experiments.tables import Table, make_table
from caps.files import file_errors, write_file
from caps.journal.store import default_path
from caps.judges.llm import JudgeSettings
from caps.models.fleet_addresses import join_addresses
from caps.reports.console import shown
from caps.reports.console import table as drawn
from caps.reports.study_figures import draw_table
from caps.reports.study_tables import comma_separated, json_rows, latex, markdown, parted_cases

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="The study, a TOML file.")]
OutFolder = Annotated[
    Path | None, typer.Option("--out", envvar="CAPS_OUT", help="Folder for results and tables (bench/STUDY).")
]
Only = Annotated[str | None, typer.Option("--only", metavar="TABLE", help="One table, and what it needs.")]
Simulate = Annotated[bool, typer.Option("--simulate", help="No model: the study on the simulator.")]
Processes = Annotated[
    int | None, typer.Option("--processes", min=1, help="Worker processes of a simulation (all cores).")
]
Plots = Annotated[
    Path | None, typer.Option("--plots", metavar="DIR", help="Draw every table too, as .svg and .pdf files.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Play nothing: show what is done and what is not.")]


def bench(
    study: StudyFile,
    out: OutFolder = None,
    force: options.Force = False,
    limit: options.Limit = None,
    only: Only = None,
    simulate: Simulate = False,
    model: options.Model = None,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    max_connections: options.Connections = "auto",
    journal: options.JournalFile = None,
    no_journal: options.NoJournal = False,
    processes: Processes = None,
    plots: Plots = None,
    dry_run: DryRun = False,
    quiet: options.Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a study and print its tables; what is finished is skipped, so stop it and run it again at will.

    Results lie in the folder as soon as they are known, replies in the journal; identical asks of different
    strategies are paid once. Tables are written as Markdown, CSV and LaTeX.
    """
    told = narrowed(load_study(study), only)
    simulated = simulate or (told.judge.model == SIMULATED and model is None)
    kept = None if no_journal else journal or default_path(user_data_path("caps"))
    desk = None if simulated else _Desk(told, model, base_url, api_key, max_connections, kept, quiet=quiet)
    setup_of: MakeSetup | None = desk.setup if desk else None
    lots = lots_of(
        told, limit=limit, setup_of=setup_of, skipped=lambda suite: _say_missing(suite, quiet=quiet)
    )
    folder = out or Path("bench") / (told.name + ("-simulated" if simulated else ""))
    if dry_run:
        with Bench(lots, folder) as runs:
            _show_progress(runs, lots)
        return
    with claim_folder(folder, told.name, simulated=simulated, force=force):
        _run(told, lots, folder, limit, processes, plots, simulated=simulated, quiet=quiet, as_json=as_json)


def _run(
    told: Study,
    lots: list[Lot],
    folder: Path,
    limit: int | None,
    processes: int | None,
    plots: Path | None,
    *,
    simulated: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Play what is missing, then write and print the tables."""
    with Bench(lots, folder) as runs:
        _play(runs, lots, limit, processes or os.cpu_count() or 1, quiet=quiet)
        book = runs.book()
    tables = [make_table(told, spec, book) for spec in told.tables]
    label = _label(lots) if simulated else None
    _write(folder / "tables", told, tables, label)
    if plots is not None:
        for path in [path for one in tables for path in draw_table(one, plots, simulated=label)]:
            say(f"picture: {path}")
    if as_json:
        print_json(_as_json(told, tables, label, runs))
    else:
        stdout().print(
            shown("\n".join(markdown(one, simulated=label) for one in tables)), markup=False, soft_wrap=True
        )
    if not quiet:
        say(f"tables: {folder / 'tables'}")
    raise typer.Exit(1 if runs.failures else 0)


class _Desk:
    """Makes the setup of a suite from the study's judge, its own, and the command line, the last first."""

    def __init__(
        self,
        study: Study,
        model: str | None,
        base_url: Sequence[str] | None,
        api_key: str | None,
        connections: str,
        journal: Path | None,
        *,
        quiet: bool,
    ) -> None:
        self._judge, self._journal, self._quiet = study.judge, journal, quiet
        self._model, self._base_url, self._api_key = model, join_addresses(base_url), api_key
        told = given.parse_connections(connections)
        self._connections = study.judge.max_connections or told if told == "auto" else told
        self._found: dict[tuple[str | None, str | None], Endpoint] = {}

    def setup(self, suite: Suite, method: Method) -> Setup:
        """Everything a session needs."""
        judge = self._judge
        endpoint = self._endpoint(
            self._model or suite.model or judge.model, self._base_url or suite.base_url or judge.base_url
        )
        return Setup(
            endpoint=endpoint,
            judge=JudgeSettings(max_tokens=judge.max_tokens, reply=judge.reply or reply_for(endpoint)),
            confidence=judge.confidence,  # type: ignore[arg-type]
            extra=judge.extra,
            profile=suite.profile,
            views=method.views,
            prompts=judge.prompts,
            connections=self._connections,
            timeout=judge.timeout,
            context=judge.context,
            threads=judge.threads,
            journal=self._journal,
            grace=given.GRACE_SECONDS,
            tell=telling(quiet=self._quiet),
        )

    def _endpoint(self, model: str | None, base_url: str | None) -> Endpoint:
        key = (model, base_url)
        if key not in self._found:
            self._found[key] = given.endpoint_of(model, base_url, self._api_key, quiet=self._quiet)
        return self._found[key]


def _play(runs: Bench, lots: list[Lot], limit: int | None, processes: int, *, quiet: bool) -> None:
    progress = [runs.progress(lot) for lot in lots]
    done, total = sum(one[0] for one in progress), sum(one[1] for one in progress)
    if done and not quiet:
        say(f"{done} of {total} selections are there already")
    if runs.unreadable:
        say(f"{runs.unreadable} lines of results cannot be read; what they told is played again", "yellow")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with bar(hidden=quiet) as shown:
        counted = shown.add_task("selections", total=total, completed=done)
        try:
            runs.play(limit=limit, processes=processes, hear=lambda new: shown.update(counted, advance=new))
        except KeyboardInterrupt:
            say("interrupted; every result so far is kept: run the same command again to go on", "yellow")
            raise
    for words in runs.failures:
        say(f"failed: {words}", "red")


def _say_missing(suite: Suite, *, quiet: bool) -> None:
    if not quiet:
        way = f": {suite.get}" if suite.get else ""
        say(f"left out: {suite.name} wants {suite.cases}{way}", "yellow")


def _show_progress(runs: Bench, lots: list[Lot]) -> None:
    rows = []
    for lot in lots:
        done, total = runs.progress(lot)
        methods = ", ".join(dict.fromkeys(turn.method for turn in lot.turns))
        source = "made up" if lot.made_up else str(lot.suite.cases)
        judge = lot.setup.endpoint.model if lot.setup else SIMULATED
        rows.append((lot.suite.name, source, judge, methods, str(len(lot.cases)), str(total), str(done)))
    columns = ("suite", "cases", "judge", "strategies", "problems", "selections", "done")
    stdout().print(drawn("", columns, rows, numbers_from=4))


def _label(lots: list[Lot]) -> str:
    real = any(not lot.made_up for lot in lots)
    return "verdicts; pools and labels are real" if real else "pools and verdicts"


def _write(folder: Path, study: Study, tables: list[Table], label: str | None) -> None:
    with file_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    whole = [f"# {study.title}\n", *([f"{study.about.strip()}\n"] if study.about else [])]
    for one in tables:
        text = markdown(one, simulated=label)
        whole.append(text)
        files = {"md": text, "csv": comma_separated(one, simulated=label), "tex": latex(one, simulated=label)}
        files |= {"cases.csv": parted_cases(one)} if one.cases else {}
        for ending, words in files.items():
            write_file(folder / f"{one.name}.{ending}", words.encode())
    write_file(folder.with_suffix(".md"), "\n".join(whole).encode())


def _as_json(study: Study, tables: list[Table], label: str | None, runs: Bench) -> dict[str, object]:
    return {
        "study": study.title,
        "simulated": label,
        "seeds": study.seeds,
        "failed": runs.failures,
        "tables": [
            {"name": one.name, "title": one.title, "notes": one.notes, "figures": list(json_rows(one))}
            for one in tables
        ],
    }
