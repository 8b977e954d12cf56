"""Pages of a run whose truth is known: they say what is right, missed and impossible, and why."""

import csv
import io
import json
import re

import pytest

from browser.test_page import CHROMIUM, CONTRAST, axe, browser, column, names, visit  # noqa: F401
from caps.cli.report import _write, open_run, report
from support.known_truth import IMPOSSIBLE, MISSED, RIGHT, known_run, write_known_cases
from support.running import by_quality, run_cases

pytestmark = [
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no /usr/bin/chromium: sh scripts/install_chromium.sh"),
    pytest.mark.xdist_group("browser"),
]
PROGRAM = "```python\n# quality={quality}\ndef f(x):\n    return {value}\n```"


def contrary(request):
    """A judge that always prefers the lower quality."""
    return re.sub(
        "<winner>([AB])", lambda found: f"<winner>{'BA'['AB'.index(found[1])]}", by_quality(request)
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("truth")
    known_run(place, "runs/posterior", strategy="posterior")
    known_run(place, "runs/caps", strategy="caps")
    known_run(place, "runs/v1-infer", strategy="v1-infer")
    run_cases(write_known_cases(place / "cases.jsonl"), place / "bad", strategy="caps", reply=contrary)
    case = {
        "id": "double", "domain": "code", "problem": "f doubles.",
        "candidates": [
            {"text": PROGRAM.format(quality=quality, value=value), "correct": value == "2 * x"}
            for quality, value in ((0.9, "2 * x"), (0.5, "x"))
        ],
    }  # fmt: skip
    (place / "code.jsonl").write_text(json.dumps(case) + "\n")
    run_cases(place / "code.jsonl", place / "code", strategy="caps")
    for name in ("runs/posterior", "runs/caps", "bad", "code"):
        with open_run(place / name) as run:
            _write([run], None, place / f"{name.rpartition('/')[2]}.html", texts=True)
    report([place / "runs"])
    return place


def test_right_missed_and_impossible_are_counted_filtered_and_explained(visit):  # noqa: F811
    page = visit("posterior.html")
    card = page.locator(".card").first
    assert f"{RIGHT} right, {MISSED} missed, {IMPOSSIBLE} impossible" in card.inner_text()
    assert "Ceiling 83.3 %" in card.inner_text().replace("\u00a0", " ")
    assert "recovery" in card.inner_text()
    card.get_by_role("link", name="2 missed").click()
    page.get_by_role("button", name="missed 2", pressed=True).wait_for()
    assert names(page) == ["missed", "missed late"]
    assert set(column(page, "result")) == {"✗ missed"}
    page.get_by_role("button", name=f"impossible {IMPOSSIBLE}").click()
    assert set(column(page, "result")) == {"✗ impossible"}


def test_the_receipt_of_a_missed_case_shows_what_was_missed_and_what_removed_it(visit):  # noqa: F811
    page = visit("caps.html#case=missed%20late")
    wrong = page.locator(".wrong").inner_text()
    assert "The right answer: 11." in wrong
    assert "The best right candidate: 11 ✓ (#11), win rate 0; out in stage A" in wrong
    assert "compared 1 time; it lost one of them" in wrong
    page.locator(".wrong a").click()
    game = page.locator("details.game[open]")
    assert "11 (#11)" in game.locator("summary").first.inner_text()
    assert "misjudged" in game.locator("summary").first.inner_text()
    shown = page.locator(".answer-row:visible .who").all_inner_texts()
    assert any(text.strip().startswith("11") for text in shown), "a right answer is never folded away"
    assert page.get_by_text("more answers").count() == 1


def test_the_receipt_of_an_impossible_case_says_that_no_choice_helps(visit):  # noqa: F811
    page = visit("posterior.html#case=impossible")
    wrong = page.locator(".wrong").inner_text()
    assert "No candidate is labelled right" in wrong
    assert "The right answer: 7." in wrong


def test_the_quality_of_the_judge_is_told_and_misjudged_calls_are_marked(visit):  # noqa: F811
    page = visit("caps.html")
    judge = page.locator("section", has=page.get_by_role("heading", name="Was the judge right?"))
    assert "mixed comparisons" in judge.inner_text()
    assert "slot A was preferred in" in judge.inner_text()
    assert {"partial views (E1)", "full views (E2)"} <= set(judge.locator("tbody th").all_inner_texts())
    judge.get_by_role("link", name="misjudged").click()
    page.get_by_role("button", name="misjudged 2", pressed=True).wait_for()
    assert names(page) == ["missed", "missed late"]
    page.get_by_role("link", name="missed late").click()
    page.locator(".only-misjudged").check()
    assert page.locator("details.game:visible").count() == 1


def test_a_banner_says_that_choices_are_no_better_than_simple_ones(visit):  # noqa: F811
    assert "no better than" in visit("bad.html").locator("#no-better").inner_text()
    assert visit("posterior.html").locator("#no-better").count() == 0


def test_a_receipt_begins_with_the_answer_then_the_problem_then_grouped_answers(visit):  # noqa: F811
    page = visit("posterior.html#case=right%200")
    tops = [
        page.locator(place).first.bounding_box()["y"]
        for place in (".chosen-answer .answer", ".story", ".problem", ".answer-row")
    ]
    assert tops == sorted(tops)
    assert page.locator(".answer-row .who").first.inner_text().split() == ["47", "×", "3", "✓"]
    clipped = page.locator(".problem .rich")
    before = clipped.bounding_box()["height"]
    page.get_by_label("whole problem").check()
    assert before < 130 < clipped.bounding_box()["height"]


def test_code_is_shown_by_what_is_known_of_it_and_reasons_without_tags(visit):  # noqa: F811
    page = visit("code.html#case=double")
    assert "3 lines" in page.locator(".answer-row .who").first.inner_text()
    page.locator("#g1 > summary").click()
    assert "<winner>" not in page.locator("#g1 .reply").inner_text()
    page = visit("runs/v1-infer/report.html#case=missed")
    page.locator("#g1 > summary").click()
    assert "<rating_A>" in page.locator("#g1 .fold pre").last.text_content()
    assert page.locator("#g1 .reply").count() == 0, "the reply has nothing but its ratings"


def test_markdown_eats_no_sign_of_a_formula_and_rtl_answers_are_isolated(visit):  # noqa: F811
    page = visit("posterior.html#case=missed")
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    candidate = page.locator("#c0 .rich")
    candidate.locator(".as-written").wait_for()
    assert "(x-0.5)*(x-2.5)*3" in candidate.inner_text()
    page = visit("posterior.html")
    row = page.locator("tr", has=page.get_by_role("link", name="עברית"))
    assert row.locator("td bdi").first.inner_text() == "תשובה (ב)"


def test_cases_are_grouped_columns_chosen_and_rows_saved(visit):  # noqa: F811
    page = visit("posterior.html")
    assert "difficulty" not in page.locator("#listing thead th:visible").all_inner_texts()
    groups = page.locator("section", has=page.get_by_role("heading", name="By group"))
    assert groups.locator("tr", has_text="hard").locator("td").all_inner_texts()[:6] == [
        "4", "0", "2", "2", "0.0", "50.0",
    ]  # fmt: skip
    groups.get_by_role("link", name="hard").click()
    page.get_by_role("button", name="difficulty: hard", pressed=True).wait_for()
    assert names(page) == ["missed", "missed late", "impossible", "impossible too"]
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("problem", exact=True).uncheck()
    page.get_by_label("difficulty", exact=True).check()
    heads = page.locator("#listing thead th:visible").all_inner_texts()
    assert "difficulty" in heads
    assert "problem" not in heads
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert [row["case"] for row in rows] == names(page)
    assert {row["result"] for row in rows} == {"missed", "impossible"}


def test_a_folder_of_runs_is_listed_with_links_to_their_pages(visit):  # noqa: F811
    page = visit("runs/index.html")
    assert sorted(page.locator("tbody th").all_inner_texts()) == ["caps", "posterior", "v1-infer"]
    assert f"{RIGHT} / {MISSED} / {IMPOSSIBLE}" in page.locator("tbody").inner_text()
    page.get_by_role("link", name="posterior").click()
    page.get_by_role("heading", name="posterior").wait_for()


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_of_wrong_choices_serve_everyone(visit, axe, theme, width):  # noqa: F811
    for name in (
        "posterior.html",
        "caps.html#case=missed%20late",
        "posterior.html#case=missed",
        "runs/index.html",
    ):
        page = visit(name, width=width)
        if theme == "dark":
            page.locator("#theme").click()
        page.evaluate(
            "document.querySelectorAll('.fold, .answer-row, #g1').forEach((one) => { one.open = true; })"
        )
        page.evaluate(axe)
        found = page.evaluate(
            "axe.run().then((result) => result.violations.map((one) => [one.id, one.nodes[0].html]))"
        )
        assert found == []
        assert page.evaluate(CONTRAST) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
