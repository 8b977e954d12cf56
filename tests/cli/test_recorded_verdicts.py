"""Recorded verdicts at the command line: from a run to a file, and from the file to the same choices."""

import json
from itertools import permutations

import pytest

import caps
from caps.datasets.imports import open_cases
from caps.testing import write_cases
from support.running import run_cases, run_here

STRATEGIES = ("caps-r", "posterior", "v1-infer", "pointwise", "listwise", "knockout")


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module", params=STRATEGIES)
def exported(request, tmp_path_factory):
    """A run of four cases with a scripted model, and its verdicts."""
    folder = tmp_path_factory.mktemp("recorded")
    cases = write_cases(folder / "cases.jsonl", 4, 6)
    out = run_cases(cases, folder / "out", strategy=request.param)
    done = run_here("export", out, "--verdicts", "-o", folder / "verdicts.jsonl")
    assert done.exit_code == 0, done.output
    return folder, request.param


def test_a_run_its_verdicts_and_a_recorded_judge_choose_alike_without_an_endpoint(exported):
    folder, strategy = exported
    before = lines((folder / "out" / "selections.jsonl").read_text())
    words = ("--strategy", strategy, "--seed", 7, "--hard-evidence", "off", "--no-journal", "--json")
    done = run_here("select", folder / "cases.jsonl", "--recorded", folder / "verdicts.jsonl", *words)
    assert done.exit_code == 0, done.output
    after = lines(done.stdout)
    for was, now in zip(before, after, strict=True):
        assert {name: was[name] for name in ("id", "winner", "order", "calls")} == {
            name: now[name] for name in ("id", "winner", "order", "calls")
        }
        assert was["tokens"]["asked"] == now["tokens"]["asked"], "what reading took is recorded too"
        assert now["tokens"]["billed"] == 0
        assert "substituted" not in now, "all was recorded exactly"
    assert "An ask is answered with what was recorded" in done.stderr
    assert "unanswered 0" in done.stderr


def test_python_and_the_command_choose_alike(exported):
    folder, strategy = exported
    cases = list(open_cases(str(folder / "cases.jsonl")))
    found = caps.select_many_sync(
        cases, recorded=folder / "verdicts.jsonl", strategy=strategy, seed=7, hard_evidence="off"
    )
    judge = caps.RecordedJudge.read(str(folder / "verdicts.jsonl"), "scripted")
    again = caps.select_many_sync(cases, judge=judge, strategy=strategy, seed=7, hard_evidence="off")
    before = [line["winner"] for line in lines((folder / "out" / "selections.jsonl").read_text())]
    assert [one.winner for one in found] == [one.winner for one in again] == before


@pytest.fixture(scope="module")
def cascade(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cascade")
    cases = write_cases(folder / "cases.jsonl", 3, 6)
    run_cases(cases, folder / "out", strategy="caps-r")
    assert run_here("export", folder / "out", "--verdicts", "-o", folder / "verdicts.jsonl").exit_code == 0
    return folder


def test_an_exported_line_holds_all_that_is_needed(cascade):
    first = lines((cascade / "verdicts.jsonl").read_text())[0]
    assert {
        "case",
        "judge",
        "shown",
        "verdict",
        "ratings",
        "level",
        "texts",
        "tokens",
        "output",
    } <= first.keys()
    assert first["judge"] == "scripted"
    named = run_here("export", cascade / "out", "--format", "verdicts", "--judge-name", "my judge")
    assert {line["judge"] for line in lines(named.stdout)} == {"my judge"}


def test_a_recorded_run_is_reported_and_continued_as_any_other(cascade, tmp_path):
    words = (
        "select",
        cascade / "cases.jsonl",
        "--recorded",
        cascade / "verdicts.jsonl",
        "--strategy v1-infer",
    )
    words = (*words, "--journal", tmp_path / "j.sqlite", "--out", tmp_path / "out", "--seed", 7, "--limit", 1)
    done = run_here(*words)
    assert done.exit_code == 3, done.output
    config = json.loads((tmp_path / "out" / "run.json").read_text())["config"]
    assert config["recorded"] == str((cascade / "verdicts.jsonl").resolve())
    assert config["recorded_judge"] == "scripted"
    rulings = lines((tmp_path / "out" / "rulings.jsonl").read_text())
    assert any("no confidence" in line.get("substituted", ()) for line in rulings)
    assert run_here("report", tmp_path / "out", "-o", tmp_path / "page.html").exit_code == 0
    assert run_here("replay", tmp_path / "out").exit_code == 0, "it chooses the same again"
    again = lines(run_here("export", tmp_path / "out", "--verdicts").stdout)
    assert not any("no confidence" in line.get("substituted", ()) for line in again)
    exact = [line for line in rulings if "substituted" not in line and "ratings" in line]
    assert len(again) == len(exact), "what was substituted is not passed on as recorded"


def test_candidates_that_changed_since_are_not_answered(cascade, tmp_path):
    changed = tmp_path / "changed.jsonl"
    changed.write_text((cascade / "cases.jsonl").read_text().replace("I reckon", "I guess"))
    done = run_here(
        "select", changed, "--recorded", cascade / "verdicts.jsonl", "--strategy", "caps-r", "--no-journal"
    )
    assert done.exit_code == 1
    assert "recorded of another text" in done.stderr


def test_verdicts_are_exported_without_the_cases_too(cascade, tmp_path):
    moved = tmp_path / "run"
    moved.mkdir()
    for one in (cascade / "out").iterdir():
        if one.is_file():
            (moved / one.name).write_bytes(one.read_bytes())
    file = json.loads((moved / "run.json").read_text())
    (moved / "run.json").write_text(json.dumps({**file, "cases": str(tmp_path / "gone.jsonl")}))
    done = run_here("export", moved, "--verdicts")
    assert "without digests of the texts" in done.stderr
    assert not any("texts" in line for line in lines(done.stdout))


def test_files_of_verdicts_are_checked_and_put_together(cascade, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text('{"case": "case 0", "judge": "b", "shown": [0, 1], "verdict": "A"}\n{"case": 1}\n')
    done = run_here("import", cascade / "verdicts.jsonl", other, other, "--verdicts", tmp_path / "all.jsonl")
    assert done.exit_code == 1
    assert "other.jsonl:2: shown: is missing" in done.stderr
    assert "answers of scripted, b, written to" in done.stderr
    rows = lines((tmp_path / "all.jsonl").read_text())
    assert sum(row["judge"] == "b" for row in rows) == 1
    assert len(rows) == 1 + len(lines((cascade / "verdicts.jsonl").read_text()))


def test_bench_compares_strategies_on_recorded_verdicts_without_a_study_file(cascade, tmp_path):
    words = ("bench", cascade / "cases.jsonl", "--recorded", cascade / "verdicts.jsonl", "--out", tmp_path)
    done = run_here(*words, "--strategies", "caps-r,v1-infer,pointwise", "--json")
    assert "left out: pointwise asks for what is not recorded" in done.stderr
    (table,) = json.loads(done.stdout)["tables"]
    figures = {(row["row"], row["column"]): row["ours"] for row in table["figures"]}
    assert figures["caps-r", "right"] + figures["caps-r", "missed"] == len(
        lines((cascade / "cases.jsonl").read_text())
    )
    assert figures["v1-infer", "Δ"] is not None
    assert figures["v1-infer", "p"] is not None
    assert figures["caps-r", "Δ"] is None
    assert figures["pointwise", "right"] is None
    assert any("An ask is answered with what was" in note for note in table["notes"])


STUDY = """
title = "Recorded"
seeds = [1, 2, 3]
[judge]
hard_evidence = "off"
[[suites]]
name = "gpt"
cases = "cases.jsonl"
recorded = "verdicts.jsonl"
recorded_judge = "gpt"
shuffle = true
[[strategies]]
name = "vanilla"
[[strategies]]
name = "pointwise"
[[strategies]]
name = "all pairs"
use = "round-robin"
[[tables]]
name = "grades"
title = "Grades"
down = "methods"
across = "nothing"
metrics = ["mean_grade", "grade", "best_grade", "grade_gain", "calls", "unanswered"]
baseline = "vanilla"
"""


def test_a_study_on_recorded_verdicts_tells_grades_the_rule_and_the_counts(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    data = tmp_path / "data"
    data.mkdir()
    cases, verdicts = [], [{"case": "0", "judge": "b", "shown": [0, 1], "verdict": "A"}]
    for number in range(8):
        grades = [number % 3, 3, number % 2]
        candidates = [
            {"text": f"{number}: {place}", "grade": grade, "correct": grade == 3}
            for place, grade in enumerate(grades)
        ]
        cases.append({"id": str(number), "problem": "?", "candidates": candidates})
        for shown in permutations(range(3), 2):
            better = "A" if grades[shown[0]] > grades[shown[1]] else "B"
            verdicts.append({"case": str(number), "judge": "gpt", "shown": shown, "verdict": better})
    (data / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in cases))
    (data / "verdicts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in verdicts))
    words = ("bench", tmp_path / "study.toml", "--data", data, "--out", tmp_path / "out", "--json")
    done = run_here(*words)
    assert done.exit_code == 0, done.output
    (table,) = json.loads(done.stdout)["tables"]
    found = {(row["row"], row["column"]): row["ours"] for row in table["figures"]}
    assert found["all pairs", "grade"] == found["all pairs", "best grade"] == 3
    assert found["pointwise", "grade"] is None, "no rating is recorded"
    assert found["all pairs", "Δ grade"] == pytest.approx(3 - found["vanilla", "grade"])
    places = {line["winner"] for line in lines((tmp_path / "out" / "results" / "gpt.jsonl").read_text())}
    assert places > {1}, "every seed shuffles, so the first of the shuffled is any of the three"
    assert any(note.startswith("Recorded verdicts. An ask is answered") for note in table["notes"])
    (counted,) = (note for note in table["notes"] if note.startswith("all pairs, "))
    assert "no confidence" in counted
    assert json.loads(run_here(*words).stdout)["tables"] == [table], "nothing is played twice"
