"""HumanEval, and HumanEval+ of EvalPlus with many more tests: complete a function."""

import msgspec

from caps.core.errors import InputError
from caps.core.types import Case
from caps.datasets.fields import Row, optional, present, wanted
from caps.datasets.published import Dataset, problem_case

_MARKS = frozenset({"task_id", "prompt", "canonical_solution", "entry_point"})

# Inputs without outputs: what the reference returns is expected.
_AGAINST_REFERENCE = """\
import copy, json

INPUTS = json.loads({inputs!r})
REFERENCE = {reference!r}
TOLERANCE = {tolerance!r}


def close(one, other):
    if isinstance(one, float) or isinstance(other, float):
        try:
            return abs(one - other) <= TOLERANCE + 1e-7 * abs(other)
        except TypeError:
            return False
    if isinstance(one, (list, tuple)) and type(one) is type(other):
        return len(one) == len(other) and all(map(close, one, other))
    return one == other


def check(candidate):
    scope = {{}}
    exec(REFERENCE, scope)
    reference = scope[{entry_point!r}]
    for arguments in INPUTS:
        expected = reference(*copy.deepcopy(arguments))
        found = candidate(*copy.deepcopy(arguments))
        assert found == expected or close(found, expected), arguments
"""


def parse(row: Row) -> Case:
    """One problem with its test program."""
    if "plus_input" in row:
        raise InputError("plus_input: a row of humaneval-plus, not of humaneval")
    return _case(row, wanted(row, "test", str))


def parse_plus(row: Row) -> Case:
    """One problem of HumanEval+: its test program, or one that compares with the reference."""
    if "plus_input" in row:
        return _case(row, _program(row))
    test = wanted(row, "test", str)
    if "inputs = [" not in test:
        raise InputError("test: has no list of inputs, as HumanEval+ has: a row of humaneval?")
    return _case(row, test)


def _case(row: Row, tests: str) -> Case:
    extra = {
        "tests": tests,
        "entry_point": wanted(row, "entry_point", str),
        **present(canonical_solution=optional(row, "canonical_solution", str)),
    }
    return problem_case(wanted(row, "task_id", str), wanted(row, "prompt", str), "code", extra)


def _program(row: Row) -> str:
    inputs = [*wanted(row, "base_input", list), *wanted(row, "plus_input", list)]
    return _AGAINST_REFERENCE.format(
        inputs=msgspec.json.encode(inputs).decode(),
        reference=wanted(row, "prompt", str) + wanted(row, "canonical_solution", str),
        tolerance=float(optional(row, "atol", float) or 0),
        entry_point=wanted(row, "entry_point", str),
    )


HUMANEVAL = Dataset(
    name="humaneval",
    parse=parse,
    marks=_MARKS | {"test"},
    expected=164,
    source="openai/human-eval",
    licence="MIT",
    urls=("https://github.com/openai/human-eval/raw/master/data/HumanEval.jsonl.gz",),
)
HUMANEVAL_PLUS = Dataset(
    name="humaneval-plus",
    parse=parse_plus,
    marks=_MARKS,
    expected=164,
    source="evalplus/humanevalplus_release v0.1.10, or evalplus/humanevalplus",
    licence="Apache-2.0",
    urls=(
        "https://github.com/evalplus/humanevalplus_release/releases/download/v0.1.10/HumanEvalPlus.jsonl.gz",
    ),
)
