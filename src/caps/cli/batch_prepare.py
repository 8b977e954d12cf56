"""`caps batch prepare`: write what is open, or, where nothing is, the selections."""

import asyncio
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from platformdirs import user_data_path

from caps.assemble import (
    Endpoint,
    Setup,
    counts_votes,
    make_findings,
)
from caps.assemble.batching import check_batch
from caps.cli import given, options
from caps.cli.batch_step import take_step
from caps.cli.beforehand import opened
from caps.cli.config_file import ConfigFile
from caps.cli.output import JsonFlag, SetOption
from caps.config import parse_assignments
from caps.core.errors import InputError, SettingError
from caps.datasets.imports import open_cases
from caps.engines.budget import Account, Budget
from caps.journal.store import default_path
from caps.judges.llm import JudgeSettings
from caps.models.wire import RENAMED
from caps.registry import DEFAULT_STRATEGY
from caps.reports.batchdir import BatchFolder
from caps.reports.made import made_of

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
FREE = ("begun", "again", "extra", "quiet", "as_json", "config")  # what may be said of a run that has begun


def prepare(
    ctx: typer.Context,
    begun: Begun,
    out: Folder = None,
    model: options.Model = None,
    judge_model_e1: options.ModelE1 = None,
    strategy: options.Strategy = DEFAULT_STRATEGY,
    set_: SetOption = None,
    judge_profile: options.JudgeProfileFile = None,
    profile: options.Profile = None,
    view: options.View = None,
    prompts: options.Prompts = None,
    hard_evidence: options.HardEvidence = "auto",
    sandbox: options.Sandbox = "auto",
    confidence: options.Confidence = "verbal",
    max_tokens: options.MaxTokens = 4096,
    limit_name: LimitName = "max_tokens",
    extra: options.Extra = None,
    batch: options.Batch = None,
    seed: options.Seed = 1234,
    journal: options.JournalFile = None,
    price_input: options.PriceInput = None,
    price_output: options.PriceOutput = None,
    price_cached: options.PriceCached = None,
    budget_tokens: options.BudgetTokens = None,
    budget_usd: options.BudgetUsd = None,
    limit: options.Limit = None,
    again: Again = False,
    quiet: options.Quiet = False,
    as_json: JsonFlag = False,
    config: ConfigFile = None,
) -> None:
    """Write the requests that are open now to files for a Batch API or vllm run-batch.

    The folder remembers everything but texts of --extra that may be secret, so later steps need only its name
    and those. The paths of the files go to standard
    output; when nothing is open any more, the selections do, as those of caps select, and stay in the folder.
    """
    if begun.is_dir():
        _refuse_options(ctx, begun)
        folder, fields = begun, given.parse_extra(extra or [])
    else:
        if out is None:
            raise SettingError("no folder: give --out DIR, where the files of this run shall lie")
        if given.confidence_of(confidence) == "auto":
            raise SettingError("--confidence auto asks the endpoint, and a file cannot: verbal or logprobs?")
        if limit_name not in ("max_tokens", RENAMED):
            raise SettingError(f"--limit-name {limit_name!r}: must be max_tokens or {RENAMED}")
        if not model:
            raise SettingError("no model: give --model NAME, or set CAPS_MODEL")
        changes = parse_assignments(set_ or [])
        chosen = given.strategy_of(strategy, changes, judge_profile, hard_evidence)
        setup = Setup(
            endpoint=Endpoint("", model),
            endpoint_partial=Endpoint("", judge_model_e1) if judge_model_e1 else None,
            engine="batch",
            batch=given.parse_batch(batch),
            judge=JudgeSettings(max_tokens=max_tokens, confidence=confidence),
            extra=given.parse_extra(extra or []),
            profile=profile,
            views=parse_assignments(view or [], option="--view"),
            prompts=prompts,
            journal=journal or default_path(user_data_path("caps")),
            price=given.price_of(price_input, price_output, price_cached),
            hard_evidence=given.parse_hard_evidence(hard_evidence),
            merge_found=counts_votes(chosen),
            sandbox=given.parse_sandbox(sandbox),
            case_budget=Budget(tokens=budget_tokens, usd=budget_usd),
        )
        made = _made(setup, begun, limit=limit, name=strategy, strategy=chosen, seed=seed)
        BatchFolder(out).begin({**made, "limit_name": limit_name})
        folder, fields = out, dict(setup.extra)
    lines = as_json or not sys.stdout.isatty()
    raise typer.Exit(asyncio.run(take_step(folder, extra=fields, again=again, quiet=quiet, lines=lines)))


def _refuse_options(ctx: typer.Context, folder: Path) -> None:
    """A run that has begun keeps its settings; what would be ignored is refused."""
    for name in ctx.params:
        source = ctx.get_parameter_source(name)
        if name not in FREE and source is not None and source.name == "COMMANDLINE":
            raise SettingError(
                f"{folder} remembers its settings, so --{name.strip('_').replace('_', '-')} changes nothing: "
                "leave it out, or begin another run with other cases or --out"
            )


def _made(setup: Setup, cases: Path, *, limit: int | None, **about: Any) -> dict[str, Any]:
    """Everything that makes the run, checked before it is remembered."""
    check_batch(setup)
    Account(setup.case_budget, setup.price)  # raises where dollars are limited and the price is unknown
    if not cases.is_file():
        raise InputError(
            f"{cases}: no such file; cases are read again at every step, so they must stay in one"
        )
    opened(partial(open_cases, str(cases)), None)  # raises where there is none in it
    findings = make_findings(setup, None)
    return {
        **made_of(
            setup,
            cases=str(cases),
            limit=limit,
            confidence=setup.judge.confidence,
            findings={} if findings is None else findings.versions,
            price=setup.price,
            **about,
        ),
        "batch": asdict(setup.batch),
        "hard_evidence": setup.hard_evidence,
        "sandbox": setup.sandbox,
    }
