"""Tables of a study as Markdown, CSV, LaTeX and figures, the paper's figure beside ours."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caps.reports.html import Node, el, markup
from caps.reports.plots import Panel, draw_panels
from caps.studies.metrics import METRICS, Figure
from caps.studies.tables import Cell, Table

THEIRS = "; the figures of the paper were measured with other models"
SCALES = {"%": 100.0, "points": 100.0, "M": 1e-6}
ESCAPES = {letter: rf"\{letter}" for letter in "%&_#${}"} | {
    "\\": r"\textbackslash{}",
    "Δ": r"$\Delta$",
    "†": r"\textdagger{}",
    "–": "--",
}


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


@dataclass(frozen=True, slots=True)
class Chapter:
    """A study on a page of several: its file, its tables, and what of them is simulated."""

    title: str
    about: str
    file: str
    tables: Sequence[Table]
    simulated: str | None = None


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: .5rem 0; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid #d8dee4; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.paper { color: #57606a; font-size: .85em; display: block; }
.interval { color: #57606a; font-size: .8em; }
.simulated { background: #fff8c5; padding: .1rem .4rem; }
li { color: #57606a; }
"""


def studies_page(title: str, about: str, chapters: Sequence[Chapter]) -> str:
    """One page of HTML with all tables of several studies, the paper's figures beside ours."""
    links = [el("li", el("a", one.title, href=f"#{place}")) for place, one in enumerate(chapters)]
    body = [el("h1", title), el("p", about), el("ul", *links)]
    for place, one in enumerate(chapters):
        body += [el("h2", one.title, id=str(place)), el("p", one.about), el("code", f"caps bench {one.file}")]
        for table in one.tables:
            body += [el("h3", table.title), *_html_table(table, one.simulated)]
    head = [el("meta", charset="utf-8"), el("title", title), el("style", STYLE)]
    return "<!doctype html>\n" + markup(el("html", el("head", *head), el("body", *body), lang="en")) + "\n"


def _html_table(table: Table, simulated: str | None) -> Iterator[Node]:
    if simulated is not None:
        beside = any(cell.published is not None for _, cells in table.rows for cell in cells)
        yield el("p", el("span", f"Simulated ({simulated}){THEIRS if beside else ''}.", class_="simulated"))
    rows = [el("tr", *(el("th", head) for head in (table.corner, *table.heads)))]
    rows += [el("tr", el("td", label), *map(_html_cell, cells)) for label, cells in table.rows]
    yield el("div", el("table", *rows), class_="wide")
    yield el("ul", *(el("li", note) for note in table.notes))


def _html_cell(cell: Cell) -> Node:
    figure = cell.figure
    ours = "–" if figure is None else _number(cell, figure.value)
    interval = None
    if figure is not None and figure.low is not None and figure.high is not None:
        bounds = f" [{_number(cell, figure.low)}, {_number(cell, figure.high)}]"
        interval = el("span", bounds, class_="interval")
    theirs = None if cell.published is None else el("span", f"paper {_paper(cell)}", class_="paper")
    return el("td", ours, interval, theirs)


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


def latex(table: Table, *, simulated: str | None) -> str:
    """A tabular of booktabs; the paper's figure stands small beside ours."""
    heads = " & ".join(_escaped(head) for head in (table.corner, *table.heads))
    body = [
        " & ".join([_escaped(label), *(_latex_cell(cell) for cell in cells)]) + r" \\"
        for label, cells in table.rows
    ]
    said = "" if simulated is None else f" Simulated ({simulated})."
    lines = [
        r"\begin{table}", r"\centering", rf"\caption{{{_escaped(table.title)}.{_escaped(said)}}}",
        rf"\begin{{tabular}}{{l{'r' * len(table.heads)}}}", r"\toprule", rf"{heads} \\", r"\midrule", *body,
        r"\bottomrule", r"\end{tabular}", *(rf"% {note}" for note in table.notes), r"\end{table}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


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


def _latex_cell(cell: Cell) -> str:
    ours = "--" if cell.figure is None else f"${_number(cell, cell.figure.value)}$"
    return ours if cell.published is None else rf"{ours} {{\scriptsize ({_escaped(_paper(cell))})}}"


def _paper(cell: Cell) -> str:
    sign = "+" if _unit(cell) == "points" else ""
    return f"{cell.published:{sign}.1f}" + ("†" if cell.impossible else "")


def _unit(cell: Cell) -> str:
    return unit_of(cell.metric)


def unit_of(metric: str) -> str:
    """What a metric is in."""
    return METRICS[metric].unit if metric in METRICS else ""


def _scaled(cell: Cell, number: float | None) -> float | None:
    if number is None or number != number:  # noqa: PLR0124  (not a number)
        return None
    return round(number * SCALES.get(_unit(cell), 1.0), 6)


def _number(cell: Cell, number: float) -> str:
    value, unit = number * SCALES.get(_unit(cell), 1.0), _unit(cell)
    if cell.metric == "count":
        return f"{value:.0f}"
    if unit == "points":
        return f"{round(value, 1) + 0.0:+.1f}"  # no -0.0
    if unit in ("grade", "grades"):
        return f"{round(value, 3) + 0.0:{'+' if unit == 'grades' else ''}.3f}"
    if unit == "":
        return f"{value:.3f}" if cell.metric in ("rho", "mcnemar") else f"{value:.2f}"
    return f"{value:.3g}" if unit == "M" and value < 1 else f"{value:.1f}"


def _escaped(words: str) -> str:
    return "".join(ESCAPES.get(letter, letter) for letter in words)


# Tables of a study as figures: a panel for each metric, what belongs together on one.


# Metrics that are worth most beside another one: on its panel.
BESIDE = {
    "closed_share": "token_share",
    "mean_sample": "pass_at_1",
    "pass_at_n": "pass_at_1",
    "accuracy_e1": "accuracy",
    "accuracy_e2": "accuracy",
}
UNITS = {"M": "millions of tokens", "": ""}


def draw_table(table: Table, folder: Path, *, simulated: str | None) -> list[Path]:
    """One figure for a table, as .svg and .pdf; none where it has no numbers."""
    rows = list(json_rows(table))
    labels = [label for label, _ in table.rows]
    panels = _panels(rows, labels)
    if not panels:
        return []
    if len(panels) == 1 and len(panels[0].series) > len(labels):
        panels, labels = _turned(panels[0], labels)
    notes = [] if simulated is None else [f"Simulated ({simulated}), not measured."]
    return draw_panels(panels, labels, folder / table.name, title=table.title, notes=notes)


def _panels(rows: list[dict[str, Any]], labels: list[str]) -> list[Panel]:
    there = {row["metric"] for row in rows}
    kinds: dict[str, dict[str, list[dict[str, Any] | None]]] = {}
    for row in rows:
        if row["ours"] is None and row["paper"] is None:
            continue
        kind = BESIDE.get(row["metric"], row["metric"])
        kind = kind if kind in there else row["metric"]
        series = kinds.setdefault(kind, {}).setdefault(row["column"], [None] * len(labels))
        series[labels.index(row["row"])] = row
    return [_panel(kind, series) for kind, series in kinds.items()]


def _panel(kind: str, series: dict[str, list[dict[str, Any] | None]]) -> Panel:
    head = METRICS[kind].head if kind in METRICS else kind
    unit = unit_of(kind)
    # "CAPS Pass@1" is a method's name and the panel's: the legend needs the first.
    named = {"" if name == head else name.removesuffix(f" {head}"): cells for name, cells in series.items()}
    return Panel(
        title=head, unit=UNITS.get(unit, unit), series=named if len(named) == len(series) else series
    )


def _turned(panel: Panel, labels: list[str]) -> tuple[list[Panel], list[str]]:
    """Rows and series swapped: few kinds of marks on many rows are easier to read than the reverse."""
    series = {label: [cells[row] for cells in panel.series.values()] for row, label in enumerate(labels)}
    return [Panel(title=panel.title, unit=panel.unit, series=series)], list(panel.series)
