import asyncio
from dataclasses import replace

import pytest

from caps.core.errors import InputError, NotRecordedError, UserError
from caps.core.types import Candidate, Case, Found, Problem, Run, Survived, differing_runs
from caps.findings.answers import AnswerFinder
from caps.findings.base import Findings, recall
from caps.findings.programs import HUNG, BehaviourFinder
from caps.grading import math as math_grading
from caps.grading.math import MathGrader
from caps.journal.store import Journal
from caps.sandbox.base import Limits
from support.sandboxing import needs_bubblewrap

SUMS = {"tests": {"public": [{"input": "1 2\n", "output": "3\n"}, {"input": "4 5\n", "output": "9\n"}]}}


def case(*texts, domain="code", **extra):
    return Case("1", Problem.of("Add."), tuple(Candidate(text) for text in texts), domain, extra=extra)


def program(text):
    return f"```python\n{text}\n```"


async def look(finder, one):
    try:
        return await finder.find(one)
    finally:
        await finder.close()


@needs_bubblewrap
def test_programs_that_do_the_same_are_alike_and_examples_are_counted():
    found = asyncio.run(
        look(
            BehaviourFinder(),
            case(
                program("a, b = map(int, input().split())\nprint(a + b)"),
                program("print(sum(int(word) for word in input().split()))"),
                program("a, b = map(int, input().split())\nprint(a - b)"),
                program("print(3)"),
                program("print("),
                program("raise ValueError"),
                **SUMS,
            ),
        )
    )
    right, same, minus, constant, unparsed, failing = found
    assert right == same == replace(right, passed=2, examples=2, parses=True)
    assert right.cluster is not None
    assert minus.cluster is constant.cluster is None  # what fails an example runs on too few inputs
    assert (minus.passed, constant.passed) == (0, 1)
    assert (unparsed.cluster, unparsed.passed, unparsed.parses) == (None, 0, False)
    assert (failing.cluster, failing.passed, failing.parses) == (None, 0, True)


@needs_bubblewrap
def test_what_continues_a_program_has_the_imports_of_that_program_only():
    head = 'def f(x):\n    """Cut.\n    >>> f(2.5)\n    2\n    """\n'
    bodies = ("    return math.floor(x)\n", "    return int(x // 1)\n")
    one = replace(case(*bodies, entry_point="f"), problem=Problem.of(head))
    assert [each.passed for each in asyncio.run(look(BehaviourFinder(), one))] == [0, 1]
    imported = replace(one, problem=Problem.of(f"import math\n{head}"))
    assert [each.passed for each in asyncio.run(look(BehaviourFinder(), imported))] == [1, 1]


@needs_bubblewrap
def test_a_program_that_hangs_is_not_waited_for_on_every_input():
    finder = BehaviourFinder(limits=Limits(seconds=0.8))
    (found,) = asyncio.run(look(finder, case(program("while True: pass"), **SUMS)))
    assert found == Found(None, 0, 2, parses=True, note=HUNG)


@needs_bubblewrap
def test_results_of_programs_that_fail_an_example_stand_with_their_own_inputs():
    tests = [{"input": "0\n", "output": "0\n"}, {"input": "7\n", "output": "8\n"}]
    texts = (program(f"n = int(input())\nprint(n if n < 50 else {k} * n)") for k in (2, 3))
    for factor, one in zip(
        (2, 3), asyncio.run(look(BehaviourFinder(), case(*texts, tests={"public": tests}))), strict=True
    ):
        assert [int(run.output) for run in one.runs] == [factor * int(run.input) for run in one.runs]
        assert len(one.runs) == 1


def test_answers_of_equal_value_are_one():
    math = case(r"\boxed{1/2}", r"so \boxed{0.5}", r"\boxed{2}", "none", domain="math")

    clusters = [one.cluster for one in asyncio.run(look(AnswerFinder(MathGrader()), math))]
    assert clusters == ["= 1/2", "= 1/2", "= 2", None]


def test_without_math_verify_the_findings_say_that_only_exact_rules_were_used(monkeypatch):
    monkeypatch.setattr(math_grading, "_installed", lambda: None)
    texts = (r"\boxed{1/2}", r"\boxed{0.5}", r"\boxed{\sqrt{8}}", r"\boxed{2\sqrt{2}}")
    found = asyncio.run(look(AnswerFinder(MathGrader()), case(*texts, domain="math")))
    assert [fact.cluster for fact in found] == ["= 1/2", "= 1/2", r"= \sqrt{8}", r"= 2\sqrt{2}"]
    assert all("exact rules only" in fact.note and "caps-select[bench]" in fact.note for fact in found)
    exact = asyncio.run(look(AnswerFinder(MathGrader()), case(*texts[:2], domain="math")))
    assert [fact.note for fact in exact] == ["", ""]


class Counting:
    """Finds the length of each text, and counts how often it was asked."""

    version = "counting-1"

    def __init__(self, error=None):
        self.asked, self.error = 0, error

    async def find(self, case, until=None):
        self.asked += 1
        if self.error:
            raise self.error
        return [Found(cluster=str(len(one.text))) for one in case.candidates]

    async def close(self):
        self.closed = True


def test_what_was_found_once_is_not_looked_for_again_and_is_recalled_without_looking(tmp_path):
    finder, one = Counting(), case("a", "bb", "cc")
    with Journal.open(tmp_path / "j.sqlite") as journal:
        findings = Findings({"code": finder}, journal)
        first, again = asyncio.run(findings.find(one)), asyncio.run(findings.find(one))
        assert [candidate.found.cluster for candidate in first.candidates] == ["1", "2", "2"]
        assert first == again == recall(journal, findings.versions, one)
        assert finder.asked == 1
        with pytest.raises(NotRecordedError):
            recall(journal, findings.versions, case("another"))
        assert recall(journal, findings.versions, replace(one, domain="general")) == replace(
            one, domain="general"
        )


def test_runs_survive_the_journal_and_pairs_show_where_they_differ(tmp_path):
    runs = [
        (Run("1 2", "stdin", "ok", "3", "a"), Run("0 0", "stdin", status, output, output))
        for status, output in (("ok", "0"), ("crashed", "ValueError: zero"), ("ok", "0"))
    ]
    facts = [
        Found("x", 1, 2, parses=True, runs=each, survived=Survived(9, 8, 1, 0, 0.2), note="?")
        for each in runs
    ]

    class Running(Counting):
        async def find(self, case, until=None):
            return facts

    one = case("a", "b", "c")
    with Journal.open(tmp_path / "j.sqlite") as journal:
        findings = Findings({"code": Running()}, journal)
        found = [each.found for each in asyncio.run(findings.find(one)).candidates]
        assert found == facts
        assert recall(journal, findings.versions, one).candidates[1].found == facts[1]
    assert differing_runs(found[0], found[1]) == [(runs[0][1], runs[1][1])]
    assert differing_runs(found[0], found[2]) == []


def test_hidden_tests_and_labels_do_not_change_what_is_looked_for(tmp_path):
    finder = Counting()
    one = case("a", tests={"public": [1], "hidden": [2]})
    labelled = replace(one, candidates=(Candidate("a", correct=True),), extra={"tests": {"public": [1]}})
    with Journal.open(tmp_path / "j.sqlite") as journal:
        findings = Findings({"code": finder}, journal)
        for each in (one, labelled):
            asyncio.run(findings.find(each))
        assert finder.asked == 1


def test_bad_examples_leave_a_case_without_findings_for_good(tmp_path):
    finder, one = Counting(InputError("tests.public[0]: wrong: at 7")), case("a")
    with Journal.open(tmp_path / "j.sqlite") as journal:
        findings = Findings({"code": finder}, journal)
        for _ in range(2):
            assert asyncio.run(findings.find(one)) == one
        assert finder.asked == 1
        assert findings.unusable == {"tests.public[0]: wrong": 1}


def test_where_nobody_can_look_the_case_goes_on_until_somebody_can(tmp_path):
    one = case("a")
    with Journal.open(tmp_path / "j.sqlite") as journal:
        blind = Findings({"code": Counting(UserError("no sandbox here: install one"))}, journal)
        assert asyncio.run(blind.find(one)) == one
        assert blind.unusable == {"no sandbox here": 1}
        assert recall(journal, blind.versions, one) == one
        seeing = asyncio.run(Findings({"code": Counting()}, journal).find(one))
        assert seeing.candidates[0].found.cluster == "1"
    with pytest.raises(UserError):
        asyncio.run(Findings({"code": Counting(UserError("no sandbox"))}, insist=True).find(one))


@needs_bubblewrap
def test_the_search_finds_a_rare_branch_of_which_no_example_knows():
    trap = "def f(n: int, k: int) -> int:\n    if n > 40:\n        if k == 77:\n            return -1\n    return n + k\n"
    honest = "def f(n: int, k: int) -> int:\n    return k + n\n"
    one = case(
        program(honest), program(trap), entry_point="f", tests={"public": [{"input": [1, 2], "output": 3}]}
    )
    right, wrong = asyncio.run(look(BehaviourFinder(further=400), one))
    assert right.cluster != wrong.cluster
    (pair,) = differing_runs(right, wrong)[:1]
    assert pair[0].input.endswith(", 77)")
    assert pair[1].output == "-1"
