"""`caps bench`: a study of suites x strategies x seeds, its tables next to the paper's."""

import os
import signal
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from caps.cli import options
from caps.cli.config_options import configured
from caps.cli.output import JsonFlag, bar, print_json, say, stdout
from caps.cli.running import runner_for
from caps.config import Keys, RunConfig
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
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Folder that the suites' files are in, if not the study's."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Play nothing: show what is done and what is not.")]


@configured("judge", "recorded", "performance", "journal", without=("timeout",))
def bench(
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
    """Run a study and print its tables; what is finished is skipped, so stop it and run it again at will.

    Results lie in the folder as soon as they are known, replies in the journal; identical asks of different
    strategies are paid once. Tables are written as Markdown, CSV and LaTeX.
    """
    told = narrowed(load_study(study, data), only)
    simulated = simulate or (told.judge.model == SIMULATED and config.model is None)
    runner_of = None if simulated else partial(_runner, told, config, keys, quiet=quiet)
    shards = shards_of(
        told, limit=limit, runner_of=runner_of, skipped=lambda suite: _say_missing(suite, quiet=quiet)
    )
    folder = out or Path("bench") / (told.name + ("-simulated" if simulated else ""))
    if dry_run:
        with Bench(shards, folder) as runs:
            _show_progress(runs, shards)
        return
    with claim_folder(folder, told.name, simulated=simulated, force=force):
        _run(told, shards, folder, limit, processes, plots, simulated=simulated, quiet=quiet, as_json=as_json)


def _run(
    told: Study,
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
    """Play what is missing, then write and print the tables."""
    with Bench(shards, folder) as runs:
        _play(runs, shards, limit, processes or os.cpu_count() or 1, quiet=quiet)
        book = runs.book()
    tables = [make_table(told, spec, book) for spec in told.tables]
    label = _label(shards) if simulated else None
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


def _runner(
    study: Study, given: RunConfig, keys: Keys, suite: Suite, method: Method, *, quiet: bool
) -> Runner:
    """The runner of a suite; the command line goes before the suite, and that before the study's judge."""
    usual = RunConfig().to_dict()
    changes = {"profile": suite.profile, "views": method.views, "journal": given.journal}
    changes |= {"model": suite.model} if suite.model else {}
    changes |= {"base_url": suite.base_url} if suite.base_url else {}
    changes |= {"recorded": str(suite.recorded)} if suite.recorded else {}
    changes |= {"recorded_judge": suite.recorded_judge} if suite.recorded_judge else {}
    changes |= {name: value for name, value in given.to_dict().items() if value != usual[name]}
    with runner_for(study.judge.with_values(changes), keys, strategy=method.strategy, quiet=quiet) as runner:
        return runner


def _play(runs: Bench, shards: list[Shard], limit: int | None, processes: int, *, quiet: bool) -> None:
    progress = [runs.progress(shard) for shard in shards]
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
