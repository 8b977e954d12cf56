"""`caps plan`: what every strategy would ask, before anything is spent."""

from typing import Annotated, Any

import typer

from caps.assemble import has_setting, make_strategy
from caps.cli.output import JsonFlag, SetOption, print_json, stdout
from caps.config import parse_assignments
from caps.core.errors import SettingError
from caps.core.play import Strategy
from caps.costs.closed_form import ViewSizes
from caps.costs.forecast import field_of, forecast
from caps.registry import STRATEGIES
from caps.reports.console import by_level, number, percent, table

BASELINE = "v1-infer"


def plan(
    pool: Annotated[int, typer.Option("--pool", min=1, max=4096, help="Distinct candidates a problem.")] = 16,
    finalists: Annotated[int | None, typer.Option(help="f, for the strategies that have it.")] = None,
    rho: Annotated[float | None, typer.Option(help="T1 / T2; sets the size of partial views.")] = None,
    partial_tokens: Annotated[float, typer.Option(min=0, help="Mean tokens of a partial view.")] = 250,
    full_tokens: Annotated[float, typer.Option(min=0, help="Mean tokens of a full view.")] = 4000,
    overhead_tokens: Annotated[float, typer.Option(min=0, help="Tokens of a prompt without views.")] = 500,
    strategy: Annotated[str | None, typer.Option(help="Names, separated by commas; all if absent.")] = None,
    set_: SetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Forecast calls, rounds that wait for one another, and tokens of one problem, for every strategy.

    Strategies are rehearsed with a judge that flips coins on a pool whose candidates all differ, which is
    the dearest case. Where the verdicts decide how much is asked, calls are a mean, with their range.
    """
    sizes = (
        ViewSizes(partial_tokens, full_tokens, overhead_tokens)
        if rho is None
        else ViewSizes.with_rho(rho, full=full_tokens, overhead=overhead_tokens)
    )
    rows = _forecasts(pool, _configured(strategy, finalists, set_ or []), sizes)
    if as_json:
        print_json(rows)
        return
    cells = [
        (
            row["strategy"],
            by_level(row["calls"]),
            number(row["calls_total"], 1) + _range(row),
            number(row["depth"], 1),
            number(row["tokens"], 0),
            percent(row["token_share"]),
        )
        for row in rows
    ]
    title = (
        f"One problem, {pool} distinct candidates; T1 {number(sizes.per_partial, 0)}, "
        f"T2 {number(sizes.per_full, 0)} tokens, rho {sizes.rho:.3f}"
    )
    columns = ("strategy", "E1 + E2", "calls", "rounds", "tokens", f"% of {BASELINE}")
    stdout().print(table(title, columns, cells))


def _configured(names: str | None, finalists: int | None, changes: list[str]) -> dict[str, Strategy]:
    """The strategies asked for; `finalists` goes to those that have such a field."""
    wanted = list(STRATEGIES.table) if names is None else [name.strip() for name in names.split(",")]
    assigned = parse_assignments(changes)
    if assigned and names is None:
        raise SettingError("--set needs --strategy: which one is meant?")
    made = {}
    for name in wanted:
        strategy = make_strategy(name, assigned)
        if finalists is not None and has_setting(strategy, "finalists"):
            strategy = make_strategy(name, {**assigned, "finalists": str(finalists)})
        made[name] = strategy
    return made


def _forecasts(pool: int, strategies: dict[str, Strategy], sizes: ViewSizes) -> list[dict[str, Any]]:
    entrants = field_of(pool)
    baseline = forecast(make_strategy(BASELINE), entrants, sizes).tokens
    rows = []
    for name, strategy in strategies.items():
        expected = forecast(strategy, entrants, sizes)
        rows.append(
            {
                "strategy": name,
                "calls": {level: _whole(count) for level, count in expected.calls.items()},
                "calls_total": _whole(expected.total),
                "calls_least": expected.least,
                "calls_most": expected.most,
                "depth": _whole(expected.depth),
                "tokens": round(expected.tokens),
                "token_share": round(expected.tokens / baseline, 4) if baseline else None,
            }
        )
    return rows


def _whole(value: float) -> float:
    """A whole number stays one in JSON."""
    return int(value) if value == int(value) else round(value, 3)


def _range(row: dict[str, Any]) -> str:
    least, most = row["calls_least"], row["calls_most"]
    return "" if least == most else f" ({least}-{most})"
