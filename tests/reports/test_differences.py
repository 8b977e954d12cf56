"""A whole run that asks about differences: what is asked, replayed and shown in the report."""

import json
from contextlib import suppress

import pytest

from caps.cli.report import open_run
from caps.core.contest import Contest
from caps.core.domains import Domain
from caps.core.types import Entrant, Found, Level, Run, Verdict
from caps.evidence.domains import register_domain
from caps.reports.page import page_html
from caps.reports.run_page import case_page
from caps.session.parts import make_strategy
from reports.test_html import read
from support.running import run_cases


class Runs:
    """A finder that knows what each program does with 2: what its text says."""

    version = "runs-1"

    async def find(self, case, until=None):
        outputs = [one.text.rpartition("return ")[2].partition("\n")[0] for one in case.candidates]
        return [Found(parses=True, runs=(Run("f(2)", "call", "ok", text, text),)) for text in outputs]

    async def close(self):
        """Nothing is held."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    register_domain(
        Domain(
            name="twos",
            partial="code-excerpt",
            pair="code-difference",
            prompts="code",
            finder=lambda _: Runs(),
        )
    )
    place = tmp_path_factory.mktemp("differences")
    row = {"id": "two", "domain": "twos", "problem": "f doubles.", "candidates": [
        {"text": f"```python\ndef f(x):\n    return {value}\n```", "correct": value == 4} for value in (3, 4, 5)
    ]}  # fmt: skip
    (place / "cases.jsonl").write_text(json.dumps(row) + "\n")
    return place


def right_output(request):
    prompt = request.messages[0].content
    if "CANDIDATE" not in prompt:
        return "OK"
    code = prompt.rpartition("WINNER is A-")[2].partition(",")[0]
    first, second = ("\n| 4\n" in part for part in prompt.split("BEGIN CANDIDATE B")[:2])
    winner = "TIE" if first == second else "A" if first else "B"
    return f"4 is right.\n<winner>{winner}-{code}</winner>\n<confidence>HIGH</confidence>"


def lines_of(run):
    return [json.loads(line) for line in (run / "rulings.jsonl").read_text().splitlines()]


def test_sprint_asks_about_differences_finds_the_right_output_and_the_report_shows_it(folder):
    run = run_cases(
        folder / "cases.jsonl",
        folder / "run",
        strategy="sprint",
        reply=right_output,
        hard_evidence="auto",
        settings={"down_to": 1},
    )
    (line,) = [json.loads(one) for one in (run / "selections.jsonl").read_text().splitlines()]
    assert line["winner"] == 1
    asked = lines_of(run)
    assert any(one["level"] == "E1" for one in asked)
    with open_run(run) as opened:
        page = read(page_html(case_page(opened, "two"))).text
    assert "What separates them" in page
    assert "f(2)" in page


def test_another_partial_view_switches_it_off(folder):
    run = run_cases(
        folder / "cases.jsonl", folder / "off", strategy="sprint", reply=right_output, hard_evidence="auto",
        views={"partial": "code-excerpt"},
    )  # fmt: skip
    with open_run(run) as opened:
        page = read(page_html(case_page(opened, "two"))).text
    assert "What separates them" not in page


def entrants(*, separated):
    found = []
    for one in range(6):
        others = {other: 40 for other in range(6) if other != one} if separated else {}
        found.append(Entrant(one, f"#{one}", (0, 100, 110), {"parses": 1.0}, others))
    return found


def test_where_an_input_separates_two_the_question_is_asked_even_if_partial_views_save_nothing():
    for separated in (True, False):
        contest = Contest(make_strategy("sprint"), entrants(separated=separated), seed=1)
        levels = set()
        with suppress(StopIteration):
            while round_ := contest.pending:
                levels |= {ask.level for ask in round_.asks}
                contest.answer([Verdict(9, 3) if ask.a < ask.b else Verdict(3, 9) for ask in round_.asks])
        assert (Level.PARTIAL in levels) == separated
        assert contest.selection.winner == 0
