"""The part of `caps plan` that plans a file of cases: count, sum up, print."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from caps.building import make_prepare, make_strategy
from caps.cli.output import bar, print_json, say, stdout
from caps.cli.plan_capacity import Scale, print_capacity, with_capacity
from caps.core.errors import InputError
from caps.core.text import number, percent
from caps.core.types import Case
from caps.costs.prices import Terms
from caps.datasets.imports import count_cases, open_cases
from caps.reports.console import short, table
from caps.studies.planning import BASELINE, Task, Totals, plan_cases

WORTH_MORE_PROCESSES = 60


def plan_file(
    cases: str,
    limit: int | None,
    task: Task,
    terms: Terms,
    *,
    names: list[str],
    named: bool,
    as_json: bool,
    scale: Scale | None = None,
    counted: str,
) -> int:
    """Plan a file and print it; the exit code: 1 if a line is bad, or a strategy asked for cannot play.

    `counted` says where the count of tokens comes from.
    """
    make_prepare(task.profile, task.views)  # raises where a name is wrong
    source = _Source(cases, limit)
    baseline, *totals = _counted(
        source, replace(task, strategies=[make_strategy(BASELINE), *task.strategies])
    )
    rows = [row(name, one, baseline, terms) for name, one in zip(names, totals, strict=True)]
    rows = with_capacity(rows, scale)
    refused = [(name, one.refused) for name, one in zip(names, totals, strict=True) if one.refused]
    for name, why in refused:
        words = f"{name}: cannot play {len(why)} of {source.good} cases; {why[0]}"
        say(words, "dim")
    if as_json:
        print_json(rows)
    else:
        _print(rows, source.good, terms, counted)
    if scale is not None and not as_json:
        print_capacity(rows, scale)
    return 1 if source.bad or (named and refused) else 0


def row(name: str, one: Totals, baseline: Totals, terms: Terms) -> dict[str, Any]:
    """The figures of one strategy, summed over all cases."""
    dollars = {
        "least": terms.dollars(one.least, one.calls_least, reread=True),
        "mean": terms.dollars(one.mean, one.calls),
        "most": terms.dollars(one.most, one.calls_most),
    }
    return {
        "strategy": name,
        "cases": one.cases,
        "calls": {"E1": whole(one.partial), "E2": whole(one.full)},
        "calls_total": whole(one.calls),
        "calls_least": one.calls_least,
        "calls_most": one.calls_most,
        "depth": {"mean": whole(one.rounds / one.cases) if one.cases else None, "most": one.depth},
        "first_stage_tokens": one.first_stage,
        "tokens": {"least": one.least, "mean": round(one.mean), "most": one.most},
        "output_tokens": round(one.calls * terms.output),
        "usd": None if terms.price is None else dollars,
        "seconds": terms.seconds(one.mean, one.calls, one.depth),
        "token_share": round(one.mean / baseline.mean, 4) if baseline.mean else None,
    }


class _Source:
    """The cases of a file; bad lines are named as they come and counted."""

    def __init__(self, path: str, limit: int | None) -> None:
        self._path, self._limit = path, limit
        self.good, self.bad = 0, 0

    @property
    def total(self) -> int | None:
        """How many lines there are to come, if that can be known."""
        counted = count_cases(self._path)
        return None if counted is None else min(counted, self._limit or 2**62)

    def __iter__(self) -> Iterator[Case]:
        for case in islice(open_cases(self._path), self._limit):
            if isinstance(case, InputError):
                self.bad += 1
                say(f"failed: {case}", "red")
            else:
                self.good += 1
                yield case


def _counted(source: _Source, task: Task) -> list[Totals]:
    """Forecast all cases, with a progress bar, and on all cores where that is worth starting them."""
    total = source.total
    processes = (os.cpu_count() or 1) if total is None or total >= WORTH_MORE_PROCESSES else 1
    columns = (TextColumn("cases"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with bar(*columns) as progress:
        counted = progress.add_task("cases", total=total)
        return plan_cases(
            source, task, processes=processes, report=lambda done: progress.update(counted, advance=done)
        )


def _print(rows: Sequence[dict[str, Any]], cases: int, terms: Terms, counted: str) -> None:
    columns = ["strategy", "calls E1 + E2", "rounds", "first round", "tokens", "least–most"]
    columns += ["USD", "least–most"] if terms.price is not None else []
    timed = any(one["seconds"] is not None for one in rows)
    columns += [*(["time"] if timed else []), f"% of {BASELINE}"]
    title = f"{cases} cases, summed up; to the tokens come replies, {number(terms.output, 1)} each"
    stdout().print(table(title, columns, [_cells(one, timed=timed) for one in rows]))
    money = (
        ""
        if terms.price is not None
        else ("; money: unknown, give --price-input and --price-output, or --model and --base-url")
    )
    remarks = (
        f"tokens: {counted}; least to most is over all who may survive a round; "
        f"a reply that cannot be read is asked for again, which is not reckoned with{money}"
    )
    stdout().print(remarks, style="dim")


def _cells(one: dict[str, Any], *, timed: bool) -> list[str]:
    calls, tokens, usd, depth = one["calls"], one["tokens"], one["usd"], one["depth"]
    spread = "" if one["calls_least"] == one["calls_most"] else f" ({one['calls_least']}–{one['calls_most']})"
    cells = [
        one["strategy"],
        f"{number(calls['E1'], 0)} + {number(calls['E2'], 0)}{spread}",
        str(depth["most"]),
        short(one["first_stage_tokens"]),
        short(tokens["mean"]),
        f"{short(tokens['least'])}–{short(tokens['most'])}",
    ]
    if usd is not None:
        cells += [_dollars(usd["mean"]), f"{_dollars(usd['least'])}–{_dollars(usd['most'])}"]
    return [*cells, *([_duration(one["seconds"])] if timed else []), percent(one["token_share"])]


def _dollars(value: float) -> str:
    return f"{value:,.2f}" if value >= 1 else f"{value:.4f}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{seconds:.1f}s"


def whole(value: float) -> float:
    """A whole number stays one in JSON."""
    return int(value) if value == int(value) else round(value, 3)
