"""SVG charts: bars, timelines, calibration curves, interval plots, accuracy against tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from textwrap import wrap

from caps.core.text import number, percent
from caps.reports.html import Node, el
from caps.statistics.estimates import front

WIDTH = 640
NOTE_CHARACTERS = 106  # per line of a note


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear scale from values to coordinates."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the coordinate of a value."""
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low or 1)


def heading(title: str, notes: Sequence[str]) -> tuple[list[Node], float]:
    """Draw the title and notes of a chart; return them with their height."""
    lines = [line for note in notes if note for line in wrap(note, NOTE_CHARACTERS)]
    drawn = [el("text", title, x=0, y=15, class_="title")]
    drawn += [el("text", line, x=0, y=33 + 15 * index, class_="note") for index, line in enumerate(lines)]
    return drawn, 24 + 15 * len(lines)


def whisker(x: float, high: float, low: float, class_: str = "whisker") -> Node:
    """Draw a vertical interval with end caps."""
    return el(
        "path",
        d=f"M{x - 4:g} {high:g}H{x + 4:g}M{x:g} {high:g}V{low:g}M{x - 4:g} {low:g}H{x + 4:g}",
        class_=class_,
    )


def mark(x: float, y: float, class_: str, *, square: bool = False) -> Node:
    """Draw a point, round or square, so that two kinds differ without colour."""
    if square:
        return el("rect", x=x - 5, y=y - 5, width=10, height=10, class_=class_)
    return el("circle", cx=x, cy=y, r=5.5, class_=class_)


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers that cover an interval."""
    rough = max(high - low, 1e-9) / 5
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [index * step for index in range(first, max(last, first + 1) + 1)]


def drawing(drawn: Sequence[Node], height: float, title: str, about: str | None = None) -> Node:
    """Create an SVG of these elements, with a description for screen readers."""
    return el(
        "svg", el("title", title), None if about is None else el("desc", about), *drawn,
        viewBox=f"0 0 {WIDTH} {max(height, 1):g}", role="img", class_="chart",
        aria_label=title if about is None else f"{title}. {about}",
    )  # fmt: skip


def framed(chart: Node, name: str) -> Node:
    """Put a chart into a region that scrolls if the window is narrow."""
    return el("div", chart, class_="scroll", tabindex=0, role="region", aria_label=name)


@dataclass(frozen=True, slots=True)
class Bar:
    """A labelled bar of parts: (CSS class, length)."""

    label: str
    parts: tuple[tuple[str, float], ...]
    note: str = ""

    @property
    def total(self) -> float:
        """The length of the bar."""
        return sum(amount for _, amount in self.parts)


def bars(rows: Sequence[Bar], title: str) -> Node:
    """Draw horizontal bars on one scale."""
    longest = max((row.total for row in rows), default=0) or 1
    left, right, step = 120, 150, 30
    drawn = []
    for index, row in enumerate(rows):
        x, y = float(left), index * step
        drawn.append(el("text", row.label, x=left - 10, y=y + 17, class_="who", text_anchor="end"))
        for class_, amount in row.parts:
            width = (WIDTH - left - right) * amount / longest
            if width:
                drawn.append(el("rect", x=x, y=y + 4, width=max(width, 1), height=18, class_=class_))
            x += width
        note = row.note or number(row.total, 0)
        drawn.append(el("text", note, x=x + 8, y=y + 17, class_="note"))
    return framed(drawing(drawn, len(rows) * step, title), title)


def timeline(stamps: Sequence[tuple[float, str]], title: str, *, columns: int = 60) -> Node | None:
    """Draw calls over time from (seconds, level) pairs; None if there are fewer than two."""
    if len(stamps) < 2 or max(stamps)[0] <= min(stamps)[0]:
        return None
    start, end = min(stamps)[0], max(stamps)[0]
    heights = [{"E1": 0, "E2": 0} for _ in range(columns)]
    for at, level in stamps:
        column = heights[min(int((at - start) / (end - start) * columns), columns - 1)]
        column[level] = column.get(level, 0) + 1
    most, bottom, drawn = max(sum(column.values()) for column in heights), 90, []
    for index, column in enumerate(heights):
        y = float(bottom)
        for level, class_ in (("E1", "e1"), ("E2", "e2")):
            height = bottom * column[level] / most
            y -= height
            if height:
                x = index * WIDTH / columns
                drawn.append(el("rect", x=x, y=y, width=WIDTH / columns - 1, height=height, class_=class_))
    drawn.append(el("path", d=f"M0 {bottom}H{WIDTH}", class_="axis"))
    drawn.append(el("text", "first call", x=0, y=bottom + 16, class_="note"))
    last = f"{number(end - start, 1)} s later"
    drawn.append(el("text", last, x=WIDTH, y=bottom + 16, class_="note", text_anchor="end"))
    return framed(drawing(drawn, bottom + 22, title), title)


CURVE_LEFT, CURVE_RIGHT, CURVE_HEIGHT, SERIES_SHIFT = 48, 190, 250, 7
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Verdicts of about the same stated confidence (`at`): the share that is right, and its interval."""

    at: float
    right: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The points of one evidence level."""

    name: str
    spots: Sequence[Spot]
    full: bool


def curve(
    series: Sequence[Series],
    title: str,
    notes: Sequence[str],
    *,
    stated: Sequence[tuple[float, str]],
    axis: str,
    ideal: bool,
) -> Node:
    """Draw stated confidence against accuracy.

    `stated` holds the marks of the horizontal axis; `ideal` adds the line of a calibrated judge.
    """
    drawn, top = heading(title, notes)
    across = Scale(stated[0][0], stated[-1][0], CURVE_LEFT + 40, WIDTH - CURVE_RIGHT - 40)
    upward = Scale(0.0, 1.0, top + CURVE_HEIGHT, top + 12)
    drawn += _curve_axes(stated, axis, across, upward)
    if ideal:
        line = f"M{across.at(0.5):g} {upward.at(0.5):g}L{across.at(1):g} {upward.at(1):g}"
        drawn.append(el("path", d=line, class_="chance"))
        drawn.append(
            el("text", "as often as it says", x=WIDTH - CURVE_RIGHT + 12, y=upward.at(1) + 4, class_="note")
        )
    for index, one in enumerate(series):
        level, shift = "e2" if one.full else "e1", SERIES_SHIFT * (2 * index - len(series) + 1)
        points = [(across.at(spot.at) + shift, upward.at(spot.right)) for spot in one.spots]
        joined = "".join(f"{'L' if number else 'M'}{x:g} {y:g}" for number, (x, y) in enumerate(points))
        drawn.append(el("path", d=joined or "M0 0", class_=f"joined {level}"))
        for spot, (x, y) in zip(one.spots, points, strict=True):
            drawn += [
                whisker(x, upward.at(spot.high), upward.at(spot.low)),
                mark(x, y, f"at {level}", square=not one.full),
            ]
        y = upward.at(0.5) + 22 * (index + 1)
        drawn.append(mark(WIDTH - CURVE_RIGHT + 20, y, f"at {level}", square=not one.full))
        drawn.append(el("text", one.name, x=WIDTH - CURVE_RIGHT + 34, y=y + 4, class_="who"))
    return drawing(drawn, top + CURVE_HEIGHT + 48, title, _curve_description(series, stated))


def _curve_axes(stated: Sequence[tuple[float, str]], axis: str, across: Scale, upward: Scale) -> list[Node]:
    drawn, end, foot = list[Node](), WIDTH - CURVE_RIGHT, upward.start
    for share in TICKS:
        y = upward.at(share)
        drawn.append(el("path", d=f"M{CURVE_LEFT} {y:g}H{end}", class_="chance" if share == 0.5 else "grid"))
        drawn.append(
            el("text", f"{100 * share:.0f} %", x=CURVE_LEFT - 8, y=y + 4, class_="note", text_anchor="end")
        )
    drawn.append(el("text", "a coin", x=end + 12, y=upward.at(0.5) + 4, class_="note"))
    for value, name in stated:
        drawn.append(el("text", name, x=across.at(value), y=foot + 19, class_="note", text_anchor="middle"))
    drawn.append(el("text", axis, x=(CURVE_LEFT + end) / 2, y=foot + 39, class_="note", text_anchor="middle"))
    return drawn


def _curve_description(series: Sequence[Series], stated: Sequence[tuple[float, str]]) -> str:
    names = dict(stated)
    return "; ".join(
        f"{one.name}, {names.get(spot.at) or f'{100 * spot.at:.0f} % stated'}: {100 * spot.right:.1f} % right"
        for one in series
        for spot in one.spots
    )


FOREST_LEFT, FOREST_RIGHT, STEP = 178, 132, 34


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A share with its interval and an optional wider one; `full` marks figures of whole answers."""

    label: str
    value: float
    low: float
    high: float
    wide: tuple[float, float] | None = None
    full: bool = True


def forest(
    rows: Sequence[Row], title: str, notes: Sequence[str] = (), *, line: tuple[float, str] | None = None
) -> Node:
    """Draw shares with intervals from 0 to 100 %; `line` is a share to compare with and its name."""
    drawn, top = heading(title, notes)
    top += 18
    across = Scale(0.0, 1.0, FOREST_LEFT, WIDTH - FOREST_RIGHT)
    foot = top + STEP * len(rows)
    for share in TICKS:
        x = across.at(share)
        drawn.append(el("path", d=f"M{x:g} {top:g}V{foot:g}", class_="grid"))
        drawn.append(
            el("text", f"{100 * share:.0f} %", x=x, y=foot + 18, class_="note", text_anchor="middle")
        )
    if line is not None:
        x = across.at(line[0])
        drawn.append(el("path", d=f"M{x:g} {top - 4:g}V{foot:g}", class_="chance"))
        drawn.append(el("text", line[1], x=x, y=top - 8, class_="note", text_anchor="middle"))
    for index, row in enumerate(rows):
        drawn += _row(row, across, top + STEP * (index + 0.5))
    about = "; ".join(
        f"{row.label}: {percent(row.value)} % ({percent(row.low)} to {percent(row.high)})" for row in rows
    )
    return drawing(drawn, foot + 28, title, about)


def _row(row: Row, across: Scale, y: float) -> list[Node]:
    level = "e2" if row.full else "e1"
    drawn = [el("text", row.label, x=FOREST_LEFT - 12, y=y + 4, class_="who", text_anchor="end")]
    if row.wide is not None:
        low, high = map(across.at, row.wide)
        path = f"M{low:g} {y - 5:g}v10M{low:g} {y:g}H{high:g}M{high:g} {y - 5:g}v10"
        drawn.append(el("path", d=path, class_="whisker"))
    drawn.append(
        el("path", d=f"M{across.at(row.low):g} {y:g}H{across.at(row.high):g}", class_=f"span {level}")
    )
    drawn.append(mark(across.at(row.value), y, f"at {level}", square=not row.full))
    drawn.append(el("text", f"{percent(row.value)} %", x=WIDTH - FOREST_RIGHT + 14, y=y + 4, class_="who"))
    interval = f"{percent(row.low)} – {percent(row.high)}"
    return [*drawn, el("text", interval, x=WIDTH, y=y + 4, class_="note", text_anchor="end")]


NAME_HEIGHT, CHARACTER_WIDTH = 15.0, 7.2  # approximate sizes of a name
NAME_STEPS = 9
LONGEST_NAME = 30


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: "Box") -> float:
        """Return the common area of two boxes."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return width * height if width > 0 and height > 0 else 0.0


def shorten(name: str) -> str:
    """Shorten a name for a chart; the table beside the chart has the full name."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def place_names(
    names: Sequence[str], points: Sequence[tuple[float, float]], taken: Sequence[Box], within: Box
) -> list[Box]:
    """Place each name near its point without covering others, in order; `taken` should stay free."""
    dots = [Box(x - 7, y - 7, x + 7, y + 7) for x, y in points]
    placed: list[Box] = []
    for name, (x, y) in zip(names, points, strict=True):
        near = [
            (_cost(box, placed, dots, taken, within) + distance, box) for distance, box in _around(name, x, y)
        ]
        placed.append(min(near, key=lambda one: one[0])[1])
    return placed


def _around(name: str, x: float, y: float) -> list[tuple[float, Box]]:
    """Return boxes beside, above and below a point, each with its distance."""
    width = CHARACTER_WIDTH * len(name)
    boxes = []
    for step in range(NAME_STEPS):
        for side in (-1, 1) if step else (1,):
            middle = y + side * step * NAME_HEIGHT * 0.75
            top, bottom = middle - NAME_HEIGHT / 2, middle + NAME_HEIGHT / 2
            lefts = [x + 10, x - 10 - width, *([] if step < 2 else [x - width / 2])]
            for left in lefts:
                distance = 8.0 * step + (4 if left < x else 0)
                boxes.append((distance, Box(left, top, left + width, bottom)))
    return boxes


def _cost(box: Box, placed: Sequence[Box], dots: Sequence[Box], taken: Sequence[Box], within: Box) -> float:
    outside = (box.right - box.left) * (box.bottom - box.top) - box.overlap(within)
    names = sum(map(box.overlap, placed))
    return 20 * (outside + names) + 6 * sum(map(box.overlap, dots)) + 1.5 * sum(map(box.overlap, taken))


PLANE_LEFT, PLANE_RIGHT, PLANE_HEIGHT = 48, 16, 330


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A strategy or run: tokens, accuracy and its interval; `chosen` marks the recommended one."""

    label: str
    tokens: float
    share: float
    low: float
    high: float
    chosen: bool = False


def best_options(points: Sequence[Point]) -> list[int]:
    """Return the indices of the Pareto front, the cheapest first."""
    return front([(point.tokens, point.share) for point in points])


def plane(points: Sequence[Point], title: str, notes: Sequence[str] = ()) -> Node:
    """Draw accuracy against tokens; a line joins the Pareto front, other points are hollow."""
    best = best_options(points)
    about = "On the front, the cheapest first: " + ", ".join(
        f"{point.label} ({100 * point.share:.1f} % for {number(point.tokens, 0)})"
        for point in (points[index] for index in best)
    )
    drawn, top = heading(title, [*notes, _key(points, best)])
    low, high = min(point.low for point in points), max(point.high for point in points)
    most = max(point.tokens for point in points) or 1
    pad = 0.06 * (high - low) or 0.05
    # Names are right of their points, so the last point must not be at the edge.
    across = Scale(0, most, PLANE_LEFT + 8, WIDTH - PLANE_RIGHT - 70)
    upward = Scale(max(0.0, low - pad), min(1.0, high + pad), top + PLANE_HEIGHT, top + 12)
    up = [share for share in ticks(upward.low, upward.high) if upward.low <= share <= upward.high]
    out = [tokens for tokens in ticks(0, most) if tokens <= most * 1.1]
    drawn += _plane_axes(up, out, across, upward)
    positions = [(across.at(point.tokens), upward.at(point.share)) for point in points]
    steps = "".join(
        f"{'L' if index else 'M'}{x:g} {y:g}" for index, (x, y) in enumerate(positions[one] for one in best)
    )
    drawn.append(el("path", d=steps, class_="front"))
    whiskers = [
        (x, upward.at(point.high), upward.at(point.low))
        for point, (x, _) in zip(points, positions, strict=True)
    ]
    drawn += [whisker(*ends) for ends in whiskers]
    drawn += _names(points, positions, [Box(x - 4, high, x + 4, low) for x, high, low in whiskers], best, top)
    for index, (point, (x, y)) in enumerate(zip(points, positions, strict=True)):
        if point.chosen:
            drawn.append(el("circle", cx=x, cy=y, r=10, class_="ring"))
        drawn.append(mark(x, y, "dot best" if index in best else "dot behind"))
    return drawing(drawn, top + PLANE_HEIGHT + 48, title, about)


def _key(points: Sequence[Point], best: Sequence[int]) -> str:
    parts = ["filled and joined: no other is both cheaper and better"] if len(best) < len(points) else []
    parts += ["ringed: recommended"] if any(point.chosen for point in points) else []
    return "; ".join(parts).capitalize() + "." if parts else ""


def _plane_axes(up: Sequence[float], out: Sequence[float], across: Scale, upward: Scale) -> list[Node]:
    drawn, end, foot = list[Node](), WIDTH - PLANE_RIGHT, upward.start
    for share in up:
        y = upward.at(share)
        drawn.append(el("path", d=f"M{PLANE_LEFT} {y:g}H{end}", class_="grid"))
        drawn.append(
            el("text", f"{100 * share:.0f} %", x=PLANE_LEFT - 8, y=y + 4, class_="note", text_anchor="end")
        )
    for tokens in out:
        x = across.at(tokens)
        drawn.append(el("path", d=f"M{x:g} {foot:g}v5", class_="axis"))
        drawn.append(el("text", number(tokens, 0), x=x, y=foot + 19, class_="note", text_anchor="middle"))
    axis, middle = "tokens read by the judge per case", (PLANE_LEFT + end) / 2
    return [*drawn, el("text", axis, x=middle, y=foot + 39, class_="note", text_anchor="middle")]


def _names(
    points: Sequence[Point],
    positions: Sequence[tuple[float, float]],
    taken: Sequence[Box],
    best: Sequence[int],
    top: float,
) -> list[Node]:
    """Draw the names, the most important ones first, with a thin line to a name that had to move."""
    order = sorted(range(len(points)), key=lambda one: (not points[one].chosen, one not in best))
    names = [shorten(points[one].label) for one in order]
    room = Box(PLANE_LEFT, top, WIDTH, top + PLANE_HEIGHT)
    drawn = []
    boxes = place_names(names, [positions[one] for one in order], taken, room)
    for one, name, box in zip(order, names, boxes, strict=True):
        x, y = positions[one]
        middle = (box.top + box.bottom) / 2
        if abs(middle - y) > NAME_HEIGHT:
            edge = min(max(x, box.left), box.right)
            foot = box.bottom if y > middle else box.top
            drawn.append(el("path", d=f"M{x:g} {y:g}L{edge:g} {foot:g}", class_="leader"))
        weight = "halo won" if points[one].chosen else "halo" if one in best else "halo lost"
        drawn.append(el("text", name, x=box.left, y=middle + 4, class_=weight))
    return drawn
