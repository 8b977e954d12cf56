"""`caps batch prepare`: write what is open, or, where nothing is, the selections."""

import asyncio
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from caps.cli import options
from caps.cli.batch_step import take_step
from caps.cli.beforehand import opened
from caps.cli.config_options import configured
from caps.cli.output import JsonFlag
from caps.config import Keys, RunConfig
from caps.core.errors import InputError, SettingError
from caps.datasets.imports import open_cases
from caps.engines.budget import Account
from caps.models.wire import RENAMED
from caps.runner import Runner
from caps.runs.folder import BatchFolder
from caps.runs.run_file import RunFile, run_file_of

Begun = Annotated[
    Path, typer.Argument(metavar="CASES|DIR", help="Cases to begin with, or the folder of a run to go on.")
]
Folder = Annotated[Path | None, typer.Option("--out", envvar="CAPS_OUT", help="Folder for all its files.")]
LimitName = Annotated[
    str,
    typer.Option(
        "--limit-name", help=f"What the server calls the room for a reply: max_tokens or {RENAMED}."
    ),
]
Again = Annotated[
    bool, typer.Option("--again", help="Write also what stands in files that have not come back.")
]
FREE = ("begun", "again", "extra", "quiet", "as_json", "config_file")  # may be said of a run that has begun


@configured(
    "judge", "levels", "asking", "strategy", "evidence", "domain", "findings", "engine", "journal", "price",
    "budget",
    defaults={"engine": "batch"},
    without=("base_url", "judge_base_url", "judge_base_url_e1", "engine", "ray_address", "ray_workers"),
)  # fmt: skip
def prepare(
    ctx: typer.Context,
    begun: Begun,
    config: RunConfig,
    keys: Keys,
    out: Folder = None,
    force: options.Force = False,
    limit_name: LimitName = "max_tokens",
    limit: options.Limit = None,
    again: Again = False,
    quiet: options.Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Write the requests that are open now to files for a Batch API or vllm run-batch.

    The folder remembers everything but texts of --extra that may be secret, so later steps need only its
    name and those. The paths of the files go to standard output; when nothing is open any more, the
    selections do, as those of caps select, and stay in the folder.
    """
    if begun.is_dir():
        _refuse_options(ctx, begun)
        folder = begun
    else:
        if out is None:
            raise SettingError("no folder: give --out DIR, where the files of this run shall lie")
        if config.confidence == "auto":
            raise SettingError("--confidence auto asks the endpoint, and a file cannot: verbal or logprobs?")
        if limit_name not in ("max_tokens", RENAMED):
            raise SettingError(f"--limit-name {limit_name!r}: must be max_tokens or {RENAMED}")
        if not (config.judge_model or config.model):
            raise SettingError("no model: give --model NAME, or set CAPS_MODEL")
        file = _run_file(Runner(config, keys=keys, offline=True), begun, limit)
        BatchFolder(out).begin(replace(file, batch={"limit_name": limit_name}), force=force)
        folder = out
    lines = as_json or not sys.stdout.isatty()
    raise typer.Exit(
        asyncio.run(take_step(folder, extra=config.extra, again=again, quiet=quiet, lines=lines))
    )


def _refuse_options(ctx: typer.Context, folder: Path) -> None:
    """A run that has begun keeps its settings; what would be ignored is refused."""
    for name in ctx.params:
        source = ctx.get_parameter_source(name)
        if name not in FREE and source is not None and source.name == "COMMANDLINE":
            raise SettingError(
                f"{folder} remembers its settings, so --{name.strip('_').replace('_', '-')} changes nothing: "
                "leave it out, or begin another run with other cases or --out"
            )


def _run_file(runner: Runner, cases: Path, limit: int | None) -> RunFile:
    """Everything that makes the run, checked before it is remembered."""
    runner.check_batch()
    Account(runner.case_budget, runner.price)  # raises where dollars are limited and the price is unknown
    if not cases.is_file():
        raise InputError(
            f"{cases}: no such file; cases are read again at every step, so they must stay in one"
        )
    opened(partial(open_cases, str(cases)), None)  # raises where there is none in it
    findings = runner.findings(None)
    return run_file_of(
        runner,
        cases=str(cases),
        limit=limit,
        confidence=runner.judge_settings.confidence,
        findings={} if findings is None else findings.versions,
    )
