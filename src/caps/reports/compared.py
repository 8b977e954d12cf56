"""Several runs side by side: how right, at what cost; of two, on which cases they part and whether that is luck."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from caps.diagnostics.mcnemar import discordant, exact_mcnemar
from caps.reports.charts import Point, plane
from caps.reports.console import number, percent
from caps.reports.figures import Figures, Labels
from caps.reports.lines import Line
from caps.reports.listing import Listing, right_of
from caps.reports.run_view import section, table
from caps.reports.tree import Node, el, visible

COLUMNS = (
    ("case", "text"), ("first", "mark"), ("second", "mark"), ("first chose", "number"), ("second chose", "number"),
    ("tokens first", "number wide"), ("tokens second", "number wide"),
)  # fmt: skip
FILTERS = ("chose differently", "only first right", "only second right", "both wrong")


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
            points.append(Point(name, a_case, share, low, high))
    heads = ("run", "cases", "right (95 % interval)", "calls", "tokens read a case", "of V1-Infer", "paid")
    picture = plane(points, "Accuracy against tokens") if points else None
    return [section("The runs", None, table(heads, rows), picture)]


def pair_view(names: Sequence[str], compared: Compared) -> Node:
    """In words: where two runs part."""
    first, second = names
    words = f"They share {number(compared.shared, 0)} cases and chose differently on {number(compared.different, 0)}. "
    if compared.labelled:
        words += (
            f"Of {number(compared.labelled, 0)} with known labels, only {first} is right on "
            f"{compared.only_first}, only {second} on {compared.only_second}: McNemar's exact test gives "
            f"p = {compared.p:.3g}, "
            + (
                "so chance alone would rarely do that."
                if compared.p < 0.05
                else "which chance alone may well do."
            )
        )
    else:
        words += "No labels are known, so nobody can say which is better."
    return section("Do they differ?", None, el("p", words, class_="lead"))


def pair_listing(first: Mapping[str, Line], second: Mapping[str, Line], labels: Labels) -> Listing:
    """The cases both runs have; a row opens both receipts."""
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
            sum(1 << bit for bit, is_so in enumerate(true) if is_so), [place, places[name]], visible(name), a, b,
            line.get("winner"), other.get("winner"), _tokens(line), _tokens(other), "",
        ])  # fmt: skip
    return Listing(COLUMNS, FILTERS, rows)


def _tokens(line: Line) -> int | None:
    tokens = line.get("tokens")
    return None if tokens is None else int(tokens["asked"])
