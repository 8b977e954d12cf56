"""`caps select`: choose the best candidate of each case."""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Annotated, Any

import typer
from platformdirs import user_cache_path, user_data_path

from caps.assemble import (
    Endpoint,
    Setup,
    cases_for,
    counts_votes,
    find,
    load_templates,
    make_prepare,
    make_strategy,
    reply_for,
    with_shortlist,
)
from caps.cli import options
from caps.cli.config_file import ConfigFile
from caps.cli.fetching import fetch_bar
from caps.cli.output import JsonFlag, SetOption, say, stdout
from caps.cli.run import Run
from caps.config import parse_assignments
from caps.core.contest import Contest
from caps.core.errors import InputError, SettingError
from caps.core.play import Strategy
from caps.core.types import Case
from caps.costs.prices import Price, listed_price
from caps.datasets.imports import count_cases
from caps.engines.budget import Budget
from caps.engines.cluster import Cluster
from caps.engines.cluster import connect as join
from caps.experiments.planning import forecast_case
from caps.journal.store import default_path
from caps.judges.llm import JudgeSettings
from caps.reports.console import number, table

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
    strategy: options.Strategy = "caps-r",
    set_: SetOption = None,
    judge_profile: options.JudgeProfileFile = None,
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
    views = parse_assignments(view or [], option="--view")
    cluster = Cluster(address=ray_address, workers=ray_workers)
    if options.parse_engine(engine) == "ray" and not dry_run:
        join(cluster)  # before anything is asked, and before we listen for signals: Ray does too
    read = partial(cases_for, engine, cluster, cases)
    source = _opened(read(), limit)
    if dry_run:
        _rehearse(source, chosen, make_prepare(profile, views), seed)
        return
    endpoint = endpoint_of(model, base_url, api_key, quiet=quiet)
    at_partial = partial_endpoint(
        model, base_url, api_key, judge_model_e1, judge_base_url_e1, judge_api_key_e1, quiet=quiet
    )
    setup = Setup(
        endpoint=endpoint,
        endpoint_partial=at_partial,
        engine=engine,
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
    )
    if max_usd is not None:
        _refuse_if_too_dear(cases, lambda: islice(read(), limit), chosen, setup, seed, max_usd)
    run = Run(
        setup, strategy, chosen, seed, gpu_hour_usd,
        limit=limit, quiet=quiet, bracket=bracket, lines=as_json or not sys.stdout.isatty(),
    )  # fmt: skip
    code = asyncio.run(run.until_done_or_stopped(source, _total(cases, limit), out, cases))
    raise typer.Exit(code)


def _opened(source: Iterator[Case | InputError], limit: int | None) -> Iterator[Case | InputError]:
    """The cases; a file that cannot be read at all is found before anything is opened or asked."""
    first = list(islice(source, 1))
    return islice(chain(first, source), limit)


def _total(cases: str, limit: int | None) -> int | None:
    counted = count_cases(cases)
    return limit if counted is None else min(counted, limit or counted)


def endpoint_of(
    model: str | None, base_url: str | None, api_key: str | None, *, quiet: bool = False
) -> Endpoint:
    """The endpoint that options name, or what is missing; weights that are not here yet are fetched."""
    with fetch_bar(hidden=quiet) as report:
        return find(model, base_url, api_key, cache=user_cache_path("caps"), report=report)


def partial_endpoint(
    model: str | None,
    base_url: str | None,
    api_key: str | None,
    model_e1: str | None,
    base_url_e1: str | None,
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


def _refuse_if_too_dear(
    cases: str,
    read: Callable[[], Iterable[Case | InputError]],
    strategy: Strategy,
    setup: Setup,
    seed: int,
    most: float,
) -> None:
    """Refuse to start what would surely cost more: the least that can be asked, read at the input price."""
    price = setup.price or listed_price(setup.endpoint.model, setup.endpoint.base_url)
    if price is None:
        raise SettingError("--max-usd needs a price: give --price-input and --price-output")
    if cases == "-":
        raise SettingError("--max-usd needs a file of cases: standard input can be read only once")
    prepare, templates = make_prepare(setup.profile, setup.views), load_templates(setup.prompts)
    tokens = 0
    for case in read():
        if not isinstance(case, InputError):
            tokens += forecast_case(prepare(case), strategy, templates, seed=seed).least
    dollars = price.of(tokens, 0)
    if dollars > most:
        raise SettingError(
            f"--max-usd {most:g}: at least {number(tokens, 0)} tokens would be read, ${dollars:.4f} before "
            "any reply: see caps plan for something cheaper, or raise the limit"
        )


def _rehearse(source: Iterable[Case | InputError], strategy: Strategy, prepare: Any, seed: int) -> None:
    """Show what the first round of each case would ask, without asking."""
    rows, failed = [], 0
    for case in source:
        if isinstance(case, InputError):
            say(f"failed: {case}", "red")
            failed += 1
            continue
        bout = prepare(case)
        contest = Contest(strategy, bout.described.entrants, seed=f"{seed}/{case.id}")
        asks = () if contest.pending is None else contest.pending.asks
        sizes = {entrant.id: entrant.sizes for entrant in bout.described.entrants}
        tokens = sum(bout.statement + sum(sizes[one][ask.level] for one in ask.entrants) for ask in asks)
        clusters = len({e.signature or e.id for e in bout.described.entrants})
        rows.append(
            (
                case.id,
                case.domain,
                str(len(case.candidates)),
                str(clusters),
                str(len(asks)),
                number(tokens, 0),
            )
        )
    columns = ("case", "domain", "candidates", "clusters", "first calls", "tokens shown (estimate)")
    stdout().print(table("", columns, rows, numbers_from=2))
    raise typer.Exit(1 if failed else 0)
