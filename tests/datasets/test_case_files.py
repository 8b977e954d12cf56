"""Case files: what is read, what is refused, and what is written back."""

import gzip
import io
import json
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps.core.errors import InputError
from caps.core.types import Case
from caps.datasets.case_files import case_row, parse_case, read_cases

GOOD = '{"id": "a", "domain": "math", "problem": "1+1?", "candidates": ["2", {"text": "3", "score": 1}], "answer": "2"}'


def test_a_case_is_read_with_what_else_it_carries():
    case = parse_case(GOOD, default_id="1")
    assert (case.id, case.domain, case.problem.text) == ("a", "math", "1+1?")
    assert [c.text for c in case.candidates] == ["2", "3"]
    assert case.candidates[1].score == 1
    assert case.extra == {"answer": "2"}


def test_a_problem_may_be_a_chat():
    line = '{"problem": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}], "candidates": ["x"]}'
    case = parse_case(line, default_id="7")
    assert (case.id, case.problem.text) == ("7", "[system]\nbe brief\n\n[user]\nhi")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[]", "must be an object, not a list"),
        ('{"problem": "?"}', "candidates: is missing"),
        ('{"problem": "?", "candidates": []}', "candidates: is empty"),
        ('{"problem": "?", "candidates": "x"}', "candidates: must be a list, not a text"),
        ('{"problem": "?", "candidates": [3]}', r"candidates\[0\]: must be a text or an object with a text, not a number"),
        ('{"problem": "?", "candidates": ["a", {}]}', r"candidates\[1\]\.text: is missing"),
        ('{"problem": "?", "candidates": [{"text": "a", "score": "x"}]}', r"candidates\[0\]\.score: must be a number"),
        ('{"problem": "?", "candidates": [{"text": "a", "score": true}]}', r"score: must be a number, not true or false"),
        ('{"problem": "?", "candidates": [{"text": "a", "correct": 1}]}', r"correct: must be true or false, not a number"),
        ('{"candidates": ["x"]}', "problem: must be a text or a list of chat messages, not null"),
        ('{"problem": [{"role": "user"}], "candidates": ["x"]}', r"problem\[0\]\.content: is missing"),
        ('{"problem": ["hi"], "candidates": ["x"]}', r"problem\[0\]: must be an object, not a text"),
        ('{"problem": "?", "candidates": ["x"], "domain": "maths"}', "domain: 'maths' must be one of code, math, general"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_down_to_the_field(line, message):
    with pytest.raises(InputError, match=message):
        parse_case(line, default_id="1")


def test_bad_lines_are_reported_with_file_and_line_and_the_good_ones_delivered(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text(f"{GOOD}\n\nnot json\n{GOOD}\n" + GOOD.replace('"a"', '"b"') + "\n")
    read = list(read_cases(str(path)))
    assert [item.id for item in read if isinstance(item, Case)] == ["a", "b"]
    wrong = [str(item) for item in read if isinstance(item, InputError)]
    assert wrong[0].startswith(f"{path}:3: not JSON")
    assert wrong[1].startswith(f"{path}:4: id: 'a' is on an earlier line")


def test_gzip_and_standard_input_are_read(tmp_path, monkeypatch):
    path = tmp_path / "cases.jsonl.gz"
    path.write_bytes(gzip.compress(GOOD.encode()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert list(read_cases(str(path))) == list(read_cases("-"))


@pytest.mark.parametrize("name", ["missing.jsonl", ".", "fake.jsonl.gz", "cut.jsonl.gz", "empty.jsonl"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name):
    (tmp_path / "fake.jsonl.gz").write_text("not gzip")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(GOOD.encode() * 50)[:-20])
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(InputError, match=re.escape(str(tmp_path / name))):
        list(read_cases(str(tmp_path / name)))


@given(st.text() | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(repr))
def test_any_line_is_a_case_or_an_input_error(line):
    try:
        assert isinstance(parse_case(line, default_id="1"), Case)
    except InputError as error:
        assert str(error)


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
