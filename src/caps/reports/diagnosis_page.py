"""The page of a diagnosis: the advice first, then the charts it rests on."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import compress

from caps.core.text import number, percent
from caps.core.types import Level
from caps.reports import diagnosis
from caps.reports.charts import Point, Row, Series, Spot, best_options, curve, forest, plane
from caps.reports.console import by_level
from caps.reports.diagnosis import JudgeLabel, named
from caps.reports.elements import capital, card, facts, head, listed, section
from caps.reports.html import Html, el
from caps.reports.numbers import span
from caps.reports.page import Page
from caps.reports.pictures import FEW_COLUMNS, Picture, picture_view
from caps.reports.report import footer
from caps.statistics.estimates import Estimate
from caps.statistics.judge_measures import CLASS_NAMES, JudgeMeasures, LevelMeasures, classify
from caps.studies.advice import Conclusion, Expected

# What a diagnosis found, as pictures: how often right, what sways it, whether it knows, what is worth it.


SEEN = {str(Level.PARTIAL): "E1, partial views", str(Level.FULL): "E2, whole answers"}
INTERVAL = "95 % interval"


def diagnosis_pictures(
    measured: JudgeMeasures, options: Sequence[Expected], chosen: Expected, stamp: str | None
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


def proxy_pictures(measured: JudgeMeasures) -> list[Picture]:
    """What can be drawn without labels."""
    rows = [_row("E1 agrees with E2", measured.agreement)] if measured.agreement else []
    agreement = _shares("agreement", "How often partial views lead where whole answers do", rows, None)
    drawn = (agreement, bias_picture(measured, None), steadiness_picture(measured, None))
    return [picture for picture in drawn if picture is not None]


def accuracy_picture(measured: JudgeMeasures, stamp: str | None) -> Picture | None:
    """How often the judge prefers the right one."""
    rows = []
    for level, found in measured.levels.items():
        rows.append(_row(SEEN[level], found.accuracy, full=level == "E2"))
    return _shares(
        "accuracy",
        "How often the judge prefers the right one of a pair",
        rows,
        stamp,
        reference=(0.5, "a coin"),
    )


def bias_picture(measured: JudgeMeasures, stamp: str | None) -> Picture | None:
    """What pulls a verdict between equals."""
    pulls = (("slot A wins", measured.first_slot), ("the longer one wins", measured.longer))
    rows = [_row(label, found) for label, found in pulls if found is not None]
    title = "What pulls a verdict between two equally good answers"
    return _shares("bias", title, rows, stamp, reference=(0.5, "no pull"))


def steadiness_picture(measured: JudgeMeasures, stamp: str | None) -> Picture | None:
    """How often a verdict flips when slots swap, is a tie, or cannot be read."""
    kinds: dict[str, Callable[[LevelMeasures], Estimate | None]] = {
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


def calibration_picture(measured: JudgeMeasures, stamp: str | None) -> Picture | None:
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
    notes = _notes(stamp, "Decided verdicts; whiskers: 95 % intervals.")
    ideal = "as often as it says" if probabilities else ""
    drawing = curve(series, title, notes, stated=stated, axis=axis, ideal=ideal)
    words = dict(stated)
    rows = [
        (
            f"{one.name}: {f'{percent(spot.at)} %' if probabilities else words[spot.at]}",
            f"{percent(spot.right)} %",
            span(spot.low, spot.high),
        )
        for one in series
        for spot in one.spots
    ]
    return Picture(
        name="calibration", title=title, drawing=drawing, heads=("stated", "right", INTERVAL), rows=rows
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
    best = best_options(points)
    order = sorted(range(len(options)), key=lambda place: (-options[place].pass_at_1, options[place].tokens))
    note = "Simulated contests with a judge fitted to these figures; whiskers: 90 % for as many new cases."
    title = "Expected Pass@1 against tokens"
    rows = [
        (
            named(one), f"{percent(one.pass_at_1)} %", span(*one.interval), percent(one.recovery),
            number(one.tokens, 0), by_level(one.calls),
            "the advice" if one == chosen else "yes" if place in best else "",
        )
        for place, one in ((place, options[place]) for place in order)
    ]  # fmt: skip
    heads = (
        "strategy", "Pass@1", "90 % interval", "recovery %", "tokens a case", "calls E1 + E2", "on the front",
    )  # fmt: skip
    return Picture(
        name="strategies",
        title=title,
        drawing=plane(points, title, [note]),
        heads=heads,
        rows=rows,
    )


def _shares(
    name: str,
    title: str,
    rows: Sequence[Row],
    stamp: str | None,
    *,
    note: str = "Bars: 95 % intervals.",
    reference: tuple[float, str] | None = None,
) -> Picture | None:
    if not rows:
        return None
    numbers = [(row.label, f"{percent(row.value)} %", span(row.low, row.high)) for row in rows]
    return Picture(
        name=name,
        title=title,
        drawing=forest(rows, title, _notes(stamp, note), reference=reference),
        heads=("of verdicts", "share", INTERVAL),
        rows=numbers,
    )


def _notes(stamp: str | None, *notes: str) -> list[str]:
    return [*(() if stamp is None else (f"{stamp}.",)), *notes]


def _row(label: str, found: Estimate, *, full: bool = True) -> Row:
    return Row(label=label, value=found.value, low=found.low, high=found.high, full=full)


def _stated(found: LevelMeasures) -> list[Spot]:
    return [_spot(one.stated, one.right) for one in found.curve]


def _worded(found: LevelMeasures) -> list[Spot]:
    said = ((0.0, found.confidence.low), (1.0, found.confidence.high))
    return [_spot(place, right) for place, right in said if right is not None]


def _spot(at: float, right: Estimate) -> Spot:
    return Spot(at=at, right=right.value, low=right.low, high=right.high)


SECTIONS = {
    "accuracy": (
        "How often is it right?",
        "Each pair is one right and one wrong candidate, asked in both orders.",
    ),
    "agreement": ("Do partial views do?", None),
    "bias": (
        "What sways it?",
        "Share of verdicts one side would get if both were equally good: 50 % is no bias.",
    ),
    "steadiness": ("Is it steady?", "From or to a tie is half a flip."),
    "calibration": (
        "Does it know when it is right?",
        "A judge that does is worth more: strategies weigh verdicts by its confidence.",
    ),
    "strategies": (
        "What else could be run",
        "On the front: no other strategy is both cheaper and more often right.",
    ),
}
LEAD = ("What ", " is worth as a judge, from pairs of candidates whose labels are known.")
PROXY_LEAD = ("What is known about ", " as a judge from pairs of candidates without labels.")


def diagnosis_page(
    found: Conclusion, judge: JudgeLabel, line: str, *, pairs_most: int, made: Sequence[tuple[str, str]]
) -> Page:
    """The page of a diagnosis with labels; `made` are the facts of how it was run."""
    measured, stamp = found.measured, stamp_of(judge)
    drawn = diagnosis_pictures(measured, found.options, found.chosen, stamp)
    settled = diagnosis.judged_words(measured, pairs_most=pairs_most)[-1]
    advice, *reasons = diagnosis.advice_words(measured, found.chosen)
    answer = [
        el("p", f"{capital(advice)}.", class_="lead"),
        el("pre", line, tabindex=0, class_="command"),
        *(el("p", f"Warning: {words}.", class_="simulated") for words in found.warnings),
        _cards(measured, found),
        el("p", f"{capital(settled)}.", class_="note"),
        *(el("p", f"{capital(words)}.", class_="note") for words in reasons),
    ]
    return _page(
        judge,
        answer,
        drawn,
        lead=LEAD,
        made=[*made, *((f"profile · {name}", _told(value)) for name, value in asdict(found.profile).items())],
        remarks=diagnosis.remarks(measured),
    )


def proxy_page(measured: JudgeMeasures, judge: JudgeLabel, *, made: Sequence[tuple[str, str]]) -> Page:
    """The page of a diagnosis without labels."""
    remarks = diagnosis.remarks(measured, labelled=False)
    return _page(
        judge,
        [el("p", diagnosis.PROXY, class_="simulated")],
        proxy_pictures(measured),
        lead=PROXY_LEAD,
        made=made,
        remarks=remarks,
    )


def stamp_of(judge: JudgeLabel) -> str | None:
    """What a picture says where no model was asked."""
    return f"{capital(judge.source)}: no model was asked" if judge.simulated else None


def _page(
    judge: JudgeLabel,
    answer: Sequence[Html],
    drawn: Sequence[Picture],
    *,
    lead: tuple[str, str],
    made: Sequence[tuple[str, str]],
    remarks: Sequence[str],
) -> Page:
    name = judge.model or judge.source
    simulated = el("p", f"{stamp_of(judge)}.", class_="simulated") if judge.simulated else None
    before, behind = lead
    intro = el("p", before, el("b", name), behind, class_="lead")
    sections = [section(*SECTIONS[picture.name], picture_view(picture)) for picture in drawn]
    is_small = [len(picture.heads) <= FEW_COLUMNS for picture in drawn]
    small = el("div", *compress(sections, is_small), class_="pair")
    large = [part for part, beside in zip(sections, is_small, strict=True) if not beside]
    return Page(
        title="diagnosis · caps report",
        figures=[*head("Is this judge good enough?", intro, simulated, *answer), small, *large],
        after=[
            section("Further figures", None, listed(remarks)),
            section("How it was measured", None, facts(made)),
        ],
        footer=footer(),
        status="simulated" if judge.simulated else name,
    )


def _cards(measured: JudgeMeasures, found: Conclusion) -> Html:
    shown = []
    for level in ("E2", "E1"):
        one = measured.levels[level]
        word = CLASS_NAMES[classify(one.accuracy)]
        low, high = percent(one.accuracy.low), percent(one.accuracy.high)
        about = f"{SEEN[level]}: {word}. 95 % interval {low} to {high}."
        shown.append(card(f"{percent(one.accuracy.value)} %", "of pairs right", about))
    best, pairs = found.chosen, number(measured.pairs, 0)
    expected = (
        f"Expected Pass@1 {percent(best.pass_at_1)} % for {number(best.tokens, 0)} tokens a case, simulated."
    )
    shown.append(card(diagnosis.named(best), "to use with it", expected))
    shown.append(card(pairs, "pairs asked", f"Of {number(measured.cases, 0)} cases, four calls each."))
    return el("div", *shown, class_="cards")


def _told(value: float) -> str:
    return number(value, 4)
