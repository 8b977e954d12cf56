"""`caps plan`: forecast calls, tokens and cost before anything is spent."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from caps.cli import options
from caps.cli.help import MAIN, SIZES
from caps.cli.options import JsonFlag, allow_named, complete_strategies, configured
from caps.cli.output import FailureLog, print_json, say, stdout
from caps.cli.preflight import texts_of
from caps.cli.progress import Progress
from caps.config import Keys, RunConfig
from caps.core.errors import InputError, SettingError
from caps.core.play import Strategy
from caps.core.settings import setting_text
from caps.core.text import number, percent, plural
from caps.core.types import Case
from caps.costs.closed_form import ViewSizes, v1_infer_tokens
from caps.costs.prices import Price, Terms, listed_price, price_of_all
from caps.datasets.imports import count_cases, open_cases
from caps.files import is_stream
from caps.judging.profiles import profile_fields, read_profile
from caps.models.endpoints import served_context
from caps.models.tokenizing import Tokenizer, tokens_per_character
from caps.registry import STRATEGIES
from caps.reports.console import by_level, table, with_default, with_range
from caps.reports.numbers import brief
from caps.session.parts import make_prepare, make_strategy
from caps.session.resolve import Resolved, resolve
from caps.strategies.posterior import Posterior
from caps.studies.planning import (
    ASSUMED,
    BASELINE,
    PER_CHARACTER,
    EffortFigures,
    Forecast,
    PlanSettings,
    RehearsedPool,
    compare_efforts,
    distinct_entrants,
    plan_cases,
    pools_of,
    rehearse,
)

REPLY_TOKENS = 400.0
POOL = 16
EFFORT_CASES = 20  # first cases on which efforts are compared
WORTH_MORE_PROCESSES = 60  # cases

Cases = Annotated[
    str | None,
    typer.Argument(
        metavar="[CASES]", help="File of cases, one JSON object per line; - reads standard input."
    ),
]
Strategies = Annotated[
    str | None,
    typer.Option(
        "--strategy", metavar="NAMES", help="Strategies, separated by commas. Default: all.",
        rich_help_panel=MAIN, autocompletion=complete_strategies,
    ),
]  # fmt: skip
Output = Annotated[
    float | None,
    typer.Option(
        "--output-tokens", min=0, metavar="TOKENS", rich_help_panel=SIZES,
        help=f"Mean tokens of a reply. Default: {REPLY_TOKENS:g}.",
    ),
]  # fmt: skip
Pool = Annotated[
    int | None,
    typer.Option(
        "--pool", min=1, max=4096, metavar="N", rich_help_panel=SIZES,
        help=f"Without CASES: number of distinct candidates of one problem. Default: {POOL}.",
    ),
]  # fmt: skip
Rho = Annotated[
    float | None,
    typer.Option(
        "--rho", metavar="SHARE", rich_help_panel=SIZES,
        help="Without CASES: size of a prompt with partial views as a share of one with full views.",
    ),
]  # fmt: skip


@configured(
    "judge", "asking", "strategy", "evidence", "domain", "context", "cases", "price",
    without=("strategy", "skip_failing", "explain", "confidence", "reply", "keep_going", "extra"),
)  # fmt: skip
def plan(
    config: RunConfig,
    keys: Keys,
    cases: Cases = None,
    strategy: Strategies = None,
    pool: Pool = None,
    rho: Rho = None,
    output_tokens: Output = None,
    limit: options.Limit = None,
    as_json: JsonFlag = False,
) -> None:
    """Forecast calls, tokens and cost of every strategy.

    With CASES, the prompts are rendered as in a run with these settings. The first round is exact, except
    that tokens are estimated from characters unless they can be counted: by the server (--model and
    --base-url), or by --set tokenizer=FILE. Later rounds depend on the verdicts: every strategy plays every
    case against a simulated judge of average accuracy, or of --judge-profile, and the mean and the 90 % range
    are printed. With --strategy posterior, its efforts are compared too.

    Without CASES, one problem is planned whose candidates all differ, which is the most expensive case. With
    several judges, calls are those of one, and the cost is that of all.
    """
    strategies = _strategies(strategy, config)
    if cases is None:
        if limit is not None or output_tokens is not None:
            flag = "--limit" if output_tokens is None else "--output-tokens"
            raise SettingError(f"{flag} needs CASES, a file to plan")
        sizes = ViewSizes() if rho is None else ViewSizes.with_rho(rho)
        _plan_pool(pool or POOL, strategies, sizes, config.seed, as_json=as_json)
        return
    if pool is not None or rho is not None:
        flag = "--pool" if rho is None else "--rho"
        raise SettingError(f"{flag} is for a plan without CASES, since cases have sizes of their own")
    resolved = resolve(config, keys, offline=True, load_judges=False)
    if resolved.judges[0].is_reward:
        output_tokens = output_tokens or 0.0  # it writes nothing
        strategies = _answerable(strategies, resolved, named=strategy is not None)
    terms = Terms(
        REPLY_TOKENS if output_tokens is None else output_tokens, _price(resolved), len(resolved.judges)
    )
    rate, counted = _rate(cases, resolved)
    task = PlanSettings(
        tuple(strategies.values()),
        resolved.templates,
        config.profile,
        {name: str(view) for name, view in config.views.items()},
        config.seed,
        rate,
        _context(resolved),
    )
    source = _Source(cases, limit, resolved)
    code = _plan_file(
        source, task, terms, list(strategies), as_json=as_json, named=strategy is not None, counted=counted
    )
    raise typer.Exit(code)


def _strategies(names: str | None, config: RunConfig) -> dict[str, Strategy]:
    """The named strategies, or all; a judge profile goes to those that use one."""
    if config.settings and names is None:
        raise SettingError("--set needs --strategy, the strategy to change")
    allow_named(*(names or "").split(","))
    wanted = list(STRATEGIES.table) if names is None else [name.strip() for name in names.split(",")]
    changes = {name: setting_text(value) for name, value in config.settings.items()}
    profile = None if config.judge_profile is None else read_profile(Path(config.judge_profile))
    strategies = {}
    for name in wanted:
        uses_profile = len(wanted) == 1 or profile_fields(make_strategy(name))
        strategies[name] = make_strategy(name, changes, profile if uses_profile else None)
    return strategies


def _answerable(
    strategies: Mapping[str, Strategy], resolved: Resolved, *, named: bool
) -> dict[str, Strategy]:
    """The strategies that a reward server can answer; one that was named and compares is refused."""
    able = {name: strategy for name, strategy in strategies.items() if not resolved.unanswerable(strategy)}
    if named and len(able) < len(strategies):
        name = next(name for name in strategies if name not in able)
        raise SettingError(f"--judge reward only rates, and {name} compares: choose pointwise")
    return able


def _price(resolved: Resolved) -> Price | None:
    """The price of all judges together: stated, else listed; None if one is unknown."""
    prices = []
    for spec in resolved.judges:
        price = Price.stated(spec.config)
        if price is None and spec.where is not None and spec.where.model and spec.where.base_url:
            price = listed_price(spec.where.model, spec.where.base_url)
        if price is None:
            return None
        prices.append(price)
    return price_of_all(prices)


def _rate(cases: str, resolved: Resolved) -> tuple[float, str]:
    """Tokens per character, and where the figure comes from."""
    tokenizer, where = resolved.config.tokenizer, resolved.judges[0].where
    read = open_cases(cases, fields=resolved.config.map) if not is_stream(cases) else None
    if tokenizer is not None:
        if read is None:
            raise SettingError("tokenizer needs a file of cases, since standard input can be read only once")
        if (rate := Tokenizer(Path(tokenizer)).rate(texts_of(read))) is not None:
            return rate, f"{number(rate, 4)} tokens per character, as {tokenizer} counts"
    elif read is not None and where is not None and where.model and where.base_url:
        texts = texts_of(read)
        rate = asyncio.run(tokens_per_character(where.base_url, where.model, texts, api_key=where.api_key))
        if rate is not None:
            return rate, f"{number(rate, 4)} tokens per character, as the server counts"
    return PER_CHARACTER, "estimated, 4 characters per token"


def _context(resolved: Resolved) -> int | None:
    """Tokens of the judge's context, as stated or as its server says."""
    stated, where = resolved.config.context_tokens, resolved.judges[0].where
    if stated is not None or where is None or not where.model or not where.base_url:
        return stated
    return asyncio.run(served_context(where.base_url, where.model, where.api_key))


# Without cases


def _plan_pool(
    pool: int, strategies: Mapping[str, Strategy], sizes: ViewSizes, seed: int, *, as_json: bool
) -> None:
    """Print the figures of every strategy; where it asks in a fixed pattern, they are the closed form's."""
    entrants, baseline = distinct_entrants(pool), v1_infer_tokens([sizes.full] * pool, sizes.overhead)
    rows = []
    for name, strategy in strategies.items():
        forecast = rehearse(strategy, entrants, sizes.tokens, seed=f"{seed}/", baseline=baseline)
        rows.append({"strategy": name, **forecast.as_line()})
    efforts = _efforts(
        list(strategies.values()), lambda: [RehearsedPool("", entrants, sizes.tokens, baseline)], seed
    )
    if efforts:
        rows[0]["efforts"] = [figures._asdict() for figures in efforts]
    if as_json:
        print_json(rows)
        return
    cells = [
        (
            with_default(row["strategy"]),
            by_level(row["calls"]),
            with_range(row["calls_total"]),
            number(row["depth"]["mean"], 1),
            number(row["tokens"]["mean"], 0),
            percent(row["token_share"]),
        )
        for row in rows
    ]
    title = (
        f"One problem, {pool} distinct candidates; T1 {number(sizes.per_partial, 0)}, "
        f"T2 {number(sizes.per_full, 0)} tokens, rho {sizes.rho:.3f}"
    )
    columns = ("strategy", "E1 + E2", "calls (90 %)", "rounds", "tokens", f"% of {BASELINE}")
    stdout().print(table(title, columns, cells))
    _print_efforts(efforts)


def _efforts(
    strategies: Sequence[Strategy], pools: Callable[[], Sequence[RehearsedPool]], seed: int
) -> list[EffortFigures]:
    """The efforts of `posterior`, if it is the only strategy and there is something to choose."""
    if len(strategies) != 1 or not isinstance(strategies[0], Posterior):
        return []
    some = pools()
    return compare_efforts(strategies[0], some, seed) if some else []


def _print_efforts(efforts: Sequence[EffortFigures]) -> None:
    """Print what each effort costs and how often it is right, by the accuracy of the judge."""
    if not efforts:
        return
    names = list(dict.fromkeys(figures.effort for figures in efforts))
    cells = [
        (
            f"{percent(judge)} %",
            *(
                f"{percent(one.right)} %, {number(one.calls, 1)}, {percent(one.token_share)}"
                for one in efforts
                if one.judge == judge
            ),
        )
        for judge in dict.fromkeys(figures.judge for figures in efforts)
    ]
    title = f"SIMULATED: right, calls of a case, % of {BASELINE}'s tokens, by --set effort= and the judge"
    stdout().print(table(title, ("judge right in", *names), cells))


# With cases


class _Source:
    """The cases of a file; wrong lines are reported and counted."""

    def __init__(self, path: str, limit: int | None, resolved: Resolved) -> None:
        self._path, self._limit, self._resolved = path, limit, resolved
        self.good, self.bad = 0, 0

    @property
    def total(self) -> int | None:
        """The number of lines, if it is known."""
        counted = count_cases(self._path, self._resolved.config.map)
        return None if counted is None else min(counted, self._limit or counted)

    def __iter__(self) -> Iterator[Case]:
        lines = open_cases(self._path, fields=self._resolved.config.map, say=say)
        with FailureLog() as failures:
            for case in map(self._resolved.cases.apply, islice(lines, self._limit)):
                if isinstance(case, InputError):
                    self.bad += 1
                    failures.add(str(case))
                else:
                    self.good += 1
                    yield case


def _plan_file(
    source: _Source,
    task: PlanSettings,
    terms: Terms,
    names: Sequence[str],
    *,
    named: bool,
    as_json: bool,
    counted: str,
) -> int:
    """Print the plan of a file; return 1 if a line is wrong or a named strategy cannot run, else 0.

    `counted` says where the count of tokens comes from.
    """
    make_prepare(task.profile, task.views)  # raises if a name is wrong
    total = source.total
    processes = (os.cpu_count() or 1) if total is None or total >= WORTH_MORE_PROCESSES else 1
    first: list[Case] = []
    with Progress("cases", total) as progress:
        forecasts = plan_cases(
            _with_first_kept(source, first), task, processes=processes, report=progress.advance
        )
    rows = [_row(name, forecast, terms) for name, forecast in zip(names, forecasts, strict=True)]
    efforts = _efforts(task.strategies, lambda: pools_of(first, task), task.seed)
    if efforts:
        rows[0]["efforts"] = [figures._asdict() for figures in efforts]
    refused = 0
    for name, forecast in zip(names, forecasts, strict=True):
        if forecast.refused:
            refused += 1
            cases = plural(source.good, "case")
            say(f"{name}: cannot select in {forecast.refused} of {cases}; {forecast.why}", "dim")
    if as_json:
        print_json(rows)
    else:
        _print(rows, source.good, terms, counted)
        _print_efforts(efforts)
    return 1 if source.bad or (named and refused) else 0


def _with_first_kept(cases: Iterable[Case], first: list[Case]) -> Iterator[Case]:
    for case in cases:
        if len(first) < EFFORT_CASES:
            first.append(case)
        yield case


def _row(name: str, forecast: Forecast, terms: Terms) -> dict[str, Any]:
    """The figures of one strategy, summed over all cases."""
    tokens, calls = forecast.tokens, forecast.calls
    dollars = {
        "mean": terms.dollars(tokens.mean, calls.mean),
        "low": terms.dollars(tokens.low, calls.low, all_cached=True),
        "high": terms.dollars(tokens.high, calls.high),
    }
    return {
        "strategy": name,
        **forecast.as_line(),
        "output_tokens": round(calls.mean * terms.output),
        "usd": None if terms.price is None else dollars,
        **({} if terms.judges == 1 else {"judges_of_an_ask": terms.judges}),
    }


def _print(rows: Sequence[Mapping[str, Any]], cases: int, terms: Terms, counted: str) -> None:
    columns = ["strategy", "calls (90 %)", "rounds", "1st round", "tokens", "90 %"]
    columns += ["USD", "90 %"] if terms.price is not None else []
    columns += [f"% of {BASELINE}"]
    replies = f"tokens do not include the replies, {number(terms.output, 1)} tokens each"
    title = f"Totals of {plural(cases, 'case')}; {replies}"
    stdout().print(table(title, columns, list(map(_cells, rows))))
    remarks = (
        f"tokens: {counted}; means and 90 % ranges of rehearsals with {ASSUMED}; unreadable replies, which "
        "are asked for again, and what findings change are not included"
    )
    if terms.price is None:
        remarks += "; cost: unknown, give --price-input and --price-output, or --model and --base-url"
    if terms.judges > 1:
        remarks += f"; calls and tokens are those of one judge, and up to {terms.judges} answer each ask"
    stdout().print(remarks, style="dim")


def _cells(row: Mapping[str, Any]) -> list[str]:
    calls, tokens, usd = row["calls"], row["tokens"], row["usd"]
    low, high = row["calls_total"]["low"], row["calls_total"]["high"]
    spread = "" if low == high else f" ({low}–{high})"
    cells = [
        with_default(row["strategy"]),
        f"{number(calls['E1'], 0)} + {number(calls['E2'], 0)}{spread}",
        str(row["depth"]["most"]),
        brief(row["first_stage_tokens"]),
        brief(tokens["mean"]),
        f"{brief(tokens['low'])}–{brief(tokens['high'])}",
    ]
    if usd is not None:
        cells += [_dollars(usd["mean"]), f"{_dollars(usd['low'])}–{_dollars(usd['high'])}"]
    return [*cells, percent(row["token_share"])]


def _dollars(value: float) -> str:
    return f"{value:,.2f}" if value >= 1 else f"{value:.4f}"
