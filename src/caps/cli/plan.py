"""`caps plan`: forecast calls, tokens, cost and time before anything is spent."""

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from caps.cli import options
from caps.cli.help import PERFORMANCE, SIZES, STRATEGY
from caps.cli.options import JsonFlag, SetOption, allow_named, complete_strategies, named_domain
from caps.cli.output import FailureLog, print_json, say, stdout
from caps.cli.preflight import texts_of
from caps.cli.progress import Progress
from caps.config import Keys, RunConfig
from caps.config.judges import JudgeTable
from caps.config.sources import parse_assignments
from caps.core.errors import InputError, SettingError
from caps.core.judge_profile import JudgeProfile
from caps.core.play import Strategy, capabilities_of
from caps.core.settings import settings_of
from caps.core.text import estimate_tokens, number, percent, plural
from caps.core.types import Case
from caps.costs.closed_form import ViewSizes, v1_infer_tokens
from caps.costs.prices import Price, Terms, listed_price, measured_output, price_of_all
from caps.datasets.imports import count_cases, open_cases
from caps.files import is_stream
from caps.findings.written_tests import MAX_TOKENS, applies, request_for_tests
from caps.judging.profiles import profile_fields, read_profile
from caps.models.endpoints import served_context
from caps.models.servers import join_addresses
from caps.models.tokenizing import Tokenizer, tokens_per_character
from caps.registry import REWARD_JUDGE, STRATEGIES
from caps.reports.console import by_level, table, with_default, with_range
from caps.reports.numbers import brief
from caps.session.parts import load_templates, make_prepare, make_strategy
from caps.strategies.adaptive import Adaptive
from caps.studies.adaptive import forecast_problem
from caps.studies.planning import (
    ASSUMED,
    BASELINE,
    PER_CHARACTER,
    Forecast,
    PlanSettings,
    distinct_entrants,
    plan_cases,
    rehearse,
)

STATED_OUTPUT = 400.0
PROMPT_TOKENS = 50  # of the prompt that asks for an answer, besides the problem
POOL_ONLY = ("pool", "rho", "partial_tokens", "full_tokens", "overhead_tokens")
CASES_ONLY = (
    "judge", "profile", "view", "domain", "context_tokens", "prompts", "limit", "tokenizer",
    "tokens_per_char", "journal", "write_tests", "price_input", "price_output", "price_cached",
    "output_tokens", "tokens_per_second", "latency", "max_connections",
)  # fmt: skip

Cases = Annotated[
    str | None,
    typer.Argument(
        metavar="[CASES]", help="File of cases, one JSON object per line; - reads standard input."
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--tokens-per-char",
        min=0.001,
        metavar="X",
        rich_help_panel=SIZES,
        help="Tokens per character of CASES. Default: counted by the server, or 0.25.",
    ),
]
Output = Annotated[
    float | None,
    typer.Option(
        "--output-tokens", min=0, metavar="TOKENS", help="Mean tokens of a reply. Default: 400.",
        rich_help_panel=SIZES,
    ),
]  # fmt: skip
Journal = Annotated[
    Path | None,
    typer.Option(
        "--journal",
        metavar="FILE",
        help="Measure the mean reply on the calls in this journal.",
        rich_help_panel=SIZES,
    ),
]
WriteTests = Annotated[
    int,
    typer.Option(
        "--write-tests",
        min=0,
        max=20,
        metavar="K",
        help="Also the price of having a model write this many tests for each problem of programs.",
        rich_help_panel=SIZES,
    ),
]
Pace = Annotated[
    float | None,
    typer.Option(
        "--tokens-per-second",
        min=0.001,
        metavar="TOKENS",
        rich_help_panel=PERFORMANCE,
        help="Tokens that the server reads and writes per second.",
    ),
]
Latency = Annotated[
    float | None,
    typer.Option(
        "--latency", min=0, metavar="SECONDS", help="Seconds that a call takes, with --max-connections.",
        rich_help_panel=PERFORMANCE,
    ),
]  # fmt: skip
Connections = Annotated[
    int | None,
    typer.Option(
        "--max-connections", min=1, metavar="N", help="Number of concurrent calls.",
        rich_help_panel=PERFORMANCE,
    ),
]  # fmt: skip
Samples = Annotated[
    str | None,
    typer.Option(
        "--n", "-n", metavar="auto", rich_help_panel=SIZES,
        help="auto: plan generating and judging the problems of CASES, which have no candidates.",
    ),
]  # fmt: skip
MaxN = Annotated[int, options.setting_option("max_n")]
Target = Annotated[float, options.setting_option("target")]
SampleTokens = Annotated[
    int,
    typer.Option(
        "--sample-tokens", min=1, metavar="TOKENS", rich_help_panel=SIZES,
        help="With --n auto: tokens of one generated answer.",
    ),
]  # fmt: skip
Pool = Annotated[
    int,
    typer.Option(
        "--pool", min=1, max=4096, metavar="N", help="Distinct candidates of the problem, without CASES.",
        rich_help_panel=SIZES,
    ),
]  # fmt: skip
Rho = Annotated[
    float | None,
    typer.Option(
        "--rho", metavar="SHARE", rich_help_panel=SIZES,
        help="Size of a prompt with partial views as a share of one with full views; sets --partial-tokens.",
    ),
]  # fmt: skip
PartialTokens = Annotated[
    float,
    typer.Option(
        "--partial-tokens", min=0, metavar="TOKENS", help="Mean tokens of a partial view.",
        rich_help_panel=SIZES,
    ),
]  # fmt: skip
FullTokens = Annotated[
    float,
    typer.Option(
        "--full-tokens", min=0, metavar="TOKENS", help="Mean tokens of a full view.", rich_help_panel=SIZES
    ),
]
OverheadTokens = Annotated[
    float,
    typer.Option(
        "--overhead-tokens", min=0, metavar="TOKENS", help="Tokens of a prompt without candidates.",
        rich_help_panel=SIZES,
    ),
]  # fmt: skip
Strategies = Annotated[
    str | None,
    typer.Option(
        "--strategy", metavar="NAMES", help="Strategies, separated by commas. Default: all.",
        rich_help_panel=STRATEGY, autocompletion=complete_strategies,
    ),
]  # fmt: skip
Finalists = Annotated[
    int | None,
    typer.Option(
        "--finalists", metavar="N", help="Number of finalists, for the strategies that have them.",
        rich_help_panel=STRATEGY,
    ),
]  # fmt: skip


def plan(
    ctx: typer.Context,
    cases: Cases = None,
    pool: Pool = 16,
    finalists: Finalists = None,
    rho: Rho = None,
    partial_tokens: PartialTokens = 250,
    full_tokens: FullTokens = 4000,
    overhead_tokens: OverheadTokens = 500,
    strategy: Strategies = None,
    set_: SetOption = None,
    judge_profile: options.JudgeProfileFile = None,
    judge: options.Judges = None,
    profile: options.Profile = None,
    view: options.View = None,
    domain: options.Domain = None,
    context_tokens: options.ContextTokens = None,
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
    fields: options.Fields = "",
    output_tokens: Output = None,
    journal: Journal = None,
    write_tests: WriteTests = 0,
    tokens_per_second: Pace = None,
    latency: Latency = None,
    max_connections: Connections = None,
    samples: Samples = None,
    max_n: MaxN = 32,
    target: Target = 0.95,
    sample_tokens: SampleTokens = 500,
    config_file: options.JUDGES_FILE = None,
    as_json: JsonFlag = False,
) -> None:
    """Forecast calls, tokens, cost and time of every strategy.

    With CASES, the prompts are rendered as in a run with this seed. The first round is exact, except that
    tokens are estimated from characters unless they can be counted: by --tokenizer, or by the server (--model
    and --base-url). Later rounds depend on the verdicts: every strategy plays every case against a simulated
    judge of average accuracy, or of --judge-profile, and the mean and the 90 % range are printed. Without
    CASES, one problem is planned whose candidates all differ, which is the most expensive case. With several
    judges (--judge, or [[judge]] tables of --config) calls are those of one, and the cost is that of all.
    With --n auto, CASES are problems without candidates, and generating and judging them together is planned
    by simulation.
    """
    if samples is not None:
        _refuse_unless_problems(cases, samples)
        price = _price(price_input, price_output, price_cached, model, join_addresses(base_url))
        policy = Adaptive(target=target, most=max_n)
        reply = STATED_OUTPUT if output_tokens is None else output_tokens
        asked = islice(open_cases(cases or "", fields=fields, bare=True, say=say), limit)
        raise typer.Exit(plan_adaptive(asked, policy, sample_tokens, reply, price, as_json=as_json))
    allow_named(*(strategy or "").split(","))
    strategies = _configured(
        strategy, finalists, set_ or [], None if judge_profile is None else read_profile(judge_profile)
    )
    if cases is None:
        _refuse(ctx, CASES_ONLY, "needs CASES, a file to plan")
    if cases is not None:
        _refuse(ctx, POOL_ONLY, "is for a plan without CASES, since cases have sizes of their own")
    templates = load_templates(prompts)
    if judge == [REWARD_JUDGE]:
        templates, output_tokens = {}, output_tokens or 0.0  # it gets no prompt and writes nothing
        strategies = _only_rating(strategies, named=strategy is not None)
    terms = Terms(
        _mean_output(output_tokens, journal, model, templates),
        _price(price_input, price_output, price_cached, model, join_addresses(base_url)),
        tokens_per_second,
        latency,
        max_connections,
    )
    judges = options.judge_tables(ctx, judge)
    if len(judges) > 1:
        terms = _with_judges(terms, judges, join_addresses(base_url))
    if cases is None:
        sizes = ViewSizes(partial_tokens, full_tokens, overhead_tokens)
        if rho is not None:
            sizes = ViewSizes.with_rho(rho, full=full_tokens, overhead=overhead_tokens)
        _plan_pool(pool, strategies, sizes, seed, as_json=as_json)
        return
    views = parse_assignments(view or [], option="--view")
    rate, source = _rate(tokens_per_char, cases, fields, tokenizer, model, join_addresses(base_url), api_key)
    context = _context(context_tokens, model, join_addresses(base_url), api_key)
    task = PlanSettings(
        tuple(strategies.values()), templates, profile, views, seed, rate, context, named_domain(domain)
    )
    planned = _Source(cases, limit, fields, write_tests)
    raise typer.Exit(plan_file(planned, task, terms, names=list(strategies), as_json=as_json,
                               named=strategy is not None, counted=source, tests=write_tests))  # fmt: skip


def _with_judges(terms: Terms, judges: Sequence[JudgeTable], base_url: str) -> Terms:
    """The terms of several judges: the prices of all of them."""
    prices = [
        _price(table.settings.get("price_input"), table.settings.get("price_output"),
               table.settings.get("price_cached"), table.model,
               join_addresses(table.base_url) or base_url) or terms.price
        for table in judges
    ]  # fmt: skip
    known = [price for price in prices if price is not None]
    price = price_of_all(known) if len(known) == len(prices) else None
    return replace(terms, price=price, judges=len(judges))


def _only_rating(strategies: dict[str, Strategy], *, named: bool) -> dict[str, Strategy]:
    """The strategies that a reward server can answer; one that was named and compares is refused."""
    found = {
        name: one
        for name, one in strategies.items()
        if not capabilities_of(one).asks_judge or set(capabilities_of(one).asks) <= {"rating"}
    }
    if named and len(found) < len(strategies):
        name = next(name for name in strategies if name not in found)
        raise SettingError(f"--judge reward only rates, and {name} compares: choose pointwise")
    return found


def _refuse_unless_problems(cases: str | None, samples: str) -> None:
    if samples != "auto":
        raise SettingError(
            f"--n {samples}: only auto can be planned; for a fixed number give --pool {samples}"
        )
    if cases is None:
        raise SettingError("--n auto needs a file of problems: caps plan problems.jsonl --n auto")


def plan_adaptive(
    cases: Iterable[Case | InputError],
    policy: Adaptive,
    sample_tokens: int,
    reply_tokens: float,
    price: Price | None,
    *,
    as_json: bool,
) -> int:
    """Print what --n auto is expected to take for a file of problems; return 1 if a line is wrong, else 0."""
    sizes, failures = list[int](), FailureLog()
    with failures:
        for case in cases:
            if isinstance(case, InputError):
                failures.add(str(case))
            else:
                sizes.append(estimate_tokens(case.problem.text) + PROMPT_TOKENS)
    if not sizes:
        raise InputError("no problem in the file can be planned")
    one = forecast_problem(
        policy, round(fmean(sizes)), most=policy.most, sample_tokens=sample_tokens,
        reply_tokens=reply_tokens, price=price,
    )  # fmt: skip
    names = ("samples", "prompt", "output", "verdicts", "usd")
    total = {
        name: None if (found := getattr(one, name)) is None else found.times(len(sizes)) for name in names
    }
    if as_json:
        print_json(
            {
                "problems": len(sizes),
                "simulated": True,
                **{name: None if found is None else asdict(found) for name, found in total.items()},
            }
        )
        return 1 if failures.count else 0
    labels = {
        "samples": "samples", "prompt": "tokens read", "output": "tokens written", "verdicts": "verdicts",
        "usd": "US dollars",
    }  # fmt: skip
    rows = [
        [labels[name], *(_shown(value, name) for value in (found.mean, found.low, found.high))]
        for name, found in total.items()
        if found is not None
    ]
    stdout().print(
        table(
            f"{plural(len(sizes), 'problem')} with --n auto, simulated: samples of {sample_tokens} tokens",
            ["", "mean", "all as easy as one in twenty", "all as hard as one in twenty"],
            rows,
        )
    )
    return 1 if failures.count else 0


def _shown(value: float, name: str) -> str:
    return f"{value:.4f}" if name == "usd" else number(value, 0)


def _rate(
    stated: float | None,
    cases: str,
    fields: str,
    tokenizer: Path | None,
    model: str | None,
    base_url: str,
    api_key: str | None,
) -> tuple[float, str]:
    """Tokens per character, and where the figure comes from."""
    if stated is not None:
        return stated, f"{number(stated, 4)} tokens per character, as given"
    if tokenizer is not None:
        if is_stream(cases):
            raise SettingError(
                "--tokenizer needs a file of cases, since standard input can be read only once"
            )
        if (rate := Tokenizer(tokenizer).rate(texts_of(open_cases(cases, fields=fields)))) is not None:
            return rate, f"{number(rate, 4)} tokens per character, as {tokenizer} counts"
    if model and base_url and not is_stream(cases):
        key = Keys.find(RunConfig(), api_key=api_key).api_key
        texts = texts_of(open_cases(cases, fields=fields))
        measured = asyncio.run(tokens_per_character(base_url, model, texts, api_key=key))
        if measured is not None:
            return measured, f"{number(measured, 4)} tokens per character, as the server counts"
    return PER_CHARACTER, "estimated, 4 characters per token"


def _context(stated: int | None, model: str | None, base_url: str, api_key: str | None) -> int | None:
    """Tokens of the judge's context, as stated or as its server says."""
    if stated is not None or not model or not base_url:
        return stated
    key = Keys.find(RunConfig(), api_key=api_key).api_key
    return asyncio.run(served_context(base_url, model, key))


def _plan_pool(
    pool: int, strategies: dict[str, Strategy], sizes: ViewSizes, seed: int, *, as_json: bool
) -> None:
    rows = pool_rows(pool, strategies, sizes, seed)
    if as_json:
        print_json(rows)
        return
    print_pool(pool, rows, sizes)


def _refuse(ctx: typer.Context, names: Sequence[str], why: str) -> None:
    """Refuse options that would have no effect."""
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
    """The given price, else the listed one, else none."""
    if read is None and written is None and reread is None:
        return listed_price(model, base_url) if model and base_url else None
    if read is None or written is None:
        raise SettingError("a price needs both --price-input and --price-output")
    return Price(read, written, reread)


def _configured(
    names: str | None, finalists: int | None, changes: list[str], judge: JudgeProfile | None
) -> dict[str, Strategy]:
    """The named strategies; `finalists` and the judge profile go to those that use them."""
    wanted = list(STRATEGIES.table) if names is None else [name.strip() for name in names.split(",")]
    assigned = parse_assignments(changes)
    if assigned and names is None:
        raise SettingError("--set needs --strategy, the strategy to change")
    made = {}
    for name in wanted:
        known = judge if len(wanted) == 1 or profile_fields(make_strategy(name)) else None
        strategy = make_strategy(name, assigned, known)
        if finalists is not None and "finalists" in settings_of(strategy):
            strategy = make_strategy(name, {**assigned, "finalists": str(finalists)}, known)
        made[name] = strategy
    return made


def pool_rows(
    pool: int, strategies: dict[str, Strategy], sizes: ViewSizes, seed: int
) -> list[dict[str, Any]]:
    """The figures of every strategy; where it asks in a fixed pattern, they are those of the closed form."""
    entrants, baseline = distinct_entrants(pool), v1_infer_tokens([sizes.full] * pool, sizes.overhead)
    rows = []
    for name, strategy in strategies.items():
        forecast = rehearse(strategy, entrants, sizes.tokens, seed=f"{seed}/", baseline=baseline)
        rows.append({"strategy": name, **forecast.as_line()})
    return rows


def print_pool(pool: int, rows: list[dict[str, Any]], sizes: ViewSizes) -> None:
    """Print one row per strategy."""
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


WORTH_MORE_PROCESSES = 60


def plan_file(
    source: "_Source",
    task: PlanSettings,
    terms: Terms,
    *,
    names: list[str],
    named: bool,
    as_json: bool,
    counted: str,
    tests: int = 0,
) -> int:
    """Print the plan of a file; return 1 if a line is wrong or a named strategy cannot run, else 0.

    `counted` says where the count of tokens comes from; `tests` are to be written for each problem.
    """
    make_prepare(task.profile, task.views)  # raises if a name is wrong
    totals = _counted(source, task)
    rows = [row(name, total, terms) for name, total in zip(names, totals, strict=True)]
    written = _written(source, terms, task.per_character) if tests else None
    if written is not None:
        rows = [{**one, "write_tests": written} for one in rows]
    refused = [(name, total) for name, total in zip(names, totals, strict=True) if total.refused]
    for name, total in refused:
        say(f"{name}: cannot select in {total.refused} of {plural(source.good, 'case')}; {total.why}", "dim")
    if as_json:
        print_json(rows)
    else:
        _print(rows, source.good, terms, counted)
        if written is not None:
            cost = "" if written["usd_most"] is None else f", at most ${_dollars(written['usd_most'])}"
            stdout().print(
                f"writing {plural(tests, 'test')} for each problem of programs, not included above: "
                f"{plural(written['calls'], 'call')}, {number(written['tokens'], 0)} tokens read, at most "
                f"{number(written['output_tokens_most'], 0)} written{cost}"
            )
    return 1 if source.bad or (named and refused) else 0


def row(name: str, total: Forecast, terms: Terms) -> dict[str, Any]:
    """The figures of one strategy, summed over all cases."""
    tokens, calls = total.tokens, total.calls
    dollars = {
        "mean": terms.dollars(tokens.mean, calls.mean),
        "low": terms.dollars(tokens.low, calls.low, all_cached=True),
        "high": terms.dollars(tokens.high, calls.high),
    }
    return {
        "strategy": name,
        **total.as_line(),
        "output_tokens": round(calls.mean * terms.output),
        "usd": None if terms.price is None else dollars,
        "seconds": terms.seconds(tokens.mean, calls.mean, total.depth),
        **({} if terms.judges == 1 else {"judges_of_an_ask": terms.judges}),
    }


def _written(source: "_Source", terms: Terms, per_character: float) -> dict[str, Any]:
    """The price of having tests written for all cases of programs."""
    tokens, most = round(source.test_characters * per_character), source.test_calls * MAX_TOKENS
    dollars = None if terms.price is None else terms.price.of(tokens, most)
    return {"calls": source.test_calls, "tokens": tokens, "output_tokens_most": most, "usd_most": dollars}


class _Source:
    """The cases of a file; wrong lines are reported and counted, and requests for tests, if any."""

    def __init__(self, path: str, limit: int | None, fields: str, tests: int = 0) -> None:
        self._path, self._limit, self._fields, self._tests = path, limit, fields, tests
        self._templates = load_templates(shelf="generation") if tests else {}
        self.good, self.bad = 0, 0
        self.test_calls, self.test_characters = 0, 0

    @property
    def total(self) -> int | None:
        """The number of lines, if it is known."""
        counted = count_cases(self._path, self._fields)
        return None if counted is None else min(counted, self._limit or 2**62)

    def __iter__(self) -> Iterator[Case]:
        with FailureLog() as failures:
            for case in islice(open_cases(self._path, fields=self._fields, say=say), self._limit):
                if isinstance(case, InputError):
                    self.bad += 1
                    failures.add(str(case))
                else:
                    self.good += 1
                    if self._tests and applies(case):
                        request = request_for_tests(case, self._templates, "", self._tests, {})
                        self.test_calls += 1
                        self.test_characters += sum(len(one.content) for one in request.messages)
                    yield case


def _counted(source: _Source, task: PlanSettings) -> list[Forecast]:
    """Forecast all cases, in several processes if that is worth starting them."""
    total = source.total
    processes = (os.cpu_count() or 1) if total is None or total >= WORTH_MORE_PROCESSES else 1
    with Progress("cases", total) as progress:
        return plan_cases(source, task, processes=processes, report=progress.advance)


def _print(rows: Sequence[dict[str, Any]], cases: int, terms: Terms, counted: str) -> None:
    columns = ["strategy", "calls (90 %)", "rounds", "1st round", "tokens", "90 %"]
    columns += ["USD", "90 %"] if terms.price is not None else []
    timed = any(one["seconds"] is not None for one in rows)
    columns += [*(["time"] if timed else []), f"% of {BASELINE}"]
    replies = f"tokens do not include the replies, {number(terms.output, 1)} tokens each"
    title = f"Totals of {plural(cases, 'case')}; {replies}"
    stdout().print(table(title, columns, [_cells(one, timed=timed) for one in rows]))
    money = (
        ""
        if terms.price is not None
        else "; cost: unknown, give --price-input and --price-output, or --model and --base-url"
    )
    remarks = (
        f"tokens: {counted}; means and 90 % ranges of rehearsals with {ASSUMED}; unreadable "
        f"replies, which are asked for again, and what findings change are not included{money}"
    )
    if terms.judges > 1:
        remarks += f"; calls and tokens are those of one judge, and up to {terms.judges} answer each ask"
    stdout().print(remarks, style="dim")


def _cells(one: dict[str, Any], *, timed: bool) -> list[str]:
    calls, tokens, usd, depth = one["calls"], one["tokens"], one["usd"], one["depth"]
    low, high = one["calls_total"]["low"], one["calls_total"]["high"]
    spread = "" if low == high else f" ({low}–{high})"
    cells = [
        with_default(one["strategy"]),
        f"{number(calls['E1'], 0)} + {number(calls['E2'], 0)}{spread}",
        str(depth["most"]),
        brief(one["first_stage_tokens"]),
        brief(tokens["mean"]),
        f"{brief(tokens['low'])}–{brief(tokens['high'])}",
    ]
    if usd is not None:
        cells += [_dollars(usd["mean"]), f"{_dollars(usd['low'])}–{_dollars(usd['high'])}"]
    return [*cells, *([_duration(one["seconds"])] if timed else []), percent(one["token_share"])]


def _dollars(value: float) -> str:
    return f"{value:,.2f}" if value >= 1 else f"{value:.4f}"


def _duration(seconds: float) -> str:
    """A time span for a narrow column: 4.5s, 3m20s, 2h05m."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{seconds:.1f}s"
