"""LiveCodeBench: contest programs by the date of their contest, as `code_generation_lite` has them.

The paper has 279 problems of "24.08-25.02" and 131 of "25.02-25.05". Release v5 (`test` to `test5`) has 279
from 2024-08-01 on, the last of 2025-01-04; release v6 adds `test6` with 175, of which 131 are of February
or later. So a month named as an end is left out, and v5 is its own five files alone: `test6` has January too.
"""

from datetime import date
from typing import Any

from caps.core.errors import InputError
from caps.core.types import Case
from caps.datasets.fields import Row, label, optional, present, wanted
from caps.datasets.packed import unpack_text
from caps.datasets.published import Dataset, Window, problem_case
from caps.datasets.reading import decode

_HUB = "https://huggingface.co/datasets/livecodebench/code_generation_lite/resolve/main"
_V5 = ("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl")
_MARKS = frozenset(
    {"question_content", "question_id", "contest_date", "public_test_cases", "private_test_cases"}
)
_TERMS = "see the contest sites"


def parse(row: Row) -> Case:
    """One problem with its public and hidden tests."""
    meant: Row = _json(row, "metadata", dict) if row.get("metadata") else {}
    tests = {
        "public": _tests(_json(row, "public_test_cases", list), "public_test_cases"),
        "hidden": _tests(_hidden(row), "private_test_cases"),
    }
    extra = present(
        entry_point=optional(meant, "func_name", str, "metadata."),
        starter_code=optional(row, "starter_code", str),
        difficulty=optional(row, "difficulty", str),
        title=optional(row, "question_title", str),
        platform=optional(row, "platform", str),
        contest_date=str(row["contest_date"]),
    )
    return problem_case(
        label(row, "question_id"), wanted(row, "question_content", str), "code", {"tests": tests, **extra}
    )


def _hidden(row: Row) -> list[object]:
    """Hidden tests: JSON, or JSON that was pickled, compressed and written in base64."""
    name = "private_test_cases"
    if isinstance(row.get(name), list):
        return list(row[name])
    text = wanted(row, name, str)
    if not text.lstrip().startswith("["):
        try:
            text = unpack_text(text)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    return list(_json({name: text}, name, list))


def _json(row: Row, name: str, kind: type) -> Any:
    """A field that holds JSON as a text; already read, it is taken as it is."""
    value = row.get(name)
    if isinstance(value, str):
        try:
            value = decode(value)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    return wanted({name: value} if value is not None else row, name, kind)


def _tests(items: list[object], name: str) -> list[Row]:
    tests = []
    for i, item in enumerate(items):
        where = f"{name}[{i}]."
        if not isinstance(item, dict):
            raise InputError(f"{where[:-1]}: must be an object with input and output")
        test = {"input": wanted(item, "input", str, where), "output": wanted(item, "output", str, where)}
        tests.append(test | present(testtype=optional(item, "testtype", str, where)))
    return tests


V5 = Dataset(
    name="livecodebench-v5",
    parse=parse,
    marks=_MARKS,
    expected=279,
    source="livecodebench/code_generation_lite, release_v5",
    licence=_TERMS,
    urls=tuple(f"{_HUB}/{name}" for name in _V5),
    files=_V5,
    window=Window(date(2024, 8, 1), date(2025, 2, 1)),
    dated="contest_date",
    hint="release_v5 is a folder with test.jsonl to test5.jsonl; test6.jsonl holds more of January 2025",
)
V6 = Dataset(
    name="livecodebench-v6",
    parse=parse,
    marks=_MARKS,
    expected=131,
    source="livecodebench/code_generation_lite, release_v6",
    licence=_TERMS,
    urls=(f"{_HUB}/test6.jsonl",),
    files=("test6.jsonl",),
    window=Window(date(2025, 2, 1), date(2025, 5, 1)),
    dated="contest_date",
    hint="they stand in test6.jsonl of release_v6",
)
