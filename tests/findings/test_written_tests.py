"""Tests written by a model: read safely, run in the sandbox, weighed by agreement, paid for once."""

import asyncio
import json
from dataclasses import replace

import pytest

from caps.config import RunConfig
from caps.core.contest import Contest
from caps.core.errors import SettingError
from caps.core.types import Candidate, Case, Problem
from caps.engines.budget import BudgetLimits, CaseBudget, RunBudget
from caps.findings.base import Findings, recall
from caps.findings.written_tests import (
    KIND,
    LONGEST_TEST,
    TestWriter,
    agreement,
    read_tests,
)
from caps.journal.store import Journal
from caps.models.journaled import JournaledModel
from caps.models.scripted import ScriptedModel
from caps.session.engines import check_batch
from caps.session.parts import load_templates, make_grader, make_prepare, make_strategy
from caps.session.resolve import resolve
from caps.session.session import open_findings
from caps.workers.texts import TextWorkers
from support.closing import closing
from support.running import run_cases
from support.sandboxing import needs_bubblewrap
from support.shell import caps

TESTS = [{"input": [2, 3], "output": 5}, {"input": [0, 7], "output": 7}, {"input": [1, 1], "output": 3}]
REPLY = f"2 + 3 is 5.\n```json\n{json.dumps(TESTS)}\n```"
PROGRAMS = (
    "def f(a, b):\n    return a + b",
    "def f(a, b):\n    return b + a",
    "def f(a, b):\n    return a * b",
)
CASE = Case(
    "1",
    Problem.of("Write f, which adds two numbers."),
    tuple(Candidate(f"```python\n{text}\n```") for text in PROGRAMS),
    "code",
    extra={"entry_point": "f"},
)
STDIN = replace(CASE, extra={})


def test_programs_that_pass_the_same_tests_agree_and_a_wrong_test_dismisses_none():
    assert agreement([frozenset({0, 1}), frozenset({0, 1}), frozenset({2})]) == [1.0, 1.0, 0.25]
    assert agreement([frozenset({0}), frozenset()]) == [1.0, 0.0]
    assert agreement([frozenset(), frozenset()]) == agreement([]) == []


def test_tests_are_read_from_the_last_list_in_a_reply():
    assert read_tests(REPLY, CASE, 5) == TESTS
    assert read_tests(REPLY, CASE, 2) == TESTS[:2]
    assert (
        read_tests(f"[1] Here they are: {json.dumps(TESTS)}", CASE, 5) == []
    )  # no list of tests as it stands
    assert read_tests(f"Here: {json.dumps(TESTS)}", CASE, 5) == TESTS
    text = [{"input": "1 2\n", "output": "3"}]
    assert read_tests(json.dumps(text), STDIN, 5) == text


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I cannot.",
        "```json\n[",
        "[" * 50_000,
        "x" * 10_000_000,
        '[{"input": [NaN], "output": 1}]',
        '[{"input": "__import__(\'os\')", "output": 1}]',
        json.dumps([{"input": ["x" * LONGEST_TEST], "output": 1}]),
        json.dumps([{"input": [1]}, 5, None, "x"]),
        '[{"input": ' + "[" * 5_000 + "]" * 5_000 + ', "output": 1}]',
    ],
    ids=["empty", "refusal", "cut", "nested", "10 MB", "NaN", "a text", "long", "no tests", "deep"],
)
def test_whatever_a_reply_contains_only_bounded_plain_tests_come_out(reply):
    assert read_tests(reply, CASE, 5) == []


def writer(journal, model):
    return TestWriter(
        JournaledModel(model, journal),
        "m",
        load_templates(shelf="generation"),
        count=3,
        grader=make_grader("code", "auto", 4.0),
        journal=journal,
    )


async def found(journal, model, *, budget=None, case=CASE):
    async with closing(Findings({}, journal, writer=writer(journal, model))) as findings:
        return await findings.find(case, None, budget), findings.versions


@needs_bubblewrap
def test_tests_are_written_once_and_programs_that_agree_on_them_preferred(tmp_path):
    model = ScriptedModel(lambda _: REPLY)
    with Journal.open(tmp_path / "j.sqlite") as journal:
        first, versions = asyncio.run(found(journal, model))
        assert [one.found.written for one in first.candidates] == [1.0, 1.0, 0.0]
        assert [replayed for _, replayed in first.spent] == [False]
        (request,) = model.requests
        assert "Write 3 tests" in request.messages[-1].content
        assert "a + b" not in request.messages[-1].content  # it sees no candidate
        again, _ = asyncio.run(found(journal, ScriptedModel(lambda _: pytest.fail("asked again"))))
        assert again.candidates == first.candidates == recall(journal, versions, CASE).candidates
        assert [replayed for _, replayed in again.spent] == [True]
        assert KIND in versions
    entrants = make_prepare()(first).evidence.entrants
    contest = Contest(make_strategy("tests-first"), entrants, seed=1)
    assert contest.selection.winner in (0, 1)


@needs_bubblewrap
def test_without_budget_for_the_call_the_case_goes_on_as_it_is(tmp_path):
    model = ScriptedModel(lambda _: pytest.fail("asked"))
    budget = CaseBudget(BudgetLimits(tokens=10), None, RunBudget(BudgetLimits(), None))
    with Journal.open(tmp_path / "j.sqlite") as journal:
        assert asyncio.run(found(journal, model, budget=budget))[0] == CASE


@pytest.mark.slow
@needs_bubblewrap
def test_a_written_test_cannot_run_code_and_a_hanging_program_only_fails_it(tmp_path):
    escape = tmp_path / "escaped"
    hostile = [{"input": [f"__import__('pathlib').Path({str(escape)!r}).touch()", 1], "output": 1}]
    hanging = replace(CASE.candidates[0], text="```python\ndef f(a, b):\n    while True:\n        pass\n```")
    case = replace(CASE, candidates=(*CASE.candidates[:1], hanging))
    with Journal.open(tmp_path / "j.sqlite") as journal:
        known, _ = asyncio.run(found(journal, ScriptedModel(lambda _: json.dumps(hostile)), case=case))
    assert not escape.exists()
    assert all(one.found is None for one in known.candidates)


@needs_bubblewrap
def test_a_run_pays_for_written_tests_once_and_its_replay_needs_no_model(tmp_path):
    rows = [{"text": one.text, "correct": place < 2} for place, one in enumerate(reversed(CASE.candidates))]
    row = {"id": "1", "domain": "code", "problem": CASE.problem.text, "entry_point": "f", "candidates": rows}
    (tmp_path / "cases.jsonl").write_text(json.dumps(row) + "\n")
    settings = {"strategy": "tests-first", "hard_evidence": "auto", "write_tests": 3, "further_inputs": 0}
    run = run_cases(tmp_path / "cases.jsonl", tmp_path / "run", reply=lambda _: REPLY, **settings)
    (line,) = [json.loads(one) for one in (run / "selections.jsonl").read_text().splitlines()]
    assert line["winner"] in (1, 2)
    assert line["tokens"]["asked"] == line["tokens"]["billed"] > 100
    assert line["tokens"]["output"] > 10
    again = caps("replay", str(run))
    assert again.returncode == 0, again.stderr


def test_tests_are_not_written_through_batches_or_where_programs_may_not_run():
    with pytest.raises(SettingError, match="batches"):
        check_batch(resolve(RunConfig(write_tests=3, engine="batch"), offline=True))
    resolved = resolve(RunConfig(write_tests=3, hard_evidence="off"), offline=True)
    with pytest.raises(SettingError, match="hard-evidence"):
        open_findings(resolved, None, TextWorkers(), {})
