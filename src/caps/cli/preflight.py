"""What a command does before it asks anything: build the runner, check the cases and the price."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice

import typer

from caps.cli.output import FailureLog, stdout, warning_printer
from caps.cli.progress import fetch_bar
from caps.config import Keys, RunConfig
from caps.core.contest import Contest
from caps.core.errors import InputError, SettingError
from caps.core.play import Strategy
from caps.core.text import CHARACTERS_PER_TOKEN, number
from caps.core.types import Case, shown_size
from caps.files import is_stream
from caps.reports.console import table
from caps.runner import Runner

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
    read: Callable[[], Iterator[Case | InputError]], limit: int | None
) -> Iterator[Case | InputError]:
    """The cases; an unreadable file is reported before anything is opened or asked."""
    source = read()
    first = list(islice(source, 1))
    return islice(chain(first, source), limit)


def refuse_if_too_expensive(
    cases: str,
    read: Callable[[], Iterable[Case | InputError]],
    runner: Runner,
    most: float,
    *,
    probes: Callable[[int, Case], tuple[Strategy, ...]] | None = None,
) -> None:
    """Refuse to start if the least that can be asked costs more, at the price of input tokens."""
    from caps.studies.planning import forecast_case  # noqa: PLC0415  (only for --max-usd)

    price = runner.price
    if price is None:
        raise SettingError("--max-usd needs a price: give --price-input and --price-output")
    if is_stream(cases):
        raise SettingError(
            "--max-usd needs a file of cases, since standard input and pipes can be read only once"
        )
    prepare = runner.preparation(findings=False)
    tokens, seed, rate = 0, runner.config.seed, 1 / CHARACTERS_PER_TOKEN
    if runner.tokenizer is not None:
        rate = runner.tokenizer.rate(texts_of(read())) or rate
    for place, case in enumerate(map(runner.apply_to_case, read())):
        if isinstance(case, InputError):
            continue
        asking = [runner.strategy, *(probes(place, case) if probes is not None else ())]
        prepared = prepare(case)
        tokens += max(
            forecast_case(prepared, one, runner.templates, seed=seed, per_character=rate).least
            for one in asking
        )
    dollars = price.of(tokens, 0)
    if dollars > most:
        raise SettingError(
            f"--max-usd {most:g}: the run would read at least {number(tokens, 0)} tokens, which cost "
            f"${dollars:.4f} without replies: choose a cheaper strategy (caps plan), or raise the limit"
        )


def texts_of(cases: Iterable[Case | InputError]) -> Iterator[str]:
    """The problem and one candidate of each case, to measure how many characters a token has."""
    for case in cases:
        if isinstance(case, Case):
            yield from (case.problem.text, *(one.text for one in case.candidates[:1]))


def print_first_round(source: Iterable[Case | InputError], runner: Runner) -> None:
    """Print what the first round of each case would ask."""
    rows, failures = [], FailureLog()
    prepare = runner.preparation(findings=False)
    for case in source:
        if isinstance(case, InputError):
            failures.add(str(case))
            continue
        prepared = prepare(case)
        contest = Contest(runner.strategy, prepared.evidence.entrants, seed=f"{runner.config.seed}/{case.id}")
        asks = () if contest.pending is None else contest.pending.asks
        tokens = sum(prepared.statement + shown_size(prepared.evidence.entrants, ask) for ask in asks)
        clusters = len({e.signature or e.id for e in prepared.evidence.entrants})
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
    failures.close()
    raise typer.Exit(1 if failures.count else 0)
