"""What a command does before it asks anything: build the runner, check the cases and the price."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING

import typer

from caps.cli.output import FailureLog, stdout, warning_printer
from caps.cli.progress import fetch_bar
from caps.config import Keys, RunConfig
from caps.core.contest import Contest
from caps.core.errors import InputError, SettingError
from caps.core.play import Strategy
from caps.core.text import CHARACTERS_PER_TOKEN, number
from caps.core.types import Case
from caps.files import is_stream
from caps.reports.console import table, with_range
from caps.runner import Runner
from caps.runs.shards import Shard
from caps.strategies.dedup import clusters

if TYPE_CHECKING:
    from caps.studies.planning import Forecast

GRACE_SECONDS = 3.0  # for replies under way at Ctrl-C, which are paid for and therefore stored


@contextmanager
def runner_for(
    config: RunConfig,
    keys: Keys,
    *,
    strategy: Strategy | None = None,
    generating: bool = False,
    quiet: bool,
    started: float | None = None,
) -> Iterator[Runner]:
    """The runner of a command; missing weights of the model are downloaded first.

    `started` is when a run that goes on began.
    """
    with fetch_bar(hidden=quiet) as report:
        runner = Runner(
            config,
            keys=keys,
            strategy=strategy,
            generating=generating,
            warn=warning_printer(quiet=quiet),
            fetching=report,
            grace=GRACE_SECONDS,
            started=started,
        )
        if generating or runner.asks_model:
            _ = runner.endpoints  # downloads weights, and raises if something is missing
    yield runner


def checked_source(
    read: Callable[[], Iterator[Case | InputError]], limit: int | None, shard: Shard | None = None
) -> Iterator[Case | InputError]:
    """The cases; an unreadable file is reported before anything is opened or asked."""
    source = read()
    first = list(islice(source, 1))
    cases = islice(chain(first, source), limit)
    return cases if shard is None else shard.take(cases)


def refuse_if_too_expensive(
    cases: str,
    read: Callable[[], Iterable[Case | InputError]],
    runner: Runner,
    most: float,
    *,
    probes: Callable[[int, Case], tuple[Strategy, ...]] | None = None,
) -> None:
    """Refuse to start if the low end of the forecast costs more, at the price of input tokens."""
    from caps.studies.planning import Forecast, forecast_case  # noqa: PLC0415  (only for --max-usd)

    price = runner.price
    if price is None:
        raise SettingError("--max-usd needs a price: give --price-input and --price-output")
    if is_stream(cases):
        raise SettingError(
            "--max-usd needs a file of cases, since standard input and pipes can be read only once"
        )
    prepare = runner.preparation(findings=False)
    total, seed, rate = Forecast(), runner.config.seed, _rate(runner, read())
    for place, case in enumerate(map(runner.apply_to_case, read())):
        if isinstance(case, InputError):
            continue
        asking = [runner.strategy, *(probes(place, case) if probes is not None else ())]
        prepared = prepare(case)
        forecasts = [
            forecast_case(prepared, strategy, runner.templates, seed=seed, per_character=rate)
            for strategy in asking
        ]
        total += max(forecasts, key=lambda forecast: forecast.mean)
    tokens = round(total.tokens.low)
    dollars = price.of(tokens, 0)
    if dollars > most:
        raise SettingError(
            f"--max-usd {most:g}: the run would read {number(tokens, 0)} tokens or more, which cost "
            f"${dollars:.4f} without replies: choose a cheaper strategy (caps plan), or raise the limit"
        )


def _rate(runner: Runner, cases: Iterable[Case | InputError]) -> float:
    """Tokens per character: counted by the tokenizer of the run, or estimated."""
    measured = None if runner.tokenizer is None else runner.tokenizer.rate(texts_of(cases))
    return measured or 1 / CHARACTERS_PER_TOKEN


def texts_of(cases: Iterable[Case | InputError]) -> Iterator[str]:
    """The problem and one candidate of each case, to measure how many characters a token has."""
    for case in cases:
        if isinstance(case, Case):
            yield from (case.problem.text, *(one.text for one in case.candidates[:1]))


def print_forecast(source: Iterable[Case | InputError], runner: Runner) -> None:
    """Print what the first round of each case would ask, and what all its rounds are expected to ask."""
    from caps.studies.planning import ASSUMED, Forecast, forecast_case  # noqa: PLC0415  (only for --dry-run)

    rows, failures, total = [], FailureLog(), Forecast()
    prepare = runner.preparation(findings=False)
    for case in map(runner.apply_to_case, source):
        if isinstance(case, InputError):
            failures.add(str(case))
            continue
        prepared = prepare(case)
        contest = Contest(runner.strategy, prepared.evidence.entrants, seed=f"{runner.config.seed}/{case.id}")
        asks = () if contest.pending is None else contest.pending.asks
        forecast = forecast_case(
            prepared,
            runner.strategy,
            runner.templates,
            seed=runner.config.seed,
            per_character=_rate(runner, [case]),
        )
        total += forecast
        answers = str(len(clusters(prepared.evidence.entrants)))
        rows.append(
            (case.id, case.domain, str(len(case.candidates)), answers, str(len(asks)), *_expected(forecast))
        )
    columns = ("case", "domain", "candidates", "clusters", "first calls", "calls (90 %)", "tokens (90 %)")
    stdout().print(table("", columns, rows, numbers_from=2))
    if total.cases:
        calls, tokens = _expected(total)
        words = f"all together: {calls} calls, {tokens} tokens"
        stdout().print(f"{words}; means and 90 % ranges of rehearsals with {ASSUMED}", style="dim")
    failures.close()
    raise typer.Exit(1 if failures.count else 0)


def _expected(forecast: "Forecast") -> tuple[str, str]:
    line = forecast.as_line()
    return with_range(line["calls_total"]), with_range(line["tokens"])
