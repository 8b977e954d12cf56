"""The sandbox without root: a user namespace in which the program has the user id of its own init."""

import sys

import pytest

from support.ordinary_user import needs_root, run_as_ordinary_user
from support.sandboxing import needs_bubblewrap
from support.waiting import PATIENCE

pytestmark = [needs_bubblewrap, needs_root]
SUITE = (
    "tests/grading/test_sandbox.py",
    "tests/attacks/test_sandbox_escapes.py",
    "tests/attacks/test_sandbox_results.py",
)
PART = (
    "tests/grading/test_sandbox.py::test_an_honest_program_gets_its_input_and_gives_its_output",
    "tests/grading/test_sandbox.py::test_what_is_the_hosts_cannot_be_read",
    "tests/grading/test_sandbox.py::test_a_fork_bomb_stays_within_its_processes",
    "tests/grading/test_sandbox.py::test_time_ends_everything",
    "tests/grading/test_sandbox.py::test_what_a_program_leaves_behind_ends_with_it",
    "tests/grading/test_sandbox.py::test_cancelling_ends_the_program_however_early",
    "tests/attacks/test_sandbox_escapes.py::test_a_program_that_takes_over_its_init_does_not_outlive_its_limit",
    "tests/attacks/test_sandbox_escapes.py::test_a_program_does_not_outlive_the_process_that_runs_it",
    "tests/attacks/test_sandbox_escapes.py::test_sockets_hold_little_memory_of_the_kernel[pairs in flight]",
)


def passes(*words, seconds=PATIENCE):
    options = ("-p", "no:cacheprovider", "-m", "not long", "-rs")
    done = run_as_ordinary_user(sys.executable, "-m", "pytest", *options, *words, seconds=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    assert "no sandbox" not in done.stdout


def test_a_part_of_the_suite_holds_for_an_ordinary_user():
    passes(*PART)


@pytest.mark.long
@pytest.mark.parametrize("tests", SUITE)
def test_the_whole_suite_holds_for_an_ordinary_user(tests):
    passes(tests, seconds=4 * PATIENCE)
