import json

import pytest

from caps.core.errors import InputError
from caps.datasets.case_files import case_row, parse_case, read_cases


def test_a_case_is_written_as_it_was_read_with_unknown_keys():
    row = {
        "id": "a", "domain": "math", "problem": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}],
        "source": {"year": 2025}, "answer": "4",
        "candidates": [{"text": "t", "code": "c", "answer": "4", "logprob": -0.5, "score": 0.0, "correct": False}],
    }  # fmt: skip
    assert case_row(parse_case(json.dumps(row), default_id="1")) == row


def test_a_bare_problem_needs_no_candidates_and_guesses_by_what_it_has():
    guessed = [
        parse_case(json.dumps({"problem": "?", **more}), default_id="1", bare=True)
        for more in ({"answer": "4"}, {"starter_code": "def f():", "answer": "4"}, {}, {"domain": "math"})
    ]
    assert [case.domain for case in guessed] == ["math", "code", "general", "math"]
    assert [case.guessed for case in guessed] == [True, True, True, False]
    assert "domain" not in case_row(guessed[2])


def test_the_line_and_field_of_a_bad_problem_are_named(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"problem": "ok"}\n{"problem": 3}\n{"problem": "x", "candidates": "y"}\n')
    good, *bad = read_cases(str(path), bare=True)
    assert good.candidates == ()
    assert [str(error) for error in bad] == [
        f"{path}:2: problem: must be a text or a list of chat messages, not a number",
        f"{path}:3: candidates: must be a list, not a text",
    ]
    assert all(isinstance(error, InputError) for error in bad)
    with pytest.raises(InputError, match="candidates: is missing"):
        parse_case('{"problem": "ok"}', default_id="1")
