"""`caps bench`: run a study of strategies, data sets and seeds, and print its tables."""

import os
import shlex
import signal
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from caps.cli import options
from caps.cli.help import FILES, PERFORMANCE, STRATEGY
from caps.cli.options import JsonFlag, allow_named, complete_strategies, configured, stated_settings
from caps.cli.output import FailureLog, print_json, say, stdout
from caps.cli.preflight import resolved_for
from caps.cli.progress import Progress
from caps.config import Keys, RunConfig
from caps.core.errors import InputError, SettingError
from caps.core.text import number, plural
from caps.files import file_errors, write_file
from caps.reports.console import table as drawn_table
from caps.reports.page import write_page
from caps.reports.pictures import write_pictures
from caps.reports.study import (
    Chapter,
    comma_separated,
    json_rows,
    markdown,
    parted_cases,
    studies_page,
    table_picture,
    terminal_table,
)
from caps.runs.progress_file import ProgressFile
from caps.session.resolve import Resolved
from caps.studies.bench import Bench
from caps.studies.results import claim_folder, selection_line, slug, study_started
from caps.studies.study import SIMULATED, Collection, Method, Study, Suite, comparison, load_studies
from caps.studies.study_forecast import forecast_study
from caps.studies.suites import Shard, narrowed_studies, shards_of, with_domain
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
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        min=1,
        metavar="N",
        rich_help_panel=PERFORMANCE,
        help="Worker processes of a simulation. Default: one per core.",
    ),
]
Plots = Annotated[
    Path | None,
    typer.Option(
        "--plots",
        metavar="DIR",
        rich_help_panel=FILES,
        help="Draw the tables into this folder, as .svg files.",
    ),
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
    processes: Processes = None,
    plots: Plots = None,
    dry_run: DryRun = False,
    quiet: options.Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a study, or compare strategies on labelled cases.

    Finished selections are skipped, so a study can be stopped and run again at any time. Results are stored
    in the folder, replies in the journal; identical calls of different strategies are paid for once. Tables
    are written as Markdown and CSV, next to the figures of the paper. For a file that names several
    studies all are run. All tables are also written on one page. What is still to be paid for is forecast
    first.
    """
    stated = stated_settings(ctx)
    found = _compared(study, strategies, config) if strategies is not None else load_studies(study, data)
    plans = narrowed_studies(found.studies if isinstance(found, Collection) else (found,), only)
    if config.domain is not None:
        plans = [with_domain(plan, config.domain) for plan in plans]
    simulated = simulate or all(plan.judge.model == SIMULATED and config.model is None for plan in plans)
    folder = out or Path("bench") / (found.name + ("-simulated" if simulated else ""))
    started = study_started(folder, force=force) or time.time()
    missing: dict[str, Suite] = {}
    prepared = [
        _Prepared(
            plan,
            shards_of(
                plan,
                limit=limit,
                resolve_for=None
                if simulated
                else partial(_resolved, plan, config, keys, stated=stated, quiet=quiet, started=started),
                skipped=lambda suite: missing.setdefault(str(suite.cases), suite),
                optional=isinstance(found, Collection),
            ),
            folder / plan.name if isinstance(found, Collection) else folder,
        )
        for plan in plans
    ]
    for suite in () if quiet else missing.values():
        _say_missing(suite)
    ready = [one for one in prepared if one.shards]
    if not ready:
        raise InputError(f"{study}: no suite has a file of cases; make them, or look at it with --simulate")
    for one in () if quiet else ready:
        _say_left_out(one)
    if dry_run or not (simulated or quiet):
        _forecast(ready, limit, show=dry_run)
    if dry_run:
        return
    with ExitStack() as locks:
        for place, name in {folder: found.name, **{one.folder: one.plan.name for one in ready}}.items():
            locks.enter_context(claim_folder(place, name, simulated=simulated, force=force, started=started))
        done = [
            _run(one, limit, processes or os.cpu_count() or 1, simulated=simulated, quiet=quiet)
            for one in ready
        ]
        _write_page(folder, found, done)
    _show(found, folder, done, plots, quiet=quiet, as_json=as_json)
    raise typer.Exit(1 if any(one.failures for one in done) else 0)


def _compared(cases: Path, strategies: str, config: RunConfig) -> Study:
    """The study of strategies on a file of cases, whose order recorded verdicts do not depend on."""
    names = list(dict.fromkeys(name.strip() for name in strategies.split(",") if name.strip()))
    allow_named(*names)
    if len(names) < 2:
        raise SettingError(f"--strategies {strategies!r}: name at least two strategies to compare")
    return comparison(cases, names, shuffle=config.recorded is not None)


class _Prepared(NamedTuple):
    """A study with what it has to play, and the folder its results go to."""

    plan: Study
    shards: list[Shard]
    folder: Path


class _Done(NamedTuple):
    """A study that was run: its tables, what of them is simulated, and what failed."""

    plan: Study
    tables: list[Table]
    label: str | None
    failures: list[str]


def _run(one: _Prepared, limit: int | None, processes: int, *, simulated: bool, quiet: bool) -> _Done:
    """Run what is missing, then write the tables and the selections."""
    plan, folder = one.plan, one.folder
    with Bench(one.shards, folder) as runs:
        _play(runs, one, limit, processes, quiet=quiet)
        book = runs.book()
    tables = [make_table(plan, table, book) for table in plan.tables]
    label = _label(one.shards) if simulated else None
    _write(folder / "tables", plan, tables, label)
    _write_selections(folder / "selections", plan, book)
    return _Done(plan, tables, label, runs.failures)


def _show(
    found: Study | Collection,
    folder: Path,
    done: list[_Done],
    plots: Path | None,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Print the tables, and say where they are."""
    several = isinstance(found, Collection)
    for one in done if plots is not None else ():
        place = plots / one.plan.name if several and plots is not None else plots
        drawn = [table_picture(table, simulated=one.label) for table in one.tables]
        for path in write_pictures([picture for picture in drawn if picture], place or Path()):
            say(f"figure: {path}")
    if as_json:
        rows = [_as_json(one) for one in done]
        print_json({"title": found.title, "studies": rows} if several else rows[0])
    else:
        for one in done:
            for table in one.tables:
                for part in terminal_table(table, simulated=one.label):
                    stdout().print(part, markup=False, soft_wrap=isinstance(part, str))
    if not quiet:
        say(f"page: {folder / PAGE}")
        if not several:
            say(f"tables: {folder / 'tables'}")


def _forecast(ready: list[_Prepared], limit: int | None, *, show: bool) -> None:
    """Say what is missing, and what it will take."""
    with ExitStack() as stack:
        benches = [stack.enter_context(Bench(one.shards, one.folder)) for one in ready]
        if show:
            for one, runs in zip(ready, benches, strict=True):
                _show_progress(runs, one.shards, one.plan.title if len(ready) > 1 else "")
        found = forecast_study(benches, limit=limit)
    if not found.calls:
        return
    each = "assumed" if found.assumed else "as in the journal"
    words = (
        f"forecast: at most about {number(found.calls, 0)} calls, which read {number(found.read / 1e6, 2)} M "
        f"tokens and write {number(found.written / 1e6, 2)} M ({number(found.written / found.calls, 0)} a "
        f"reply, {each})"
    )
    if found.dollars:
        words += f": about ${found.dollars:,.2f}"
    if found.unpriced:
        words += f"; no price is known of {', '.join(found.unpriced)} (--price-input, --price-output)"
    say(words + "; replies in the journal, and those that strategies share, are not paid for again")


def _resolved(
    study: Study,
    given: RunConfig,
    keys: Keys,
    suite: Suite,
    method: Method,
    *,
    stated: frozenset[str],
    quiet: bool,
    started: float,
) -> Resolved:
    """The config of a suite, resolved; what is `stated` overrides the suite, and the suite the study."""
    changes = {"profile": suite.profile, "views": {**suite.views, **method.views}, "journal": given.journal}
    changes |= {"domain": suite.domain}
    changes |= {"model": suite.model} if suite.model else {}
    changes |= {"base_url": suite.base_url} if suite.base_url else {}
    changes |= {"recorded": str(suite.recorded)} if suite.recorded else {}
    changes |= {"recorded_judge": suite.recorded_judge} if suite.recorded_judge else {}
    changes |= suite.judge
    changes |= {name: value for name, value in given.to_dict().items() if name in stated}
    judge = study.judge.with_values(changes)
    with resolved_for(judge, keys, strategy=method.strategy, quiet=quiet, started=started) as resolved:
        return resolved


def _play(runs: Bench, one: _Prepared, limit: int | None, processes: int, *, quiet: bool) -> None:
    counts = [runs.progress(shard) for shard in one.shards]
    done, total = sum(one[0] for one in counts), sum(one[1] for one in counts)
    if done and not quiet:
        say(f"{number(done, 0)} of {plural(total, 'selection')} are done already")
    if runs.unreadable:
        lines = plural(runs.unreadable, "unreadable line")
        say(f"{lines} in the results; those selections are made again", "yellow")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        Progress("selections", total, hidden=quiet, done=done) as progress,
        ProgressFile(one.folder, total, what="selections", done=done) as live,
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


def _say_missing(suite: Suite) -> None:
    way = f": {suite.get}" if suite.get else ""
    say(f"skipped: {suite.name} needs the file {suite.cases}{way}", "yellow")


def _say_left_out(prepared: _Prepared) -> None:
    """Name strategies without any step: they ask for what the judge cannot answer."""
    played = {step.method for shard in prepared.shards for step in shard.steps}
    for method in prepared.plan.methods:
        if method.name not in played:
            say(f"left out: {method.name} asks for what is not recorded", "yellow")


def _judge_of(shard: Shard) -> str:
    if shard.resolved is None:
        return SIMULATED
    return shard.resolved.judge_name


def _show_progress(runs: Bench, shards: list[Shard], title: str) -> None:
    rows = []
    for name in dict.fromkeys(shard.suite.name for shard in shards):
        own = [shard for shard in shards if shard.suite.name == name]
        done, total = (sum(counts) for counts in zip(*map(runs.progress, own), strict=True))
        methods = ", ".join(dict.fromkeys(step.method for shard in own for step in shard.steps))
        judges = ", ".join(dict.fromkeys(filter(None, map(_judge_of, own)))) or "none"
        source = "made up" if own[0].made_up else str(own[0].suite.cases)
        rows.append((name, source, judges, methods, str(len(own[0].cases)), str(total), str(done)))
    columns = ("suite", "cases", "judge", "strategies", "problems", "selections", "done")
    stdout().print(drawn_table(title, columns, rows, numbers_from=4))


def _label(shards: list[Shard]) -> str:
    real = any(not shard.made_up for shard in shards)
    return "verdicts; pools and labels are real" if real else "pools and verdicts"


def _write(folder: Path, study: Study, tables: list[Table], label: str | None) -> None:
    with file_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    whole = [f"# {study.title}\n", *([f"{study.about.strip()}\n"] if study.about else [])]
    for one in tables:
        text = markdown(one, simulated=label)
        whole.append(text)
        files = {"md": text, "csv": comma_separated(one, simulated=label)}
        files |= {"cases.csv": parted_cases(one)} if one.cases else {}
        for ending, words in files.items():
            write_file(folder / f"{one.name}.{ending}", words.encode())
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


def _write_page(folder: Path, found: Study | Collection, done: list[_Done]) -> None:
    """One page with every table, as HTML; of several studies the same as Markdown."""
    sections = [Chapter(one.plan.title, one.plan.about, _command(one), one.tables, one.label) for one in done]
    write_page(studies_page(found.title, found.about, sections), (), folder / PAGE)
    if not isinstance(found, Collection):
        return
    words = [f"# {found.title}\n", *([f"{found.about.strip()}\n"] if found.about else [])]
    for one in sections:
        words += [f"# {one.title}\n", f"{one.about.strip()}\n", f"`{one.command}`\n"]
        words += [markdown(table, simulated=one.simulated) for table in one.tables]
    write_file((folder / PAGE).with_suffix(".md"), "\n".join(words).encode())


def _command(done: _Done) -> str:
    """The command that runs a study alone."""
    return shlex.join(
        ["caps", "bench", str(done.plan.path), *(["--simulate"] if done.label is not None else [])]
    )


def _as_json(done: _Done) -> dict[str, object]:
    return {
        "study": done.plan.title,
        "simulated": done.label,
        "seeds": done.plan.seeds,
        "failed": done.failures,
        "tables": [
            {"name": one.name, "title": one.title, "notes": one.notes, "figures": list(json_rows(one))}
            for one in done.tables
        ],
    }
