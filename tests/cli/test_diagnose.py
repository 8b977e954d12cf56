"""`caps diagnose` as a user runs it."""

import json
import os
import sys

import pytest

from caps.testing import ScriptedEndpoint, better_quality_wins, write_cases
from support.shell import caps, caps_json

TOY = '''
from dataclasses import dataclass
from caps.core.settings import setting
from typing import ClassVar
from caps.core.play import Capabilities
from caps.core.types import Selection

@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    """Knows its judge."""
    capabilities: ClassVar = Capabilities(uses_judge_profile=True)
    e2_high: float = setting(0.5, "how often a HIGH verdict is right")

    def play(self, entrants, rng):
        yield from ()
        return Selection(0, tuple(one.id for one in entrants), facts={"e2_high": self.e2_high})
'''


@pytest.fixture
def server():
    with ScriptedEndpoint(better_quality_wins) as running:
        yield running


def test_a_judge_that_is_right_is_told_and_its_profile_goes_on_to_a_strategy(server, tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 20, n=2)
    judge = ("--model", "m", "--base-url", server.url, "--journal", tmp_path / "journal.sqlite")
    saved = tmp_path / "judge.json"
    words = ("diagnose", cases, *judge, "--contests", "20", "--quiet")
    drawn = ("--plots", tmp_path / "plots", "--html", tmp_path / "page.html")
    found = caps_json(*words, "--save", saved, *drawn)
    assert len(list((tmp_path / "plots").glob("*.svg"))) == 5
    assert "Is this judge good enough?" in (tmp_path / "page.html").read_text()
    assert found["counts"] == {"pairs": 20, "cases": 20, "looks": 80, "beyond": 0, "unanswered": 0}
    for level in found["levels"].values():
        assert (level["accuracy"]["value"], level["standing"], level["flips"]["value"]) == (1, "above", 0)
    assert found["advice"]["use"]["tokens"] > 0
    assert found["advice"]["command"].startswith(f"caps select {cases} --strategy ")
    kept = json.loads(saved.read_text())
    assert (kept["model"], kept["counts"]["pairs"], kept["assumed"]) == (
        "m",
        20,
        [],
    )
    assert kept["intervals"]["E2"]["accuracy"] == [1, kept["intervals"]["E2"]["accuracy"][1], 1]
    assert set(kept["intervals"]["E1"]) >= {"accuracy", "first_slot", "flips", "high"}

    asked = server.requests
    again = caps(*words)
    assert again.returncode == 0, again.stderr
    assert "tells right from wrong" in again.stdout
    line = caps("select", cases, *judge, "--strategy", "round-robin", "--quiet", "--limit", "1").stdout
    assert json.loads(line)["tokens"]["billed"] == 0
    assert server.requests <= asked + 2, "only the greetings are asked again"

    (tmp_path / "toy.py").write_text(TOY)
    done = caps(
        "select", cases, *judge, "--strategy", "toy:Toy", "--judge-profile", saved, "--limit", "1", "--out",
        tmp_path / "run", PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / "run" / "run.json").read_text())
    assert made["config"]["settings"]["e2_high"] == kept["e2_high"]


def test_several_models_are_compared_in_one_table_with_what_they_cost(server, tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 12, n=2)
    words = (
        "diagnose", cases, "--model", "m", "--model", "other", "--base-url", server.url, "--no-journal",
        "--contests", "10", "--quiet", "--price-input", "2", "--price-output", "8",
    )  # fmt: skip
    one, other = caps_json(*words)["judges"]
    assert (one["judge"], other["judge"]) == ("m", "other")
    assert one["accuracy"]["E2"]["value"] == 1
    assert one["usd_per_1000_cases"] > 0
    assert any("only 12 cases" in words for words in one["warnings"])
    done = caps(*words)
    assert "→ m" in done.stdout
    assert "warning: m: only 12 cases" in done.stdout
    refused = caps(*words, "--save", tmp_path / "judge.json")
    assert refused.returncode == 2
    assert "one judge" in refused.stderr


@pytest.mark.slow
def test_simulated_judges_are_compared_too():
    rows = caps_json("diagnose", "--simulate", "90", "--simulate", "weak", "--contests", "20", "--quiet")[
        "judges"
    ]
    assert [row["judge"] for row in rows] == ["simulated judge 90", "simulated judge weak"]
    assert rows[0]["pass_at_1"] > rows[1]["pass_at_1"]
    assert rows[0]["interval"][0] < rows[0]["pass_at_1"] < rows[0]["interval"][1]


def test_a_judge_is_diagnosed_from_recorded_verdicts(tmp_path):
    cases, recorded = tmp_path / "cases.jsonl", tmp_path / "verdicts.jsonl"
    verdicts = {"gpt": {(0, 1): "A", (1, 0): "B"}, "other": {(0, 1): "A", (1, 0): "A"}}
    case_lines, verdict_lines = [], []
    for number in range(40):
        candidates = [
            {"text": f"right {number}", "correct": True},
            {"text": f"wrong {number}", "correct": False},
        ]
        case_lines.append(json.dumps({"id": f"q{number}", "problem": "?", "candidates": candidates}))
        verdict_lines += [
            json.dumps({"case": f"q{number}", "judge": judge, "shown": shown, "verdict": verdict})
            for judge, given in verdicts.items()
            for shown, verdict in given.items()
        ]
    cases.write_text("\n".join(case_lines) + "\n")
    recorded.write_text("\n".join(verdict_lines) + "\n")
    words = ("diagnose", cases, "--recorded", recorded, "--contests", "10", "--quiet")
    found = caps_json(*words, "--recorded-judge", "gpt")
    assert found["judge"]["model"] == "gpt"
    assert found["levels"]["E2"]["accuracy"]["value"] == 1
    swayed = caps_json(*words, "--recorded-judge", "other")
    assert swayed["levels"]["E2"]["accuracy"]["value"] == 0.5
    assert swayed["levels"]["E2"]["first_slot"]["value"] > 0.9
    refused = caps(*words, "--model", "m")
    assert refused.returncode == 2
    assert "leave --model out" in refused.stderr


def test_a_judge_is_measured_without_labels_where_the_better_candidate_is_nearly_known(tmp_path):
    cases, saved, recorded = (tmp_path / name for name in ("cases.jsonl", "judge.json", "verdicts.jsonl"))
    answers = ["4", "4", "4", "5"]
    candidates = [f"{place}: \\boxed{{{answer}}}" for place, answer in enumerate(answers)]
    rows = [{"id": f"q{number}", "domain": "math", "problem": "2 + 2?"} for number in range(40)]
    cases.write_text("".join(json.dumps({**row, "candidates": candidates}) + "\n" for row in rows))
    verdicts = [
        {"case": row["id"], "judge": "gpt", "shown": shown, "verdict": verdict}
        for row in rows
        for place in range(3)
        for shown, verdict in (([place, 3], "A"), ([3, place], "B"))
    ]
    recorded.write_text("".join(json.dumps(verdict) + "\n" for verdict in verdicts))
    words = ("diagnose", cases, "--recorded", recorded, "--save", saved)
    done = caps(*words)
    assert done.returncode == 0, done.stderr
    assert "no candidate is labelled" in done.stdout
    assert "corrected for 15 % of pairs" in done.stdout
    assert f"--strategy posterior --judge-profile {saved}" in done.stdout
    assert "without labels" in json.loads(saved.read_text())["source"]
    found = caps_json(*words)
    assert (found["labels"], found["levels"]["E2"]["accuracy"]["value"]) == ("presumed", 1)
    assert found["profile"]["e2_high"] > 0.9
    for more in (("--simulate", "80"), ("--html", tmp_path / "page.html")):
        refused = caps("diagnose", cases, *more)
        assert refused.returncode == 2
        assert "need labels" in refused.stderr


def test_before_a_large_run_it_is_recommended_once(server, tmp_path):
    cases = tmp_path / "cases.jsonl"
    line = '{"problem": "1 + 1?", "domain": "math", "candidates": ["\\\\boxed{2}", "\\\\boxed{2}"]}\n'
    cases.write_text(1000 * line)
    profile = tmp_path / "judge.json"
    profile.write_text('{"e2_high": 0.9}')
    words = ("select", cases, "--model", "m", "--base-url", server.url, "--no-journal")
    for more, recommended in (((), 1), (("--limit", 999), 0), (("--judge-profile", profile), 0)):
        done = caps(*words, *more)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("caps diagnose") == recommended


def test_cases_in_which_nothing_is_known_to_be_right_are_explained(tmp_path):
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"id": "a", "problem": "?", "candidates": ["one", "two"]}\n')
    done = caps("diagnose", cases, "--model", "m", "--base-url", "http://localhost:1/v1")
    assert done.returncode == 2
    assert "no candidate carries a label" in done.stderr


def test_money_that_ends_leaves_figures_about_the_rest(server, tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 8, n=2)
    done = caps(
        "diagnose", cases, "--model", "m", "--base-url", server.url, "--no-journal", "--contests", "5",
        "--budget-total-tokens", "5000", "--max-tokens", "100", "--json",
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert 0 < json.loads(done.stdout)["counts"]["pairs"] < 8
