"""Simulated strategies as a chart and a page."""

from collections.abc import Mapping, Sequence
from typing import Any

from caps.core.text import number, percent
from caps.reports.charts import Point, plane
from caps.reports.console import Grid, by_level, table
from caps.reports.elements import facts, grid_view, head, section
from caps.reports.html import el
from caps.reports.page import Page
from caps.reports.pictures import Picture
from caps.reports.report import footer

TITLE = "Pass@1 against tokens"


def simulation_picture(about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Picture:
    """Accuracy against tokens of every strategy, with intervals."""
    points = [
        Point(
            label=row["strategy"],
            tokens=_tokens(row),
            share=row["pass_at_1"],
            low=row["pass_at_1_interval"][0],
            high=row["pass_at_1_interval"][1],
        )
        for row in rows
    ]
    notes = [f"{headline(about)}.", "Whiskers: 95 % intervals."]
    return Picture(name="strategies", drawing=plane(points, TITLE, notes))


def simulation_table(about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Grid:
    """Every figure of every strategy."""
    cells = [
        (
            row["strategy"],
            percent(row["pass_at_1"], row["pass_at_1_interval"]),
            percent(row["mixed_pass_at_1"], row["mixed_interval"]),
            by_level(row["calls"]),
            number(_tokens(row), 0),
            percent(row["token_share"]),
            number(row["depth"], 1),
            " / ".join(percent(row["pair_accuracy"][level]) for level in ("E1", "E2")),
        )
        for row in rows
    ]
    columns = (
        "strategy", "Pass@1 %", "mixed pools", "calls E1 + E2", "tokens", "T%", "rounds", "pair acc. E1 / E2",
    )  # fmt: skip
    return table(headline(about), columns, cells)


def simulation_page(
    about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], picture: Picture, *, baseline: str
) -> Page:
    """The page of a simulation."""
    lead = el(
        "p",
        el("b", "Simulated."),
        f" {headline(about).partition(': ')[2]}. No model was asked.",
        class_="simulated",
    )
    chance = (
        f"A candidate at random is right in {percent(about['mean_correct'])} %, some candidate in "
        f"{percent(about['pass_at_n'])} %. T% is tokens against {baseline}; rho, a call at E1 against "
        f"one at E2, {about['rho']:.3f}."
    )
    made = [("simulated", about["simulated"]), ("seed", str(about["seed"]))]
    made.append(("problems", number(about["problems"], 0)))
    made += [(f"judge · {name}", number(value, 4)) for name, value in about["judge"].items()]
    for name, value in about["pools"].items():
        inner = value.items() if isinstance(value, Mapping) else [("", value)]
        made += [(f"pools · {name.replace('_', ' ')} {key}".strip(), str(part)) for key, part in inner]
    return Page(
        title="simulation · caps report",
        figures=[
            *head("Strategies against a simulated judge", lead),
            section(
                "What accuracy costs",
                chance,
                picture.drawing.framed(),
                grid_view(simulation_table(about, rows)),
            ),
        ],
        after=[section("How it was simulated", None, facts(made))],
        footer=footer(),
        status="simulated",
    )


def headline(about: Mapping[str, Any]) -> str:
    """What was simulated, in a line."""
    judge = about["judge"]
    return (
        f"Simulated ({about['simulated']}): {number(about['problems'], 0)} problems, judge right in "
        f"{100 * judge['accuracy_partial']:.0f} % of pairs at E1 and {100 * judge['accuracy']:.0f} % at E2"
    )


def _tokens(row: Mapping[str, Any]) -> float:
    return float(sum(row["tokens"].values()))
