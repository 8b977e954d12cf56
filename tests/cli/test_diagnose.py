"""`caps diagnose` as a user runs it."""

import json
import os
import sys

import pytest

from judging import better_quality_wins, case_line, write_cases
from models.server import StubServer
from shell import caps, caps_json

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
    with StubServer(better_quality_wins) as running:
        yield running


def test_a_judge_that_is_right_is_told_and_its_profile_goes_on_to_a_strategy(server, tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 20, n=2)
    judge = ("--model", "m", "--base-url", server.url, "--journal", tmp_path / "journal.sqlite")
    saved = tmp_path / "judge.json"
    words = ("diagnose", cases, *judge, "--no-stop", "--contests", "20", "--quiet")
    drawn = ("--plots", tmp_path / "plots", "--html", tmp_path / "page.html")
    found = caps_json(*words, "--save", saved, *drawn)
    assert len(list((tmp_path / "plots").glob("*.svg"))) == 5
    assert "Is this judge good enough?" in (tmp_path / "page.html").read_text()
    assert found["counts"] == {"pairs": 20, "cases": 20, "looks": 80, "beyond": 0, "unanswered": 0}
    for level in found["levels"].values():
        assert (level["accuracy"]["value"], level["standing"], level["flips"]["value"]) == (1, "above", 0)
    assert 2 < found["settled_after"] < 20
    assert found["advice"]["use"]["tokens"] > 0
    assert found["advice"]["command"].startswith(f"caps select {cases} --strategy ")
    kept = json.loads(saved.read_text())
    assert (kept["model"], kept["counts"]["pairs"], kept["assumed"]) == ("m", 20, ["repeats", "shared"])

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


def test_labels_that_tell_nothing_apart_and_none_at_all_are_explained(tmp_path):
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"id": "a", "problem": "?", "candidates": ["one", "two"]}\n')
    done = caps("diagnose", cases, "--model", "m", "--base-url", "http://localhost:1/v1")
    assert done.returncode == 2
    assert "no candidate carries a label" in done.stderr
    assert "--proxy" in done.stderr


def test_without_labels_agreement_is_a_proxy_and_nothing_is_called_accuracy(server, tmp_path):
    row = json.loads(case_line("a", [0.1, 0.5, 0.9]))
    row["candidates"] = [one["text"] for one in row["candidates"]]
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps(row) + "\n")
    page = tmp_path / "page.html"
    judge = ("--model", "m", "--base-url", server.url, "--no-journal")
    found = caps_json("diagnose", cases, "--proxy", *judge, "--html", page)
    assert "E1 agrees with E2" in page.read_text()
    assert found["agreement"]["value"] == 1
    assert "not an accuracy" in found["proxy"]
    assert not {"accuracy", "bounds", "standing"} & found["levels"]["E2"].keys()


def test_money_that_ends_leaves_figures_about_the_rest(server, tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 8, n=2)
    done = caps(
        "diagnose", cases, "--model", "m", "--base-url", server.url, "--no-journal", "--contests", "5",
        "--budget-total-tokens", "5000", "--max-tokens", "100", "--json",
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert 0 < json.loads(done.stdout)["counts"]["pairs"] < 8
