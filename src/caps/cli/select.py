"""`caps select`: choose the best candidate of each case."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from caps.cli import options
from caps.cli.help import MAIN
from caps.cli.options import JsonFlag, configured
from caps.cli.output import say
from caps.cli.preflight import (
    checked_source,
    counted_source,
    print_forecast,
    recommend_diagnosis,
    refuse_if_too_expensive,
    resolved_for,
    warned_about_votes,
)
from caps.cli.run import Run
from caps.cli.signals import run_paid_work
from caps.config import Keys, RunConfig
from caps.core.errors import CapsError, SettingError
from caps.datasets.imports import open_cases
from caps.files import is_stream, join_paths
from caps.prompts.reply_forms import TAGS
from caps.runs.run_file import read_run_file, started_in
from caps.runs.shards import Shard
from caps.session.engines import cluster
from caps.session.resolve import resolve

Bracket = Annotated[
    bool,
    typer.Option(
        "--bracket", help="Draw how each case was decided, on standard error.", rich_help_panel=MAIN
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Ask nothing; show what the run is expected to ask.", rich_help_panel=MAIN
    ),
]


@configured(
    "judge", "recorded", "asking", "strategy", "calibrate", "evidence", "domain", "findings", "engine",
    "performance", "context", "journal", "cases", "price", "budget", "budget seconds", "total budget",
    "total budget seconds",
)  # fmt: skip
def select(
    cases: options.Cases,
    config: RunConfig,
    keys: Keys,
    max_usd: options.MaxUsd = None,
    out: options.Out = None,
    force: options.Force = False,
    limit: options.Limit = None,
    shard: options.ShardOption = None,
    bracket: Bracket = False,
    dry_run: DryRun = False,
    quiet: options.Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Choose the best candidate of each case.

    A judge, which is any model behind an OpenAI-compatible API, compares candidates. Results go to standard
    output, one JSON object per line, or as a table in a terminal. Replies are stored in the journal: run the
    same command again, and only the calls that are missing are made.

    Exit codes: 0 all cases answered, 1 some failed, 2 bad use or input, 3 some answers are provisional, 4
    waiting for the results of a batch (--batch-dir), 5 stopped because the replies of the judge cannot be
    read (--keep-going continues), 130 interrupted.
    """
    named = join_paths(cases)
    if dry_run:
        resolved = resolve(config, keys=keys, offline=True)
        print_forecast(counted_source(named, config.map, limit, shard)[0], resolved)
        return
    if config.engine == "ray":
        from caps.engines.ray import connect as join  # noqa: PLC0415

        join(cluster(config))  # before signals are handled, since Ray handles them too
    select_cases(
        named, config, keys, max_usd=max_usd, out=out, force=force, limit=limit, shard=shard, bracket=bracket,
        quiet=quiet, as_json=as_json,
    )  # fmt: skip


def select_cases(
    cases: str,
    config: RunConfig,
    keys: Keys,
    *,
    max_usd: float | None = None,
    out: Path | None,
    force: bool,
    limit: int | None,
    shard: Shard | None = None,
    bracket: bool = False,
    quiet: bool,
    as_json: bool,
    started: float | None = None,
) -> NoReturn:
    """Select from a file of cases, and exit; `started` is when a run began whose replies are used."""
    if shard is not None:
        out = None if out is None else out / shard.folder
        _check_shard(config, shard, quiet=quiet)
    if started is None:
        started = started_in(out, force=force)
    config = _with_reply_form_of_run(config, out)
    source, total = counted_source(cases, config.map, limit, shard)
    with resolved_for(config, keys, quiet=quiet, started=started) as resolved:
        source = warned_about_votes(source, resolved, quiet=quiet or is_stream(cases))
        first = None
        if config.calibrate is not None:
            from caps.cli.calibrator import Calibrator  # noqa: PLC0415

            first = Calibrator(resolved)
        if max_usd is not None:
            probes = None if first is None else first.probes
            again = partial(checked_source, partial(open_cases, cases, fields=config.map), limit, shard)
            refuse_if_too_expensive(cases, again, resolved, max_usd, probes=probes)
        lines = as_json or not sys.stdout.isatty()
        run = Run(
            resolved, first=first, force=force, limit=limit, shard=shard, quiet=quiet, bracket=bracket,
            lines=lines,
        )  # fmt: skip
        recommend_diagnosis(cases, total, resolved, quiet=quiet)
        code = run_paid_work(run.play(source, total, out, cases), resolved.journal, run.so_far)
    raise typer.Exit(code)


def _with_reply_form_of_run(config: RunConfig, out: Path | None) -> RunConfig:
    """Continue a run with the form of replies it began with, unless another is named."""
    if out is None:
        return config
    try:
        begun = read_run_file(out).config
    except (OSError, CapsError):
        return config  # no run, or a damaged one, which is reported when it is written to
    is_open = config.reply == "auto" or (config.reply == TAGS[0] and begun.reply in TAGS)
    return replace(config, reply=begun.reply) if is_open and begun.reply is not None else config


def _check_shard(config: RunConfig, shard: Shard, *, quiet: bool) -> None:
    """Refuse what the shards of a run must share, and say what each has for itself."""
    if config.calibrate is not None:
        raise SettingError(
            "--calibrate: each shard would measure the judge on other cases: measure it once with "
            "caps diagnose, and give its --judge-profile to all shards"
        )
    names = ("budget_total_tokens", "budget_total_usd", "budget_total_seconds")
    budgets = [f"--{name.replace('_', '-')}" for name in names if getattr(config, name) is not None]
    if budgets and not quiet:
        said = "is the budget" if len(budgets) == 1 else "are the budgets"
        say(f"{' and '.join(budgets)} {said} of shard {shard} alone; each shard has its own", "yellow")
