"""Comparison of runs: accuracy, cost, and the cases on which two runs disagree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from caps.core.text import number, percent, plural
from caps.reports.charts import Point, plane, shown_chart
from caps.reports.html import Node, el, visible
from caps.reports.run_page import Listing, pack_flags, right_of, section, table
from caps.runs.result_lines import Line
from caps.runs.summary import Figures, Labels
from caps.statistics.estimates import discordant, exact_mcnemar

SIGNIFICANCE = 0.05


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs on their common cases; `p` is McNemar's exact test over the labelled ones."""

    shared: int
    different: int
    labelled: int
    only_first: int
    only_second: int
    p: float


def compare_runs(first: Mapping[str, Line], second: Mapping[str, Line], labels: Labels) -> Comparison:
    """Compare two runs case by case."""
    shared = [name for name in first if name in second]
    pairs = []
    for name in shared:
        known = labels.get(name, ())
        a, b = right_of(first[name], known), right_of(second[name], known)
        if a is not None and b is not None:
            pairs.append((bool(a), bool(b)))
    only_first, only_second = discordant(pairs)
    return Comparison(
        len(shared),
        sum(first[name].get("winner") != second[name].get("winner") for name in shared),
        len(pairs),
        only_first,
        only_second,
        exact_mcnemar(only_first, only_second),
    )


def runs_view(names: Sequence[str], figures: Sequence[Figures]) -> list[Node]:
    """Show accuracy and cost of every run as a table and a chart."""
    rows, points = [], []
    for name, one in zip(names, figures, strict=True):
        low, high = one.interval
        share = one.pass_at_1
        right = "–" if share is None else f"{percent(share)} % ({percent(low)} to {percent(high)})"
        per_case = one.total.asked / one.cases if one.cases else 0
        against = "–" if not one.v1_tokens else f"{percent(one.total.asked / one.v1_tokens)} %"
        money = "unknown" if one.usd is None else f"${one.usd:,.4f}"
        rows.append(
            (
                name,
                number(one.cases, 0),
                right,
                number(one.total.calls, 0),
                number(per_case, 0),
                against,
                money,
            )
        )
        if share is not None:
            points.append(Point(label=name, tokens=per_case, share=share, low=low, high=high))
    heads = (
        "run",
        "cases",
        "right (95 % interval)",
        "calls",
        "tokens read per case",
        "share of V1-Infer",
        "cost",
    )
    title = "Accuracy against tokens"
    notes = ["Whiskers: 95 % intervals."]
    picture = shown_chart(lambda width: plane(points, title, notes, width=width)) if points else None
    return [section("The runs", None, table(heads, rows, "figures of the runs"), picture)]


def pair_view(names: Sequence[str], compared: Comparison) -> Node:
    """Say in words how two runs differ."""
    first, second = names
    shared, different = plural(compared.shared, "case"), number(compared.different, 0)
    text = f"The runs have {shared} in common and chose differently on {different} of them. "
    if compared.labelled:
        is_significant = compared.p < SIGNIFICANCE
        meaning = "chance rarely makes such a difference." if is_significant else "chance may explain it."
        text += (
            f"Of {plural(compared.labelled, 'case')} with known labels, only {first} is right on "
            f"{compared.only_first} and only {second} on {compared.only_second} "
            f"(McNemar's exact test: p = {compared.p:.3g}): {meaning}"
        )
    else:
        text += "No labels are known, so the runs cannot be ranked."
    return section("Do they differ?", None, el("p", text, class_="lead"))


def pair_listing(
    names: Sequence[str], first: Mapping[str, Line], second: Mapping[str, Line], labels: Labels
) -> Listing:
    """List the common cases; a row opens both receipts."""
    one, two = names
    columns = (
        ("case", "text", ""), (one, "mark", ""), (two, "mark", ""),
        (f"{one} chose", "number", ""),
        (f"{two} chose", "number", ""),
        (f"{one} tokens", "number wide", ""),
        (f"{two} tokens", "number wide", ""),
    )  # fmt: skip
    filters = ("chose differently", f"only {one} right", f"only {two} right", "both wrong")
    rows: list[list[Any]] = []
    indices = {name: len(first) + index for index, name in enumerate(second)}
    for index, (name, line) in enumerate(first.items()):
        other = second.get(name)
        if other is None:
            continue
        known = labels.get(name, ())
        a, b = right_of(line, known), right_of(other, known)
        differs = line.get("winner") != other.get("winner")
        flags = (differs, a == 1 and b == 0, a == 0 and b == 1, a == 0 and b == 0)
        rows.append([
            pack_flags(flags), [index, indices[name]], visible(name), a, b,
            line.get("winner"), other.get("winner"), _tokens(line), _tokens(other), "",
        ])  # fmt: skip
    return Listing(columns, filters, rows)


def _tokens(line: Line) -> int | None:
    tokens = line.get("tokens")
    return None if tokens is None else int(tokens["asked"])
