"""`caps bench`: run a study of strategies, data sets and seeds, and print its tables."""

import os
import shlex
import signal
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from caps.cli import options
from caps.cli.figures import Plots
from caps.cli.help import FILES, STRATEGY
from caps.cli.options import JsonFlag, allow_named, complete_strategies, configured, stated_settings
from caps.cli.output import FailureLog, print_json, say, stdout
from caps.cli.preflight import resolved_for
from caps.cli.progress import Progress
from caps.config import Keys, RunConfig
from caps.core.errors import SettingError
from caps.core.text import number, plural
from caps.files import file_errors, write_file
from caps.reports.console import table as drawn_table
from caps.reports.numbers import brief
from caps.reports.page import write_page
from caps.reports.pictures import write_pictures
from caps.reports.study import (
    Chapter,
    comma_separated,
    json_rows,
    markdown,
    parted_cases,
    study_page,
    table_picture,
    terminal_table,
)
from caps.runs.progress_file import ProgressFile
from caps.session.resolve import Resolved
from caps.studies.bench import Bench
from caps.studies.results import claim_folder, selection_line, slug, study_started
from caps.studies.study import SIMULATED, Method, Study, Suite, comparison, load_study
from caps.studies.study_forecast import StudyForecast, forecast_study
from caps.studies.suites import Shard, narrowed, shards_of, with_domain
from caps.studies.tables import Book, Table, make_table

PAGE = "page.html"

StudyFile = Annotated[
    Path,
    typer.Argument(
        metavar="STUDY|CASES",
        help="Description of a study, a TOML file; or, with --strategies, a file of labelled cases.",
    ),
]
Strategies = Annotated[
    str | None,
    typer.Option(
        "--strategies",
        metavar="NAMES",
        rich_help_panel=STRATEGY,
        autocompletion=complete_strategies,
        help="Strategies to compare on CASES, separated by commas; differences are from the first.",
    ),
]
OutFolder = Annotated[
    Path | None,
    typer.Option(
        "--out",
        envvar="CAPS_OUT",
        show_envvar=False,
        metavar="DIR",
        rich_help_panel=FILES,
        help="Folder for results and tables. Default: bench/STUDY.",
    ),
]
Only = Annotated[
    str | None,
    typer.Option("--only", metavar="TABLE", help="Run only what this table needs.", rich_help_panel=STRATEGY),
]
Simulate = Annotated[
    bool,
    typer.Option("--simulate", help="Use a simulated judge; ask no model.", rich_help_panel=STRATEGY),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Run nothing; show what is done and what is missing.", rich_help_panel=FILES
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", rich_help_panel=FILES,
        help="Folder with the files of the suites. Default: the folder of the study.",
    ),
]  # fmt: skip


@configured(
    "judge",
    "recorded",
    "asking",
    "performance",
    "context",
    "journal",
    "price",
    "domain",
    without=("timeout",),
)
def bench(
    ctx: typer.Context,
    study: StudyFile,
    config: RunConfig,
    keys: Keys,
    strategies: Strategies = None,
    out: OutFolder = None,
    data: Data = None,
    force: options.Force = False,
    limit: options.Limit = None,
    only: Only = None,
    simulate: Simulate = False,
    processes: options.Processes = None,
    plots: Plots = None,
    dry_run: DryRun = False,
    quiet: options.Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a study, or compare strategies on labelled cases.

    A study is strategies x data sets x seeds, with tables; a TOML file describes it.

    Finished selections are skipped, so a study can be stopped and run again at any time. Results are stored
    in the folder, replies in the journal; identical calls of different strategies are paid for once. Tables
    are written as Markdown and CSV, and on one page. What is still to be paid for is forecast first.
    """
    plan = _compared(study, strategies, config) if strategies is not None else load_study(study, data)
    plan = narrowed(plan, only)
    if config.domain is not None:
        plan = with_domain(plan, config.domain)
    simulated = simulate or (plan.judge.model == SIMULATED and config.model is None)
    folder = out or Path("bench") / (plan.name + ("-simulated" if simulated else ""))
    started = study_started(folder, force=force) or time.time()
    resolving = Resolving(config, keys, stated_settings(ctx), quiet=quiet, started=started)
    prepared = prepare_study(plan, None if simulated else resolving, folder, limit=limit, quiet=quiet)
    if dry_run:
        _show_progress(prepared)
    if dry_run or not (simulated or quiet):
        say_forecast(_forecast(prepared, limit))
    if dry_run:
        return
    with claim_folder(folder, plan.name, simulated=simulated, force=force, started=started):
        done = run_study(prepared, limit, processes, quiet=quiet)
        chapter = Chapter(plan.title, plan.about, _command(done), done.tables, done.label)
        write_page(study_page(chapter), (), folder / PAGE)
    _show(folder, done, plots, quiet=quiet, as_json=as_json)
    raise typer.Exit(1 if done.failures else 0)


def _compared(cases: Path, strategies: str, config: RunConfig) -> Study:
    """The study of strategies on a file of cases, whose order recorded verdicts do not depend on."""
    names = list(dict.fromkeys(name.strip() for name in strategies.split(",") if name.strip()))
    allow_named(*names)
    if len(names) < 2:
        raise SettingError(f"--strategies {strategies!r}: name at least two strategies to compare")
    return comparison(cases, names, shuffle=config.recorded is not None)


class PreparedStudy(NamedTuple):
    """A study with what it has to play, and the folder its results go to."""

    plan: Study
    shards: list[Shard]
    folder: Path


class FinishedStudy(NamedTuple):
    """A study that was run: its results and tables, what of them is simulated, and what failed."""

    plan: Study
    book: Book
    tables: list[Table]
    label: str | None
    failures: list[str]


def prepare_study(
    plan: Study, resolving: "Resolving | None", folder: Path, *, limit: int | None, quiet: bool
) -> PreparedStudy:
    """Find out what a study has to play; its verdicts are simulated unless configs are resolved for it."""
    missing: list[Suite] = []
    shards = shards_of(
        plan,
        limit=limit,
        resolve_for=None if resolving is None else partial(resolving.of_suite, plan),
        skipped=missing.append,
    )
    played = {step.method for shard in shards for step in shard.steps}
    for suite in () if quiet else missing:
        way = f": {suite.get}" if suite.get else ""
        say(f"skipped: {suite.name} needs the file {suite.cases}{way}", "yellow")
    for method in () if quiet else plan.methods:
        if method.name not in played:
            say(f"left out: {method.name} asks for what is not recorded", "yellow")
    return PreparedStudy(plan, shards, folder)


def run_study(
    prepared: PreparedStudy, limit: int | None, processes: int | None, *, quiet: bool, what: str = ""
) -> FinishedStudy:
    """Run what is missing, then write the tables and the selections; `what` names the progress."""
    plan, shards, folder = prepared
    with Bench(shards, folder) as runs:
        _play(runs, prepared, limit, processes or os.cpu_count() or 1, quiet=quiet, what=what)
        book = runs.book()
    tables = [make_table(plan, table, book) for table in plan.tables]
    simulated = all(shard.resolved is None for shard in shards)
    done = FinishedStudy(plan, book, tables, _label(shards) if simulated else None, runs.failures)
    _write(folder / "tables", done)
    _write_selections(folder / "selections", plan, book)
    return done


def _show(folder: Path, done: FinishedStudy, plots: Path | None, *, quiet: bool, as_json: bool) -> None:
    """Print the tables, and say where they are."""
    if plots is not None:
        drawn = [table_picture(table, simulated=done.label) for table in done.tables]
        for path in write_pictures([picture for picture in drawn if picture], plots):
            say(f"figure: {path}")
    if as_json:
        print_json(study_row(done))
    else:
        for table in done.tables:
            print_table(table, done.label)
    if not quiet:
        say(f"page: {folder / PAGE}")
        say(f"tables: {folder / 'tables'}")


def print_table(table: Table, label: str | None) -> None:
    """Print a table with its remarks."""
    console = stdout()
    for part in terminal_table(table, simulated=label):
        console.print(part, markup=False, soft_wrap=isinstance(part, str) and not console.is_terminal)


def _forecast(prepared: PreparedStudy, limit: int | None) -> StudyForecast:
    with Bench(prepared.shards, prepared.folder) as runs:
        return forecast_study([runs], limit=limit)


def say_forecast(forecast: StudyForecast, speed: float | None = None) -> None:
    """Say what is missing, and what it will take; hours if the server writes `speed` tokens per second."""
    if not forecast.calls:
        return
    replies = "assumed" if forecast.assumed else "as in the journal"
    words = (
        f"forecast: at most about {number(forecast.calls, 0)} calls, which read "
        f"{brief(forecast.read)} tokens and write {brief(forecast.written)} "
        f"({number(forecast.written / forecast.calls, 0)} a reply, {replies})"
    )
    if forecast.dollars:
        words += f": about ${forecast.dollars:,.2f}"
    if speed is not None:
        hours = number(forecast.written / speed / 3600, 1)
        words += f"; {hours} hours at {number(speed, 0)} tokens written per second (--speed)"
    if forecast.unpriced:
        words += f"; no price is known of {', '.join(forecast.unpriced)} (--price-input, --price-output)"
    say(words + "; replies in the journal, and those that strategies share, are not paid for again")


class Resolving(NamedTuple):
    """What a study's configs are resolved from; settings that are `stated` override suite and study."""

    config: RunConfig
    keys: Keys
    stated: frozenset[str]
    quiet: bool
    started: float

    def of_suite(self, study: Study, suite: Suite, method: Method) -> Resolved:
        """The resolved config of a suite, whose settings override those of the study."""
        given = self.config
        changes = {
            "profile": suite.profile,
            "views": {**suite.views, **method.views},
            "journal": given.journal,
        }
        changes |= {"domain": suite.domain}
        changes |= {"model": suite.model} if suite.model else {}
        changes |= {"base_url": suite.base_url} if suite.base_url else {}
        changes |= {"recorded": str(suite.recorded)} if suite.recorded else {}
        changes |= {"recorded_judge": suite.recorded_judge} if suite.recorded_judge else {}
        changes |= suite.judge
        changes |= {name: value for name, value in given.to_dict().items() if name in self.stated}
        judge = study.judge.with_values(changes)
        with resolved_for(
            judge, self.keys, strategy=method.strategy, quiet=self.quiet, started=self.started
        ) as resolved:
            return resolved


def _play(
    runs: Bench, prepared: PreparedStudy, limit: int | None, processes: int, *, quiet: bool, what: str
) -> None:
    counts = [runs.progress(shard) for shard in prepared.shards]
    done, total = (sum(column) for column in zip(*counts, strict=True))
    title = f"{what}: selections" if what else "selections"
    if done and not quiet:
        say(f"{number(done, 0)} of {plural(total, 'selection')} are done already")
    if runs.unreadable:
        lines = plural(runs.unreadable, "unreadable line")
        say(f"{lines} in the results; those selections are made again", "yellow")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        Progress(title, total, hidden=quiet, done=done) as progress,
        ProgressFile(prepared.folder, total, what="selections", done=done) as live,
    ):
        live.write()

        def count(more: int) -> None:
            progress.advance(more)
            live.finish(more=more)

        try:
            runs.play(limit=limit, processes=processes, hear=count)
        except KeyboardInterrupt:
            say(
                "interrupted; every result so far is stored: run the same command again to continue", "yellow"
            )
            raise
    with FailureLog() as failures:
        for words in runs.failures:
            failures.add(words)


def _judge_of(shard: Shard) -> str:
    if shard.resolved is None:
        return SIMULATED
    return shard.resolved.judge_name


def _show_progress(prepared: PreparedStudy) -> None:
    rows = []
    with Bench(prepared.shards, prepared.folder) as runs:
        for name in dict.fromkeys(shard.suite.name for shard in prepared.shards):
            shards = [shard for shard in prepared.shards if shard.suite.name == name]
            done, total = (sum(counts) for counts in zip(*map(runs.progress, shards), strict=True))
            methods = ", ".join(dict.fromkeys(step.method for shard in shards for step in shard.steps))
            judges = ", ".join(dict.fromkeys(filter(None, map(_judge_of, shards)))) or "none"
            source = "made up" if shards[0].made_up else str(shards[0].suite.cases)
            rows.append((name, source, judges, methods, str(len(shards[0].cases)), str(total), str(done)))
    columns = ("suite", "cases", "judge", "strategies", "problems", "selections", "done")
    stdout().print(drawn_table("", columns, rows, numbers_from=4))


def _label(shards: list[Shard]) -> str:
    real = any(not shard.made_up for shard in shards)
    return "verdicts; pools and labels are real" if real else "pools and verdicts"


def _write(folder: Path, done: FinishedStudy) -> None:
    with file_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    whole = [f"# {done.plan.title}\n", *([f"{done.plan.about.strip()}\n"] if done.plan.about else [])]
    for table in done.tables:
        text = markdown(table, simulated=done.label)
        whole.append(text)
        files = {"md": text, "csv": comma_separated(table, simulated=done.label)}
        files |= {"cases.csv": parted_cases(table)} if table.cases else {}
        for ending, words in files.items():
            write_file(folder / f"{table.name}.{ending}", words.encode())
    write_file(folder.with_suffix(".md"), "\n".join(whole).encode())


def _write_selections(folder: Path, study: Study, book: Book) -> None:
    """What each method chose with each seed, a file each: SUITE/caps_r_f4_seed1234.jsonl."""
    for suite, played in book.items():
        with file_errors(str(folder)):
            (folder / slug(suite)).mkdir(parents=True, exist_ok=True)
        for method in study.methods:
            results = played.get(method.name, [])
            for seed in dict.fromkeys(one.seed for one in results):
                lines = [selection_line(one) for one in results if one.seed == seed]
                write_file(folder / slug(suite) / f"{method.output_name(seed)}.jsonl", b"".join(lines))


def _command(done: FinishedStudy) -> str:
    """The command that runs a study alone."""
    return shlex.join(
        ["caps", "bench", str(done.plan.path), *(["--simulate"] if done.label is not None else [])]
    )


def study_row(done: FinishedStudy) -> dict[str, Any]:
    """A finished study as plain data."""
    return {
        "study": done.plan.title,
        "simulated": done.label,
        "seeds": done.plan.seeds,
        "failed": done.failures,
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "notes": table.notes,
                "figures": list(json_rows(table)),
            }
            for table in done.tables
        ],
    }
