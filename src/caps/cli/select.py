"""`caps select`: choose the best candidate of each case."""

import asyncio
import sys
from functools import partial
from typing import Annotated

import typer
from platformdirs import user_data_path

from caps.assemble import (
    Setup,
    cases_for,
    counts_votes,
    make_prepare,
    reply_for,
)
from caps.cli import given, options
from caps.cli.beforehand import opened, refuse_if_too_dear, rehearse
from caps.cli.calibrating import Calibrating
from caps.cli.config_file import ConfigFile
from caps.cli.output import JsonFlag, SetOption, telling
from caps.cli.run import Run
from caps.config import parse_assignments
from caps.datasets.imports import count_cases
from caps.engines.budget import Budget
from caps.engines.cluster import Cluster
from caps.engines.cluster import connect as join
from caps.journal.store import default_path
from caps.judges.llm import JudgeSettings
from caps.registry import DEFAULT_STRATEGY

Bracket = Annotated[bool, typer.Option("--bracket", help="Draw the bracket of every case.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Ask nothing: show what the first round would ask.")]


def select(
    cases: options.Cases,
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
    prompt_version: options.PromptVersion = None,
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
    chosen = given.strategy_of(strategy, changes, judge_profile, hard_evidence)
    first = None if calibrate is None else Calibrating(calibrate, strategy, chosen, changes)
    views = parse_assignments(view or [], option="--view")
    cluster = Cluster(address=ray_address, workers=ray_workers)
    if given.parse_engine(engine) == "ray" and not dry_run:
        join(cluster)  # before anything is asked, and before we listen for signals: Ray does too
    read = partial(cases_for, engine, cluster, cases)
    source = opened(read, limit)
    if dry_run:
        rehearse(source, chosen, make_prepare(profile, views), seed)
        return
    endpoint = given.endpoint_of(model, base_url, api_key, quiet=quiet)
    at_partial = given.partial_endpoint(
        model, base_url, api_key, judge_model_e1, judge_base_url_e1, judge_api_key_e1, quiet=quiet
    )
    setup = Setup(
        endpoint=endpoint,
        endpoint_partial=at_partial,
        engine=engine,
        batch=given.parse_batch(batch),
        cluster=cluster,
        judge=JudgeSettings(
            max_tokens=max_tokens, reply=reply or reply_for(endpoint, at_partial or endpoint)
        ),
        confidence=given.confidence_of(confidence),
        extra=given.parse_extra(extra or []),
        profile=profile,
        views=views,
        prompts=prompts,
        prompt_version=given.prompt_version_of(prompt_version, out),
        connections=given.parse_connections(max_connections),
        timeout=timeout,
        context=context,
        threads=threads,
        journal=None if no_journal else journal or default_path(user_data_path("caps")),
        durable=durable,
        price=given.price_of(price_input, price_output, price_cached),
        hard_evidence=given.parse_hard_evidence(hard_evidence),
        merge_found=counts_votes(chosen),
        sandbox=given.parse_sandbox(sandbox),
        case_budget=Budget(tokens=budget_tokens, usd=budget_usd, seconds=budget_seconds),
        total_budget=Budget(tokens=budget_total_tokens, usd=budget_total_usd, seconds=budget_total_seconds),
        grace=given.GRACE_SECONDS,
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
