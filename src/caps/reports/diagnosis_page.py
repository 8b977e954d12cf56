"""The page of a diagnosis: the advice first, then the charts it rests on."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

from caps.core.text import number, percent
from caps.core.types import Level
from caps.reports import diagnosis
from caps.reports.charts import Point, Row, Series, Spot, curve, forest, plane
from caps.reports.diagnosis import JudgeLabel, named
from caps.reports.elements import capital, card, facts, grid_view, head, listed, section
from caps.reports.html import Html, el
from caps.reports.page import Page
from caps.reports.pictures import Picture
from caps.reports.report import footer
from caps.statistics.estimates import Estimate
from caps.statistics.judge_measures import CLASS_NAMES, JudgeMeasures, LevelMeasures, classify
from caps.studies.advice import Conclusion, Expected

# What a diagnosis found, as pictures: how often right, what sways it, whether it knows, what is worth it.


ALL_FIGURES = "all figures, with 95 % intervals"
SEEN = {str(Level.PARTIAL): "E1, partial views", str(Level.FULL): "E2, whole answers"}


class Question(NamedTuple):
    """What a picture answers: the heading and a remark above it, its title, and a share to compare with."""

    heading: str
    about: str | None
    title: str
    reference: tuple[float, str] | None = None


QUESTIONS = {
    "accuracy": Question(
        "How often is it right?",
        "Each pair is one right and one wrong candidate, asked in both orders.",
        "How often the judge prefers the right one of a pair",
        (0.5, "a coin"),
    ),
    "bias": Question(
        "What sways it?",
        "Share of verdicts one side would get if both were equally good: 50 % is no bias.",
        "What pulls a verdict between two equally good answers",
        (0.5, "no pull"),
    ),
    "steadiness": Question(
        "Is it steady?",
        "From or to a tie is half a flip.",
        "How often a verdict flips, is a tie, or cannot be read",
    ),
    "calibration": Question(
        "Does it know when it is right?",
        "A judge that does is worth more: strategies weigh verdicts by its confidence.",
        "What the judge states against how often it is right",
    ),
    "strategies": Question(
        "What else could be run",
        "On the front: no other strategy is both cheaper and more often right.",
        "Expected Pass@1 against tokens",
    ),
}


def diagnosis_pictures(
    measured: JudgeMeasures, options: Sequence[Expected], chosen: Expected, stamp: str | None
) -> list[Picture]:
    """All pictures of a labelled diagnosis; `stamp` is said in each where no model was asked."""
    drawn = (
        *(shares_picture(name, measured, stamp) for name in ("accuracy", "bias", "steadiness")),
        calibration_picture(measured, stamp),
        strategies_picture(options, chosen),
    )
    return [picture for picture in drawn if picture is not None]


def shares_picture(name: str, measured: JudgeMeasures, stamp: str | None) -> Picture | None:
    """Shares of verdicts with their intervals; None if none is known."""
    shares = {
        "bias": [("slot A wins", measured.first_slot, "E2"), ("the longer one wins", measured.longer, "E2")],
    }.get(name) or [
        (SEEN[level] if name == "accuracy" else f"{measure.name}, {level}", measure.of(at), level)
        for measure in diagnosis.MEASURES
        if measure.picture == name
        for level, at in measured.levels.items()
    ]
    rows = [
        Row(label=label, value=part.value, low=part.low, high=part.high, full=level == "E2")
        for label, part, level in shares
        if part is not None
    ]
    if not rows:
        return None
    title, reference = QUESTIONS[name].title, QUESTIONS[name].reference
    return Picture(
        name=name, drawing=forest(rows, title, _notes(stamp, "Bars: 95 % intervals."), reference=reference)
    )


def calibration_picture(measured: JudgeMeasures, stamp: str | None) -> Picture | None:
    """Whether the judge is right more often where it says it is sure."""
    probabilities = any(level.curve for level in measured.levels.values())
    stated = (
        [(0.5 + step / 10, f"{50 + 10 * step} %") for step in range(6)]
        if probabilities
        else [(0, "LOW"), (1, "HIGH")]
    )
    series = [
        Series(name=SEEN[name], spots=_stated(level) if probabilities else _worded(level), full=name == "E2")
        for name, level in measured.levels.items()
    ]
    if not any(points.spots for points in series):
        return None
    title = QUESTIONS["calibration"].title
    axis = "probability it gives the one it prefers" if probabilities else "confidence it states"
    notes = _notes(stamp, "Decided verdicts; whiskers: 95 % intervals.")
    ideal = "as often as it says" if probabilities else ""
    drawing = curve(series, title, notes, stated=stated, axis=axis, ideal=ideal)
    return Picture(name="calibration", drawing=drawing)


def strategies_picture(options: Sequence[Expected], chosen: Expected) -> Picture:
    """Expected accuracy against tokens of every strategy considered."""
    points = [
        Point(
            label=named(option),
            tokens=option.tokens,
            share=option.pass_at_1,
            low=option.interval[0],
            high=option.interval[1],
            chosen=option == chosen,
        )
        for option in options
    ]
    note = "Simulated contests with a judge fitted to these figures; whiskers: 90 % for as many new cases."
    return Picture(name="strategies", drawing=plane(points, QUESTIONS["strategies"].title, [note]))


def _notes(stamp: str | None, *notes: str) -> list[str]:
    return [*(() if stamp is None else (f"{stamp}.",)), *notes]


def _stated(level: LevelMeasures) -> list[Spot]:
    return [_spot(point.stated, point.right) for point in level.curve]


def _worded(level: LevelMeasures) -> list[Spot]:
    said = ((0.0, level.confidence.low), (1.0, level.confidence.high))
    return [_spot(place, right) for place, right in said if right is not None]


def _spot(at: float, right: Estimate) -> Spot:
    return Spot(at=at, right=right.value, low=right.low, high=right.high)


def diagnosis_page(
    conclusion: Conclusion, judge: JudgeLabel, line: str, *, pairs_most: int, made: Sequence[tuple[str, str]]
) -> Page:
    """The page of a diagnosis; `made` are the facts of how it was run."""
    measured, stamp = conclusion.measured, stamp_of(judge)
    drawn = diagnosis_pictures(measured, conclusion.options, conclusion.chosen, stamp)
    settled = diagnosis.judged_words(measured, pairs_most=pairs_most)[-1]
    advice, *reasons = diagnosis.advice_words(measured, conclusion.chosen)
    about = " is worth as a judge, from pairs of candidates whose labels are known."
    intro = el("p", "What ", el("b", judge.name), about, class_="lead")
    answer = [
        el("p", f"{stamp}.", class_="simulated") if stamp else None,
        el("p", f"{capital(advice)}.", class_="lead"),
        el("pre", line, tabindex=0, class_="command"),
        *(el("p", f"Warning: {words}.", class_="simulated") for words in conclusion.warnings),
        _cards(measured, conclusion),
        el("p", f"{capital(settled)}.", class_="note"),
        *(el("p", f"{capital(words)}.", class_="note") for words in reasons),
    ]
    sections = [section(*QUESTIONS[picture.name][:2], picture.drawing.framed()) for picture in drawn]
    tables = diagnosis.options_table(conclusion.options, conclusion.chosen), diagnosis.figures(measured)
    profile = ((f"profile · {name}", number(value, 4)) for name, value in asdict(conclusion.profile).items())
    return Page(
        title="diagnosis · caps report",
        figures=[
            *head("Is this judge good enough?", intro, *answer),
            el("div", *sections, class_="pair"),
            *(section(capital(grid.title or ALL_FIGURES), None, grid_view(grid)) for grid in tables),
        ],
        after=[
            section("Further figures", None, listed(diagnosis.remarks(measured))),
            section("How it was measured", None, facts([*made, *profile])),
        ],
        footer=footer(),
        status="simulated" if judge.simulated else judge.name,
    )


def stamp_of(judge: JudgeLabel) -> str | None:
    """What a picture says where no model was asked."""
    return f"{capital(judge.source)}: no model was asked" if judge.simulated else None


def _cards(measured: JudgeMeasures, conclusion: Conclusion) -> Html:
    shown = []
    for level in ("E2", "E1"):
        accuracy = measured.levels[level].accuracy
        word = CLASS_NAMES[classify(accuracy)]
        low, high = percent(accuracy.low), percent(accuracy.high)
        about = f"{SEEN[level]}: {word}. 95 % interval {low} to {high}."
        shown.append(card(f"{percent(accuracy.value)} %", "of pairs right", about))
    best, pairs = conclusion.chosen, number(measured.pairs, 0)
    expected = (
        f"Expected Pass@1 {percent(best.pass_at_1)} % for {number(best.tokens, 0)} tokens a case, simulated."
    )
    shown.append(card(diagnosis.named(best), "to use with it", expected))
    shown.append(card(pairs, "pairs asked", f"Of {number(measured.cases, 0)} cases, four calls each."))
    return el("div", *shown, class_="cards")
