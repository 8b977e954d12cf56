"""Charts as SVG: bars, calls over time, reliability, intervals, accuracy against tokens, panels of figures.

One look for all pages and files. The room for labels is measured, marks carry their values as tooltips, and
every chart is described in words for screen readers. A chart takes its width: pages draw each one twice, for
wide and narrow windows, and show the one that fits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from textwrap import wrap
from unicodedata import east_asian_width

from caps.core.text import number, percent
from caps.reports.html import Node, el
from caps.statistics.estimates import pareto_front

WIDTH, NARROW = 640, 350
HALF = 470  # of a chart that stands beside another
LEAST_WIDE = 440  # narrower charts have their labels above and below, not beside
TEXT, SMALL = 13.0, 11.5  # font sizes, as in chart.css
STEP = 34  # height of a row
_THIN, _BROAD = frozenset("ijlI.,:;|!'()[] "), frozenset("mwMW@%–…")


def text_width(text: str, size: float = TEXT) -> float:
    """The width of a text in a broad sans-serif font: labels fit whichever font the reader has."""
    return size * sum(_letter_width(letter) for letter in text)


def _letter_width(letter: str) -> float:
    if letter in _THIN:
        return 0.36
    if letter in _BROAD:
        return 0.95
    if letter.isascii():
        return 0.68 if letter.isupper() else 0.61
    return 1.05 if east_asian_width(letter) in "WF" else 0.66


def fitted(text: str, room: float, size: float = TEXT) -> str:
    """A text shortened to a width, with an ellipsis."""
    if text_width(text, size) <= room:
        return text
    while text and text_width(text + "…", size) > room:
        text = text[:-1]
    return text.rstrip() + "…"


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


def shown_chart(draw: Callable[[int], Node], width: int = WIDTH) -> Node:
    """A chart for wide and for narrow windows; the style of a page shows one of the two."""
    return el("div", draw(width), draw(NARROW), class_="drawn")


def hover(words: str, *drawn: Node) -> Node:
    """Marks with their value as a tooltip."""
    return el("g", el("title", words), *drawn)


def heading(title: str, notes: Sequence[str], width: int = WIDTH) -> tuple[list[Node], float]:
    """Draw the title and notes of a chart; return them with their height."""
    titles = wrap(title, max(int(width / 8.2), 20))
    lines = [line for note in notes if note for line in wrap(note, max(int(width / 6.3), 20))]
    drawn = [el("text", line, x=0, y=15 + 18 * index, class_="title") for index, line in enumerate(titles)]
    top = 18 * len(titles)
    drawn += [
        el("text", line, x=0, y=top + 15 + 15 * index, class_="note") for index, line in enumerate(lines)
    ]
    return drawn, top + 6 + 15 * len(lines)


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


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return at most about `most` round numbers that cover an interval."""
    rough = max(high - low, 1e-9) / max(most - 1, 1)
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * (1 - 1e-9))
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [index * step for index in range(first, max(last, first + 1) + 1)]


def brief(value: float) -> str:
    """A number as an axis shows it: 950, 1.5k, 20k, 3M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{number(value / size, 2 if value < 10 * size else 1)}{unit}"
    return number(value, 3)


def drawing(
    drawn: Sequence[Node], height: float, title: str, about: str | None = None, width: int = WIDTH
) -> Node:
    """Create an SVG of these elements, with a description for screen readers."""
    return el(
        "svg", el("title", title), None if about is None else el("desc", about), *drawn,
        viewBox=f"0 0 {width} {max(height, 1):g}", role="img", width=width,
        class_="chart narrow" if width < LEAST_WIDE else "chart",
        aria_label=title if about is None else f"{title}. {about}",
    )  # fmt: skip


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

    @property
    def value(self) -> str:
        """The length in words."""
        return self.note or number(self.total, 0)


def bars(rows: Sequence[Bar], title: str, *, reference: tuple[float, str] | None = None) -> Node:
    """Draw horizontal bars on one scale; `reference` is a length to compare with and its name.

    A reference far beyond the bars is named beyond the edge: drawn to scale, it would flatten them.
    """
    return shown_chart(lambda width: _bars(rows, title, reference, width))


def _bars(rows: Sequence[Bar], title: str, reference: tuple[float, str] | None, width: int) -> Node:
    longest = max((row.total for row in rows), default=0) or 1
    left = min(max((text_width(row.label) for row in rows), default=0) + 12, 0.42 * width)
    right = max((text_width(row.value, SMALL) for row in rows), default=0) + 12
    room, step = max(width - left - right, 30), 30
    drawn: list[Node] = []
    foot = len(rows) * step
    if reference is not None:
        shown = reference[0] <= 1.25 * longest
        longest = max(longest, reference[0]) if shown else longest
        x = left + room * min(reference[0] / longest, 1)
        path = (
            f"M{x:g} 0V{foot + 4}"
            if shown
            else f"M{x:g} 0V{foot + 4}M{x + 4:g} {foot / 2:g}h9m-4 -4l4 4l-4 4"
        )
        drawn.append(hover(reference[1], el("path", d=path, class_="chance")))
        half = text_width(reference[1], SMALL) / 2
        at = min(max(x, half), max(width - half, half))
        label = fitted(reference[1], width, SMALL)
        drawn.append(el("text", label, x=at, y=foot + 19, class_="note", text_anchor="middle"))
        foot += 24
    for index, row in enumerate(rows):
        x, y = left, index * step
        inner = [
            el("text", fitted(row.label, left - 10), x=left - 10, y=y + 18, class_="who", text_anchor="end")
        ]
        for class_, amount in row.parts:
            length = room * amount / longest
            if amount > 0:
                inner.append(el("rect", x=x, y=y + 5, width=max(length, 3), height=18, rx=2, class_=class_))
            x += length
        inner.append(el("text", row.value, x=x + 8, y=y + 18, class_="note halo"))
        drawn.append(hover(f"{row.label}: {row.value}", *inner))
    about = "; ".join(
        [f"{row.label}: {row.value}" for row in rows] + ([] if reference is None else [reference[1]])
    )
    return drawing(drawn, foot, title, about, width)


MINUTE, HOUR = 60, 3600


def duration(seconds: float) -> str:
    """A duration in the unit that suits it: 0.5 s, 12 s, 3 min, 2 h 5 min."""
    if seconds < MINUTE:
        return f"{number(seconds, 1 if seconds < 10 else 0)} s"
    if seconds < HOUR:
        return f"{number(seconds / MINUTE, 1 if seconds < 10 * MINUTE else 0)} min"
    hours, rest = divmod(round(seconds / MINUTE), 60)
    return f"{hours:,} h" + (f" {rest} min" if rest else "")


def timeline(stamps: Sequence[tuple[float, str]], title: str) -> Node | None:
    """Draw calls over time from (seconds, level) pairs; None if there are fewer than two."""
    if len(stamps) < 2 or max(stamps)[0] <= min(stamps)[0]:
        return None
    return shown_chart(lambda width: _timeline(stamps, title, width))


def _timeline(stamps: Sequence[tuple[float, str]], title: str, width: int) -> Node:
    start, end = min(stamps)[0], max(stamps)[0]
    span, columns = end - start, 60 if width >= LEAST_WIDE else 36
    heights = [dict[str, int]() for _ in range(columns)]
    for at, level in stamps:
        column = heights[min(int((at - start) / span * columns), columns - 1)]
        column[level] = column.get(level, 0) + 1
    most, top, bottom = max(sum(column.values()) for column in heights), 8, 98
    up = [value for value in ticks(0, most, 3) if value <= most and value == int(value)]
    left = max(text_width(number(value, 0), SMALL) for value in up) + 10
    across, upward = Scale(0, span, left, width - 4), Scale(0, most, bottom, top)
    drawn = [el("path", d=f"M{left:g} {upward.at(value):g}H{width}", class_="grid") for value in up]
    drawn += [
        el("text", number(value, 0), x=left - 6, y=upward.at(value) + 4, class_="note", text_anchor="end")
        for value in up
    ]
    each = span / columns
    for index, column in enumerate(heights):
        y, inner = float(bottom), list[Node]()
        for level, class_ in (("E1", "e1"), ("E2", "e2")):
            height = bottom - upward.at(column.get(level, 0))
            y -= height
            if height:
                x, wide = across.at(index * each), across.at(each) - across.at(0) - 1
                inner.append(el("rect", x=x, y=y, width=max(wide, 1), height=height, class_=class_))
        if inner:
            said = ", ".join(f"{count} at {level}" for level, count in sorted(column.items()))
            drawn.append(hover(f"{duration(index * each)} to {duration((index + 1) * each)}: {said}", *inner))
    drawn += _seconds_axis(span, across, bottom, width)
    about = f"{len(stamps)} calls in {duration(span)}; at most {most} in {duration(each)}"
    return drawing(drawn, bottom + 38, title, about, width)


def _seconds_axis(span: float, across: Scale, foot: float, width: int) -> list[Node]:
    unit = HOUR if span >= 2 * HOUR else MINUTE if span >= 2 * MINUTE else 1
    name = {HOUR: "hours", MINUTE: "minutes", 1: "seconds"}[unit]
    drawn = [el("path", d=f"M{across.start:g} {foot:g}H{width}", class_="axis")]
    for value in ticks(0, span / unit, 6):
        x, label = across.at(value * unit), number(value, 3)
        if x <= width - text_width(label, SMALL) / 2:
            drawn.append(el("path", d=f"M{x:g} {foot:g}v4", class_="axis"))
            drawn.append(el("text", label, x=x, y=foot + 17, class_="note", text_anchor="middle"))
    middle = (across.start + width) / 2
    axis = f"{name} since the first call"
    return [*drawn, el("text", axis, x=middle, y=foot + 33, class_="note", text_anchor="middle")]


TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Choices or verdicts of about the same confidence (`at`): the share that is right, with its interval."""

    at: float
    right: float
    low: float
    high: float
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points that belong together, such as those of one evidence level."""

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
    ideal: str = "",
    coin: bool = True,
    width: int = WIDTH,
) -> Node:
    """Draw stated confidence against accuracy.

    `stated` holds the marks of the horizontal axis; `ideal` names the line of perfect calibration, where
    there is one; `coin` marks 50 %.
    """
    drawn, top = heading(title, notes, width)
    height = 220 if width >= LEAST_WIDE else 190
    # Beside the plane: the names of the series; a narrow chart has them below.
    names = [one.name for one in series if one.name]
    beside = max((text_width(name) + 40 for name in names), default=20) if width >= LEAST_WIDE else 12
    beside = max(beside, text_width(ideal, SMALL) + 16 if ideal and width >= LEAST_WIDE else 0)
    left, end = 48, width - beside
    pad = 34 if len(stated) == 2 else 12
    across = Scale(stated[0][0], stated[-1][0], left + pad, end - pad)
    upward = Scale(0.0, 1.0, top + height, top + 12)
    for share in TICKS:
        y = upward.at(share)
        class_ = "chance" if coin and share == 0.5 else "grid"
        drawn.append(el("path", d=f"M{left} {y:g}H{end:g}", class_=class_))
        drawn.append(
            el("text", f"{100 * share:.0f} %", x=left - 8, y=y + 4, class_="note", text_anchor="end")
        )
    if coin:
        drawn.append(el("text", "a coin", x=left + 4, y=upward.at(0.5) - 4, class_="note halo"))
    foot = upward.start
    step = 1 if width >= LEAST_WIDE or len(stated) < 7 else 2
    for value, name in stated[::step]:
        drawn.append(el("text", name, x=across.at(value), y=foot + 19, class_="note", text_anchor="middle"))
    drawn.append(el("text", axis, x=(left + end) / 2, y=foot + 39, class_="note", text_anchor="middle"))
    if ideal:
        start = max(stated[0][0], 0.0)
        line = f"M{across.at(start):g} {upward.at(start):g}L{across.at(1):g} {upward.at(1):g}"
        drawn.append(hover(ideal, el("path", d=line, class_="chance")))
        if width >= LEAST_WIDE:
            drawn.append(el("text", ideal, x=end + 8, y=upward.at(1) + 4, class_="note"))
    for index, one in enumerate(series):
        drawn += _series(one, 7 * (2 * index - len(series) + 1), across, upward)
    foot += 48
    for index, one in enumerate(one for one in series if one.name):
        x, y = (
            (end + 18, upward.at(0.55) + 22 * index)
            if width >= LEAST_WIDE
            else (left, foot + 12 + 22 * index)
        )
        drawn.append(mark(x, y, f"at {'e2' if one.full else 'e1'}", square=not one.full))
        drawn.append(el("text", one.name, x=x + 14, y=y + 4, class_="who"))
    foot += 0 if width >= LEAST_WIDE else 22 * len(names) + 8
    return drawing(drawn, foot, title, _curve_description(series, stated), width)


def _series(one: Series, shift: float, across: Scale, upward: Scale) -> list[Node]:
    level = "e2" if one.full else "e1"
    points = [(across.at(spot.at) + shift, upward.at(spot.right)) for spot in one.spots]
    joined = "".join(f"{'L' if place else 'M'}{x:g} {y:g}" for place, (x, y) in enumerate(points))
    drawn = [el("path", d=joined, class_=f"joined {level}")] if points else []
    for spot, (x, y) in zip(one.spots, points, strict=True):
        counted = f" of {spot.count}" if spot.count else ""
        said = f"{percent(spot.right)} %{counted} right ({percent(spot.low)} to {percent(spot.high)})"
        drawn.append(
            hover(
                f"{one.name}: {said}" if one.name else f"said about {percent(spot.at)} %: {said}",
                whisker(x, upward.at(spot.high), upward.at(spot.low)),
                mark(x, y, f"at {level}", square=not one.full),
            )
        )
    return drawn


def _curve_description(series: Sequence[Series], stated: Sequence[tuple[float, str]]) -> str:
    names = dict(stated)
    return "; ".join(
        f"{one.name or 'choices'}, {names.get(spot.at) or f'{100 * spot.at:.0f} % stated'}: "
        f"{100 * spot.right:.1f} % right"
        for one in series
        for spot in one.spots
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A share with its interval; `full` marks figures of whole answers. Equal ends draw no interval."""

    label: str
    value: float
    low: float
    high: float
    full: bool = True


def forest(
    rows: Sequence[Row],
    title: str,
    notes: Sequence[str] = (),
    *,
    line: tuple[float, str] | None = None,
    width: int = WIDTH,
) -> Node:
    """Draw shares with intervals from 0 to 100 %; `line` is a share to compare with and its name."""
    drawn, top = heading(title, notes, width)
    top += 18 if line is not None else 4
    is_narrow, has_room = width < WIDTH, width >= LEAST_WIDE
    interval = {row.label: _interval(row) for row in rows}
    left = min(max(text_width(row.label) for row in rows) + 14, 0.45 * width) if not is_narrow else 6
    right = max(text_width(f"{percent(row.value)} %") for row in rows) + 20
    right += max(text_width(words, SMALL) for words in interval.values()) + 4 if has_room else 0
    step = STEP if not is_narrow else 46
    across, foot = Scale(0.0, 1.0, left + 8, width - right - 6), top + step * len(rows)
    for share in TICKS:
        x = across.at(share)
        drawn.append(el("path", d=f"M{x:g} {top:g}V{foot:g}", class_="grid"))
        anchor = "middle" if share or not is_narrow else "start"
        drawn.append(el("text", f"{100 * share:.0f} %", x=x, y=foot + 18, class_="note", text_anchor=anchor))
    if line is not None:
        x = across.at(line[0])
        drawn.append(el("path", d=f"M{x:g} {top - 4:g}V{foot:g}", class_="chance"))
        drawn.append(el("text", line[1], x=x, y=top - 8, class_="note", text_anchor="middle"))
    for index, row in enumerate(rows):
        y = top + step * (index + 0.5) + (8 if is_narrow else 0)
        level = "e2" if row.full else "e1"
        label = fitted(row.label, (width if is_narrow else left) - 12)
        at, anchor = (0.0, "start") if is_narrow else (left - 10, "end")
        inner = [
            el("text", label, x=at, y=y - 14 if is_narrow else y + 4, class_="who halo", text_anchor=anchor)
        ]
        if row.high > row.low:
            span = f"M{across.at(row.low):g} {y:g}H{across.at(row.high):g}"
            inner.append(el("path", d=span, class_=f"span {level}"))
        inner.append(mark(across.at(row.value), y, f"at {level}", square=not row.full))
        x = width - right + 14
        inner.append(el("text", f"{percent(row.value)} %", x=x, y=y + 4, class_="who"))
        if has_room:
            inner.append(el("text", interval[row.label], x=width, y=y + 4, class_="note", text_anchor="end"))
        drawn.append(hover(f"{row.label}: {percent(row.value)} % {interval[row.label]}".strip(), *inner))
    about = "; ".join(f"{row.label}: {percent(row.value)} % {interval[row.label]}".strip() for row in rows)
    return drawing(drawn, foot + 28, title, about, width)


def _interval(row: Row) -> str:
    return f"({percent(row.low)} to {percent(row.high)})" if row.high > row.low else ""


NAME_HEIGHT = 15.0
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
    width = text_width(name)
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
    return pareto_front([(point.tokens, point.share) for point in points])


def plane(points: Sequence[Point], title: str, notes: Sequence[str] = (), *, width: int = WIDTH) -> Node:
    """Draw accuracy against tokens; a line joins the Pareto front, other points are hollow."""
    best = best_options(points)
    about = "On the front, the cheapest first: " + ", ".join(
        f"{point.label} ({100 * point.share:.1f} % for {number(point.tokens, 0)})"
        for point in (points[index] for index in best)
    )
    drawn, top = heading(title, [*notes, _key(points, best)], width)
    low, high = min(point.low for point in points), max(point.high for point in points)
    most = max(point.tokens for point in points) or 1
    pad = 0.06 * (high - low) or 0.05
    # Names are right of their points, so the last point must not be at the edge.
    across = Scale(0, most, PLANE_LEFT + 8, width - PLANE_RIGHT - (70 if width >= LEAST_WIDE else 20))
    upward = Scale(max(0.0, low - pad), min(1.0, high + pad), top + PLANE_HEIGHT, top + 12)
    up = [share for share in ticks(upward.low, upward.high) if upward.low <= share <= upward.high]
    out = [tokens for tokens in ticks(0, most, 6 if width >= LEAST_WIDE else 4) if tokens <= most * 1.05]
    drawn += _plane_axes(up, out, across, upward, width)
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
    taken = [Box(x - 4, high, x + 4, low) for x, high, low in whiskers]
    drawn += _names(points, positions, taken, best, Box(PLANE_LEFT, top, width, top + PLANE_HEIGHT))
    for index, (point, (x, y)) in enumerate(zip(points, positions, strict=True)):
        ring = [el("circle", cx=x, cy=y, r=10, class_="ring")] if point.chosen else []
        said = (
            f"{point.label}: {percent(point.share)} % ({percent(point.low)} to {percent(point.high)}) for "
            f"{number(point.tokens, 0)} tokens a case"
        )
        drawn.append(hover(said, *ring, mark(x, y, "dot best" if index in best else "dot behind")))
    return drawing(drawn, top + PLANE_HEIGHT + 48, title, about, width)


def _key(points: Sequence[Point], best: Sequence[int]) -> str:
    parts = ["filled and joined: no other is both cheaper and better"] if len(best) < len(points) else []
    parts += ["ringed: recommended"] if any(point.chosen for point in points) else []
    return "; ".join(parts).capitalize() + "." if parts else ""


def _plane_axes(
    up: Sequence[float], out: Sequence[float], across: Scale, upward: Scale, width: int
) -> list[Node]:
    drawn, end, foot = list[Node](), width - PLANE_RIGHT, upward.start
    for share in up:
        y = upward.at(share)
        drawn.append(el("path", d=f"M{PLANE_LEFT} {y:g}H{end}", class_="grid"))
        label = f"{number(100 * share, 1)} %"
        drawn.append(el("text", label, x=PLANE_LEFT - 8, y=y + 4, class_="note", text_anchor="end"))
    for tokens in out:
        x = across.at(tokens)
        drawn.append(el("path", d=f"M{x:g} {foot:g}v5", class_="axis"))
        drawn.append(el("text", brief(tokens), x=x, y=foot + 19, class_="note", text_anchor="middle"))
    axis, middle = "tokens read by the judge per case", (PLANE_LEFT + end) / 2
    return [*drawn, el("text", axis, x=middle, y=foot + 39, class_="note", text_anchor="middle")]


def _names(
    points: Sequence[Point],
    positions: Sequence[tuple[float, float]],
    taken: Sequence[Box],
    best: Sequence[int],
    room: Box,
) -> list[Node]:
    """Draw the names, the most important ones first, with a thin line to a name that had to move."""
    order = sorted(range(len(points)), key=lambda one: (not points[one].chosen, one not in best))
    names = [shorten(points[one].label) for one in order]
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


# Panels of figures, and lines: for studies and benchmarks.

KINDS = 7  # colours; shapes repeat later, so that combinations repeat late
PANEL_ROW, PANEL_SERIES = 26, 15


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelCell:
    """A figure with its interval, and a published one to compare it with; None is unknown."""

    ours: float | None = None
    low: float | None = None
    high: float | None = None
    paper: float | None = None

    @property
    def values(self) -> list[float]:
        """All values that must fit on the scale."""
        return [value for value in (self.ours, self.low, self.high, self.paper) if value is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One scale with its unit and series; a series has a figure or None for every row."""

    title: str
    unit: str
    series: Mapping[str, Sequence[PanelCell | None]]


def panels(
    drawn_panels: Sequence[Panel],
    rows: Sequence[str],
    title: str,
    notes: Sequence[str] = (),
    *,
    width: int = WIDTH,
) -> Node:
    """Draw one panel per metric, one below the other; hollow marks are published figures."""
    names = list(dict.fromkeys(name for panel in drawn_panels for name in panel.series))
    has_paper = any(
        cell is not None and cell.paper is not None
        for panel in drawn_panels
        for cells in panel.series.values()
        for cell in cells
    )
    hollow = "Hollow: the published figure." if has_paper else ""
    drawn, top = heading(title, [*notes, hollow], width)
    left = min(max(text_width(row) for row in rows) + 14, 0.42 * width)
    legend, top = _legend([name for name in names if name], names, top, width)
    for panel in drawn_panels:
        inner, top = _panel(panel, rows, names, left=left, top=top, width=width)
        drawn += inner
    about = "; ".join(
        f"{panel.title}{f' of {name}' if name else ''}, {row}: {_cell_words(cell, panel.unit)}"
        for panel in drawn_panels
        for name, cells in panel.series.items()
        for row, cell in zip(rows, cells, strict=True)
        if cell is not None
    )
    return drawing([*drawn, *legend], top, title, about, width)


def _panel(
    panel: Panel, rows: Sequence[str], names: Sequence[str], *, left: float, top: float, width: int
) -> tuple[list[Node], float]:
    values = [value for cells in panel.series.values() for cell in cells if cell for value in cell.values]
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low >= 0 and low < 0.5 * high:  # a scale from zero, unless it would hide all differences
        low = 0.0
    marks = ticks(low, high if high > low else low + 1, 6 if width >= LEAST_WIDE else 4)
    across = Scale(marks[0], marks[-1], left + 6, width - 26)
    unit = f" ({panel.unit})" if panel.unit and panel.unit not in panel.title else ""
    drawn: list[Node] = [el("text", f"{panel.title}{unit}", x=left, y=top + 20, class_="head won")]
    top += 30
    step = max(PANEL_ROW, PANEL_SERIES * len(panel.series) + 6)
    foot = top + step * len(rows)
    for value in marks:
        x = across.at(value)
        drawn.append(el("path", d=f"M{x:g} {top:g}V{foot:g}", class_="grid"))
        drawn.append(el("text", brief(value), x=x, y=foot + 17, class_="note", text_anchor="middle"))
    for place, row in enumerate(rows):
        middle = top + step * (place + 0.5)
        if place:
            drawn.append(el("path", d=f"M0 {middle - step / 2:g}H{width}", class_="grid"))
        label = fitted(row, left - 12)
        drawn.append(el("text", label, x=left - 10, y=middle + 4, class_="who", text_anchor="end"))
        for index, (name, cells) in enumerate(panel.series.items()):
            cell = cells[place]
            if cell is not None and cell.values:
                y = middle + PANEL_SERIES * (index - (len(panel.series) - 1) / 2)
                words = f"{row}{f', {name}' if name else ''}: {_cell_words(cell, panel.unit)}"
                drawn.append(hover(words, *_cell_marks(cell, across, y, names.index(name))))
    return drawn, foot + 24


def _cell_marks(cell: PanelCell, across: Scale, y: float, kind: int) -> list[Node]:
    drawn, class_ = list[Node](), f"s{kind % KINDS}"
    if cell.low is not None and cell.high is not None and cell.high > cell.low:
        path = f"M{across.at(cell.low):g} {y:g}H{across.at(cell.high):g}"
        drawn.append(el("path", d=path, class_=f"bar-{class_}"))
    if cell.paper is not None:
        drawn.append(shape(across.at(cell.paper), y, f"paper-{class_}", kind))
    if cell.ours is not None:
        drawn.append(shape(across.at(cell.ours), y, class_, kind))
    return drawn


def shape(x: float, y: float, class_: str, kind: int) -> Node:
    """Draw a mark whose shape tells series apart without colour: circle, square, diamond, triangle, cross."""
    if kind % 5 == 0:
        return el("circle", cx=x, cy=y, r=4.5, class_=class_)
    path = {
        1: f"M{x - 4:g} {y - 4:g}h8v8h-8z",
        2: f"M{x:g} {y - 5.5:g}l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
        3: f"M{x:g} {y - 5:g}l5 9h-10z",
        4: f"M{x - 5:g} {y - 1.7:g}h3.3v-3.3h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3z",
    }[kind % 5]
    return el("path", d=path, class_=class_)


def _legend(shown: Sequence[str], names: Sequence[str], top: float, width: int) -> tuple[list[Node], float]:
    drawn, x, y = list[Node](), 0.0, top + 10
    for name in shown:
        kind = names.index(name)
        label = fitted(name, width - 24)
        if x and x + text_width(label) + 24 > width:
            x, y = 0.0, y + 20
        drawn.append(shape(x + 6, y, f"s{kind % KINDS}", kind))
        drawn.append(el("text", label, x=x + 17, y=y + 4, class_="who"))
        x += text_width(label) + 34
    return drawn, y + 14 if shown else top


def _cell_words(cell: PanelCell, unit: str) -> str:
    words = f"{number(cell.ours, 2)}{f' {unit}' if unit else ''}"
    if cell.low is not None and cell.high is not None and cell.high > cell.low:
        words += f" ({number(cell.low, 2)} to {number(cell.high, 2)})"
    return words if cell.paper is None else f"{words}; published {number(cell.paper, 2)}"


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    title: str,
    *,
    across_name: str,
    width: int = WIDTH,
) -> Node:
    """Draw values over sizes that double or grow tenfold: the horizontal axis is logarithmic."""
    drawn, top = heading(title, (), width)
    points = [point for some in series.values() for point in some]
    sizes = sorted({x for x, _ in points})
    most = max(y for _, y in points) or 1
    up = ticks(0, most)
    left = max(text_width(brief(value), SMALL) for value in up) + 12
    across = Scale(log10(sizes[0]), log10(sizes[-1]) or 1, left + 10, width - 24)
    upward = Scale(0, up[-1], top + 210, top + 12)
    for value in up:
        y = upward.at(value)
        drawn.append(el("path", d=f"M{left:g} {y:g}H{width}", class_="grid"))
        drawn.append(el("text", brief(value), x=left - 6, y=y + 4, class_="note", text_anchor="end"))
    for size in sizes:
        x, y = across.at(log10(size)), upward.start + 18
        drawn.append(el("text", brief(size), x=x, y=y, class_="note", text_anchor="middle"))
    middle = (left + width) / 2
    drawn.append(el("text", across_name, x=middle, y=upward.start + 37, class_="note", text_anchor="middle"))
    for kind, (name, some) in enumerate(series.items()):
        spots = [(across.at(log10(x)), upward.at(y)) for x, y in some]
        joined = "".join(f"{'L' if place else 'M'}{x:g} {y:g}" for place, (x, y) in enumerate(spots))
        drawn.append(el("path", d=joined, class_=f"line-s{kind % KINDS}"))
        for (size, value), (x, y) in zip(some, spots, strict=True):
            words = f"{name}, {brief(size)} {across_name}: {number(value, 2)}"
            drawn.append(hover(words, shape(x, y, f"s{kind % KINDS}", kind)))
    legend, foot = _legend(list(series), list(series), upward.start + 46, width)
    about = "; ".join(
        f"{name}: " + ", ".join(f"{number(y, 2)} at {brief(x)}" for x, y in some)
        for name, some in series.items()
    )
    return drawing([*drawn, *legend], foot, title, about, width)
