"""Shares with their intervals, one below the other, against what a coin would do. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from caps.reports.canvas import WIDE, Scale, drawing, heading, mark
from caps.reports.console import percent
from caps.reports.tree import Node, el

LEFT, RIGHT, STEP = 178, 132, 34
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


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
    across = Scale(0.0, 1.0, LEFT, WIDE - RIGHT)
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
    drawn = [el("text", row.label, x=LEFT - 12, y=y + 4, class_="who", text_anchor="end")]
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
    drawn.append(el("text", f"{percent(row.value)} %", x=WIDE - RIGHT + 14, y=y + 4, class_="who"))
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
