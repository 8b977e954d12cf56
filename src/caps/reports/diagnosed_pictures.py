"""What a diagnosis found, as pictures: how often right, what sways it, whether it knows, what is worth it."""

from collections.abc import Callable, Sequence

from caps.core.types import Level
from caps.diagnostics.estimates import Estimate
from caps.diagnostics.measured import AtLevel, Measured
from caps.experiments.advice import Expected
from caps.reports.console import by_level, number, percent
from caps.reports.curve import Series, Spot, curve
from caps.reports.diagnosed import named
from caps.reports.forest import Row, forest
from caps.reports.pictures import Picture
from caps.reports.plane import Point, best_bargains, plane

SEEN = {str(Level.PARTIAL): "E1, partial views", str(Level.FULL): "E2, whole answers"}
INTERVAL = "95 % interval"


def diagnosis_pictures(
    measured: Measured, options: Sequence[Expected], chosen: Expected, stamp: str | None
) -> list[Picture]:
    """All pictures of a labelled diagnosis; `stamp` is said in each where no model was asked."""
    drawn = (
        accuracy_picture(measured, stamp),
        bias_picture(measured, stamp),
        steadiness_picture(measured, stamp),
        calibration_picture(measured, stamp),
        strategies_picture(options, chosen),
    )
    return [picture for picture in drawn if picture is not None]


def proxy_pictures(measured: Measured) -> list[Picture]:
    """What can be drawn without labels."""
    rows = [_row("E1 agrees with E2", measured.agreement)] if measured.agreement else []
    agreement = _shares("agreement", "How often partial views lead where whole answers do", rows, None)
    drawn = (agreement, bias_picture(measured, None), steadiness_picture(measured, None))
    return [picture for picture in drawn if picture is not None]


def accuracy_picture(measured: Measured, stamp: str | None) -> Picture | None:
    """How often the judge prefers the right one."""
    rows = []
    for level, found in measured.levels.items():
        wide = (found.bounds.low, found.bounds.high)
        rows.append(_row(SEEN[level], found.accuracy, full=level == "E2", wide=wide))
    return _shares(
        "accuracy",
        "How often the judge prefers the right one of a pair",
        rows,
        stamp,
        note="Thick: 95 % interval. Thin: bounds that hold however often one looks, for both levels at once.",
        line=(0.5, "a coin"),
    )


def bias_picture(measured: Measured, stamp: str | None) -> Picture | None:
    """What pulls a verdict between equals."""
    pulls = (("slot A wins", measured.first_slot), ("the longer one wins", measured.longer))
    rows = [_row(label, found) for label, found in pulls if found is not None]
    title = "What pulls a verdict between two equally good answers"
    return _shares("bias", title, rows, stamp, line=(0.5, "no pull"))


def steadiness_picture(measured: Measured, stamp: str | None) -> Picture | None:
    """How often a verdict flips when slots swap, is a tie, or cannot be read."""
    kinds: dict[str, Callable[[AtLevel], Estimate | None]] = {
        "flips when slots swap": lambda one: one.flips,
        "ties": lambda one: one.ties,
        "unreadable": lambda one: one.unreadable,
    }
    rows = [
        _row(f"{label}, {level}", share, full=level == "E2")
        for label, of in kinds.items()
        for level, found in measured.levels.items()
        if (share := of(found)) is not None
    ]
    return _shares("steadiness", "How often a verdict flips, is a tie, or cannot be read", rows, stamp)


def calibration_picture(measured: Measured, stamp: str | None) -> Picture | None:
    """Whether the judge is right more often where it says it is sure."""
    probabilities = any(found.curve for found in measured.levels.values())
    stated = (
        [(0.5 + step / 10, f"{50 + 10 * step} %") for step in range(6)]
        if probabilities
        else [(0, "LOW"), (1, "HIGH")]
    )
    series = [
        Series(
            name=SEEN[level], spots=_stated(found) if probabilities else _worded(found), full=level == "E2"
        )
        for level, found in measured.levels.items()
    ]
    if not any(one.spots for one in series):
        return None
    title = "What the judge states against how often it is right"
    axis = "probability it gives the one it prefers" if probabilities else "confidence it states"
    drawn = curve(
        series,
        title,
        _notes(stamp, "Decided verdicts; whiskers: 95 % intervals."),
        stated=stated,
        axis=axis,
        ideal=probabilities,
    )
    words = dict(stated)
    rows = [
        (
            f"{one.name}: {f'{percent(spot.at)} %' if probabilities else words[spot.at]}",
            f"{percent(spot.right)} %",
            _range(spot.low, spot.high),
        )
        for one in series
        for spot in one.spots
    ]
    return Picture(
        name="calibration", title=title, drawing=drawn, heads=("stated", "right", INTERVAL), rows=rows
    )


def strategies_picture(options: Sequence[Expected], chosen: Expected) -> Picture:
    """Expected accuracy against tokens of every strategy considered."""
    points = [
        Point(
            label=named(one),
            tokens=one.tokens,
            share=one.pass_at_1,
            low=one.interval[0],
            high=one.interval[1],
            chosen=one == chosen,
        )
        for one in options
    ]
    best = best_bargains(points)
    note = "Simulated contests with a judge fitted to these figures; whiskers: 95 %, of the simulation alone."
    title = "Expected Pass@1 against tokens"
    rows = [
        (
            named(one), f"{percent(one.pass_at_1)} %", _range(*one.interval), number(one.tokens, 0),
            by_level(one.calls), "the advice" if one == chosen else "yes" if place in best else "",
        )
        for place, one in enumerate(options)
    ]  # fmt: skip
    heads = ("strategy", "Pass@1", INTERVAL, "tokens a case", "calls E1 + E2", "on the front")
    return Picture(
        name="strategies", title=title, drawing=plane(points, title, [note]), heads=heads, rows=rows
    )


def _shares(
    name: str,
    title: str,
    rows: Sequence[Row],
    stamp: str | None,
    *,
    note: str = "Bars: 95 % intervals.",
    line: tuple[float, str] | None = None,
) -> Picture | None:
    if not rows:
        return None
    numbers = [(row.label, f"{percent(row.value)} %", _range(row.low, row.high)) for row in rows]
    drawn = forest(rows, title, _notes(stamp, note), line=line)
    return Picture(
        name=name, title=title, drawing=drawn, heads=("of verdicts", "share", INTERVAL), rows=numbers
    )


def _notes(stamp: str | None, *notes: str) -> list[str]:
    return [*(() if stamp is None else (f"{stamp}.",)), *notes]


def _row(label: str, found: Estimate, *, full: bool = True, wide: tuple[float, float] | None = None) -> Row:
    return Row(label=label, value=found.value, low=found.low, high=found.high, wide=wide, full=full)


def _stated(found: AtLevel) -> list[Spot]:
    return [_spot(one.stated, one.right) for one in found.curve]


def _worded(found: AtLevel) -> list[Spot]:
    said = ((0.0, found.confidence.low), (1.0, found.confidence.high))
    return [_spot(place, right) for place, right in said if right is not None]


def _spot(at: float, right: Estimate) -> Spot:
    return Spot(at=at, right=right.value, low=right.low, high=right.high)


def _range(low: float, high: float) -> str:
    return f"{percent(low)} to {percent(high)}"
