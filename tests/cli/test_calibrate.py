"""`caps select --calibrate`: fitted on the first cases, frozen, written down, replayed, never paid twice."""

import json
from dataclasses import fields

import pytest

from caps.cli.calibrator import Calibrator
from caps.config import RunConfig
from caps.core.errors import SettingError
from caps.core.judge_profile import JudgeProfile
from caps.judging.profiles import read_profile
from caps.session.resolve import resolve
from caps.testing import ScriptedEndpoint, better_quality_wins
from support.shell import caps


def write_votes(path, count, *, labels=True):
    """Cases whose candidates give three answers: five, two and one of them; the first is right, and judged best."""
    rows = []
    for number in range(count):
        candidates = [
            {
                "text": f"With quality={0.9 - 0.1 * i} I reckon \\boxed{{{answer}}}",
                **({"correct": answer == 1} if labels else {}),
            }
            for i, answer in enumerate([1, 1, 1, 1, 1, 2, 2, 3])
        ]
        rows.append(
            {"id": f"case {number}", "domain": "math", "problem": f"{number}?", "candidates": candidates}
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def server():
    with ScriptedEndpoint(better_quality_wins) as running:
        yield running


@pytest.fixture
def select(server, tmp_path):
    def run(*words, cases, stdin=None):
        return caps(
            "select", cases, "--strategy", "posterior", "--model", "stub", "--base-url", server.url,
            "--journal", tmp_path / "journal.sqlite", "--json", *words, stdin=stdin,
        )  # fmt: skip

    return run


def test_the_first_cases_are_asked_once_and_resume_and_replay_use_that_profile(select, server, tmp_path):
    cases, out = write_votes(tmp_path / "cases.jsonl", 14), tmp_path / "run"
    words = ("--calibrate", 12, "--set", "e1_high=0.6", "--out", out)
    piped = select(*words, cases="-", stdin=cases.read_text())
    assert piped.returncode == 0, piped.stderr
    assert "calibrated on 12 labelled cases: E1 right" in " ".join(piped.stderr.split())
    made, judge = json.loads((out / "run.json").read_text()), read_profile(out / "judge.json")
    assert made["config"]["settings"]["e2_high"] == judge.e2_high > 0.82
    assert made["config"]["settings"]["e1_high"] == 0.6 != judge.e1_high
    assert made["calibration"]["cases"] == 12
    by_stage = {line["stage"]: line["calls"] for line in made["summary"]["by_stage"] if line["level"] == "E2"}
    assert by_stage["calibration"] == 12 * 4
    asked = [json.dumps(body["messages"]) for body in server.bodies]
    assert len(set(asked)) == len(asked)

    done = select(*words, cases=cases)
    assert done.returncode == 0, done.stderr
    assert read_profile(out / "judge.json") == judge
    assert len(server.bodies) == len(asked)
    again = caps("replay", out)
    assert again.returncode == 0, again.stderr
    assert "14 cases replayed without a call, all as in the run" in again.stderr


def test_without_labels_nothing_is_asked_for_it_and_a_line_says_what_it_needs(select, tmp_path):
    cases, out = write_votes(tmp_path / "cases.jsonl", 12, labels=False), tmp_path / "run"
    done = select("--calibrate", 12, "--out", out, cases=cases)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert "not calibrated: only 0 cases have labels (candidates[].correct)" in said
    made = json.loads((out / "run.json").read_text())
    assert "calibration" not in {line["stage"] for line in made["summary"]["by_stage"]}


def test_a_total_budget_covers_both_steps_and_partial_answers_teach_nothing(select, server, tmp_path):
    cases, limit = write_votes(tmp_path / "cases.jsonl", 12), 20_000
    done = select(
        "--calibrate", 12, "--budget-total-tokens", limit, "--max-connections", 2, "--out", tmp_path / "run",
        cases=cases,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "not calibrated: the budget ended" in " ".join(done.stderr.split())
    assert 5000 < sum(server.tokens.values()) <= limit
    assert len(done.stdout.splitlines()) == 12
    judge = json.loads((tmp_path / "run" / "judge.json").read_text())
    assert (judge["e2_high"], len(judge["assumed"])) == (0.82, len(fields(JudgeProfile)))


def calibrating(count=20, name="posterior", journal="j", **settings):
    return Calibrator(
        resolve(RunConfig(calibrate=count, strategy=name, journal=journal, **settings), offline=True)
    )


@pytest.mark.parametrize("count", [3, 5000])
def test_too_few_and_too_many_cases_are_refused(count):
    with pytest.raises(SettingError, match=f"--calibrate {count}: must be from 10 to 2000 cases"):
        calibrating(count)


def test_a_strategy_with_no_use_for_it_is_refused():
    with pytest.raises(SettingError, match="'caps-r' does not use"):
        calibrating(name="caps-r")


def test_without_a_journal_it_would_be_paid_twice(tmp_path):
    with pytest.raises(SettingError, match="leave out --no-journal"):
        calibrating(journal=None)
    assert calibrating(journal=str(tmp_path / "j")).count == 20
    with pytest.raises(SettingError, match="--engine local only, not with batch"):
        calibrating(engine="batch")
