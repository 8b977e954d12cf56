"""Tests that a case declares public count when choosing, in every form; hidden and undeclared ones never do."""

import asyncio
import json
import logging
from dataclasses import replace

import pytest

import caps
from caps.core.types import Candidate, Case, Found, Problem
from caps.findings.base import Findings
from caps.findings.programs import BehaviourFinder
from caps.journal.store import Journal
from support.closing import closing
from support.sandboxing import needs_bubblewrap
from support.shell import caps as command
from support.shell import json_lines

WRONG, RIGHT = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
ASSERTIONS = ["assert add(1, 2) == 3", "assert add(2, 2) == 4", "assert add(0, 0) == 0"]
CHECK = "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(2, 2) == 4\n"
FORMS = {
    "list of assertions": {"public": ASSERTIONS},
    "text of assertions": {"public": "\n".join(ASSERTIONS)},
    "assertions with imports": {"public": ["import math", "assert math.isclose(add(1, 2), 3)"]},
    "loop": {"public": "for a, b in [(1, 2), (3, 4)]:\n    assert add(a, b) == a + b\n"},
    "check program": {"public": CHECK},
    "check program with its function": {"public": CHECK, "entry_point": "add"},
    "inputs and outputs": {"public": [{"input": [1, 2], "output": 3}, {"input": [2, 2], "output": 4}]},
    "JSON text": json.dumps({"public": ASSERTIONS, "hidden": ["assert add(1, 2) == -1"]}),
}
ENTRY = {"entry_point": "add"}


def row(tests, *programs, **more):
    candidates = [
        program if isinstance(program, dict) else f"```python\n{program}```" for program in programs
    ]
    return {"id": "1", "problem": "Add two numbers.", "tests": tests, "candidates": candidates, **more}


def tie(problem, a, b):
    return "TIE"


def chosen(case, strategy, **more):
    return caps.select_sync(case, strategy=strategy, judge=tie, journal=None, **more).winner


def findings_of(tests, *programs, journal=None, **extra):
    candidates = tuple(map(Candidate, programs))
    case = Case("1", Problem.of("Add."), candidates, "code", extra={"tests": tests, **extra})

    async def find():
        async with closing(Findings({"code": BehaviourFinder()}, journal)) as findings:
            return (await findings.find(case)).candidates, findings.unusable

    found, unusable = asyncio.run(find())
    return [one.found for one in found], dict(unusable)


@needs_bubblewrap
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("strategy", ["tests-first", "posterior"])
def test_public_tests_of_every_form_decide_against_a_majority(form, strategy):
    assert chosen(row(FORMS[form], WRONG, WRONG, RIGHT, WRONG, **ENTRY), strategy) == 2


@needs_bubblewrap
def test_select_uses_public_assertions_and_prints_how_many_pass(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(row({"public": ASSERTIONS}, WRONG, WRONG, RIGHT)))
    done = command("select", path, "--strategy", "tests-first", "--no-journal", "--json")
    (line,) = json_lines(done)
    assert (line["winner"], line["tests_passed"], line["examples"]) == (2, [1, 1, 3], 3)
    assert "1 of 3 programs pass all public examples" in done.stderr
    assert "tests:" not in done.stderr


@needs_bubblewrap
def test_each_assertion_counts_and_programs_that_do_the_same_are_alike():
    remembers = "calls = []\ndef add(a, b):\n    calls.append(a)\n    return a + b if len(calls) < 3 else 9\n"
    programs = [RIGHT, "def add(x, y):\n    return y + x\n", WRONG, "def add(a, b):\n    return 3\n"]
    found, _ = findings_of({"public": ASSERTIONS}, *programs, remembers, "def add(a,", "x = 1")
    assert [one.passed for one in found] == [3, 3, 1, 1, 2, 0, 0]
    assert {one.examples for one in found} == {3}
    assert found[0].cluster == found[1].cluster is not None
    assert [one.parses for one in found[-2:]] == [False, True]


@pytest.mark.slow
@needs_bubblewrap
def test_a_program_that_hangs_in_a_test_fails_and_the_others_are_tested():
    found, _ = findings_of(
        {"public": CHECK}, "def add(a, b):\n    while True:\n        pass\n", RIGHT, **ENTRY
    )
    assert [one.passed for one in found] == [0, 1]


@needs_bubblewrap
def test_tests_of_several_functions_or_of_a_class_need_no_further_inputs():
    both = {"public": ["assert f(1) == 1", "assert g(1) == 2"]}
    found, _ = findings_of(both, "def f(x): return x\ndef g(x): return 2 * x", "def f(x): return x")
    assert [one.passed for one in found] == [2, 1]
    counter = "class Counter:\n    def __init__(self):\n        self.n = {0}\n    def up(self):\n        self.n += 1\n        return self.n\n"
    tests = {"public": "counter = Counter()\nassert counter.up() == 1\nassert counter.up() == 2\n"}
    found, _ = findings_of(tests, counter.format(0), counter.format(5))
    assert [one.passed == one.examples for one in found] == [True, False]


@needs_bubblewrap
def test_public_tests_that_cannot_run_are_named_and_the_case_goes_on(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(row({"public": ["assert add(1,"]}, WRONG, WRONG, RIGHT)))
    done = command("select", path, "--strategy", "tests-first", "--no-journal", "--json")
    assert json_lines(done)[0]["winner"] in (0, 1)
    assert "tests.public: the test program does not parse" in done.stderr
    found, unusable = findings_of({"public": "x = 1"}, RIGHT)
    assert (found, unusable) == ([None], {"tests: cannot be run": 1})


UNDECLARED = {
    "text": "\n".join(ASSERTIONS),
    "program": CHECK,
    "list of assertions": ASSERTIONS,
    "list of examples": [{"input": [1, 2], "output": 3}],
    "columns": {"inputs": [[1, 2]], "outputs": [3]},
    "JSON text": json.dumps(ASSERTIONS),
}


@pytest.mark.parametrize("form", UNDECLARED)
def test_undeclared_tests_never_choose_and_select_says_so_once(form, tmp_path):
    rows = [row(UNDECLARED[form], WRONG, WRONG, RIGHT, **ENTRY) | {"id": name} for name in "ab"]
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    done = command("select", path, "--strategy", "tests-first", "--no-journal", "--json")
    assert {line["winner"] for line in json_lines(done)} <= {0, 1}
    assert not any("tests_passed" in line for line in json_lines(done))
    notes = [line for line in done.stderr.splitlines() if "tests: used to grade and never to choose" in line]
    assert len(notes) == 1
    assert '"tests": {"public": …}' in notes[0] or '"tests": {"public": …}' in done.stderr.replace("\n", " ")
    assert "tests:" not in command("select", path, "--strategy", "majority", "--no-journal", "-q").stderr


def test_python_logs_undeclared_tests_once(caplog):
    caplog.set_level(logging.WARNING, logger="caps")
    caps.select_many_sync([row(CHECK, WRONG, RIGHT)] * 3, strategy="tests-first", journal=None)
    assert [record.name for record in caplog.records if record.name != "asyncio"] == ["caps"]
    assert "declare them public" in caplog.text
    caplog.clear()
    for tests in ({"hidden": CHECK}, {"public": CHECK}):
        caps.select_sync(row(tests, WRONG, RIGHT), strategy="majority", journal=None)
    assert [record for record in caplog.records if record.name != "asyncio"] == []


class Watching:
    """A finder that remembers the cases it was given."""

    version = "watching"

    def __init__(self):
        self.seen = []

    async def find(self, case, until=None):
        self.seen.append(case)
        return [Found(note="seen") for _ in case.candidates]

    async def close(self): ...


HIDDEN = [
    {"hidden": ASSERTIONS},
    {"hidden": ASSERTIONS, "public": []},
    {"hidden": ASSERTIONS, "public": ASSERTIONS[:1]},
    json.dumps({"hidden": ASSERTIONS, "public": ASSERTIONS[:1]}),
    *UNDECLARED.values(),
]


@pytest.mark.parametrize("tests", HIDDEN, ids=range(len(HIDDEN)))
def test_no_finder_sees_tests_that_are_not_declared_public_or_a_label(tests, tmp_path):
    finder = Watching()
    labelled = Candidate(RIGHT, correct=True, passed_public_tests=True)
    case = Case("1", Problem.of("Add."), (labelled,), "code", extra={"tests": tests, "answer": "4", **ENTRY})
    other = replace(case, extra={**case.extra, "tests": _with_other_hidden(tests)})
    with Journal.open(tmp_path / "j.sqlite") as journal:
        for each in (case, other):
            asyncio.run(Findings({"code": finder}, journal).find(each))
    (seen,) = finder.seen  # hidden tests are no part of the key
    shown = json.dumps(dict(seen.extra))
    assert ASSERTIONS[1] not in shown
    assert "candidate(" not in shown
    assert seen.extra.get("tests") in (None, {"public": ASSERTIONS[:1]})
    assert "answer" not in seen.extra
    assert (seen.candidates[0].correct, seen.candidates[0].passed_public_tests) == (None, None)


def _with_other_hidden(tests):
    if isinstance(tests, str) and tests.startswith("{"):
        return {**json.loads(tests), "hidden": ["assert add(5, 5) == 10"]}
    if isinstance(tests, dict) and "hidden" in tests:
        return {**tests, "hidden": ["assert add(5, 5) == 10"]}
    return "assert add(7, 7) == 14"


USED = [
    {"tests": {"public": ASSERTIONS[:1]}},
    {"tests": {"public": ASSERTIONS}},
    {"tests": {"public": ASSERTIONS, "entry_point": "add"}},
    {"tests": {"public": ASSERTIONS, "fn_name": "add"}},
    {"tests": {"public": ASSERTIONS, "starter_code": "def add(a, b):"}},
    {"tests": {"public": ASSERTIONS}, "entry_point": "add"},
    {"tests": {"public": ASSERTIONS}, "preamble": "import math"},
    {"tests": {"public": ASSERTIONS}, "language": "python"},
    {},
]


def test_everything_that_a_finder_may_use_is_part_of_the_key(tmp_path):
    finder = Watching()
    with Journal.open(tmp_path / "j.sqlite") as journal:
        for extra in USED * 2:
            case = Case("1", Problem.of("Add."), (Candidate(RIGHT),), "code", extra=extra)
            asyncio.run(Findings({"code": finder}, journal).find(case))
    assert len(finder.seen) == len(USED)


def labelled(*passing):
    """Four programs, of which the third is unlike the others; those at these places pass."""
    texts = [f"```python\nprint({number})\n```" for number in (1, 1, 2, 1)]
    return [{"text": text, "passed_public_tests": place in passing} for place, text in enumerate(texts)]


@pytest.mark.parametrize("strategy", ["tests-first", "posterior"])
@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_labels_of_public_tests_count(strategy, sandbox):
    case = {"problem": "Print it.", "domain": "code", "candidates": labelled(2)}
    assert chosen(case, strategy, sandbox=sandbox) == 2
    assert chosen({**case, "candidates": labelled(0, 1, 2, 3)}, strategy) != 2


@needs_bubblewrap
def test_a_label_is_one_more_test_beside_those_that_run_here():
    tests = {"public": ASSERTIONS[:1]}
    same = [{"text": f"```python\n{RIGHT}```", "passed_public_tests": label} for label in (False, True)]
    other = {"text": "```python\ndef add(a, b):\n    return 3\n```", "passed_public_tests": True}
    assert chosen(row(tests, same[0], same[0], other), "tests-first") == 2
    assert chosen(row(tests, WRONG, WRONG, same[1]), "tests-first") == 2


def test_labels_of_public_tests_survive_an_import(tmp_path):
    rows = [
        {
            "task_id": "t",
            "prompt": "Print it.",
            "completion": one["text"],
            "passed_public_tests": one["passed_public_tests"],
        }
        for one in labelled(2)
    ]
    path, cases = tmp_path / "samples.jsonl", tmp_path / "cases.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    done = command("import", path, "-o", cases, "--domain", "code")
    assert done.returncode == 0, done.stderr
    (line,) = json_lines(command("select", cases, "--strategy", "tests-first", "--no-journal", "--json"))
    assert line["winner"] == 2
    (line,) = json_lines(
        command("select", path, "--strategy", "tests-first", "--domain", "code", "--no-journal", "--json")
    )
    assert line["winner"] == 2


@needs_bubblewrap
def test_labels_that_grade_wrote_count_where_nothing_can_run(tmp_path):
    path, graded = tmp_path / "cases.jsonl", tmp_path / "graded.jsonl"
    path.write_text(json.dumps(row({"public": ASSERTIONS}, WRONG, WRONG, RIGHT)))
    assert command("grade", path, "-o", graded, "--no-journal").returncode == 0
    done = command(
        "select", graded, "--strategy", "tests-first", "--hard-evidence", "off", "--no-journal", "--json"
    )
    assert json_lines(done)[0]["winner"] == 2
