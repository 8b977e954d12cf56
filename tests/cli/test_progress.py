import pytest

from caps.cli.output import FailureLog
from caps.cli.progress import ProgressLines, duration
from caps.cli.run import short_answer
from caps.core.text import plural


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def followed(steps, total, **more):
    """The lines printed for steps of (seconds, done)."""
    clock, lines = Clock(), []
    progress = ProgressLines("cases", total, clock=clock, write=lines.append, **more)
    for seconds, done in steps:
        clock.now = 100.0 + seconds
        progress.update(done, "12 calls")
    return lines


def test_a_short_run_prints_no_progress():
    assert followed([(second, second) for second in range(30)], 30) == []


def test_a_line_is_printed_for_each_tenth_but_not_within_30_seconds_of_the_last():
    lines = followed([(10 * i, i) for i in range(101)], 100)
    assert len(lines) == 10
    assert lines[0] == "cases: 10 of 100 (10%), 12 calls; 1 min 40 s elapsed, about 15 min left"
    assert lines[-1] == "cases: 100 of 100 (100%), 12 calls; 16 min 40 s elapsed"
    assert len(followed([(second, 1 * second) for second in range(101)], 100)) == 3, "of a faster run, fewer"


def test_a_slow_run_prints_a_line_every_five_minutes():
    assert len(followed([(60 * i, i) for i in range(61)], 10_000)) == 12


def test_without_a_total_the_count_is_printed():
    lines = followed([(0, 0), (31, 5)], None)
    assert lines == ["cases: 5, 12 calls; 31 s elapsed"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59, "59 s"), (60, "1 min"), (200, "3 min 20 s"), (3600, "1 h"), (7500, "2 h 5 min")],
)
def test_a_duration_is_written_in_its_largest_units(seconds, words):
    assert duration(seconds) == words


def test_500_failures_print_five_and_a_count(capsys):
    with FailureLog(hint="all of them are in run/selections.jsonl") as failures:
        for number in range(500):
            failures.add(f"cases.jsonl:{number}: not JSON")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:5] == [f"failed: cases.jsonl:{number}: not JSON" for number in range(5)]
    assert lines[5:] == ["failed: 495 more, 500 in all; all of them are in run/selections.jsonl"]


def test_few_failures_are_printed_and_nothing_more(capsys):
    with FailureLog() as failures:
        failures.add_case("a", "no judge")
        failures.add_case("", "cases.jsonl:2: not JSON")
    assert capsys.readouterr().err.splitlines() == [
        "failed: case 'a': no judge",
        "failed: cases.jsonl:2: not JSON",
    ]


def test_a_count_agrees_with_its_noun():
    assert [plural(count, "case") for count in (0, 1, 2, 1200)] == [
        "0 cases",
        "1 case",
        "2 cases",
        "1,200 cases",
    ]
    assert plural(2, "batch", "batches") == "2 batches"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so it is \\boxed{42}", "42"),
        ("Here:\n```python\nimport sys\n\ndef solve(n):\n    return n\n```", "def solve(n): …"),
        ("```python\nprint(sum(map(int, input().split())))\n```", "print(sum(map(int, input().split())))"),
        ("```python\n# only this\n```", "# only this"),
        ("```\n\n```\nThe answer is 7.", "The answer is 7."),
        ("<think>hm\nno</think>\nIt is blue.\n", "It is blue."),
        ("word " * 20, "word word word word word word word word…"),
        ("", ""),
    ],
)
def test_the_answer_column_shows_the_answer_of_a_program_or_a_text(text, answer):
    assert short_answer(text) == answer
