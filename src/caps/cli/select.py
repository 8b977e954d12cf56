"""`caps select`: choose the best candidate of each case."""

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer
from platformdirs import user_cache_path, user_data_path

from caps.assemble import (
    Endpoint,
    Setup,
    cases_for,
    counts_votes,
    find,
    make_prepare,
    make_strategy,
    reply_for,
    with_shortlist,
)
from caps.cli import options
from caps.cli.beforehand import opened, refuse_if_too_dear, rehearse
from caps.cli.calibrating import Calibrating
from caps.cli.config_file import ConfigFile
from caps.cli.fetching import fetch_bar
from caps.cli.output import JsonFlag, SetOption, telling
from caps.cli.run import Run
from caps.config import parse_assignments
from caps.core.errors import SettingError
from caps.costs.prices import Price
from caps.datasets.imports import count_cases
from caps.engines.budget import Budget
from caps.engines.cluster import Cluster
from caps.engines.cluster import connect as join
from caps.journal.store import default_path
from caps.judges.llm import JudgeSettings
from caps.models.fleet_addresses import join_addresses
from caps.registry import DEFAULT_STRATEGY

Cases = Annotated[
    str, typer.Argument(metavar="CASES", help="Cases, one JSON object a line; - is standard input.")
]
GRACE_SECONDS = 3.0

Bracket = Annotated[bool, typer.Option("--bracket", help="Draw the bracket of every case.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Ask nothing: show what the first round would ask.")]


def select(
    cases: Cases,
    model: options.Model = None,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    judge_model_e1: options.ModelE1 = None,
    judge_base_url_e1: options.BaseUrlE1 = None,
    judge_api_key_e1: options.ApiKeyE1 = None,
    strategy: options.Strategy = DEFAULT_STRATEGY,
    set_: SetOption = None,
    judge_profile: options.JudgeProfileFile = None,
    calibrate: options.Calibrate = None,
    profile: options.Profile = None,
    view: options.View = None,
    prompts: options.Prompts = None,
    hard_evidence: options.HardEvidence = "auto",
    sandbox: options.Sandbox = "auto",
    confidence: options.Confidence = "verbal",
    max_tokens: options.MaxTokens = 4096,
    reply: options.Reply = None,
    extra: options.Extra = None,
    engine: options.Engine = "local",
    batch: options.Batch = None,
    ray_address: options.RayAddress = None,
    ray_workers: options.RayWorkers = 2,
    seed: options.Seed = 1234,
    max_connections: options.Connections = "auto",
    timeout: options.Timeout = 600,
    context: options.Context = None,
    threads: options.Threads = None,
    journal: options.JournalFile = None,
    no_journal: options.NoJournal = False,
    durable: options.Durable = False,
    price_input: options.PriceInput = None,
    price_output: options.PriceOutput = None,
    price_cached: options.PriceCached = None,
    gpu_hour_usd: options.GpuHour = None,
    budget_tokens: options.BudgetTokens = None,
    budget_usd: options.BudgetUsd = None,
    budget_seconds: options.BudgetSeconds = None,
    budget_total_tokens: options.BudgetTotalTokens = None,
    budget_total_usd: options.BudgetTotalUsd = None,
    budget_total_seconds: options.BudgetTotalSeconds = None,
    max_usd: options.MaxUsd = None,
    out: options.Out = None,
    limit: options.Limit = None,
    bracket: Bracket = False,
    dry_run: DryRun = False,
    quiet: options.Quiet = False,
    as_json: JsonFlag = False,
    config: ConfigFile = None,
) -> None:
    """Choose the best candidate of each case, with any OpenAI-compatible endpoint as the judge.

    Results go to standard output, one JSON object a line (a table in a terminal, unless --json). What was
    paid for is kept in the journal: run the same command again and only what is missing is asked.
    """
    changes = parse_assignments(set_ or [])
    chosen = make_strategy(strategy, changes, options.known_judge(judge_profile))
    if options.parse_hard_evidence(hard_evidence) != "off" and "shortlist" not in changes:
        chosen = with_shortlist(chosen)
    first = None if calibrate is None else Calibrating(calibrate, strategy, chosen, changes)
    views = parse_assignments(view or [], option="--view")
    cluster = Cluster(address=ray_address, workers=ray_workers)
    if options.parse_engine(engine) == "ray" and not dry_run:
        join(cluster)  # before anything is asked, and before we listen for signals: Ray does too
    read = partial(cases_for, engine, cluster, cases)
    source = opened(read, limit)
    if dry_run:
        rehearse(source, chosen, make_prepare(profile, views), seed)
        return
    endpoint = endpoint_of(model, base_url, api_key, quiet=quiet)
    at_partial = partial_endpoint(
        model, base_url, api_key, judge_model_e1, judge_base_url_e1, judge_api_key_e1, quiet=quiet
    )
    setup = Setup(
        endpoint=endpoint,
        endpoint_partial=at_partial,
        engine=engine,
        batch=options.parse_batch(batch),
        cluster=cluster,
        judge=JudgeSettings(
            max_tokens=max_tokens, reply=reply or reply_for(endpoint, at_partial or endpoint)
        ),
        confidence=confidence_of(confidence),
        extra=options.parse_extra(extra or []),
        profile=profile,
        views=views,
        prompts=prompts,
        connections=options.parse_connections(max_connections),
        timeout=timeout,
        context=context,
        threads=threads,
        journal=None if no_journal else journal or default_path(user_data_path("caps")),
        durable=durable,
        price=price_of(price_input, price_output, price_cached),
        hard_evidence=options.parse_hard_evidence(hard_evidence),
        merge_found=counts_votes(chosen),
        sandbox=options.parse_sandbox(sandbox),
        case_budget=Budget(tokens=budget_tokens, usd=budget_usd, seconds=budget_seconds),
        total_budget=Budget(tokens=budget_total_tokens, usd=budget_total_usd, seconds=budget_total_seconds),
        grace=GRACE_SECONDS,
        tell=telling(quiet=quiet),
    )
    if first is not None:
        first.check(setup)
    if max_usd is not None:
        refuse_if_too_dear(cases, partial(opened, read, limit), chosen, setup, seed, max_usd, first=first)
    run = Run(
        setup, strategy, chosen, seed, gpu_hour_usd, first=first,
        limit=limit, quiet=quiet, bracket=bracket, lines=as_json or not sys.stdout.isatty(),
    )  # fmt: skip
    code = asyncio.run(run.until_done_or_stopped(source, _total(cases, limit), out, cases))
    raise typer.Exit(code)


def _total(cases: str, limit: int | None) -> int | None:
    counted = count_cases(cases)
    return limit if counted is None else min(counted, limit or counted)


def endpoint_of(
    model: str | None, base_url: str | Sequence[str] | None, api_key: str | None, *, quiet: bool = False
) -> Endpoint:
    """The endpoint that options name, or what is missing; weights that are not here yet are fetched."""
    address = join_addresses(base_url)
    with fetch_bar(hidden=quiet) as report:
        return find(model, address, api_key, cache=user_cache_path("caps"), report=report)


def partial_endpoint(
    model: str | None,
    base_url: Sequence[str] | None,
    api_key: str | None,
    model_e1: str | None,
    base_url_e1: Sequence[str] | None,
    api_key_e1: str | None,
    *,
    quiet: bool,
) -> Endpoint | None:
    """Another judge for partial views; a key is not carried to another address."""
    if not model_e1 and not base_url_e1:
        return None
    key = api_key_e1 or (None if base_url_e1 else api_key)
    return endpoint_of(model_e1 or model, base_url_e1 or base_url, key, quiet=quiet)


def confidence_of(word: str) -> Any:
    """Read `--confidence`."""
    if word not in ("verbal", "logprobs", "auto"):
        raise SettingError(f"--confidence {word!r}: must be one of verbal, logprobs, auto")
    return word


def price_of(read: float | None, written: float | None, reread: float | None) -> Price | None:
    """The price that options state, if any."""
    if read is None and written is None and reread is None:
        return None
    if read is None or written is None:
        raise SettingError("a price needs both --price-input and --price-output")
    return Price(read, written, reread)
