"""The page of `caps reproduce`: what came out, one chart, the main table, then a list of all other tables."""

from collections.abc import Sequence

from caps.reports.charts import Point, plane
from caps.reports.elements import fold, listed, section
from caps.reports.elements import head as page_head
from caps.reports.html import Html, el
from caps.reports.page import Page
from caps.reports.report import footer
from caps.reports.study import Chapter, table_section
from caps.studies.reproduction import Standing

TITLE = "The CAPS paper, measured again"
CHART = "Pass@1 against tokens"
SHOWN = 2  # tables of the first chapter that are not folded: the main results, and their differences
ASSUMED = (
    "candidates and verdicts are simulated, no model was asked: solve rates and Pass@16 are the paper's",
    "the judge is as accurate over the games of V1-Infer as the paper says, and over those of CAPS where "
    "that is possible; where the paper states no accuracy, or one below a coin, it is assumed",
    "the errors of the simulated judge are those of other judges, measured elsewhere",
    "so numbers of calls are comparable with the paper; which strategy is ahead on a suite rests on these "
    "assumptions and confirms or refutes nothing",
)


def paper_page(
    standing: Standing | None, chapters: Sequence[Chapter], *, simulated: str | None, limit: int | None
) -> Page:
    """The page: the sentence, the chart, the main table, and every other table behind a link."""
    body = page_head(TITLE, None if standing is None else el("p", standing.sentence, class_="lead"))
    if limit is not None:
        body.append(el("p", f"A trial: the first {limit} problems of each suite.", class_="simulated"))
    if simulated is not None:
        body.append(el("p", f"Simulated ({simulated}).", class_="simulated"))
    if standing is not None:
        body.append(section("Accuracy and cost", None, _chart(standing, simulated)))
    body.append(section("Tables", None, _contents(chapters)))
    for number, chapter in enumerate(chapters):
        for place, table in enumerate(chapter.tables):
            within = f"{chapter.title}: {table.title}"
            drawn = el("div", table_section(table, chapter.simulated, within), id=_anchor(number, place))
            is_main = number == 0 and place < SHOWN
            body.append(drawn if is_main else fold(table.title, drawn))
    after = [section("What is assumed, and what follows from it", None, listed(ASSUMED))] if simulated else []
    return Page(
        title=f"{TITLE} · caps report",
        figures=body,
        after=after,
        footer=footer(),
        status="simulated" if simulated else "",
    )


def _chart(standing: Standing, simulated: str | None) -> Html:
    points = [
        Point(
            label=f"{point.method}, {whose}",
            tokens=100 * point.tokens,
            share=point.share,
            low=point.low,
            high=point.high,
        )
        for whose, some in (("ours", standing.points), ("paper", standing.paper_points))
        for point in some
    ]
    notes = [f"Means over {standing.suites} suites; the paper's over {standing.paper_suites}."]
    notes += [f"Ours is simulated ({simulated})."] if simulated else []
    axis = "tokens, in % of those of V1-Infer"
    return plane(points, CHART, notes, axis=axis, unit="% of the tokens of V1-Infer").svg()


def _contents(chapters: Sequence[Chapter]) -> Html:
    entries = []
    for number, chapter in enumerate(chapters):
        links = [
            el("li", el("a", table.title, href=f"#{_anchor(number, place)}"))
            for place, table in enumerate(chapter.tables)
        ]
        about = el("p", chapter.about.strip(), " ", el("code", chapter.command), class_="note")
        entries.append(el("li", chapter.title, about, el("ul", *links)))
    return el("nav", el("ul", *entries), aria_label="Tables")


def _anchor(chapter: int, table: int) -> str:
    return f"table-{chapter}-{table}"
