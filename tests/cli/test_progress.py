import pytest

from caps.cli import progress as progress_lines
from caps.cli.output import FailureLog
from caps.cli.progress import Progress, ProgressLines
from caps.core.text import duration, plural
from support.waiting import wait_until


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


def test_a_line_is_printed_after_a_second_and_then_every_30_seconds():
    assert followed([(0.1 * step, step) for step in range(9)], 30) == [], "what ends sooner needs none"
    (first,) = followed([(second, second) for second in range(30)], 30)
    assert first == "cases: 1 of 30 (3%), 12 calls; 1 s elapsed, about 29 s left"
    lines = followed([(10 * i, i) for i in range(101)], 100)
    assert len(lines) == 34
    assert lines[1] == "cases: 4 of 100 (4%), 12 calls; 40 s elapsed, about 16 min left"
    assert lines[-1] == "cases: 100 of 100 (100%), 12 calls; 16 min 40 s elapsed"


def test_without_a_total_the_count_is_printed():
    assert followed([(0, 0), (31, 5)], None) == ["cases: 5, 12 calls; 31 s elapsed"]


def test_work_that_finishes_nothing_is_told_too(monkeypatch, capsys):
    monkeypatch.setattr(progress_lines, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(progress_lines, "LINE_SECONDS", 0.02)
    said = []

    def told_often():
        said.append(capsys.readouterr().err)
        return "".join(said).count("pairs: 0 of 9") > 2

    with Progress("pairs", 9):
        wait_until(told_often)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0.4 s"), (59, "59 s"), (60, "1 min"), (200, "3 min 20 s"), (3600, "1 h"), (7500, "2 h 5 min")],
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
