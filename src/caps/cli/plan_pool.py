"""The part of `caps plan` that plans one problem of so many candidates, all of them different."""

from typing import Any

from caps.building import make_strategy
from caps.cli.output import stdout
from caps.cli.plan_cases import whole
from caps.core.play import Strategy
from caps.core.text import number, percent
from caps.costs.closed_form import ViewSizes
from caps.costs.forecast import field_of, forecast
from caps.reports.console import by_level, table
from caps.studies.planning import BASELINE


def pool_rows(pool: int, strategies: dict[str, Strategy], sizes: ViewSizes) -> list[dict[str, Any]]:
    """The figures of every strategy."""
    entrants = field_of(pool)
    baseline = forecast(make_strategy(BASELINE), entrants, sizes).tokens
    rows = []
    for name, strategy in strategies.items():
        expected = forecast(strategy, entrants, sizes)
        rows.append(
            {
                "strategy": name,
                "calls": {level: whole(count) for level, count in expected.calls.items()},
                "calls_total": whole(expected.total),
                "calls_least": expected.least,
                "calls_most": expected.most,
                "depth": whole(expected.depth),
                "tokens": round(expected.tokens),
                "token_share": round(expected.tokens / baseline, 4) if baseline else None,
            }
        )
    return rows


def print_pool(pool: int, rows: list[dict[str, Any]], sizes: ViewSizes) -> None:
    """One line a strategy."""
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


def _range(row: dict[str, Any]) -> str:
    least, most = row["calls_least"], row["calls_most"]
    return "" if least == most else f" ({least}-{most})"
