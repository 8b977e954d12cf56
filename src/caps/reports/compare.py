"""Several runs side by side: accuracy, cost, and where two of them disagree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from caps.core.text import number, percent
from caps.reports.charts import Point, framed, plane
from caps.reports.html import Node, el, visible
from caps.reports.run_page import Listing, bits, right_of, section, table
from caps.runs.result_lines import Line
from caps.runs.summary import Figures, Labels
from caps.statistics.estimates import discordant, exact_mcnemar

LUCK = 0.05


@dataclass(frozen=True, slots=True)
class Compared:
    """Two runs on the cases both have; p is of McNemar's exact test, over those with labels."""

    shared: int
    different: int
    labelled: int
    only_first: int
    only_second: int
    p: float


def compare_runs(first: Mapping[str, Line], second: Mapping[str, Line], labels: Labels) -> Compared:
    """Set two runs against each other."""
    shared = [name for name in first if name in second]
    pairs = []
    for name in shared:
        known = labels.get(name, ())
        a, b = right_of(first[name], known), right_of(second[name], known)
        if a is not None and b is not None:
            pairs.append((bool(a), bool(b)))
    only_first, only_second = discordant(pairs)
    return Compared(
        len(shared),
        sum(first[name].get("winner") != second[name].get("winner") for name in shared),
        len(pairs),
        only_first,
        only_second,
        exact_mcnemar(only_first, only_second),
    )


def runs_view(names: Sequence[str], figures: Sequence[Figures]) -> list[Node]:
    """Every run's accuracy and cost, as a table and in the plane."""
    rows, points = [], []
    for name, one in zip(names, figures, strict=True):
        low, high = one.interval
        share = one.pass_at_1
        right = "–" if share is None else f"{percent(share)} % ({percent(low)} to {percent(high)})"
        a_case = one.total.asked / one.cases if one.cases else 0
        against = "–" if not one.v1_tokens else f"{percent(one.total.asked / one.v1_tokens)} %"
        money = "unknown" if one.usd is None else f"${one.usd:,.4f}"
        rows.append(
            (name, number(one.cases, 0), right, number(one.total.calls, 0), number(a_case, 0), against, money)
        )
        if share is not None:
            points.append(Point(label=name, tokens=a_case, share=share, low=low, high=high))
    heads = ("run", "cases", "right (95 % interval)", "calls", "tokens read a case", "of V1-Infer", "paid")
    title = "Accuracy against tokens"
    picture = framed(plane(points, title, ["Whiskers: 95 % intervals."]), title) if points else None
    return [section("The runs", None, table(heads, rows, "figures of the runs"), picture)]


def pair_view(names: Sequence[str], compared: Compared) -> Node:
    """In words: where two runs part."""
    first, second = names
    shared, different = number(compared.shared, 0), number(compared.different, 0)
    words = f"They share {shared} cases and chose differently on {different}. "
    if compared.labelled:
        luck = "so chance would rarely do that." if compared.p < LUCK else "which chance may well do."
        words += (
            f"Of {number(compared.labelled, 0)} with known labels, only {first} is right on "
            f"{compared.only_first}, only {second} on {compared.only_second}: McNemar's exact test gives "
            f"p = {compared.p:.3g}, {luck}"
        )
    else:
        words += "No labels are known, so nobody can say which is better."
    return section("Do they differ?", None, el("p", words, class_="lead"))


def pair_listing(
    names: Sequence[str], first: Mapping[str, Line], second: Mapping[str, Line], labels: Labels
) -> Listing:
    """The cases both runs have; a row opens both receipts."""
    one, two = names
    columns = (
        ("case", "text"), (one, "mark"), (two, "mark"), (f"{one} chose", "number"),
        (f"{two} chose", "number"), (f"{one} tokens", "number wide"), (f"{two} tokens", "number wide"),
    )  # fmt: skip
    filters = ("chose differently", f"only {one} right", f"only {two} right", "both wrong")
    rows: list[list[Any]] = []
    places = {name: len(first) + place for place, name in enumerate(second)}
    for place, (name, line) in enumerate(first.items()):
        other = second.get(name)
        if other is None:
            continue
        known = labels.get(name, ())
        a, b = right_of(line, known), right_of(other, known)
        differs = line.get("winner") != other.get("winner")
        true = (differs, a == 1 and b == 0, a == 0 and b == 1, a == 0 and b == 0)
        rows.append([
            bits(true), [place, places[name]], visible(name), a, b,
            line.get("winner"), other.get("winner"), _tokens(line), _tokens(other), "",
        ])  # fmt: skip
    return Listing(columns, filters, rows)


def _tokens(line: Line) -> int | None:
    tokens = line.get("tokens")
    return None if tokens is None else int(tokens["asked"])
