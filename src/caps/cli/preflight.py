"""What a command does before it asks anything: resolve the config, check the cases and the price."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

import typer

from caps.cli.output import FailureLog, say, stdout, warning_printer
from caps.cli.progress import fetch_bar
from caps.config import Keys, RunConfig
from caps.core.contest import Contest
from caps.core.errors import InputError, SettingError
from caps.core.play import Strategy, capabilities_of
from caps.core.text import CHARACTERS_PER_TOKEN, number
from caps.core.types import Case, Entrant
from caps.datasets.imports import count_cases, open_cases
from caps.files import is_stream
from caps.judging.profiles import profile_fields
from caps.models.endpoints import Callbacks
from caps.reports.console import table, with_range
from caps.runs.shards import Shard
from caps.session.resolve import Objects, Resolved, resolve
from caps.session.session import read_tokenizer
from caps.strategies.dedup import clusters

if TYPE_CHECKING:
    from caps.studies.planning import Forecast

LOOKED_AT = 20  # first cases of a run, to see whether answers repeat
LARGE_RUN = 1000  # cases, which cost a multiple of what measuring the judge does
GRACE_SECONDS = 3.0  # for replies under way at Ctrl-C, which are paid for and therefore stored


@contextmanager
def resolved_for(
    config: RunConfig,
    keys: Keys,
    *,
    strategy: Strategy | None = None,
    generating: bool = False,
    quiet: bool,
    started: float | None = None,
) -> Iterator[Resolved]:
    """The resolved config of a command; missing weights of the model are downloaded first.

    `started` is when a run that goes on began.
    """
    with fetch_bar(hidden=quiet) as report:
        callbacks = Callbacks(warning_printer(quiet=quiet), report)
        resolved = resolve(
            config,
            keys,
            objects=Objects(strategy=strategy),
            generating=generating,
            callbacks=callbacks,
            grace=GRACE_SECONDS,
            started=started,
        )
    yield resolved


def checked_source(
    read: Callable[[], Iterator[Case | InputError]], limit: int | None, shard: Shard | None = None
) -> Iterator[Case | InputError]:
    """The cases; an unreadable file is reported before anything is opened or asked."""
    source = read()
    first = list(islice(source, 1))
    cases = islice(chain(first, source), limit)
    return cases if shard is None else shard.take(cases)


def counted_source(
    cases: str, fields: str, limit: int | None, shard: Shard | None = None
) -> tuple[Iterator[Case | InputError], int | None]:
    """The cases of files, and their number if it is known; see `checked_source`."""
    source = checked_source(partial(open_cases, cases, fields=fields, say=say), limit, shard)
    counted = count_cases(cases, fields)
    total = limit if counted is None else min(counted, limit or counted)
    return source, total if total is None or shard is None else shard.size(total)


def warned_about_votes(
    source: Iterator[Case | InputError], resolved: Resolved, *, quiet: bool
) -> Iterator[Case | InputError]:
    """The cases of a file; says once if most of the first ones repeat answers that are not counted.

    Long texts are left out: they are read in worker processes, which can be stopped, once the run has begun.
    """
    able, name = capabilities_of(resolved.strategy), resolved.config.strategy
    if quiet or able.weighs_votes or not able.asks_judge:
        return source
    first = list(islice(source, LOOKED_AT))
    prepare = resolved.preparation(findings=False)
    readable = [case for case in map(resolved.cases.apply, first) if isinstance(case, Case)]
    cases = [case for case in readable if not prepare.is_long(case)]
    repeating = sum(_repeats(prepare(case).evidence.entrants) for case in cases)
    if 2 * repeating > len(cases):
        say(
            f"{name} does not count votes, and in {repeating} of the first {len(cases)} cases most "
            "candidates repeat an answer: a majority vote, which is free, may be right more often. Compare: "
            f"caps simulate --kind math --strategies majority,posterior,{name}",
            "yellow",
        )
    return chain(first, source)


def recommend_diagnosis(cases: str, total: int | None, resolved: Resolved, *, quiet: bool) -> None:
    """Say before a large run that nobody measured the judge, if the strategy would use its profile."""
    config = resolved.config
    is_measured = config.judge_profile is not None or config.calibrate is not None
    if quiet or is_measured or not resolved.asks_model or not profile_fields(resolved.strategy):
        return
    if total is not None and total >= LARGE_RUN:
        say(
            f"{number(total, 0)} cases, and the judge was not measured: at most 800 calls do so, and improve "
            f"the choices with a weak judge: caps diagnose {cases} --save judge.json with the options of the "
            "judge, then add --judge-profile judge.json here",
            "yellow",
        )


def _repeats(entrants: Sequence[Entrant]) -> bool:
    """Whether most candidates give an answer, compared by value, that others give too."""
    sizes = [len(group) for group in clusters(entrants) if group[0].answer == "value"]
    return 2 * sum(size for size in sizes if size > 1) > len(entrants)


def refuse_if_too_expensive(
    cases: str,
    read: Callable[[], Iterable[Case | InputError]],
    resolved: Resolved,
    most: float,
    *,
    probes: Callable[[int, Case], tuple[Strategy, ...]] | None = None,
) -> None:
    """Refuse to start if the low end of the forecast costs more, at the price of input tokens."""
    from caps.studies.planning import Forecast, forecast_case  # noqa: PLC0415  (only for --max-usd)

    price = resolved.price
    if price is None:
        raise SettingError("--max-usd needs a price: give --price-input and --price-output")
    if is_stream(cases):
        raise SettingError(
            "--max-usd needs a file of cases, since standard input and pipes can be read only once"
        )
    prepare = resolved.preparation(findings=False)
    total, seed, rate = Forecast(), resolved.config.seed, _rate(resolved, read())
    for place, case in enumerate(map(resolved.cases.apply, read())):
        if isinstance(case, InputError):
            continue
        asking = [resolved.strategy, *(probes(place, case) if probes is not None else ())]
        prepared = prepare(case)
        forecasts = [
            forecast_case(prepared, strategy, resolved.templates, seed=seed, per_character=rate)
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


def _rate(resolved: Resolved, cases: Iterable[Case | InputError]) -> float:
    """Tokens per character: counted by the tokenizer of the run, or estimated."""
    tokenizer = read_tokenizer(resolved.config)
    measured = None if tokenizer is None else tokenizer.rate(texts_of(cases))
    return measured or 1 / CHARACTERS_PER_TOKEN


def texts_of(cases: Iterable[Case | InputError]) -> Iterator[str]:
    """The problem and one candidate of each case, to measure how many characters a token has."""
    for case in cases:
        if isinstance(case, Case):
            yield from (case.problem.text, *(one.text for one in case.candidates[:1]))


def print_forecast(source: Iterable[Case | InputError], resolved: Resolved) -> None:
    """Print what the first round of each case would ask, and what all its rounds are expected to ask."""
    from caps.studies.planning import ASSUMED, Forecast, forecast_case  # noqa: PLC0415  (only for --dry-run)

    rows, failures, total = [], FailureLog(), Forecast()
    prepare = resolved.preparation(findings=False)
    for case in map(resolved.cases.apply, source):
        if isinstance(case, InputError):
            failures.add(str(case))
            continue
        prepared = prepare(case)
        contest = Contest(
            resolved.strategy, prepared.evidence.entrants, seed=f"{resolved.config.seed}/{case.id}"
        )
        asks = () if contest.pending is None else contest.pending.asks
        forecast = forecast_case(
            prepared,
            resolved.strategy,
            resolved.templates,
            seed=resolved.config.seed,
            per_character=_rate(resolved, [case]),
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
