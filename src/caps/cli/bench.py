"""`caps bench`: run a study of strategies, data sets and seeds, and print its tables."""

import os
import signal
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from caps.cli import options
from caps.cli.help import FILES, PERFORMANCE, STRATEGY
from caps.cli.options import JsonFlag, configured, stated_settings
from caps.cli.output import FailureLog, print_json, say, stdout
from caps.cli.preflight import runner_for
from caps.cli.progress import Progress
from caps.config import Keys, RunConfig
from caps.core.text import number, plural
from caps.files import file_errors, write_file
from caps.reports.console import shown
from caps.reports.console import table as drawn
from caps.reports.study import comma_separated, draw_table, json_rows, latex, markdown, parted_cases
from caps.runner import Runner
from caps.studies.bench import Bench
from caps.studies.results import claim_folder
from caps.studies.study import SIMULATED, Method, Study, Suite, load_study
from caps.studies.suites import Shard, narrowed, shards_of
from caps.studies.tables import Table, make_table

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="Description of the study, a TOML file.")]
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
        help="Draw the tables into this folder, as .svg and .pdf files.",
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


@configured("judge", "recorded", "performance", "journal", without=("timeout",))
def bench(
    ctx: typer.Context,
    study: StudyFile,
    config: RunConfig,
    keys: Keys,
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
    """Run a study: strategies x data sets x seeds, with tables.

    Finished selections are skipped, so a study can be stopped and run again at any time. Results are stored
    in the folder, replies in the journal; identical calls of different strategies are paid for once. Tables
    are written as Markdown, CSV and LaTeX, next to the figures of the paper.
    """
    plan = narrowed(load_study(study, data), only)
    simulated = simulate or (plan.judge.model == SIMULATED and config.model is None)
    runner_of = (
        None if simulated else partial(_runner, plan, config, keys, stated=stated_settings(ctx), quiet=quiet)
    )
    shards = shards_of(
        plan, limit=limit, runner_of=runner_of, skipped=lambda suite: _say_missing(suite, quiet=quiet)
    )
    folder = out or Path("bench") / (plan.name + ("-simulated" if simulated else ""))
    if dry_run:
        with Bench(shards, folder) as runs:
            _show_progress(runs, shards)
        return
    with claim_folder(folder, plan.name, simulated=simulated, force=force):
        _run(plan, shards, folder, limit, processes, plots, simulated=simulated, quiet=quiet, as_json=as_json)


def _run(
    plan: Study,
    shards: list[Shard],
    folder: Path,
    limit: int | None,
    processes: int | None,
    plots: Path | None,
    *,
    simulated: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run what is missing, then write and print the tables."""
    with Bench(shards, folder) as runs:
        _play(runs, shards, limit, processes or os.cpu_count() or 1, quiet=quiet)
        book = runs.book()
    tables = [make_table(plan, table, book) for table in plan.tables]
    label = _label(shards) if simulated else None
    _write(folder / "tables", plan, tables, label)
    if plots is not None:
        for path in [path for one in tables for path in draw_table(one, plots, simulated=label)]:
            say(f"figure: {path}")
    if as_json:
        print_json(_as_json(plan, tables, label, runs))
    else:
        stdout().print(
            shown("\n".join(markdown(one, simulated=label) for one in tables)), markup=False, soft_wrap=True
        )
    if not quiet:
        say(f"tables: {folder / 'tables'}")
    raise typer.Exit(1 if runs.failures else 0)


def _runner(
    study: Study,
    given: RunConfig,
    keys: Keys,
    suite: Suite,
    method: Method,
    *,
    stated: frozenset[str],
    quiet: bool,
) -> Runner:
    """The runner of a suite; what is `stated` overrides the suite, which overrides the study's judge."""
    changes = {"profile": suite.profile, "views": method.views, "journal": given.journal}
    changes |= {"model": suite.model} if suite.model else {}
    changes |= {"base_url": suite.base_url} if suite.base_url else {}
    changes |= {"recorded": str(suite.recorded)} if suite.recorded else {}
    changes |= {"recorded_judge": suite.recorded_judge} if suite.recorded_judge else {}
    changes |= {name: value for name, value in given.to_dict().items() if name in stated}
    with runner_for(study.judge.with_values(changes), keys, strategy=method.strategy, quiet=quiet) as runner:
        return runner


def _play(runs: Bench, shards: list[Shard], limit: int | None, processes: int, *, quiet: bool) -> None:
    counts = [runs.progress(shard) for shard in shards]
    done, total = sum(one[0] for one in counts), sum(one[1] for one in counts)
    if done and not quiet:
        say(f"{number(done, 0)} of {plural(total, 'selection')} are done already")
    if runs.unreadable:
        lines = plural(runs.unreadable, "unreadable line")
        say(f"{lines} in the results; those selections are made again", "yellow")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Progress("selections", total, hidden=quiet, done=done) as progress:
        try:
            runs.play(limit=limit, processes=processes, hear=progress.advance)
        except KeyboardInterrupt:
            say(
                "interrupted; every result so far is stored: run the same command again to continue", "yellow"
            )
            raise
    with FailureLog() as failures:
        for words in runs.failures:
            failures.add(words)


def _say_missing(suite: Suite, *, quiet: bool) -> None:
    if not quiet:
        way = f": {suite.get}" if suite.get else ""
        say(f"skipped: {suite.name} needs the file {suite.cases}{way}", "yellow")


def _judge_of(shard: Shard) -> str:
    if shard.runner is None:
        return SIMULATED
    return shard.runner.judge_name


def _show_progress(runs: Bench, shards: list[Shard]) -> None:
    rows = []
    for name in dict.fromkeys(shard.suite.name for shard in shards):
        own = [shard for shard in shards if shard.suite.name == name]
        done, total = (sum(counts) for counts in zip(*map(runs.progress, own), strict=True))
        methods = ", ".join(dict.fromkeys(turn.method for shard in own for turn in shard.turns))
        judges = ", ".join(dict.fromkeys(filter(None, map(_judge_of, own)))) or "none"
        source = "made up" if own[0].made_up else str(own[0].suite.cases)
        rows.append((name, source, judges, methods, str(len(own[0].cases)), str(total), str(done)))
    columns = ("suite", "cases", "judge", "strategies", "problems", "selections", "done")
    stdout().print(drawn("", columns, rows, numbers_from=4))


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
