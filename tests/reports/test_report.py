"""Pages of runs: the figures are the run's, receipts are replayed, sizes hold."""

import json
import re
from contextlib import ExitStack

import msgspec
import pytest

from caps.cli.report import _write, open_run, report
from caps.core.errors import InputError
from caps.reports import page as pages
from caps.reports.answers import plain_formula
from caps.reports.compare import compare_runs, comparison_page
from caps.reports.html import join
from caps.reports.page import StoredReceipts, pack_receipts, page_html
from caps.reports.receipt import receipt_of
from caps.reports.receipt_page import headline
from caps.reports.receipt_pictures import bracket
from caps.reports.report import load_report
from caps.reports.run_page import case_page, receipt_line, receipts, run_page
from caps.testing import case_line, spread
from reports.test_html import read
from support.pages import packed_data, part_in, unpacked
from support.running import by_quality, run_cases

NAMES = ("first", "second", "third")


def unreadable_now_and_then(request):
    number = sum(map(ord, request.messages[0].content)) + request.draw
    return "hm" if number % 5 == 0 else by_quality(request)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("report")
    lines = [case_line(name, spread(16, start)) for start, name in enumerate(NAMES)]
    (place / "cases.jsonl").write_text("\n".join(lines) + "\n")
    run_cases(place / "cases.jsonl", place / "run", reply=unreadable_now_and_then)
    return place


def copied(run, place, *, cases=None, lines=None, **config):
    """A copy of a run with other settings or cases, or cut in the middle of a line after some lines."""
    place.mkdir()
    file = json.loads((run / "run.json").read_text())
    file["cases"] = cases or file["cases"]
    file["config"] |= config
    if lines is not None:
        file["summary"] = {}
    (place / "run.json").write_text(json.dumps(file))
    for name in ("selections.jsonl", "rulings.jsonl"):
        kept = (run / name).read_text().splitlines(keepends=True)
        cut = kept if lines is None else [*kept[: lines[name]], '{"id": "half a li']
        (place / name).write_text("".join(cut))
    return place


@pytest.fixture
def run(folder):
    with open_run(folder / "run") as retelling:
        yield retelling


def test_figures_counted_from_the_lines_are_those_the_run_ended_with(run):
    figures, summary = load_report(run).figures, run.file.summary
    total = figures.total
    assert figures.pass_at_1 == summary["pass_at_1"]
    assert (total.asked, total.billed, total.output) == tuple(
        summary["tokens"][name] for name in ("asked", "billed", "output")
    )
    assert figures.baseline.share(total) == pytest.approx(summary["token_share_of_v1_infer"], rel=1e-4)
    assert dict(figures.ledger.malformed) == summary["malformed"]
    assert dict(figures.ledger.unreadable) == summary["unreadable"] != {}
    assert figures.rescued == summary["rescued"]


def test_main_figures_settings_and_cases_can_be_read_without_scripts(run):
    shown = read(page_html(run_page(load_report(run)))).text
    for words in (
        "chosen answers right",
        "of V1-Infer's tokens",
        "rescue_margin",
        "pair-e1-math.txt",
        *NAMES,
    ):
        assert words in shown


def test_a_page_runs_only_its_own_script_and_asks_nothing_of_the_network(run):
    text = page_html(
        run_page(load_report(run)),
        StoredReceipts([pack_receipts(list(receipts(load_report(run))))], None, [0]),
    )
    found = read(text)
    policy = next(value for name, value in found.attributes if name == "content" and "default-src" in value)
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "connect-src 'none'" in policy
    assert not [name for name, _ in found.attributes if name.startswith("on") or name in ("src", "style")]
    assert {value[0] for name, value in found.attributes if name == "href"} == {"#"}


def test_a_receipt_tells_every_game_with_the_prompt_that_was_sent(run):
    receipt = receipt_line(run, "first")
    assert receipt["whole"]
    assert receipt["winner"] == run.selections["first"]["winner"]
    assert [game["level"] for game in receipt["games"]].count("E1") == 8
    assert all(game["exact"] for game in receipt["games"])
    game = receipt["games"][0]
    assert f"quality={spread(16, 0)[game['shown'][0]]}" in game["prompt"].split("BEGIN CANDIDATE B")[0]
    assert "<winner>" in game["replies"][-1].text
    assert sum(game["tokens"] for game in receipt["games"]) == run.selections["first"]["tokens"]["asked"]
    msgspec.json.encode(receipt)


def test_the_bracket_draws_each_elimination_game_once_and_the_way_of_everyone_rescued(run):
    line = run.selections["second"]
    receipt = receipt_of(run, line, run.prepared(list(run.cases())[1]))
    picture = bracket(receipt)
    games = [game.number for stage in receipt.bracket for game in stage.games]
    assert [picture.count(f'data-game="{number + 1}"') for number in games] == [1] * 12
    assert picture.count(">rescued") == len(receipt.rescued)
    fates = {one.id: one.fate for one in receipt.candidates}
    assert fates[receipt.winner] == "chosen"
    assert sum(fate.startswith("out in stage A") for fate in fates.values()) == 8


@pytest.mark.parametrize(
    "strategy",
    [
        "caps",
        "posterior",
        "v1-infer",
        "pointwise",
        "listwise",
        "majority",
        "knockout",
        "sprint",
        "round-robin",
    ],
)
def test_every_kind_of_strategy_has_a_page(folder, tmp_path, strategy):
    out = run_cases(folder / "cases.jsonl", tmp_path / "run", strategy=strategy)
    with open_run(out) as run:
        text = page_html(case_page(run, "third"))
        shown = read(text).text
        assert ' class="level"' in text or ' drawing"' in text
        assert len(list(receipts(load_report(run)))) == 3
        assert receipt_of(run, run.selections["first"], run.prepared(next(run.cases()))).whole
    assert "Case third" in shown


def test_probabilities_of_a_receipt_are_those_of_the_run_and_each_verdict_is_a_step(folder, tmp_path):
    out = run_cases(folder / "cases.jsonl", tmp_path / "run", strategy="posterior")
    with open_run(out) as run:
        line = run.selections["first"]
        receipt = receipt_of(run, line, run.prepared(next(run.cases())))
    chosen = receipt.answers[0]
    assert (receipt.whole, chosen.members) == (True, (line["winner"],))
    assert len(chosen.chances) == len(receipt.games) + 1 > 2
    assert chosen.chances[-1] == pytest.approx(line["probability"], abs=1e-3)
    assert receipt.influences[-1].probability == pytest.approx(chosen.chances[0])
    told = read(join(headline(receipt))).text
    assert told.startswith(f"{line['winner']} was chosen among 16 different answers; ")
    assert f"{100 * line['probability']:.1f}\u00a0%\u00a0sure" in told


def test_short_formulas_become_plain_signs():
    assert plain_formula(r"\dfrac{3}{4}") == "3/4"
    assert plain_formula(r"$\sqrt{2}+\frac{\pi}{2}$") == "√(2)+(π)/(2)"
    assert plain_formula(r"90^\circ") == "90°"


def test_a_contest_cut_short_by_its_budget_tells_where_it_stopped(folder, tmp_path):
    out = run_cases(folder / "cases.jsonl", tmp_path / "run", limit=1, budget_tokens=6_500)
    with open_run(out) as run:
        receipt = receipt_line(run, "first")
        shown = read(page_html(case_page(run, "first"))).text
    assert (receipt["whole"], receipt["provisional"], receipt["stopped"]) == (True, True, "budget")
    assert receipt["stages"][-1]["name"] == "not answered"
    assert "unanswered: budget" in shown


def test_examples_passed_stand_beside_the_candidates(run):
    line = {**run.selections["first"], "tests_passed": [2, *[None] * 15], "examples": 3}
    run.selections["first"] = line
    shown = read(page_html(case_page(run, "first"))).text
    assert "passes 2 of 3 examples" in shown


def test_an_unfinished_run_shows_what_there_is(folder, tmp_path):
    lines = {"selections.jsonl": 1, "rulings.jsonl": 20}
    with open_run(copied(folder / "run", tmp_path / "cut", lines=lines)) as run:
        page = run_page(load_report(run))
        assert page.status == "not finished: 1 case so far"
        assert "not finished" in read(page_html(page)).text
        assert run.selections.keys() == {"first"}


def test_without_cases_and_journal_it_is_told_from_the_calls(folder, tmp_path):
    bare = copied(folder / "run", tmp_path / "bare", cases="/gone.jsonl", journal="/gone.sqlite")
    with open_run(bare) as run:
        receipt = receipt_line(run, "first")
        assert (receipt["whole"], receipt["winner"]) == (False, run.selections["first"]["winner"])
        assert len(receipt["games"]) == len({(g["shown"], g["level"]) for g in receipt["games"]})
        assert receipt["games"][0]["replies"][0].text is None
        assert any("gone.jsonl" in note for note in run.notes)
        assert any("journal" in note for note in run.notes)


def test_own_prompts_that_are_gone_cost_the_prompts_and_nothing_else(folder, tmp_path):
    with open_run(copied(folder / "run", tmp_path / "bare", prompts="/gone")) as run:
        receipt = receipt_line(run, "first")
        assert any("/gone" in note for note in run.notes)
        assert load_report(run).figures.pass_at_1 == run.file.summary["pass_at_1"]
    assert [(game["prompt"], bool(game["replies"][-1].text)) for game in receipt["games"][:2]] == [
        ("", True)
    ] * 2


def test_what_does_not_go_together_is_refused(folder, tmp_path):
    with pytest.raises(InputError, match="take one run"):
        report([folder / "run", folder / "run"], case="first")
    with pytest.raises(InputError, match="name it with --case"):
        report([folder / "run"], as_json=True)
    with pytest.raises(InputError, match="expected a run folder written with --out"):
        report([tmp_path])


def test_the_overview_shows_answers_votes_and_probabilities(tmp_path):
    """Of 5 candidates 3 say 4, which is wrong in the second case; the judge prefers the answer 5."""
    texts = ["4", "4", "5", "4", "6"]
    lines = []
    for name, right in (("one", "4"), ("two", "5")):
        candidates = [
            {"text": f"quality={90 if text == '5' else 10} so \\boxed{{{text}}}", "correct": text == right}
            for text in texts
        ]
        lines.append(
            {"id": name, "domain": "math", "problem": "Add.\nTwo and two.", "candidates": candidates}
        )
    (tmp_path / "cases.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    out = run_cases(tmp_path / "cases.jsonl", tmp_path / "run", strategy="posterior")
    with open_run(out) as run:
        loaded = load_report(run)
        page = run_page(loaded)
        bare = page_html(run_page(loaded, texts=False))
    columns = [column.name for column in page.listing.columns]
    row = dict(zip(columns, page.listing.rows[1].values, strict=True))
    lined = run.selections["two"]
    assert row["answer"] == lined["text"].partition("{")[2].rstrip("}")
    assert row["problem"] == "Add.\nTwo and two."
    assert row["probability"] == lined["probability"]
    assert row["votes"] == {"4": "3 of 5", "5": "1 of 5"}[row["answer"]]
    assert (loaded.choices.majority, loaded.choices.majority_of) == (1.0, 2)
    assert {"4", "5", "6"} - {row["answer"]} == set(page.listing.rows[1].words.split())
    assert "Two and two" not in bare


def test_runs_are_compared_by_answer_case_by_case(folder, tmp_path):
    worse = run_cases(folder / "cases.jsonl", tmp_path / "worse", strategy="vanilla")
    with ExitStack() as stack:
        first, second = (load_report(stack.enter_context(open_run(path))) for path in (folder / "run", worse))
        compared = compare_runs(first, second)
        rights = [one.figures.outcomes.right for one in (first, second)]
        page = comparison_page([first, second])
        three = comparison_page([first, second, first])
    assert compared.only_first - compared.only_second == rights[0] - rights[1]
    assert compared.different == sum(row.flags & 1 for row in page.listing.rows) == 3
    assert 0 < compared.p <= 1
    shown = read(page_html(page)).text
    assert f"p = {compared.p:.3g}" in shown
    assert "give different answers in 3" in shown
    assert "1 of 16 votes" in page.listing.rows[0].values[3]
    assert [len(row.receipts) for row in three.listing.rows] == [3, 3, 3]
    assert "Each compared with" in read(page_html(three)).text


def test_another_candidate_with_the_same_answer_is_no_different_answer(tmp_path):
    candidates = [{"text": f"quality={level} so \\boxed{{4}}"} for level in (10, 90)]
    case = {"id": "sum", "domain": "math", "problem": "2 + 2", "candidates": candidates}
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n")
    runs = [run_cases(tmp_path / "cases.jsonl", tmp_path / name, strategy="vanilla") for name in "ab"]
    lines = runs[1] / "selections.jsonl"
    lines.write_text(lines.read_text().replace('"winner":0', '"winner":1'))
    with ExitStack() as stack:
        loaded = [load_report(stack.enter_context(open_run(path))) for path in runs]
        found = compare_runs(*loaded)
    assert (found.different, found.other_candidates, found.labelled) == (0, 1, 0)


def test_runs_with_other_candidates_are_compared_by_the_values_of_their_answers(tmp_path):
    def played(name, answers):
        rows = [
            {"id": f"case-{k}", "domain": "math", "problem": "?", "candidates": [f"\\boxed{{{answer}}}"]}
            for k, answer in enumerate(answers)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
        cases = tmp_path / f"{name}.jsonl"
        return run_cases(cases, tmp_path / name, strategy="majority", hard_evidence="auto")

    with ExitStack() as stack:
        runs = [played("a", ["1/2", "3"]), played("b", ["0.5", "4"])]
        loaded = [load_report(stack.enter_context(open_run(path))) for path in runs]
        compared = compare_runs(*loaded)
    assert (compared.shared, compared.different) == (2, 1)


FEET = ("47", "47 feet", "46", "46", "45")


@pytest.fixture
def feet(tmp_path):
    """Runs of two strategies, of which only the second merges what findings show to be equal."""
    candidates = [
        {"text": f"quality=0.{place + 1} so \\boxed{{{answer}}}", "correct": answer.startswith("47")}
        for place, answer in enumerate(FEET)
    ]
    case = {"id": "feet", "domain": "math", "problem": "How far?", "candidates": candidates}
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n")
    found = {"hard_evidence": "auto"}
    runs = [
        run_cases(tmp_path / "cases.jsonl", tmp_path / name, strategy=name, **found)
        for name in ("v1-infer", "majority")
    ]
    for run, winner in zip(runs, (1, 0), strict=True):
        lines = run / "selections.jsonl"
        lines.write_text(re.sub(r'"winner":\d', f'"winner":{winner}', lines.read_text()))
    with ExitStack() as stack:
        yield [load_report(stack.enter_context(open_run(path))) for path in runs]


def test_equal_answers_are_equal_whatever_the_strategies_that_chose_them(feet):
    found = compare_runs(*feet)
    assert (found.shared, found.different, found.other_candidates) == (1, 0, 1)


def test_the_majority_is_the_same_in_the_reports_of_all_strategies(feet):
    assert [report.facts["feet"].majority for report in feet] == [0.5, 0.5]  # 47 and 46, two votes each
    assert [report.facts["feet"].votes for report in feet] == [2, 2]


def test_copies_of_a_text_without_an_answer_are_no_majority(tmp_path):
    texts = ["I cannot help."] * 3 + ["It is \\boxed{4}", "It is \\boxed{5}"]
    candidates = [{"text": text, "correct": "4" in text} for text in texts]
    case = {"id": "sum", "domain": "math", "problem": "2 + 2", "candidates": candidates}
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n")
    run_cases(tmp_path / "cases.jsonl", tmp_path / "run", strategy="majority")
    with open_run(tmp_path / "run") as run:
        facts = load_report(run).facts["sum"]
    assert (facts.majority, facts.votes, facts.leads) == (0.5, 1, True)


def test_a_large_run_keeps_its_receipts_beside_the_page(folder, tmp_path, monkeypatch, run):
    monkeypatch.setattr(pages, "INLINE_LIMIT", 1000)
    monkeypatch.setattr(pages, "PART_SIZE", 1)
    _write([run], None, tmp_path / "page.html", texts=True)
    parts = sorted((tmp_path / "page_files").iterdir())
    assert [part.name for part in parts] == ["0.js", "1.js", "2.js"]
    start, packed = part_in(parts[1].read_bytes())
    (second,) = unpacked(packed)
    assert start == 1
    assert read(second).text.startswith("Case second")
    data = packed_data((tmp_path / "page.html").read_text())
    assert data["starts"] == [0, 1, 2]
    assert all("BEGIN CANDIDATE" not in row["html"] for row in data["rows"])


def test_ten_thousand_cases_of_18_games_stay_far_below_30_megabytes(run):
    """By a tenth of them: a row is as long as another."""
    lines, calls = dict(run.selections), dict(run.calls)
    for number in range(1_000):
        lines[f"case {number}"] = {**lines["first"], "id": f"case {number}"}
        calls[f"case {number}"] = calls["first"]
    run.selections, run.calls, run.journal = lines, calls, None
    assert len(page_html(run_page(load_report(run)), StoredReceipts((), "page_files", [0]))) < 600_000


def test_without_texts_a_page_holds_no_word_of_a_candidate(run, tmp_path):
    _write([run], None, tmp_path / "page.html", texts=False)
    text = (tmp_path / "page.html").read_text()
    packed = json.dumps(packed_data(text))
    for words in ("I reckon", "Both were read"):
        assert words not in text
        assert words not in packed
    written = "".join(receipts(load_report(run), texts=False))
    assert "#" in written
    assert " (#" not in written  # an answer with the number of its candidate


def test_a_case_that_is_not_there_is_named_with_some_that_are(run):
    with pytest.raises(InputError, match="no case 'fourth' in this run; there are 'first', 'second'"):
        receipt_line(run, "fourth")
