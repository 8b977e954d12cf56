"""What charts are drawn with: scales, headings, marks that colour is not needed to tell apart. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from textwrap import wrap

from caps.reports.tree import Node, el

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
