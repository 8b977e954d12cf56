"""Small charts of a run as trees: bars of tokens, calls over time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from caps.reports.canvas import WIDE, drawing, framed
from caps.reports.console import number
from caps.reports.tree import Node, el


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
