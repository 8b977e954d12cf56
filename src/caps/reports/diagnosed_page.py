"""The page of a diagnosis: the answer first, then the pictures it rests on, then how it was measured."""

from collections.abc import Sequence
from dataclasses import asdict

from caps.diagnostics.measured import Measured
from caps.diagnostics.sequential import standing
from caps.diagnostics.suitability import WORDS
from caps.experiments.conclusion import Conclusion
from caps.reports import diagnosed
from caps.reports.console import number, percent
from caps.reports.diagnosed_pictures import SEEN, diagnosis_pictures, proxy_pictures
from caps.reports.diagnosed_rows import Judge
from caps.reports.page import Page, head
from caps.reports.pictures import Picture, picture_view
from caps.reports.run_view import capital, card, facts, listed, section
from caps.reports.told import footer
from caps.reports.tree import Node, el

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
    "strategies": ("What to run", None),
}
LEAD = ("What ", " is worth as a judge, from pairs of candidates whose labels are known.")
PROXY_LEAD = ("What can be told of ", " as a judge from pairs of candidates without labels.")


def diagnosis_page(
    found: Conclusion, judge: Judge, line: str, *, pairs_most: int, made: Sequence[tuple[str, str]]
) -> Page:
    """The page of a diagnosis with labels; `made` are the facts of how it was run."""
    measured, stamp = found.measured, stamp_of(judge)
    drawn = diagnosis_pictures(measured, found.options, found.chosen, stamp)
    said = diagnosed.judged_words(measured, pairs_most=pairs_most)
    advice = diagnosed.advice_words(measured, found.chosen)
    command = el("div", el("p", "To paste:"), el("pre", line, tabindex=0))
    return _page(
        judge,
        [listed(said), _cards(measured, found)],
        drawn,
        lead=LEAD,
        after={"strategies": [*(el("p", f"{capital(words)}.") for words in advice), command]},
        made=[*made, *((f"profile · {name}", _told(value)) for name, value in asdict(found.profile).items())],
        remarks=diagnosed.remarks(measured),
    )


def proxy_page(measured: Measured, judge: Judge, *, made: Sequence[tuple[str, str]]) -> Page:
    """The page of a diagnosis without labels."""
    remarks = diagnosed.remarks(measured, labelled=False)
    return _page(
        judge,
        [el("p", diagnosed.PROXY, class_="simulated")],
        proxy_pictures(measured),
        lead=PROXY_LEAD,
        after={},
        made=made,
        remarks=remarks,
    )


def stamp_of(judge: Judge) -> str | None:
    """What a picture says where no model was asked."""
    return f"{capital(judge.source)}: no model was asked" if judge.simulated else None


def _page(
    judge: Judge,
    answer: Sequence[Node],
    drawn: Sequence[Picture],
    *,
    lead: tuple[str, str],
    after: dict[str, list[Node]],
    made: Sequence[tuple[str, str]],
    remarks: Sequence[str],
) -> Page:
    name = judge.model or judge.source
    simulated = el("p", f"{stamp_of(judge)}.", class_="simulated") if judge.simulated else None
    before, behind = lead
    intro = el("p", before, el("b", name), behind, class_="lead")
    sections = [
        section(*SECTIONS[picture.name], *after.get(picture.name, ()), picture_view(picture))
        for picture in drawn
    ]
    told = listed(remarks)
    return Page(
        title="diagnosis · caps report",
        figures=[*head("Is this judge good enough?", intro, simulated, *answer), *sections],
        after=[section("Further figures", None, told), section("How it was measured", None, facts(made))],
        footer=footer(),
        status="simulated" if judge.simulated else name,
    )


def _cards(measured: Measured, found: Conclusion) -> Node:
    shown = []
    for level in ("E2", "E1"):
        one = measured.levels[level]
        word = WORDS[standing(one.bounds.low, one.bounds.high)]
        low, high = percent(one.accuracy.low), percent(one.accuracy.high)
        about = f"{SEEN[level]}: {word}. 95 % interval {low} to {high}."
        shown.append(card(f"{percent(one.accuracy.value)} %", "of pairs right", about))
    best, pairs = found.chosen, number(measured.pairs, 0)
    expected = (
        f"Expected Pass@1 {percent(best.pass_at_1)} % for {number(best.tokens, 0)} tokens a case, simulated."
    )
    shown.append(card(diagnosed.named(best), "to use with it", expected))
    shown.append(card(pairs, "pairs asked", f"Of {number(measured.cases, 0)} cases, four calls each."))
    return el("div", *shown, class_="cards")


def _told(value: float) -> str:
    return number(value, 4)
