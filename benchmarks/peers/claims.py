"""Claims, held against what was measured; each is said to hold or not, with the figures."""

from collections.abc import Callable, Sequence
from typing import Any

from peers.tables import Page

Figure = Callable[[Any], float]


def claims(page: Page, entries: Sequence[Any]) -> None:
    """Who needs least, of whom: tokens in all, on mathematics and on code; and time."""
    run = [one for one in entries if one.many is not None and one.single is not None]
    compare = [one for one in run if one.peer.asks == "pairs"]
    known = [one for one in compare if one.peer.name not in ("sprint", "posterior")]
    rate = [one for one in run if one.peer.asks == "ratings"]
    groups = (
        ("caps-r", "of all that compare", compare),
        ("caps-r", "of all that compare, sprint and posterior left out", known),
        (
            "posterior",
            "of itself and all that rate",
            [*rate, *(one for one in run if one.peer.name == "posterior")],
        ),
    )
    rows = []
    for who, whom, among in groups:
        for where, figure in (("", tokens()), (" on math", tokens("math")), (" on code", tokens("code"))):
            rows += _held(f"{who}: fewest verifier tokens{where} {whom}", who, among, figure, "{:,.0f}")
    for who, whom, among in groups:
        rows += _held(f"{who}: least time for all cases {whom}", who, among, seconds, "{:.3f}")
    page.table("Claims, and what a selection takes", ("", "holds", "figures"), rows)


def tokens(kind: str = "") -> Figure:
    """Prompt and reply tokens a case, of one kind of case or of all."""

    def count(entry: Any) -> float:
        tally = entry.many.tally.get(f"judge {kind}".strip(), {"prompt": 0, "written": 0})
        cases = {"": entry.many.cases, "math": -(-entry.many.cases // 2), "code": entry.many.cases // 2}[kind]
        return float((tally["prompt"] + tally["written"]) / cases)

    return count


def seconds(entry: Any) -> float:
    """A case's share of the time for all."""
    return float(entry.many.seconds[0] / entry.many.cases)


def _held(claim: str, who: str, among: Sequence[Any], figure: Figure, form: str) -> list[list[str]]:
    """One row: whether `who` is below all others, and the four lowest; none where there is nobody to beat."""
    ranked = sorted(among, key=figure)
    if len(ranked) < 2 or who not in [one.peer.name for one in ranked]:
        return []
    figures = ", ".join(f"{one.peer.name} {form.format(figure(one))}" for one in ranked[:4])
    return [[claim, "yes" if ranked[0].peer.name == who else "no", figures]]
