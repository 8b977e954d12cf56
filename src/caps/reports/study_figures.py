"""Tables of a study as figures: a panel for each metric, what belongs together on one."""

from pathlib import Path
from typing import Any

from caps.experiments.metrics import METRICS
from caps.experiments.tables import Table
from caps.reports.plots import Panel, draw_panels
from caps.reports.study_tables import json_rows, unit_of

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
