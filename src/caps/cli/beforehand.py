"""What a run looks at before it asks anything: its cases, what it would ask, what that costs at least."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

import typer

from caps.building import make_prepare
from caps.cli.calibrating import Calibrating
from caps.cli.output import say, stdout
from caps.core.contest import Contest
from caps.core.errors import InputError, SettingError
from caps.core.text import number
from caps.core.types import Case
from caps.costs.forecast import PER_CHARACTER
from caps.files import is_stream
from caps.reports.console import table
from caps.runner import Runner
from caps.studies.planning import forecast_case


def opened(read: Callable[[], Iterator[Case | InputError]], limit: int | None) -> Iterator[Case | InputError]:
    """The cases; a file that cannot be read at all is found before anything is opened or asked."""
    source = read()
    first = list(islice(source, 1))
    return islice(chain(first, source), limit)


def refuse_if_too_expensive(
    cases: str,
    read: Callable[[], Iterable[Case | InputError]],
    runner: Runner,
    most: float,
    *,
    first: Calibrating | None = None,
) -> None:
    """Refuse to start what would surely cost more: the least that can be asked, at the input price."""
    price = runner.price
    if price is None:
        raise SettingError("--max-usd needs a price: give --price-input and --price-output")
    if is_stream(cases):
        raise SettingError("--max-usd needs a file of cases: standard input and pipes can be read only once")
    prepare = make_prepare(runner.config.profile, {name: str(x) for name, x in runner.config.views.items()})
    tokens, seed, rate = 0, runner.config.seed, PER_CHARACTER
    if runner.tokenizer is not None:
        rate = runner.tokenizer.rate(texts_of(read())) or rate
    for place, case in enumerate(read()):
        if isinstance(case, InputError):
            continue
        asking = [runner.strategy, *(first.asking(place, case) if first is not None else ())]
        prepared = prepare(case)
        tokens += max(
            forecast_case(prepared, one, runner.templates, seed=seed, per_character=rate).least
            for one in asking
        )
    dollars = price.of(tokens, 0)
    if dollars > most:
        raise SettingError(
            f"--max-usd {most:g}: at least {number(tokens, 0)} tokens would be read, ${dollars:.4f} before "
            "any reply: see caps plan for something cheaper, or raise the limit"
        )


def texts_of(cases: Iterable[Case | InputError]) -> Iterator[str]:
    """Of each case the problem and one candidate, to measure how long a token is."""
    for case in cases:
        if isinstance(case, Case):
            yield from (case.problem.text, *(one.text for one in case.candidates[:1]))


def rehearse(source: Iterable[Case | InputError], runner: Runner) -> None:
    """Show what the first round of each case would ask, without asking."""
    rows, failed = [], 0
    prepare = make_prepare(runner.config.profile, {name: str(x) for name, x in runner.config.views.items()})
    for case in source:
        if isinstance(case, InputError):
            say(f"failed: {case}", "red")
            failed += 1
            continue
        prepared = prepare(case)
        contest = Contest(runner.strategy, prepared.evidence.entrants, seed=f"{runner.config.seed}/{case.id}")
        asks = () if contest.pending is None else contest.pending.asks
        sizes = {entrant.id: entrant.sizes for entrant in prepared.evidence.entrants}
        tokens = sum(prepared.statement + sum(sizes[one][ask.level] for one in ask.entrants) for ask in asks)
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
    raise typer.Exit(1 if failed else 0)
