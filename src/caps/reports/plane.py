"""Accuracy against tokens: every strategy or run a point, and the front of the best bargains."""

from collections.abc import Sequence
from dataclasses import dataclass

from caps.diagnostics.pareto import front
from caps.reports.canvas import WIDE, Scale, drawing, heading, mark, stem, ticks
from caps.reports.console import number
from caps.reports.labels import HIGH, Box, place_names, shortened
from caps.reports.tree import Node, el

LEFT, RIGHT, TALL = 48, 16, 330


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A strategy or a run in the plane: tokens, accuracy, its interval; `chosen` where it is the advice."""

    label: str
    tokens: float
    share: float
    low: float
    high: float
    chosen: bool = False


def best_bargains(points: Sequence[Point]) -> list[int]:
    """Places of the points nothing is both cheaper and better than, the cheapest first."""
    return front([(point.tokens, point.share) for point in points])


def plane(points: Sequence[Point], title: str, notes: Sequence[str] = ()) -> Node:
    """The picture; a line joins the front, what lies behind it is hollow."""
    best = best_bargains(points)
    about = "On the front, the cheapest first: " + ", ".join(
        f"{points[place].label} ({100 * points[place].share:.1f} % for {number(points[place].tokens, 0)})"
        for place in best
    )
    drawn, top = heading(title, [*notes, _key(points, best)])
    low, high = min(point.low for point in points), max(point.high for point in points)
    most = max(point.tokens for point in points) or 1
    pad = 0.06 * (high - low) or 0.05
    # Names stand right of their points, so the last point must not be at the edge.
    across = Scale(0, most, LEFT + 8, WIDE - RIGHT - 70)
    upward = Scale(max(0.0, low - pad), min(1.0, high + pad), top + TALL, top + 12)
    up = [share for share in ticks(upward.low, upward.high) if upward.low <= share <= upward.high]
    out = [many for many in ticks(0, most) if many <= most * 1.1]
    drawn += _axes(up, out, across, upward)
    seats = [(across.at(point.tokens), upward.at(point.share)) for point in points]
    steps = "".join(
        f"{'L' if place else 'M'}{x:g} {y:g}" for place, (x, y) in enumerate(seats[one] for one in best)
    )
    drawn.append(el("path", d=steps, class_="front"))
    whiskers = [
        (x, upward.at(point.high), upward.at(point.low)) for point, (x, _) in zip(points, seats, strict=True)
    ]
    drawn += [stem(*whisker) for whisker in whiskers]
    drawn += _names(points, seats, [Box(x - 4, high, x + 4, low) for x, high, low in whiskers], best, top)
    for place, (point, (x, y)) in enumerate(zip(points, seats, strict=True)):
        if point.chosen:
            drawn.append(el("circle", cx=x, cy=y, r=10, class_="ring"))
        drawn.append(mark(x, y, "dot best" if place in best else "dot behind"))
    return drawing(drawn, top + TALL + 48, title, about)


def _key(points: Sequence[Point], best: Sequence[int]) -> str:
    words = ["filled and joined: nothing is both cheaper and better"] if len(best) < len(points) else []
    words += ["ringed: the advice"] if any(point.chosen for point in points) else []
    return "; ".join(words).capitalize() + "." if words else ""


def _axes(up: Sequence[float], out: Sequence[float], across: Scale, upward: Scale) -> list[Node]:
    drawn, end, foot = list[Node](), WIDE - RIGHT, upward.start
    for share in up:
        y = upward.at(share)
        drawn.append(el("path", d=f"M{LEFT} {y:g}H{end}", class_="grid"))
        drawn.append(
            el("text", f"{100 * share:.0f} %", x=LEFT - 8, y=y + 4, class_="note", text_anchor="end")
        )
    for many in out:
        x = across.at(many)
        drawn.append(el("path", d=f"M{x:g} {foot:g}v5", class_="axis"))
        drawn.append(el("text", number(many, 0), x=x, y=foot + 19, class_="note", text_anchor="middle"))
    middle = (LEFT + end) / 2
    drawn.append(
        el(
            "text",
            "tokens the judge reads, a case",
            x=middle,
            y=foot + 39,
            class_="note",
            text_anchor="middle",
        )
    )
    return drawn


def _names(
    points: Sequence[Point],
    seats: Sequence[tuple[float, float]],
    taken: Sequence[Box],
    best: Sequence[int],
    top: float,
) -> list[Node]:
    """Names, those that matter most placed first, with a thin line where a name had to move away."""
    order = sorted(range(len(points)), key=lambda one: (not points[one].chosen, one not in best))
    names = [shortened(points[one].label) for one in order]
    room = Box(LEFT, top, WIDE, top + TALL)
    drawn = []
    for one, name, box in zip(
        order, names, place_names(names, [seats[one] for one in order], taken, room), strict=True
    ):
        x, y = seats[one]
        middle = (box.top + box.bottom) / 2
        if abs(middle - y) > HIGH:
            edge = min(max(x, box.left), box.right)
            foot = box.bottom if y > middle else box.top
            drawn.append(el("path", d=f"M{x:g} {y:g}L{edge:g} {foot:g}", class_="leader"))
        weight = "halo won" if points[one].chosen else "halo" if one in best else "halo lost"
        drawn.append(el("text", name, x=box.left, y=middle + 4, class_=weight))
    return drawn
