"""Candidates and statements that attack the search for inputs: floods, hangs, escapes, faked replies."""

import asyncio
import json
import time

import pytest

from caps.core.types import Candidate, Case, Found, Problem
from caps.evidence.inputs import constants_of
from caps.findings.programs import MAX_INPUT, MAX_OUTPUT, NO_FURTHER, BehaviourFinder
from caps.findings.trials import MAX_CHARACTERS, FurtherInputs, trial_of
from caps.sandbox.base import Limits
from caps.sandbox.languages import TOOLCHAINS
from caps.sandbox.launchers import find_sandbox
from caps.sandbox.programs import Program, ProgramSession
from support.closing import closing
from support.sandboxing import needs_bubblewrap
from support.waiting import PATIENCE

SUMS = {"tests": {"public": [{"input": "1 2\n", "output": "3\n"}, {"input": "4 5\n", "output": "9\n"}]}}
RIGHT = "print(sum(map(int, input().split())))"


def case(*programs, statement="Add.", **extra):
    texts = tuple(Candidate(f"```python\n{one}\n```") for one in programs)
    return Case("1", Problem.of(statement), texts, "code", extra=extra or SUMS)


def find(one, **settings):
    async def look():
        async with closing(BehaviourFinder(limits=Limits(seconds=2.0), **settings)) as finder:
            return await finder.find(one)

    return asyncio.run(look())


@needs_bubblewrap
def test_what_programs_print_is_recorded_bounded_and_printable():
    flood = "a, b = map(int, input().split())\nprint('\\x1b[2J\\ud800' if a > 5 else a + b, 'x' * 10**6 * (a > 5))"
    found = find(case(RIGHT, RIGHT + " #", flood.replace("\\ud800", "")), further=32)
    runs = [run for one in found for run in one.runs]
    assert runs
    assert all(len(run.input) <= MAX_INPUT and len(run.output) <= MAX_OUTPUT for run in runs)
    assert not any("\x1b" in run.output for run in runs)
    json.dumps([run.output for run in runs]).encode()


@needs_bubblewrap
def test_a_program_that_writes_into_every_open_file_changes_nothing():
    faking = (
        "import sys, os\nsys.settrace(None)\n"
        "for fd in range(3, 20):\n"
        "    try: os.write(fd, b'\\xff' * 100_000)\n"
        "    except OSError: pass\n" + RIGHT
    )
    honest, other, faked = find(
        case(RIGHT, "a, b = map(int, input().split())\nprint(a + b)", faking), further=16
    )
    assert honest.cluster == other.cluster == faked.cluster is not None


@needs_bubblewrap
def test_files_that_a_program_leaves_for_its_next_run_change_only_its_own_results():
    leaving = (
        "import os\nseen = os.path.exists('/tmp/left')\nopen('/tmp/left', 'w').close()\n"
        "print(0 if seen else sum(map(int, input().split())))"
    )
    right, left = find(case(RIGHT, leaving), further=32)
    assert right.cluster != left.cluster


@pytest.mark.slow
@needs_bubblewrap
def test_programs_that_hang_on_further_inputs_end_with_the_time_of_the_case():
    hanging = "a, b = map(int, input().split())\nwhile (a, b) not in ((1, 2), (4, 5)): pass\nprint(a + b)"
    started = time.perf_counter()
    right, *hung = find(case(RIGHT, *(f"{hanging} # {n}" for n in range(3))), further=40, seconds=3)
    assert time.perf_counter() - started < PATIENCE
    assert right.cluster is None or right.cluster not in [one.cluster for one in hung]
    assert all(one.note for one in hung)


@needs_bubblewrap
def test_without_further_inputs_nothing_is_alike_but_examples_are_counted():
    one, other = find(case(RIGHT, RIGHT + " # again"), further=0)
    assert (one.cluster, one.passed, one.note) == (None, 2, NO_FURTHER)
    assert other == one


@needs_bubblewrap
def test_a_case_without_inputs_says_so():
    (found,) = find(Case("1", Problem.of("Write something."), (Candidate("x"),), "code"))
    assert found == Found(note=found.note)
    assert "no examples" in found.note


@pytest.mark.parametrize(
    "statement",
    [
        "1 <= " * 5_000,
        "1" * 20_000,
        "1 <= n <= 10^" + "9" * 50,
        "9" * 19 + "^99 * 10^99 <= n <= 1",
        "Input: " * 5_000,
        ("Input: " + "[" * 500 + "\n") * 20,
        "f(" * 500_000,
        "{} <= $\\le".format("{" * 10_000),
    ],
    ids=range(8),
)
def test_hostile_statements_are_searched_in_bounded_time(statement):
    started = time.process_time()
    one = Case(
        "1",
        Problem.of(statement),
        (),
        "code",
        extra={"entry_point": "f", "starter_code": "def f(n: int):\n    pass"},
    )
    inputs = FurtherInputs(trial_of(one), one, []).first(20)
    assert time.process_time() - started < 5
    assert all(len(repr(value)) <= MAX_CHARACTERS for value in inputs)


@pytest.mark.parametrize(
    "text", ["9" * 5_000, "7 " * 5_000, "3\n" * 3_000, "x" * 19_000, "-" * 99, "\x00\n\ud800 1"], ids=range(6)
)
def test_inputs_made_from_large_examples_stay_bounded(text):
    one = case(RIGHT, tests={"public": [{"input": text, "output": "1"}]})
    started = time.process_time()
    source = FurtherInputs(trial_of(one), one, [])
    inputs = source.first(20) + source.changed([text], 20)
    assert time.process_time() - started < 10
    assert all(len(repr(value)) <= MAX_CHARACTERS for value in inputs)


@pytest.mark.parametrize(
    "argument",
    [
        10**4299,
        float("inf"),
        float("nan"),
        [[[[[[[[1, 2], 3], 4], 5], 6], 7], 8], 9],
        {"a": {}},
        None,
        [None, 1],
    ],
    ids=range(7),
)
def test_odd_arguments_can_be_changed(argument):
    one = case(RIGHT, tests={"public": [{"input": [argument], "output": 1}]}, entry_point="f")
    source = FurtherInputs(trial_of(one), one, [])
    assert all(len(values) == 1 for values in source.first(30) + source.changed([[argument]], 30))


def test_constants_of_hostile_programs_are_bounded():
    numbers, texts, _ = constants_of(
        ["x = [" + "1," * 20_000 + "]", "(" * 5_000, "y = 9" + "9" * 4_000, "z = 'a'"]
    )
    assert len(numbers) <= 60
    assert "a" in texts


NATIVE = {
    "cpp": [
        '#include <cstdlib>\nint main() { return system("sleep 600 & sleep 600"); }',
        "#include <unistd.h>\nint main() { for (;;) fork(); }",
        "#include <vector>\nint main() { std::vector<char*> x; for (;;) { x.push_back(new char[1 << 26]); x.back()[5] = 1; "
        "for (int i = 0; i < 1 << 26; i += 4096) x.back()[i] = 1; } }",
        "#include <cstdio>\nint main() { for (;;) puts(\"flood\"); }",
        '#include <cstdio>\nint main() { FILE* f = fopen("main", "w"); printf("%d", f != 0); }',
        '#include "/etc/shadow"\nint main() {}',
    ],
    "javascript": [
        "const b = []; for (;;) b.push(Buffer.alloc(1 << 26, 1));",
        "require('child_process').spawn('sleep', ['600'], {detached: true}); for (;;) {}",
        "require('net').connect(80, '10.0.0.1').on('error', e => console.log(e.code));",
    ],
}  # fmt: skip


@pytest.mark.slow
@needs_bubblewrap
@pytest.mark.parametrize(
    ("language", "number"), [(name, n) for name, attacks in NATIVE.items() for n in range(len(attacks))]
)
async def test_programs_of_other_languages_stay_within_their_limits(language, number):
    if TOOLCHAINS[language].missing is not None:
        pytest.skip(f"no tools for {language}")

    started = time.perf_counter()
    program = Program(NATIVE[language][number], language=language)
    limits = Limits(seconds=1.0, memory=256 << 20, output=1 << 20)
    async with ProgramSession(await find_sandbox(), program, limits) as session:
        outcome = await session.run("1 2", 1.0)
    assert time.perf_counter() - started < PATIENCE
    assert len(outcome.output) <= 1 << 20
    assert outcome.status != "ok" or b"root" not in outcome.output
    assert "root:" not in outcome.detail
