"""MBPP: short Python tasks with three asserts each; tasks 11 to 510 for testing, and the sanitized set."""

import re
from textwrap import indent

from caps.core.errors import InputError
from caps.core.types import Case
from caps.datasets.fields import Row, optional, present, texts, wanted
from caps.datasets.published import Dataset, problem_case

_DEFINED = re.compile(r"^\s*def\s+(\w+)", re.MULTILINE)
_RAW = "https://raw.githubusercontent.com/google-research/google-research/master/mbpp"
TEST_SPLIT = range(11, 511)


def parse(row: Row) -> Case | None:
    """One problem of the test split."""
    if wanted(row, "task_id", int) not in TEST_SPLIT:
        return None
    setup = optional(row, "test_setup_code", str) or ""
    more = texts(row, "challenge_test_list") if row.get("challenge_test_list") else []
    return _case(row, wanted(row, "text", str), setup, more)


def parse_sanitized(row: Row) -> Case:
    """One problem of the sanitized set."""
    setup = "\n".join(texts(row, "test_imports")) if row.get("test_imports") else ""
    return _case(row, wanted(row, "prompt", str), setup, [])


def _case(row: Row, statement: str, setup: str, more: list[str]) -> Case:
    tests, code = texts(row, "test_list"), wanted(row, "code", str)
    if not tests:
        raise InputError("test_list: is empty")
    # The statement does not name the function, so what the asserts call is shown, as in the paper on MBPP.
    shown = f"{statement}\n\nYour code should pass these tests:\n\n" + "\n".join(tests)
    entry_point = _called(code, tests[0])
    asserts = indent("\n".join([*tests, *more]), "    ")
    program = f"{setup}\n\n\ndef check(candidate):\n    {entry_point} = candidate\n{asserts}\n".lstrip()
    extra = {"tests": program, "entry_point": entry_point, **present(canonical_solution=code)}
    return problem_case(f"mbpp-{wanted(row, 'task_id', int)}", shown, "code", extra)


def _called(code: str, test: str) -> str:
    """The function of the reference that a test calls."""
    for name in _DEFINED.findall(code):
        if re.search(rf"\b{name}\s*\(", test):
            return str(name)
    raise InputError("test_list[0]: calls no function that code defines")


MBPP = Dataset(
    name="mbpp",
    parse=parse,
    marks=frozenset({"task_id", "text", "code", "test_list"}),
    expected=500,
    source="google-research/mbpp, tasks 11 to 510",
    licence="CC BY 4.0",
    urls=(f"{_RAW}/mbpp.jsonl",),
)
SANITIZED = Dataset(
    name="mbpp-sanitized",
    parse=parse_sanitized,
    marks=frozenset({"task_id", "prompt", "code", "test_list"}),
    expected=427,
    source="google-research/mbpp, sanitized-mbpp.json",
    licence="CC BY 4.0",
    urls=(f"{_RAW}/sanitized-mbpp.json",),
)
