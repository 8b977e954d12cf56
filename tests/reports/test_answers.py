"""Answers in a line: the same on pages and in terminals."""

import pytest

from caps.core.types import Candidate, Found
from caps.reports.answers import answer_text, shortened_words

PROGRAM = "Here:\n```python\nimport sys\n\ndef solve(n):\n    return n\n```"


@pytest.mark.parametrize(
    ("text", "short", "answer"),
    [
        ("so it is \\boxed{42}", True, "42"),
        ("so it is \\boxed{\\frac{3}{4}}", True, "3/4"),
        (PROGRAM, False, "3 lines"),
        ("```\n\n```\nThe answer is 7.", True, "7"),
        ("<think>hm\nno</think>\nIt is blue.\n", True, "It is blue."),
        ("It is blue.\nVery.", False, "It is blue."),
        ("", True, ""),
        ("", False, ""),
    ],
)
def test_an_answer_is_shown_in_a_line(text, short, answer):
    assert answer_text(Candidate(text), short=short) == answer


def test_a_program_is_shown_by_the_examples_it_passes_and_its_length():
    program = Candidate(PROGRAM, found=Found(passed=2, examples=3))
    assert answer_text(program, short=False) == "passes 2 of 3, 3 lines"


def test_a_text_is_shortened_between_words():
    assert shortened_words("one two three four", 12) == "one two…"
    assert shortened_words("onetwothreefour", 8) == "onetwot…"
    assert shortened_words("one  two\n", 8) == "one two"
