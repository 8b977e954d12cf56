import pytest

from caps.core.errors import InputError
from caps.core.types import Case, Problem
from caps.findings.programs import FURTHER, trial_of


def case(problem="?", **extra):
    return Case("1", Problem.of(problem), (), "code", extra=extra)


EXAMPLE = {"input": "3\n70 80 90\n", "output": "240\n"}


def test_public_examples_come_first_and_further_inputs_are_like_them_and_new():
    trial = trial_of(case(tests={"public": [EXAMPLE], "hidden": [{"input": "secret", "output": "x"}]}))
    assert [one.output for one in trial.examples] == ["240\n"]
    assert trial.style == "stdin"
    assert len(trial.further) == len(set(trial.further)) == FURTHER
    assert all(one.split("\n")[0] == "3" and one != EXAMPLE["input"] for one in trial.further)
    assert "secret" not in trial.inputs


def test_the_same_case_is_always_tried_alike():
    one, other = (trial_of(case(tests={"public": [EXAMPLE]})) for _ in range(2))
    assert one == other


def test_calls_a_statement_shows_are_examples():
    trial = trial_of(
        case(
            "def f(x: int):\n    '''\n    >>> f(2)\n    4\n    '''",
            entry_point="f",
            tests="def check(candidate): ...",
        )
    )
    assert [(one.input, one.output) for one in trial.examples] == [([2], 4)]
    assert trial.further
    assert trial.style == "call"


def test_without_examples_inputs_are_made_up_from_annotations():
    trial = trial_of(case(starter_code="def f(words: list[str]) -> int:\n    pass"))
    assert trial.examples == ()
    assert all(isinstance(words, list) for (words,) in trial.further)


def test_hidden_tests_are_never_looked_at():
    for tests in ({"hidden": [EXAMPLE]}, [EXAMPLE], "assert f(1) == 2", None):
        assert trial_of(case(tests=tests)) is None


def test_bad_examples_are_named():
    with pytest.raises(InputError, match=r"tests.public\[0\]"):
        trial_of(case(tests={"public": [{"input": "1"}]}))
