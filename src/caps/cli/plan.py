"""`caps plan`: what every strategy would ask, before anything is spent."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from caps.building import load_templates, make_strategy
from caps.cli import options
from caps.cli.beforehand import texts_of
from caps.cli.output import JsonFlag, SetOption, print_json
from caps.cli.plan_capacity import (
    BatchHours,
    BatchPrice,
    CallsRate,
    Gpus,
    Problems,
    Scale,
    Workers,
    WriteRate,
    print_capacity,
    with_capacity,
)
from caps.cli.plan_cases import plan_file
from caps.cli.plan_pool import pool_rows, print_pool
from caps.config import Keys, RunConfig, parse_assignments
from caps.core.errors import SettingError
from caps.core.judge_profile import JudgeProfile
from caps.core.play import Strategy
from caps.core.settings import settings_of
from caps.core.text import number
from caps.costs.capacity import CONNECTIONS, Fleet
from caps.costs.closed_form import ViewSizes
from caps.costs.forecast import PER_CHARACTER
from caps.costs.prices import Price, Terms, listed_price, measured_output
from caps.datasets.imports import open_cases
from caps.files import is_stream
from caps.judging.profiles import profile_fields, read_profile
from caps.models.fleet import join_addresses
from caps.models.tokenizing import Tokenizer, tokens_per_character
from caps.registry import STRATEGIES
from caps.studies.planning import Task

STATED_OUTPUT = 400.0
POOL_ONLY = ("pool", "rho", "partial_tokens", "full_tokens", "overhead_tokens")
CASES_ONLY = ("profile", "view", "prompts", "limit", "tokenizer", "tokens_per_char", "journal")
TERMS_ONLY = (
    "price_input", "price_output", "price_cached", "output_tokens", "tokens_per_second", "latency",
    "max_connections",
)  # fmt: skip
SCALE_ONLY = (
    "output_tokens_per_second", "gpus", "gpu_hour_usd", "workers", "calls_per_second", "batch_hours",
    "batch_price",
)  # fmt: skip

Cases = Annotated[
    str | None,
    typer.Argument(metavar="[CASES]", help="Cases, one JSON object a line; - is standard input."),
]
Rate = Annotated[
    float | None, typer.Option(min=0.001, help="CASES: tokens a character, instead of the estimate of 1/4.")
]
Output = Annotated[float | None, typer.Option(min=0, help="Mean tokens of a reply (400).")]
Journal = Annotated[
    Path | None, typer.Option("--journal", help="CASES: measure the mean reply on the calls kept here.")
]
Pace = Annotated[
    float | None, typer.Option(min=0.001, help="Tokens, read and written, the server does a second.")
]
Latency = Annotated[float | None, typer.Option(min=0, help="Seconds a call, with --max-connections.")]
Connections = Annotated[int | None, typer.Option("--max-connections", min=1, help="Calls at once.")]


def plan(
    ctx: typer.Context,
    cases: Cases = None,
    pool: Annotated[int, typer.Option("--pool", min=1, max=4096, help="Distinct candidates a problem.")] = 16,
    finalists: Annotated[int | None, typer.Option(help="f, for the strategies that have it.")] = None,
    rho: Annotated[float | None, typer.Option(help="T1 / T2; sets the size of partial views.")] = None,
    partial_tokens: Annotated[float, typer.Option(min=0, help="Mean tokens of a partial view.")] = 250,
    full_tokens: Annotated[float, typer.Option(min=0, help="Mean tokens of a full view.")] = 4000,
    overhead_tokens: Annotated[float, typer.Option(min=0, help="Tokens of a prompt without views.")] = 500,
    strategy: Annotated[str | None, typer.Option(help="Names, separated by commas; all if absent.")] = None,
    set_: SetOption = None,
    judge_profile: options.JudgeProfileFile = None,
    profile: options.Profile = None,
    view: options.View = None,
    prompts: options.Prompts = None,
    seed: options.Seed = 1234,
    limit: options.Limit = None,
    model: options.Model = None,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    price_input: options.PriceInput = None,
    price_output: options.PriceOutput = None,
    price_cached: options.PriceCached = None,
    tokenizer: options.Tokenizer = None,
    tokens_per_char: Rate = None,
    output_tokens: Output = None,
    journal: Journal = None,
    tokens_per_second: Pace = None,
    latency: Latency = None,
    max_connections: Connections = None,
    problems: Problems = None,
    output_tokens_per_second: WriteRate = None,
    gpus: Gpus = 1,
    gpu_hour_usd: options.GpuHour = None,
    workers: Workers = 8,
    calls_per_second: CallsRate = None,
    batch_hours: BatchHours = 24,
    batch_price: BatchPrice = 0.5,
    as_json: JsonFlag = False,
) -> None:
    """Forecast calls, rounds that wait for one another, tokens, money and time, for every strategy.

    Of CASES the prompts are rendered as a run with this seed would: the tokens of the first round are exact
    but for their count (--tokenizer gives it, or with --model and --base-url the server's /tokenize where it
    has one, else it is estimated from characters), later ones a range over who may survive. Without CASES one
    problem is planned: strategies are rehearsed with a judge that flips coins on a pool whose candidates all
    differ, which is the dearest case. With --problems that is reckoned up for many of them.
    """
    strategies = _configured(
        strategy, finalists, set_ or [], None if judge_profile is None else read_profile(judge_profile)
    )
    if problems is None:
        _refuse(ctx, SCALE_ONLY, "needs --problems: how many are to be reckoned with?")
    if cases is None:
        _refuse(ctx, CASES_ONLY, "needs CASES: a file to plan")
    if cases is None and problems is None:
        _refuse(ctx, TERMS_ONLY, "needs CASES, a file to plan, or --problems")
    if cases is not None:
        _refuse(ctx, POOL_ONLY, "is for a plan without CASES: these have sizes of their own")
    templates = load_templates(prompts)
    terms = Terms(
        _mean_output(output_tokens, journal, model, templates),
        _price(price_input, price_output, price_cached, model, join_addresses(base_url)),
        tokens_per_second,
        latency,
        max_connections,
    )
    scale = None
    if problems is not None:
        fleet = Fleet(
            read_rate=tokens_per_second, write_rate=output_tokens_per_second, gpus=gpus, latency=latency,
            connections=max_connections or CONNECTIONS, calls_rate=calls_per_second,
        )  # fmt: skip
        terms = replace(terms, tokens_per_second=None, latency=None)  # they are the fleet's
        scale = Scale(problems=problems, fleet=fleet, terms=terms, workers=workers, gpu_hour_usd=gpu_hour_usd,
                      batch_hours=batch_hours, batch_price=batch_price)  # fmt: skip
    if cases is None:
        sizes = ViewSizes(partial_tokens, full_tokens, overhead_tokens)
        if rho is not None:
            sizes = ViewSizes.with_rho(rho, full=full_tokens, overhead=overhead_tokens)
        _plan_pool(pool, strategies, sizes, scale, as_json=as_json)
        return
    views = parse_assignments(view or [], option="--view")
    rate, source = _rate(tokens_per_char, cases, tokenizer, model, join_addresses(base_url), api_key)
    task = Task(tuple(strategies.values()), templates, profile, views, seed, rate)
    raise typer.Exit(plan_file(cases, limit, task, terms, names=list(strategies), as_json=as_json,
                               named=strategy is not None, scale=scale, counted=source))  # fmt: skip


def _rate(
    stated: float | None,
    cases: str,
    tokenizer: Path | None,
    model: str | None,
    base_url: str,
    api_key: str | None,
) -> tuple[float, str]:
    """Tokens a character, and where that comes from: as stated, as counted, or an estimate."""
    if stated is not None:
        return stated, f"{number(stated, 4)} tokens a character, as stated"
    if tokenizer is not None:
        counting = Tokenizer(tokenizer)
        if is_stream(cases):
            raise SettingError("--tokenizer needs a file of cases: standard input can be read only once")
        if (rate := counting.rate(texts_of(open_cases(cases)))) is not None:
            return rate, f"{number(rate, 4)} tokens a character, as {tokenizer} counts them"
    if model and base_url and not is_stream(cases):
        key = Keys.find(RunConfig(), api_key=api_key).api_key
        texts = texts_of(open_cases(cases))
        measured = asyncio.run(tokens_per_character(base_url, model, texts, api_key=key))
        if measured is not None:
            return measured, f"{number(measured, 4)} tokens a character, as the server counts them"
    return PER_CHARACTER, "4 characters a token, an estimate"


def _plan_pool(
    pool: int, strategies: dict[str, Strategy], sizes: ViewSizes, scale: Scale | None, *, as_json: bool
) -> None:
    rows = with_capacity(pool_rows(pool, strategies, sizes), scale)
    if as_json:
        print_json(rows)
        return
    print_pool(pool, rows, sizes)
    if scale is not None:
        print_capacity(rows, scale)


def _refuse(ctx: typer.Context, names: Sequence[str], why: str) -> None:
    """An option that would change nothing is a misunderstanding."""
    for name in names:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise SettingError(f"--{name.replace('_', '-')} {why}")


def _mean_output(
    stated: float | None, journal: Path | None, model: str | None, names: Iterable[str]
) -> float:
    if stated is None and journal is not None:
        return measured_output(journal, model, list(names))
    return STATED_OUTPUT if stated is None else stated


def _price(
    read: float | None, written: float | None, reread: float | None, model: str | None, base_url: str | None
) -> Price | None:
    """The price that is stated, else the one in the table, else none."""
    if read is None and written is None and reread is None:
        return listed_price(model, base_url) if model and base_url else None
    if read is None or written is None:
        raise SettingError("a price needs both --price-input and --price-output")
    return Price(read, written, reread)


def _configured(
    names: str | None, finalists: int | None, changes: list[str], judge: JudgeProfile | None
) -> dict[str, Strategy]:
    """The strategies asked for; `finalists`, and what is known of the judge, go to those that use it."""
    wanted = list(STRATEGIES.table) if names is None else [name.strip() for name in names.split(",")]
    assigned = parse_assignments(changes)
    if assigned and names is None:
        raise SettingError("--set needs --strategy: which one is meant?")
    made = {}
    for name in wanted:
        known = judge if len(wanted) == 1 or profile_fields(make_strategy(name)) else None
        strategy = make_strategy(name, assigned, known)
        if finalists is not None and "finalists" in settings_of(strategy):
            strategy = make_strategy(name, {**assigned, "finalists": str(finalists)}, known)
        made[name] = strategy
    return made
