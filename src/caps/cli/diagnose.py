"""`caps diagnose`: is this judge good enough, at which evidence, and what should be run?"""

import asyncio
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from platformdirs import user_data_path

from caps.assemble import Setup, make_prepare, reply_for
from caps.cli import given, options
from caps.cli.config_file import ConfigFile
from caps.cli.diagnose_run import Told, judged_live
from caps.cli.output import JsonFlag, SetOption, telling
from caps.cli.picturing import Html, Plots
from caps.config import parse_assignments
from caps.core.errors import InputError, SettingError
from caps.core.settings import override
from caps.datasets.imports import open_cases
from caps.engines.budget import Budget
from caps.experiments.advice import CONTESTS
from caps.experiments.diagnosis import (
    Asked,
    Plan,
    Subject,
    explain_nothing,
    of_pools,
    schedule,
    simulate,
    subjects,
)
from caps.experiments.pools import PoolModel, made_up
from caps.journal.store import default_path
from caps.judges.llm import JudgeSettings
from caps.judges.simulated import PRESETS
from caps.models.fleet_addresses import join_addresses
from caps.reports.diagnosed_rows import Judge

MADE_UP = 300

Cases = Annotated[
    str | None, typer.Argument(metavar="[CASES]", help="Labelled cases; made-up ones with --simulate alone.")
]
Pairs = Annotated[int, typer.Option("--pairs", min=1, help="Pairs at most, four calls each.")]
PerCase = Annotated[
    int, typer.Option("--per-case", min=1, help="Pairs of a case; more where cases are too few.")
]
NoStop = Annotated[bool, typer.Option("--no-stop", help="Ask all pairs, even where fewer settle it.")]
Proxy = Annotated[
    bool, typer.Option("--proxy", help="Without labels: how often E1 agrees with E2, which is no accuracy.")
]
Simulate = Annotated[
    str | None, typer.Option("--simulate", help="No model: a synthetic judge, right in 60, 70, 80 or 90 %.")
]
Contests = Annotated[
    int, typer.Option("--contests", min=1, help="Contests simulated for the expected figures.")
]
Save = Annotated[
    Path | None, typer.Option("--save", help="Keep the profile in this file, for --judge-profile.")
]


def diagnose(
    cases: Cases = None,
    model: options.Model = None,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    judge_model_e1: options.ModelE1 = None,
    judge_base_url_e1: options.BaseUrlE1 = None,
    judge_api_key_e1: options.ApiKeyE1 = None,
    pairs: Pairs = 100,
    per_case: PerCase = 3,
    no_stop: NoStop = False,
    proxy: Proxy = False,
    simulate_: Simulate = None,
    set_: SetOption = None,
    contests: Contests = CONTESTS,
    save: Save = None,
    plots: Plots = None,
    html: Html = None,
    profile: options.Profile = None,
    view: options.View = None,
    prompts: options.Prompts = None,
    confidence: options.Confidence = "verbal",
    max_tokens: options.MaxTokens = 4096,
    reply: options.Reply = None,
    extra: options.Extra = None,
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
    budget_total_tokens: options.BudgetTotalTokens = None,
    budget_total_usd: options.BudgetTotalUsd = None,
    budget_total_seconds: options.BudgetTotalSeconds = None,
    limit: options.Limit = None,
    quiet: options.Quiet = False,
    as_json: JsonFlag = False,
    config: ConfigFile = None,
) -> None:
    """Measure a judge on pairs of a right and a wrong candidate, and say which strategy to use with it.

    Each pair is asked on partial and on full views, in both orders, until both levels are told from chance or
    --pairs are asked. Replies are kept in the journal, where caps select finds them again. --set changes the
    synthetic judge of --simulate, such as position_bias=0.3.
    """
    plan = Plan(pairs=pairs, per_case=per_case, stop=not no_stop, proxy=proxy, seed=seed)
    if proxy and save is not None:
        raise SettingError("--save needs labels: without them nobody knows how often the judge is right")
    if set_ and simulate_ is None:
        raise SettingError("--set changes the synthetic judge: it goes with --simulate")
    views = parse_assignments(view or [], option="--view")
    found = _subjects(cases, limit, profile, views, plan, simulated=simulate_ is not None)
    scheduled = schedule(found, plan)
    if not scheduled:
        raise InputError(f"{cases}: {explain_nothing(found, plan)}")
    told = Told(
        cases=cases,
        plan=plan,
        found=found,
        contests=contests,
        save=save,
        plots=plots,
        html=html,
        date=_today(),
        as_json=as_json,
        quiet=quiet,
    )
    if simulate_ is not None:
        asked = _simulated(simulate_, set_ or [], scheduled, plan)
        raise typer.Exit(told.tell(asked, Judge(source=f"simulated judge {simulate_}", simulated=True)))
    endpoint = given.endpoint_of(model, base_url, api_key, quiet=quiet)
    at_partial = given.partial_endpoint(
        model, base_url, api_key, judge_model_e1, judge_base_url_e1, judge_api_key_e1, quiet=quiet
    )
    setup = Setup(
        endpoint=endpoint,
        endpoint_partial=at_partial,
        judge=JudgeSettings(
            max_tokens=max_tokens, reply=reply or reply_for(endpoint, at_partial or endpoint)
        ),
        confidence=given.confidence_of(confidence),
        extra=given.parse_extra(extra or []),
        profile=profile,
        views=views,
        prompts=prompts,
        connections=given.parse_connections(max_connections),
        timeout=timeout,
        context=context,
        threads=threads,
        journal=None if no_journal else journal or default_path(user_data_path("caps")),
        durable=durable,
        price=given.price_of(price_input, price_output, price_cached),
        total_budget=Budget(tokens=budget_total_tokens, usd=budget_total_usd, seconds=budget_total_seconds),
        grace=given.GRACE_SECONDS,
        tell=telling(quiet=quiet),
    )
    answered = asyncio.run(judged_live(setup, scheduled, plan, quiet=quiet))
    if answered is None:
        raise typer.Exit(130)
    named = Judge(
        source=f"caps diagnose {cases}",
        model=endpoint.model,
        model_e1=None if at_partial is None else at_partial.model,
        words=_again(
            ("--model", model), ("--base-url", join_addresses(base_url)),
            ("--judge-model-e1", judge_model_e1), ("--judge-base-url-e1", join_addresses(judge_base_url_e1)),
            ("--profile", profile), ("--reply", reply),
            ("--confidence", None if confidence == "verbal" else confidence),
        ),
    )  # fmt: skip
    raise typer.Exit(told.tell(answered, named))


def _subjects(
    cases: str | None,
    limit: int | None,
    profile: str | None,
    views: dict[str, str],
    plan: Plan,
    *,
    simulated: bool,
) -> list[Subject]:
    if cases is None and not simulated:
        raise SettingError(
            "give CASES to try a judge on; or --simulate 80 for made-up cases and a made-up judge"
        )
    if simulated and plan.proxy:
        raise SettingError("--proxy is for cases without labels: a synthetic judge reads the labels")
    if cases is None:
        return list(of_pools(made_up(PoolModel(), limit or MADE_UP, plan.seed)))
    return list(subjects(islice(open_cases(cases), limit), make_prepare(profile, views)))


def _simulated(preset: str, changes: list[str], scheduled: list[Subject], plan: Plan) -> Asked:
    if preset not in PRESETS:
        raise SettingError(f"--simulate {preset!r}: must be one of {', '.join(PRESETS)}")
    return simulate(scheduled, plan, override(PRESETS[preset], parse_assignments(changes)))


def _again(*given: tuple[str, str | None]) -> tuple[str, ...]:
    """Options of this command that `select` needs too."""
    return tuple(word for option, value in given if value for word in (option, value))


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
