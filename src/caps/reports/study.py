"""Tables of a study as Markdown, CSV, charts and a page, the paper's figure beside ours."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from caps.core.text import printable
from caps.reports.charts import Point, plane
from caps.reports.console import Grid
from caps.reports.console import table as grid
from caps.reports.elements import head as page_head
from caps.reports.elements import listed, section
from caps.reports.elements import table as plain_table
from caps.reports.html import Html, el
from caps.reports.page import Page
from caps.reports.pictures import Picture
from caps.reports.report import footer
from caps.studies.metrics import METRICS, Figure
from caps.studies.tables import AVERAGE, Cell, Table

THEIRS = "; the figures of the paper were measured with other models"
SCALES = {"%": 100.0, "points": 100.0, "M": 1e-6}


def markdown(table: Table, *, simulated: str | None) -> str:
    """A section with its table and remarks."""
    lines = [f"## {table.title}", ""]
    if simulated is not None:
        beside = any(cell.published is not None for _, cells in table.rows for cell in cells)
        lines += [f"**Simulated** ({simulated}){THEIRS if beside else ''}.", ""]
    heads = [table.corner, *table.heads]
    lines += [_row(heads), _row(["---", *["---:"] * len(table.heads)])]
    lines += [_row([label, *(_shown(cell) for cell in cells)]) for label, cells in table.rows]
    lines += ["", *(f"- {note}" for note in table.notes)]
    return "\n".join(lines).rstrip() + "\n"


def terminal_table(table: Table, *, simulated: str | None) -> list[Grid | str]:
    """A table of a study for a terminal, with its remarks."""
    rows = [(label, *map(_shown, cells)) for label, cells in table.rows]
    made = "" if simulated is None else f" (simulated: {simulated})"
    drawn = grid(f"{table.title}{made}", (table.corner, *table.heads), rows)
    return [drawn, *(printable(f"- {note}") for note in table.notes), ""]


@dataclass(frozen=True, slots=True)
class Chapter:
    """A study on a page: the command that runs it, its tables, and what of them is simulated."""

    title: str
    about: str
    command: str
    tables: Sequence[Table]
    simulated: str | None = None


def study_page(chapter: Chapter) -> Page:
    """The page of a study: how to run it, what came out, then every table with its chart."""
    about = chapter.about.strip()
    body = page_head(chapter.title, el("p", about, class_="lead") if about else None)
    return Page(
        title=f"{chapter.title} · caps report",
        figures=[*body, *_chapter_body(chapter)],
        footer=footer(),
        status="simulated" if chapter.simulated else "",
    )


def _chapter_body(chapter: Chapter) -> list[Html]:
    body = [el("pre", chapter.command, tabindex=0)]
    body += [listed(words)] if (words := list(_findings(chapter.tables))) else []
    return body + [table_section(table, chapter.simulated, table.title) for table in chapter.tables]


def _findings(tables: Sequence[Table]) -> Iterator[str]:
    """The method that is most often right, of each table that compares methods."""
    for table in tables:
        for place, column in enumerate(table.heads):
            shares = [
                (cells[place].figure.value, label)  # type: ignore[union-attr]
                for label, cells in table.rows
                if cells[place].metric == "pass_at_1" and cells[place].figure is not None
            ]
            if table.corner == "method" and len(shares) > 1:
                share, label = max(shares)
                yield f"{table.title}, {column}: {label} is most often right, with {100 * share:.1f} %"


def table_section(table: Table, simulated: str | None, name: str) -> Html:
    """A table with its chart and remarks; `name` is what it is called for screen readers."""
    note = None
    if simulated is not None:
        beside = any(cell.published is not None for _, cells in table.rows for cell in cells)
        note = el("p", f"Simulated ({simulated}){THEIRS if beside else ''}.", class_="simulated")
    cells: list[list[str]] = [[label, *map(_html_cell, row)] for label, row in table.rows]
    picture = table_picture(table, simulated=simulated)
    return section(
        table.title,
        None,
        note,
        None if picture is None else picture.drawing.svg(),
        plain_table((table.corner, *table.heads), cells, name),
        el("ul", *(el("li", note) for note in table.notes), class_="note") if table.notes else None,
    )


def _html_cell(cell: Cell) -> Html:
    figure = cell.figure
    ours = "–" if figure is None else _number(cell, figure.value)
    interval = None
    if figure is not None and figure.low is not None and figure.high is not None:
        bounds = f" [{_number(cell, figure.low)}, {_number(cell, figure.high)}]"
        interval = el("span", bounds, class_="interval")
    theirs = None if cell.published is None else el("span", f"paper {_paper(cell)}", class_="paper")
    return el("span", ours, interval, theirs)


def comma_separated(table: Table, *, simulated: str | None) -> str:
    """One line a figure: row, column, ours with its interval, the paper's, what of ours is simulated."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(
        ("row", "column", "metric", "ours", "low", "high", "paper", "paper_impossible", "simulated")
    )
    for row in json_rows(table):
        writer.writerow("" if value is None else value for value in (*row.values(), simulated))
    return lines.getvalue()


def parted_cases(table: Table) -> str:
    """Every case on which two methods part."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(
        ("suite", "case", "seed", "right", "winner", "other", "other_winner", "rescued", "clusters")
    )
    for suite, case, seed, a, b in table.cases:
        right, wrong = (a, b) if a.right else (b, a)
        facts = (right.winner, wrong.method, wrong.winner, right.rescued, right.clusters)
        writer.writerow((suite, case, seed, right.method, *facts))
    return lines.getvalue()


def json_rows(table: Table) -> Iterator[dict[str, Any]]:
    """Every figure as plain data, in the units people read."""
    for label, cells in table.rows:
        for head, cell in zip(table.heads, cells, strict=True):
            figure = cell.figure or Figure(float("nan"))
            value, low, high = (_scaled(cell, number) for number in figure)
            yield {
                "row": label, "column": head, "metric": cell.metric, "ours": value, "low": low, "high": high,
                "paper": cell.published, "paper_impossible": cell.impossible,
            }  # fmt: skip


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _shown(cell: Cell) -> str:
    ours = "–" if cell.figure is None else _number(cell, cell.figure.value)
    if cell.figure is not None and cell.figure.low is not None and cell.figure.high is not None:
        ours += f" [{_number(cell, cell.figure.low)}, {_number(cell, cell.figure.high)}]"
    return ours if cell.published is None else f"{ours} (paper {_paper(cell)})"


def _paper(cell: Cell) -> str:
    sign = "+" if _unit(cell) == "points" else ""
    return f"{cell.published:{sign}.1f}" + ("†" if cell.impossible else "")


def _unit(cell: Cell) -> str:
    return unit_of(cell.metric)


def unit_of(metric: str) -> str:
    """What a metric is in; a metric outside the list counts contests."""
    return METRICS[metric].unit if metric in METRICS else "count"


def _scaled(cell: Cell, number: float | None) -> float | None:
    if number is None or number != number:  # noqa: PLR0124  (not a number)
        return None
    return round(number * SCALES.get(_unit(cell), 1.0), 6)


def _number(cell: Cell, number: float) -> str:
    value, unit = number * SCALES.get(_unit(cell), 1.0), _unit(cell)
    if unit == "count":
        return f"{value:,.0f}" if value == round(value) or value >= 100 else f"{value:.1f}"
    if unit == "points":
        return f"{round(value, 1) + 0.0:+.1f}"  # no -0.0
    if unit in ("grade", "grades"):
        return f"{round(value, 3) + 0.0:{'+' if unit == 'grades' else ''}.3f}"
    if unit == "":
        return f"{value:.3f}" if cell.metric in ("rho", "mcnemar") else f"{value:.2f}"
    return f"{value:.3g}" if unit == "M" and value < 1 else f"{value:.1f}"


# A table with accuracy and cost as a picture.

COSTS = {  # by metric: the name of the axis, and the unit in tooltips
    "tokens_each": ("tokens read by the judge per case", "tokens a case"),
    "token_share": ("tokens, in % of those of the reference", "% of the tokens of the reference"),
}


def table_picture(table: Table, *, simulated: str | None) -> Picture | None:
    """Accuracy against cost; None for a table without both of several methods."""
    there = {cell.metric for _, cells in table.rows[:1] for cell in cells}
    cost = next((name for name in COSTS if name in there), None)
    points = [] if cost is None else list(_points(table, cost))
    if len(points) < 2:
        return None
    notes = [] if simulated is None else [f"Simulated ({simulated}), not measured."]
    axis, unit = COSTS[cost or ""]
    drawing = plane(points, "Accuracy against cost", notes, axis=axis, unit=unit)
    return Picture(name=table.name, drawing=drawing)


def _points(table: Table, cost: str) -> Iterator[Point]:
    """A point for each method: each is a row, or some columns of the only row or of that with the mean."""
    is_summed = table.rows[-1][0] == AVERAGE or len(table.rows) == 1
    for label, cells in table.rows if table.corner == "method" else table.rows[-1:] if is_summed else ():
        methods: dict[str, dict[str, Cell]] = {}
        for head, cell in zip(table.heads, cells, strict=True):
            method = head.removesuffix(METRICS[cell.metric].head).rstrip() if cell.metric in METRICS else head
            methods.setdefault(method, {})[cell.metric] = cell
        for method, by_metric in methods.items():
            right, spent = (by_metric.get(metric) for metric in ("pass_at_1", cost))
            if right and spent and right.figure and spent.figure:
                share, low, high = right.figure
                yield Point(
                    label=", ".join(filter(None, (label, method))),
                    tokens=spent.figure.value * SCALES.get(unit_of(cost), 1.0),
                    share=share,
                    low=share if low is None else low,
                    high=share if high is None else high,
                )
