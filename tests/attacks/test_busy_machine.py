"""A busy machine changes no finding: limits are processor time and counts, and what comes near one is unknown."""

import asyncio
import subprocess
import sys
from contextlib import contextmanager

import pytest

from caps.core.types import BY_CLOCK, Candidate, Case, Problem
from caps.findings.answers import AnswerFinder
from caps.findings.base import Findings
from caps.findings.programs import BehaviourFinder
from caps.grading.math import MathGrader
from caps.runs.result_lines import FindingsSummary, findings_line
from caps.sandbox.base import Limits
from caps.session.parts import make_prepare
from support.closing import closing
from support.sandboxing import case as graded_case
from support.sandboxing import grade, needs_bubblewrap

pytestmark = needs_bubblewrap
BUSY = 4
#: Uses this much processor time, however long that takes.
WORK = "import time\ndef work(seconds):\n    end = time.process_time() + seconds\n    while time.process_time() < end: pass\n"
EXAMPLES = {"public": [{"input": [2], "output": 4}, {"input": [3], "output": 6}]}


@contextmanager
def busy_machine():
    """Four processes that never pause."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def programs(*sources, tests=EXAMPLES, number=1):
    candidates = tuple(Candidate(source, code=source) for source in sources)
    extra = {"entry_point": "double"} | ({"tests": tests} if tests else {})
    return Case(
        f"programs {number}", Problem.of("Write `double(n: int) -> int`."), candidates, "code", extra=extra
    )


def many(number, tests):
    """Programs that differ in what they do with some numbers, one that hangs and one that does not parse."""
    plain = [f"def double(n: int) -> int:\n    return 2 * n if n != {k} else {k + number}" for k in range(16)]
    hangs = "def double(n: int) -> int:\n    while n not in (2, 3): pass\n    return 2 * n"
    return programs(*plain, hangs, "def double(n): return (", tests=tests, number=number)


ANSWERS = [
    r"(x+1)^2",
    "x^2+2x+1",
    r"\sin^2 x + \cos^2 x",
    "1",
    r"\frac{\sqrt{8}}{2}",
    r"\sqrt{2}",
    r"\sqrt[3]{2}",
]
CASES = [
    many(1, EXAMPLES),
    many(2, None),
    Case("answers", Problem.of("?"), tuple(Candidate(rf"\boxed{{{one}}}") for one in ANSWERS), "math"),
]


def find_all(cases=CASES, *, seconds=2.0, limits=None):
    """The cases with their findings; a case may use this much processor time."""

    async def play():
        finders = {
            "code": BehaviourFinder(limits=limits, seconds=seconds),
            "math": AnswerFinder(MathGrader()),
        }
        async with closing(Findings(finders, insist=True)) as findings:
            return await asyncio.gather(*(findings.find(case) for case in cases))

    return asyncio.run(play())


def test_the_same_cases_have_the_same_findings_alone_and_beside_busy_processes():
    alone = find_all()
    with busy_machine():
        beside = find_all()
    assert beside == alone
    first, without_examples, answers = ([one.found for one in case.candidates] for case in alone)
    assert [one.parses for one in first] == [one.parses for one in without_examples] == [True] * 17 + [False]
    assert len({one.cluster for one in first[:16]}) > 8
    clusters = [one.cluster for one in answers]
    assert list(map(clusters.index, clusters)) == [0, 0, 2, 2, 4, 4, 6]


def test_a_case_that_takes_too_much_processor_time_keeps_whole_rounds_only():
    slow = [
        f"{WORK}def double(n: int) -> int:\n    work(0.05)\n    return 2 * n + (n == {k})" for k in (5, 6)
    ]
    (found,) = find_all([programs(*slow)], seconds=1.0)
    assert [one.found.note for one in found.candidates] == ["the processor time for further inputs ended"] * 2
    assert all(one.found.parses and one.found.passed == 2 for one in found.candidates)


def test_nothing_is_said_about_programs_that_were_not_run():
    (found,) = find_all([many(3, None)], seconds=0.0)
    assert {one.found.parses for one in found.candidates} == {None}


def double_after(work):
    return f"{WORK}def double(n: int) -> int:\n    {work}\n    return 2 * n"


QUICK = Limits(seconds=0.5)


@pytest.mark.parametrize(
    ("work", "passed"),
    [("pass", 2), ("work(0.75)", None), ("work(60)", 0), ("time.sleep(0.1)", 2), ("time.sleep(600)", None)],
    ids=["quick", "near the limit", "far beyond it", "waits", "waits for ever"],
)
def test_a_result_near_the_limit_or_ended_by_the_clock_is_unknown(work, passed):
    (found,) = find_all([programs(double_after(work))], limits=QUICK)
    assert found.candidates[0].found.passed == passed
    assert (found.candidates[0].found.note == BY_CLOCK) == (work == "time.sleep(600)")


@pytest.mark.parametrize(
    ("work", "correct", "reason"),
    [
        ("pass", True, ""),
        ("work(0.75)", None, "near the time limit"),
        ("work(60)", False, "time limit"),
        ("time.sleep(600)", None, "wall-clock limit"),
        ("n += 1", False, "wrong answer"),
    ],
)
def test_labels_do_not_depend_on_the_clock_either(work, correct, reason):
    tests = graded_case({"hidden": EXAMPLES["public"]}, entry_point="double")
    label = grade(tests, double_after(work), limits=QUICK)
    assert (label.correct, label.reason or "") == (correct, reason)
    asked = graded_case("assert double(2) == 4", entry_point="double")
    if correct is not None or "sleep" in work:
        assert grade(asked, double_after(work), limits=QUICK).correct == correct


def test_what_the_clock_ended_is_in_the_result_line_and_in_the_summary():
    (found,) = find_all([programs(double_after("time.sleep(600)"), double_after("pass"))], limits=QUICK)
    prepared = make_prepare()(found)
    assert findings_line(prepared)["notes"] == {BY_CLOCK: [0]}
    summary = FindingsSummary()
    summary.add(prepared)
    assert summary.as_line()["by_clock"] == 1
    assert any("unknown for 1 candidate, ended by the clock" in line for line in summary.as_text())
