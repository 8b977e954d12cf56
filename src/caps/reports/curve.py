"""What a judge states of its verdicts against how often they are right. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from caps.reports.canvas import WIDE, Scale, drawing, heading, mark, stem
from caps.reports.tree import Node, el

LEFT, RIGHT, TALL, APART = 48, 190, 250, 7
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
    across = Scale(stated[0][0], stated[-1][0], LEFT + 40, WIDE - RIGHT - 40)
    upward = Scale(0.0, 1.0, top + TALL, top + 12)
    drawn += _axes(stated, axis, across, upward)
    if ideal:
        line = f"M{across.at(0.5):g} {upward.at(0.5):g}L{across.at(1):g} {upward.at(1):g}"
        drawn.append(el("path", d=line, class_="chance"))
        drawn.append(
            el("text", "as often as it says", x=WIDE - RIGHT + 12, y=upward.at(1) + 4, class_="note")
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
        drawn.append(mark(WIDE - RIGHT + 20, y, f"at {level}", square=not one.full))
        drawn.append(el("text", one.name, x=WIDE - RIGHT + 34, y=y + 4, class_="who"))
    return drawing(drawn, top + TALL + 48, title, _spoken(series, stated))


def _axes(stated: Sequence[tuple[float, str]], axis: str, across: Scale, upward: Scale) -> list[Node]:
    drawn, end, foot = list[Node](), WIDE - RIGHT, upward.start
    for share in TICKS:
        y = upward.at(share)
        drawn.append(el("path", d=f"M{LEFT} {y:g}H{end}", class_="chance" if share == 0.5 else "grid"))
        drawn.append(
            el("text", f"{100 * share:.0f} %", x=LEFT - 8, y=y + 4, class_="note", text_anchor="end")
        )
    drawn.append(el("text", "a coin", x=end + 12, y=upward.at(0.5) + 4, class_="note"))
    for value, name in stated:
        drawn.append(el("text", name, x=across.at(value), y=foot + 19, class_="note", text_anchor="middle"))
    drawn.append(el("text", axis, x=(LEFT + end) / 2, y=foot + 39, class_="note", text_anchor="middle"))
    return drawn


def _spoken(series: Sequence[Series], stated: Sequence[tuple[float, str]]) -> str:
    names = dict(stated)
    return "; ".join(
        f"{one.name}, {names.get(spot.at) or f'{100 * spot.at:.0f} % stated'}: {100 * spot.right:.1f} % right"
        for one in series
        for spot in one.spots
    )
