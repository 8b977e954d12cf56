"""Charts as SVG: bars, timelines, calibration curves, interval plots, accuracy against tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from textwrap import wrap

from caps.core.text import number, percent
from caps.reports.html import Node, el
from caps.statistics.estimates import pareto_front

WIDE = 640
LETTERS = 106  # of a note that fit into a line


@dataclass(frozen=True, slots=True)
class Scale:
    """From numbers to places."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Where a number lies."""
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low or 1)


def heading(title: str, notes: Sequence[str]) -> tuple[list[Node], float]:
    """The title of a picture and what must be said in it; and the height they take."""
    lines = [line for note in notes if note for line in wrap(note, LETTERS)]
    drawn = [el("text", title, x=0, y=15, class_="title")]
    drawn += [el("text", line, x=0, y=33 + 15 * place, class_="note") for place, line in enumerate(lines)]
    return drawn, 24 + 15 * len(lines)


def stem(x: float, high: float, low: float, class_: str = "whisker") -> Node:
    """An upright interval with ends."""
    return el(
        "path",
        d=f"M{x - 4:g} {high:g}H{x + 4:g}M{x:g} {high:g}V{low:g}M{x - 4:g} {low:g}H{x + 4:g}",
        class_=class_,
    )


def mark(x: float, y: float, class_: str, *, square: bool = False) -> Node:
    """A point: round, or square where two kinds must be told apart without colour."""
    if square:
        return el("rect", x=x - 5, y=y - 5, width=10, height=10, class_=class_)
    return el("circle", cx=x, cy=y, r=5.5, class_=class_)


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from below one to above the other."""
    rough = max(high - low, 1e-9) / 5
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [place * step for place in range(first, max(last, first + 1) + 1)]


def drawing(drawn: Sequence[Node], height: float, title: str, about: str | None = None) -> Node:
    """A chart of these elements, for eyes and for screen readers."""
    return el(
        "svg", el("title", title), None if about is None else el("desc", about), *drawn,
        viewBox=f"0 0 {WIDE} {max(height, 1):g}", role="img", class_="chart",
        aria_label=title if about is None else f"{title}. {about}",
    )  # fmt: skip


def framed(chart: Node, name: str) -> Node:
    """A chart on a page, where it may be wider than the window."""
    return el("div", chart, class_="scroll", tabindex=0, role="region", aria_label=name)


# Small charts of a run as trees: bars of tokens, calls over time. Pure.


@dataclass(frozen=True, slots=True)
class Bar:
    """A labelled bar made of parts: (class, how much)."""

    label: str
    parts: tuple[tuple[str, float], ...]
    note: str = ""

    @property
    def total(self) -> float:
        """Its length."""
        return sum(amount for _, amount in self.parts)


def bars(rows: Sequence[Bar], title: str) -> Node:
    """Horizontal bars below each other, on one scale."""
    most = max((row.total for row in rows), default=0) or 1
    left, right, step = 120, 150, 30
    drawn = []
    for place, row in enumerate(rows):
        x, y = float(left), place * step
        drawn.append(el("text", row.label, x=left - 10, y=y + 17, class_="who", text_anchor="end"))
        for class_, amount in row.parts:
            width = (WIDE - left - right) * amount / most
            if width:
                drawn.append(el("rect", x=x, y=y + 4, width=max(width, 1), height=18, class_=class_))
            x += width
        note = row.note or number(row.total, 0)
        drawn.append(el("text", note, x=x + 8, y=y + 17, class_="note"))
    return framed(drawing(drawn, len(rows) * step, title), title)


def timeline(stamps: Sequence[tuple[float, str]], title: str, *, columns: int = 60) -> Node | None:
    """Calls over time, by level: (seconds, level) each."""
    if len(stamps) < 2 or max(stamps)[0] <= min(stamps)[0]:
        return None
    start, end = min(stamps)[0], max(stamps)[0]
    heights = [{"E1": 0, "E2": 0} for _ in range(columns)]
    for at, level in stamps:
        column = heights[min(int((at - start) / (end - start) * columns), columns - 1)]
        column[level] = column.get(level, 0) + 1
    most, tall, drawn = max(sum(column.values()) for column in heights), 90, []
    for place, column in enumerate(heights):
        y = float(tall)
        for level, class_ in (("E1", "e1"), ("E2", "e2")):
            height = tall * column[level] / most
            y -= height
            if height:
                x = place * WIDE / columns
                drawn.append(el("rect", x=x, y=y, width=WIDE / columns - 1, height=height, class_=class_))
    drawn.append(el("path", d=f"M0 {tall}H{WIDE}", class_="axis"))
    drawn.append(el("text", "first call", x=0, y=tall + 16, class_="note"))
    last = f"{number(end - start, 1)} s later"
    drawn.append(el("text", last, x=WIDE, y=tall + 16, class_="note", text_anchor="end"))
    return framed(drawing(drawn, tall + 22, title), title)


# What a judge states of its verdicts against how often they are right. Pure.


CURVE_LEFT, CURVE_RIGHT, CURVE_HEIGHT, APART = 48, 190, 250, 7
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Verdicts that state about the same: where they stand, how often they are right, its interval."""

    at: float
    right: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The spots of one evidence level."""

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
    """The picture: `stated` are the marks of the axis along; `ideal` draws where a calibrated judge lies."""
    drawn, top = heading(title, notes)
    across = Scale(stated[0][0], stated[-1][0], CURVE_LEFT + 40, WIDE - CURVE_RIGHT - 40)
    upward = Scale(0.0, 1.0, top + CURVE_HEIGHT, top + 12)
    drawn += _curve_axes(stated, axis, across, upward)
    if ideal:
        line = f"M{across.at(0.5):g} {upward.at(0.5):g}L{across.at(1):g} {upward.at(1):g}"
        drawn.append(el("path", d=line, class_="chance"))
        drawn.append(
            el("text", "as often as it says", x=WIDE - CURVE_RIGHT + 12, y=upward.at(1) + 4, class_="note")
        )
    for place, one in enumerate(series):
        level, shift = "e2" if one.full else "e1", APART * (2 * place - len(series) + 1)
        seats = [(across.at(spot.at) + shift, upward.at(spot.right)) for spot in one.spots]
        joined = "".join(f"{'L' if number else 'M'}{x:g} {y:g}" for number, (x, y) in enumerate(seats))
        drawn.append(el("path", d=joined or "M0 0", class_=f"joined {level}"))
        for spot, (x, y) in zip(one.spots, seats, strict=True):
            drawn += [
                stem(x, upward.at(spot.high), upward.at(spot.low)),
                mark(x, y, f"at {level}", square=not one.full),
            ]
        y = upward.at(0.5) + 22 * (place + 1)
        drawn.append(mark(WIDE - CURVE_RIGHT + 20, y, f"at {level}", square=not one.full))
        drawn.append(el("text", one.name, x=WIDE - CURVE_RIGHT + 34, y=y + 4, class_="who"))
    return drawing(drawn, top + CURVE_HEIGHT + 48, title, _spoken(series, stated))


def _curve_axes(stated: Sequence[tuple[float, str]], axis: str, across: Scale, upward: Scale) -> list[Node]:
    drawn, end, foot = list[Node](), WIDE - CURVE_RIGHT, upward.start
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


def _spoken(series: Sequence[Series], stated: Sequence[tuple[float, str]]) -> str:
    names = dict(stated)
    return "; ".join(
        f"{one.name}, {names.get(spot.at) or f'{100 * spot.at:.0f} % stated'}: {100 * spot.right:.1f} % right"
        for one in series
        for spot in one.spots
    )


# Shares with their intervals, one below the other, against what a coin would do. Pure.


FOREST_LEFT, FOREST_RIGHT, STEP = 178, 132, 34


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A share with its interval, and a wider one where there is one; `full` is about whole answers."""

    label: str
    value: float
    low: float
    high: float
    wide: tuple[float, float] | None = None
    full: bool = True


def forest(
    rows: Sequence[Row], title: str, notes: Sequence[str] = (), *, line: tuple[float, str] | None = None
) -> Node:
    """The picture, from 0 to 100 %; `line` is a share to compare with, and its name."""
    drawn, top = heading(title, notes)
    top += 18
    across = Scale(0.0, 1.0, FOREST_LEFT, WIDE - FOREST_RIGHT)
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
    for place, row in enumerate(rows):
        drawn += _row(row, across, top + STEP * (place + 0.5))
    about = "; ".join(f"{row.label}: {spoken(row)}" for row in rows)
    return drawing(drawn, foot + 28, title, about)


def spoken(row: Row) -> str:
    """A share with its interval, in words."""
    return f"{percent(row.value)} % ({percent(row.low)} to {percent(row.high)})"


def _row(row: Row, across: Scale, y: float) -> list[Node]:
    level = "e2" if row.full else "e1"
    drawn = [el("text", row.label, x=FOREST_LEFT - 12, y=y + 4, class_="who", text_anchor="end")]
    if row.wide is not None:
        low, high = map(across.at, row.wide)
        drawn.append(
            el(
                "path",
                d=f"M{low:g} {y - 5:g}v10M{low:g} {y:g}H{high:g}M{high:g} {y - 5:g}v10",
                class_="whisker",
            )
        )
    drawn.append(
        el("path", d=f"M{across.at(row.low):g} {y:g}H{across.at(row.high):g}", class_=f"span {level}")
    )
    drawn.append(mark(across.at(row.value), y, f"at {level}", square=not row.full))
    drawn.append(el("text", f"{percent(row.value)} %", x=WIDE - FOREST_RIGHT + 14, y=y + 4, class_="who"))
    drawn.append(
        el(
            "text",
            f"{percent(row.low)} – {percent(row.high)}",
            x=WIDE,
            y=y + 4,
            class_="note",
            text_anchor="end",
        )
    )
    return drawn


# Where names of points go so that none covers another. Pure.


HIGH, LETTER = 15.0, 7.2  # of a line of a name, and of a letter in it, about
FAR = 9
LONGEST = 30


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    def shared(self, other: "Box") -> float:
        """The area two of them have in common."""
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        return wide * high if wide > 0 and high > 0 else 0.0


def shortened(name: str) -> str:
    """A name that fits into a picture; the table beside it has it whole."""
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def place_names(
    names: Sequence[str], points: Sequence[tuple[float, float]], taken: Sequence[Box], within: Box
) -> list[Box]:
    """A box for each name, near its point, the first ones first; `taken` is better left free."""
    dots = [Box(x - 7, y - 7, x + 7, y + 7) for x, y in points]
    placed: list[Box] = []
    for name, (x, y) in zip(names, points, strict=True):
        near = [(_cost(box, placed, dots, taken, within) + away, box) for away, box in _around(name, x, y)]
        placed.append(min(near, key=lambda one: one[0])[1])
    return placed


def _around(name: str, x: float, y: float) -> list[tuple[float, Box]]:
    """Boxes beside, above and below a point, with how far each lies from it."""
    wide = LETTER * len(name)
    found = []
    for step in range(FAR):
        for side in (-1, 1) if step else (1,):
            middle = y + side * step * HIGH * 0.75
            for left in (x + 10, x - 10 - wide) if step < 2 else (x + 10, x - 10 - wide, x - wide / 2):
                away = 8.0 * step + (4 if left < x else 0)
                found.append((away, Box(left, middle - HIGH / 2, left + wide, middle + HIGH / 2)))
    return found


def _cost(box: Box, placed: Sequence[Box], dots: Sequence[Box], taken: Sequence[Box], within: Box) -> float:
    outside = (box.right - box.left) * (box.bottom - box.top) - box.shared(within)
    names = sum(map(box.shared, placed))
    return 20 * (outside + names) + 6 * sum(map(box.shared, dots)) + 1.5 * sum(map(box.shared, taken))


# Accuracy against tokens: every strategy or run a point, and the front of the best bargains.


PLANE_LEFT, PLANE_RIGHT, PLANE_HEIGHT = 48, 16, 330


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A strategy or a run in the plane: tokens, accuracy, its interval; `chosen` where it is the advice."""

    label: str
    tokens: float
    share: float
    low: float
    high: float
    chosen: bool = False


def best_options(points: Sequence[Point]) -> list[int]:
    """Places of the points nothing is both cheaper and better than, the cheapest first."""
    return pareto_front([(point.tokens, point.share) for point in points])


def plane(points: Sequence[Point], title: str, notes: Sequence[str] = ()) -> Node:
    """The picture; a line joins the front, what lies behind it is hollow."""
    best = best_options(points)
    about = "On the front, the cheapest first: " + ", ".join(
        f"{points[place].label} ({100 * points[place].share:.1f} % for {number(points[place].tokens, 0)})"
        for place in best
    )
    drawn, top = heading(title, [*notes, _key(points, best)])
    low, high = min(point.low for point in points), max(point.high for point in points)
    most = max(point.tokens for point in points) or 1
    pad = 0.06 * (high - low) or 0.05
    # Names stand right of their points, so the last point must not be at the edge.
    across = Scale(0, most, PLANE_LEFT + 8, WIDE - PLANE_RIGHT - 70)
    upward = Scale(max(0.0, low - pad), min(1.0, high + pad), top + PLANE_HEIGHT, top + 12)
    up = [share for share in ticks(upward.low, upward.high) if upward.low <= share <= upward.high]
    out = [many for many in ticks(0, most) if many <= most * 1.1]
    drawn += _plane_axes(up, out, across, upward)
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
    return drawing(drawn, top + PLANE_HEIGHT + 48, title, about)


def _key(points: Sequence[Point], best: Sequence[int]) -> str:
    words = ["filled and joined: nothing is both cheaper and better"] if len(best) < len(points) else []
    words += ["ringed: the advice"] if any(point.chosen for point in points) else []
    return "; ".join(words).capitalize() + "." if words else ""


def _plane_axes(up: Sequence[float], out: Sequence[float], across: Scale, upward: Scale) -> list[Node]:
    drawn, end, foot = list[Node](), WIDE - PLANE_RIGHT, upward.start
    for share in up:
        y = upward.at(share)
        drawn.append(el("path", d=f"M{PLANE_LEFT} {y:g}H{end}", class_="grid"))
        drawn.append(
            el("text", f"{100 * share:.0f} %", x=PLANE_LEFT - 8, y=y + 4, class_="note", text_anchor="end")
        )
    for many in out:
        x = across.at(many)
        drawn.append(el("path", d=f"M{x:g} {foot:g}v5", class_="axis"))
        drawn.append(el("text", number(many, 0), x=x, y=foot + 19, class_="note", text_anchor="middle"))
    middle = (PLANE_LEFT + end) / 2
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
    room = Box(PLANE_LEFT, top, WIDE, top + PLANE_HEIGHT)
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
