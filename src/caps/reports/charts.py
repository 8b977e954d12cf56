"""Charts as SVG: reliability, intervals, accuracy against tokens.

One look for all pages and files. A chart is drawn once, narrow enough to be read on a phone, and scales with
its box. Labels stand above their bars, names below their plane; marks carry their values as tooltips, and
every chart is described in words for screen readers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from textwrap import wrap
from typing import TypeAlias
from unicodedata import east_asian_width

from caps.core.text import number, percent
from caps.reports.html import Html, el, join
from caps.reports.numbers import brief, span
from caps.statistics.estimates import pareto_front

WIDTH = 440
TEXT, SMALL = 13.0, 11.5  # font sizes, as in chart.css
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


@dataclass(frozen=True, slots=True)
class Drawing:
    """The elements of a chart with its height, its title, and what it shows in words."""

    body: Html
    height: float
    title: str
    about: str

    def svg(self, *before: Html, margin: float = 0, **attributes: str) -> Html:
        """The chart as an element that fills the width of its box; `before` stands below what is drawn."""
        width, height = WIDTH + 2 * margin, max(self.height, 1) + margin
        return el(
            "svg", el("title", self.title), el("desc", self.about), *before, self.body,
            viewBox=f"{-margin:g} {-margin / 2:g} {width:g} {height:g}", class_="chart", role="img",
            aria_label=f"{self.title}. {self.about}", **attributes,
        )  # fmt: skip

    def framed(self) -> Html:
        """The chart in a box of its own."""
        return el("div", self.svg(), class_="picture")


def hover(words: str, *drawn: Html) -> Html:
    """Marks with their value as a tooltip."""
    return el("g", el("title", words), *drawn)


def label(words: str, x: float, y: float, class_: str = "note", anchor: str | None = None) -> Html:
    """A text of a chart; `anchor` is the side at which it is held: start, middle or end."""
    return el("text", words, x=x, y=y, class_=class_, text_anchor=anchor)


def line(path: str, class_: str) -> Html:
    """A line of a chart."""
    return el("path", d=path, class_=class_)


def joined(spots: Sequence[tuple[float, float]]) -> str:
    """The path through some points."""
    return "M" + "L".join([f"{x:.1f} {y:.1f}" for x, y in spots]) if spots else ""


def heading(title: str, notes: Sequence[str]) -> tuple[list[Html], float]:
    """Draw the title and notes of a chart; return them with their height."""
    titles = wrap(title, 52)
    lines = [row for note in notes if note for row in wrap(note, 68)]
    drawn = [label(row, 0, 15 + 18 * place, "title") for place, row in enumerate(titles)]
    top = 18 * len(titles)
    drawn += [label(row, 0, top + 15 + 15 * place) for place, row in enumerate(lines)]
    return drawn, top + 6 + 15 * len(lines)


def whisker(x: float, high: float, low: float) -> Html:
    """Draw a vertical interval with end caps."""
    return line(
        f"M{x - 4:g} {high:g}H{x + 4:g}M{x:g} {high:g}V{low:g}M{x - 4:g} {low:g}H{x + 4:g}", "whisker"
    )


def mark(x: float, y: float, class_: str, *, square: bool = False) -> Html:
    """Draw a point, round or square, so that two kinds differ without colour."""
    if square:
        return el("rect", x=x - 5, y=y - 5, width=10, height=10, class_=class_)
    return el("circle", cx=x, cy=y, r=5.5, class_=class_)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return at most about `most` round numbers that cover an interval."""
    rough = max(high - low, 1e-9) / max(most - 1, 1)
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * (1 - 1e-9))
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [index * step for index in range(first, max(last, first + 1) + 1)]


Marks: TypeAlias = Sequence[tuple[float, str]]  # values of an axis with their names


def axes(
    across: Scale, upward: Scale, rows: Marks, columns: Marks, name: str, *, left: float, right: float
) -> list[Html]:
    """Draw a grid line for each row with its name at the left, and the names of columns and axis below."""
    foot = upward.start
    drawn = [label(name, (left + right) / 2, foot + 38, anchor="middle")]
    for value, words in rows:
        y = upward.at(value)
        drawn.append(line(f"M{left:g} {y:g}H{right:g}", "grid"))
        drawn.append(label(words, left - 7, y + 4, anchor="end"))
    return drawn + [label(words, across.at(value), foot + 18, anchor="middle") for value, words in columns]


ROW = 46  # height of a row with its label above it


def _named(name: str, value: str, y: float, *drawn: Html) -> Html:
    """What is drawn in a row, below its name and its value in words."""
    room = WIDTH - text_width(value, SMALL) - 10
    names = label(fitted(name, room), 0, y + 13, "who halo"), label(value, WIDTH, y + 13, "note halo", "end")
    return hover(f"{name}: {value}", *names, *drawn)


SHARES = tuple((step / 4, f"{25 * step} %") for step in range(5))


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
    stated: Marks,
    axis: str,
    ideal: str = "",
    coin: bool = True,
) -> Drawing:
    """Draw stated confidence against accuracy.

    `stated` holds the marks of the horizontal axis; `ideal` names the line of perfect calibration, where
    there is one; `coin` marks 50 %.
    """
    drawn, top = heading(title, notes)
    left, foot = 48, top + 200
    pad = 34 if len(stated) == 2 else 20
    across = Scale(stated[0][0], stated[-1][0], left + pad, WIDTH - pad)
    upward = Scale(0.0, 1.0, foot, top + 12)
    drawn += axes(across, upward, SHARES, stated, axis, left=left, right=WIDTH)
    if coin:
        drawn.append(line(f"M{left} {upward.at(0.5):g}H{WIDTH}", "chance"))
        drawn.append(label("a coin", left + 4, upward.at(0.5) - 4, "note halo"))
    if ideal:
        start = max(stated[0][0], 0.0)
        ends = [(across.at(share), upward.at(share)) for share in (start, 1.0)]
        drawn.append(hover(ideal, line(joined(ends), "chance")))
        low = start + 0.08 * (1 - start)  # most choices are likely ones, so the lower end is free
        drawn.append(label(ideal, across.at(low) + 8, upward.at(low) + 8, "note halo"))
    for place, points in enumerate(series):
        drawn += _series(points, 7 * (2 * place - len(series) + 1), across, upward)
    foot += 48
    for points in (points for points in series if points.name):
        foot += 22
        drawn.append(mark(left + 4, foot - 10, f"at {'e2' if points.full else 'e1'}", square=not points.full))
        drawn.append(label(points.name, left + 18, foot - 6, "who"))
    return Drawing(join(drawn), foot, title, _curve_description(series, stated))


def _series(series: Series, shift: float, across: Scale, upward: Scale) -> list[Html]:
    level = "e2" if series.full else "e1"
    places = [(across.at(spot.at) + shift, upward.at(spot.right)) for spot in series.spots]
    drawn = [line(joined(places), f"joined {level}")] if places else []
    for spot, (x, y) in zip(series.spots, places, strict=True):
        counted = f" of {spot.count}" if spot.count else ""
        right = f"{percent(spot.right)} %{counted} right ({span(spot.low, spot.high)})"
        drawn.append(
            hover(
                f"{series.name}: {right}" if series.name else f"said about {percent(spot.at)} %: {right}",
                whisker(x, upward.at(spot.high), upward.at(spot.low)),
                mark(x, y, f"at {level}", square=not series.full),
            )
        )
    return drawn


def _curve_description(series: Sequence[Series], stated: Marks) -> str:
    names = dict(stated)
    return "; ".join(
        f"{points.name or 'choices'}, {names.get(spot.at) or f'{100 * spot.at:.0f} % stated'}: "
        f"{100 * spot.right:.1f} % right"
        for points in series
        for spot in points.spots
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A share with its interval; `full` marks figures of whole answers. Equal ends draw no interval."""

    label: str
    value: float
    low: float
    high: float
    full: bool = True

    @property
    def words(self) -> str:
        """The share and its interval."""
        interval = f" ({span(self.low, self.high)})" if self.high > self.low else ""
        return f"{percent(self.value)} %{interval}"


def forest(
    rows: Sequence[Row], title: str, notes: Sequence[str] = (), *, reference: tuple[float, str] | None = None
) -> Drawing:
    """Draw shares with intervals from 0 to 100 %; `reference` is a share to compare with and its name."""
    drawn, top = heading(title, notes)
    top += 18 if reference is not None else 4
    across, foot = Scale(0.0, 1.0, 6, WIDTH - 6), top + ROW * len(rows)
    for share, words in SHARES:
        anchor = {0.0: "start", 1.0: "end"}.get(share, "middle")
        drawn.append(line(f"M{across.at(share):g} {top:g}V{foot:g}", "grid"))
        drawn.append(label(words, across.at(share), foot + 17, anchor=anchor))
    if reference is not None:
        x = across.at(reference[0])
        drawn.append(line(f"M{x:g} {top - 4:g}V{foot:g}", "chance"))
        drawn.append(label(reference[1], x, top - 8, anchor="middle"))
    for place, row in enumerate(rows):
        y, level = top + ROW * place, "e2" if row.full else "e1"
        inner = []
        if row.high > row.low:
            inner.append(line(f"M{across.at(row.low):g} {y + 25:g}H{across.at(row.high):g}", f"span {level}"))
        inner.append(mark(across.at(row.value), y + 25, f"at {level}", square=not row.full))
        drawn.append(_named(row.label, row.words, y, *inner))
    about = "; ".join(f"{row.label}: {row.words}" for row in rows)
    return Drawing(join(drawn), foot + 24, title, about)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A strategy or run: tokens, accuracy and its interval; `chosen` marks the recommended one."""

    label: str
    tokens: float
    share: float
    low: float
    high: float
    chosen: bool = False


PLANE_LEFT, PLANE_HEIGHT, NAME = 48, 260, 18


def plane(
    points: Sequence[Point],
    title: str,
    notes: Sequence[str] = (),
    *,
    axis: str = "tokens read by the judge per case",
    unit: str = "tokens a case",
) -> Drawing:
    """Draw accuracy against tokens as numbered points, named below; a line joins the Pareto front."""
    best = pareto_front([(point.tokens, point.share) for point in points])
    drawn, top = heading(title, [*notes, _key(points, best)])
    low, high = min(point.low for point in points), max(point.high for point in points)
    most = max(point.tokens for point in points) or 1
    pad = 0.06 * (high - low) or 0.05
    foot = top + PLANE_HEIGHT
    across = Scale(0, most, PLANE_LEFT + 14, WIDTH - 14)
    upward = Scale(max(0.0, low - pad), min(1.0, high + pad), foot, top + 12)
    shares = [share for share in ticks(upward.low, upward.high) if upward.low <= share <= upward.high]
    drawn += axes(
        across,
        upward,
        [(share, f"{number(100 * share, 1)} %") for share in shares],
        [(tokens, brief(tokens)) for tokens in ticks(0, most) if tokens <= most * 1.05],
        axis,
        left=PLANE_LEFT,
        right=WIDTH,
    )
    places = [(across.at(point.tokens), upward.at(point.share)) for point in points]
    drawn.append(line(joined([places[index] for index in best]), "front"))
    drawn += [
        whisker(x, upward.at(point.high), upward.at(point.low))
        for point, (x, _) in zip(points, places, strict=True)
    ]
    foot += 56
    # The front is drawn last, so that no other point covers it.
    for index in sorted(range(len(points)), key=lambda index: (index in best, points[index].chosen)):
        point, (x, y), kind = points[index], places[index], "best" if index in best else "behind"
        ring = [el("circle", cx=x, cy=y, r=12.5, class_="ring")] if point.chosen else []
        words = (
            f"{percent(point.share)} % ({span(point.low, point.high)}) for {number(point.tokens, 0)} {unit}"
        )
        dot = el("circle", cx=x, cy=y, r=9, class_=f"dot {kind}")
        drawn.append(hover(f"{point.label}: {words}", *ring, dot, _numeral(index, x, y, kind)))
        name_y = foot + NAME * index
        drawn.append(el("circle", cx=9, cy=name_y - 4, r=8, class_=f"dot {kind}"))
        drawn.append(_numeral(index, 9, name_y - 4, kind))
        tone = "who won" if point.chosen else "who" if index in best else "who lost"
        figures = f"{percent(point.share)} %, {brief(point.tokens)}"
        room = WIDTH - 30 - text_width(figures, SMALL)
        drawn.append(label(fitted(point.label, room), 24, name_y, tone))
        drawn.append(label(figures, WIDTH, name_y, anchor="end"))
    about = "On the front, the cheapest first: " + ", ".join(
        f"{point.label} ({percent(point.share)} % for {number(point.tokens, 0)})"
        for point in (points[index] for index in best)
    )
    return Drawing(join(drawn), foot + NAME * len(points), title, about)


def _numeral(index: int, x: float, y: float, kind: str) -> Html:
    return label(str(index + 1), x, y + 4, f"numeral {kind}", "middle")


def _key(points: Sequence[Point], best: Sequence[int]) -> str:
    parts = ["filled and joined: no other is both cheaper and better"] if len(best) < len(points) else []
    parts += ["ringed: recommended"] if any(point.chosen for point in points) else []
    return "; ".join(parts).capitalize() + "." if parts else ""
