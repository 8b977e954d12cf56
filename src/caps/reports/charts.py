"""Small charts as trees: bars of tokens, calls over time, accuracy against tokens. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from caps.reports.console import number
from caps.reports.tree import Node, el

WIDE = 640


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
    return _svg(drawn, len(rows) * step, title)


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
    return _svg(drawn, tall + 22, title)


@dataclass(frozen=True, slots=True)
class Point:
    """A run in the plane: tokens, accuracy, its interval."""

    label: str
    tokens: float
    share: float
    low: float
    high: float


def plane(points: Sequence[Point], title: str) -> Node:
    """Accuracy against tokens, with intervals."""
    left, tall, right = 56, 260, 120
    across = ticks(0, max((point.tokens for point in points), default=1))
    upward = ticks(
        min((point.low for point in points), default=0), max((point.high for point in points), default=1)
    )
    most, low, high = across[-1], upward[0], upward[-1]
    drawn = []
    for share in upward:
        y = 10 + tall - tall * (share - low) / (high - low)
        drawn.append(el("path", d=f"M{left} {y:g}H{WIDE - right}", class_="grid"))
        text = f"{100 * share:.0f} %"
        drawn.append(el("text", text, x=left - 8, y=y + 4, class_="note", text_anchor="end"))
    for many in across:
        x = left + (WIDE - left - right) * many / most
        drawn.append(el("text", number(many, 0), x=x, y=tall + 28, class_="note", text_anchor="middle"))
    middle = (left + WIDE - right) / 2
    drawn.append(el("text", "tokens read a case", x=middle, y=tall + 48, class_="note", text_anchor="middle"))
    for place, point in enumerate(points):
        x = left + (WIDE - left - right) * point.tokens / most
        top, middle, bottom = (
            10 + tall - tall * (share - low) / (high - low) for share in (point.high, point.share, point.low)
        )
        drawn.append(el("path", d=f"M{x:g} {top:g}V{bottom:g}", class_="whisker"))
        drawn.append(el("circle", cx=x, cy=middle, r=6, class_=f"dot d{place % 6}"))
        drawn.append(el("text", point.label, x=x + 11, y=middle + 4, class_="who"))
    return _svg(drawn, tall + 56, title)


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from below one to above the other."""
    rough = max(high - low, 1e-9) / 5
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [place * step for place in range(first, max(last, first + 1) + 1)]


def _svg(drawn: Sequence[Node], height: float, title: str) -> Node:
    drawing = el(
        "svg", el("title", title), *drawn,
        viewBox=f"0 0 {WIDE} {max(height, 1):g}", role="img", class_="chart", aria_label=title,
    )  # fmt: skip
    return el("div", drawing, class_="scroll", tabindex=0, role="region", aria_label=title)
