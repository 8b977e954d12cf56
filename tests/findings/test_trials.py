from dataclasses import replace

import pytest

from caps.core.errors import InputError
from caps.core.types import Candidate, Case, Problem
from caps.findings.trials import FurtherInputs, trial_of


def case(problem="?", **extra):
    return Case("1", Problem.of(problem), (), "code", extra=extra)


EXAMPLE = {"input": "3\n70 80 90\n", "output": "240\n"}


def further(one, count=40, sources=()):
    return FurtherInputs(trial_of(one), one, sources).first(count)


def test_further_inputs_are_like_the_examples_and_new():
    one = case(tests={"public": [EXAMPLE], "hidden": [{"input": "secret", "output": "x"}]})
    trial, inputs = trial_of(one), further(one)
    assert [each.output for each in trial.examples] == ["240\n"]
    assert trial.style == "stdin"
    assert len(inputs) == len(set(inputs)) == 40
    shapes = [(int(head), len(row.split())) for head, row in (text.strip().split("\n") for text in inputs)]
    assert all(count == words for count, words in shapes)
    assert {1, 3, 4} <= {count for count, _ in shapes}
    assert EXAMPLE["input"] not in inputs
    assert not any("secret" in text for text in inputs)


def test_the_same_case_is_always_tried_alike():
    one = case(tests={"public": [EXAMPLE]})
    assert further(one) == further(one)


def test_constants_of_programs_are_tried():
    one = case("Print the positive integer n.", tests={"public": [{"input": "5\n", "output": "5\n"}]})
    source = FurtherInputs(trial_of(one), one, ["n = int(input())\nprint(n if n != 417 else 0)"])
    inputs = source.first(60)
    assert "1\n" in inputs
    assert {"416\n", "417\n", "418\n"} & set(inputs)
    assert all(int(text) >= 0 for text in inputs)


def test_arguments_in_the_lines_of_a_text_stay_so():
    one = case(tests={"public": [{"input": "[1, 2]\n3", "output": "4"}]}, entry_point="f")
    assert trial_of(one).style == "either"
    assert all(isinstance(text, str) and text.count("\n") == 1 for text in further(one))


def test_calls_a_statement_shows_are_examples():
    trial = trial_of(
        case(
            "def f(x: int):\n    '''\n    >>> f(2)\n    4\n    '''",
            entry_point="f",
            tests="def check(candidate): ...",
        )
    )
    assert [(one.input, one.output) for one in trial.examples] == [([2], 4)]
    assert trial.style == "call"


def test_examples_that_name_the_parameters_are_read():
    statement = "def f(arr, k):\n  '''Input: arr = [1, 2], k = 1\n  Output: [2]\n  '''"
    trial = trial_of(case(statement, entry_point="f"))
    assert [(one.input, one.output) for one in trial.examples] == [([[1, 2], 1], [2])]


def test_without_examples_inputs_are_made_up_from_annotations():
    one = case(starter_code="def f(words: list[str]) -> int:\n    pass")
    assert trial_of(one).examples == ()
    assert all(isinstance(words, list) for (words,) in further(one))


def test_types_that_only_a_program_states_are_used():
    one = case("Count.", entry_point="f")
    one = replace(one, candidates=(Candidate("```python\ndef f(word: str) -> int:\n    return 1\n```"),))
    assert trial_of(one).examples == ()
    assert all(isinstance(word, str) for (word,) in further(one, 9))


def test_hidden_tests_are_never_looked_at():
    for tests in ({"hidden": [EXAMPLE]}, [EXAMPLE], "assert f(1) == 2", None):
        assert trial_of(case(tests=tests)) is None


def test_bad_examples_are_named():
    with pytest.raises(InputError, match=r"tests.public\[0\]"):
        trial_of(case(tests={"public": [{"input": "1"}]}))
