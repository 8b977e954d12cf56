"""Published sets of programming problems: CodeContests, HumanEval(+), LiveCodeBench, MBPP."""

import binascii
import pickletools
import re
from base64 import b64decode
from datetime import date
from textwrap import indent
from typing import Any

import msgspec

from caps.core.errors import InputError
from caps.core.types import Case
from caps.datasets.published import Dataset, Window, problem_case
from caps.datasets.reading import (
    LIMITS,
    Row,
    decode,
    inflate,
    kind_of,
    label,
    objects,
    optional,
    present,
    texts,
    wanted,
)

_SOURCES = ("unknown", "codechef", "codeforces", "hackerearth", "codejam", "atcoder", "aizu")
_DIFFICULTIES = ("", "easy", "medium", "hard", "harder", "hardest", "external", *"ABCDEFGHIJKLMNOPQRSTUV")


def parse_codecontests(row: Row) -> Case:
    """One problem; private and generated tests are hidden ones."""
    tests = {
        "public": _codecontests_tests(row, "public_tests"),
        "hidden": [*_codecontests_tests(row, "private_tests"), *_codecontests_tests(row, "generated_tests")],
    }
    extra = present(
        difficulty=_word(row, "difficulty", _DIFFICULTIES),
        platform=_word(row, "source", _SOURCES),
        rating=optional(row, "cf_rating", float) or None,
        time_limit=_seconds(row),
        memory_limit_bytes=optional(row, "memory_limit_bytes", int) or None,
        input_file=optional(row, "input_file", str),
        output_file=optional(row, "output_file", str),
    )
    name, statement = wanted(row, "name", str), wanted(row, "description", str)
    return problem_case(name, statement, "code", {"tests": tests, **extra})


def _codecontests_tests(row: Row, name: str) -> list[Row]:
    """Two columns of inputs and outputs, or a list of pairs."""
    if row.get(name) is None:
        return []
    if isinstance(row[name], list):
        return [
            {"input": wanted(one, "input", str, f"{name}[{i}]."), "output": wanted(one, "output", str)}
            for i, one in enumerate(objects(row, name))
        ]
    columns, where = wanted(row, name, dict), f"{name}."
    inputs, outputs = texts(columns, "input", where), texts(columns, "output", where)
    if len(inputs) != len(outputs):
        raise InputError(f"{name}: has {len(inputs)} inputs and {len(outputs)} outputs")
    return [{"input": one, "output": other} for one, other in zip(inputs, outputs, strict=True)]


def _word(row: Row, name: str, words: tuple[str, ...]) -> str:
    value = row.get(name)
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int) and 0 <= value < len(words):
        return words[value]
    raise InputError(f"{name}: must be a number below {len(words)}, not {value!r:.20} ({kind_of(value)})")


def _seconds(row: Row) -> float | None:
    limit = row.get("time_limit")
    if isinstance(limit, dict):
        where = "time_limit."
        parts = (optional(limit, "seconds", float, where), optional(limit, "nanos", float, where))
        return float(parts[0] or 0) + float(parts[1] or 0) / 1e9 or None
    return optional(row, "time_limit", float)  # type: ignore[no-any-return]


TEST = Dataset(
    name="codecontests",
    parse=parse_codecontests,
    marks=frozenset({"name", "description", "public_tests", "private_tests", "generated_tests"}),
    expected=165,
    source="deepmind/code_contests, test split",
    licence="CC BY 4.0",
    urls=(
        "https://huggingface.co/datasets/deepmind/code_contests/resolve/main/data/"
        "test-00000-of-00001-9c49eeff30aacaa8.parquet",
    ),
    hint="the test split has 165 problems, validation 117",
)


# HumanEval, and HumanEval+ of EvalPlus with many more tests: complete a function.


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


def parse_humaneval(row: Row) -> Case:
    """One problem with its test program."""
    if "plus_input" in row:
        raise InputError("plus_input: a row of humaneval-plus, not of humaneval")
    return _humaneval_case(row, wanted(row, "test", str))


def parse_humaneval_plus(row: Row) -> Case:
    """One problem of HumanEval+: its test program, or one that compares with the reference."""
    if "plus_input" in row:
        return _humaneval_case(row, _program(row))
    test = wanted(row, "test", str)
    if "inputs = [" not in test:
        raise InputError("test: has no list of inputs, as HumanEval+ has: a row of humaneval?")
    return _humaneval_case(row, test)


def _humaneval_case(row: Row, tests: str) -> Case:
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
    parse=parse_humaneval,
    marks=_MARKS | {"test"},
    expected=164,
    source="openai/human-eval",
    licence="MIT",
    urls=("https://github.com/openai/human-eval/raw/master/data/HumanEval.jsonl.gz",),
)
HUMANEVAL_PLUS = Dataset(
    name="humaneval-plus",
    parse=parse_humaneval_plus,
    marks=_MARKS,
    expected=164,
    source="evalplus/humanevalplus_release v0.1.10, or evalplus/humanevalplus",
    licence="Apache-2.0",
    urls=(
        "https://github.com/evalplus/humanevalplus_release/releases/download/v0.1.10/HumanEvalPlus.jsonl.gz",
    ),
)


# MBPP: short Python tasks with three asserts each; tasks 11 to 510 for testing, and the sanitized set.


_DEFINED = re.compile(r"^\s*def\s+(\w+)", re.MULTILINE)
_RAW = "https://raw.githubusercontent.com/google-research/google-research/master/mbpp"
TEST_SPLIT = range(11, 511)


def parse_mbpp(row: Row) -> Case | None:
    """One problem of the test split."""
    if wanted(row, "task_id", int) not in TEST_SPLIT:
        return None
    setup = optional(row, "test_setup_code", str) or ""
    more = texts(row, "challenge_test_list") if row.get("challenge_test_list") else []
    return _mbpp_case(row, wanted(row, "text", str), setup, more)


def parse_mbpp_sanitized(row: Row) -> Case:
    """One problem of the sanitized set."""
    setup = "\n".join(texts(row, "test_imports")) if row.get("test_imports") else ""
    return _mbpp_case(row, wanted(row, "prompt", str), setup, [])


def _mbpp_case(row: Row, statement: str, setup: str, more: list[str]) -> Case:
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
    parse=parse_mbpp,
    marks=frozenset({"task_id", "text", "code", "test_list"}),
    expected=500,
    source="google-research/mbpp, tasks 11 to 510",
    licence="CC BY 4.0",
    urls=(f"{_RAW}/mbpp.jsonl",),
)
SANITIZED = Dataset(
    name="mbpp-sanitized",
    parse=parse_mbpp_sanitized,
    marks=frozenset({"task_id", "prompt", "code", "test_list"}),
    expected=427,
    source="google-research/mbpp, sanitized-mbpp.json",
    licence="CC BY 4.0",
    urls=(f"{_RAW}/sanitized-mbpp.json",),
)


# A text that was pickled, compressed and written in base64, as LiveCodeBench ships its hidden tests.
#
# Nothing is ever unpickled. The few instructions that make a text are read; any other is refused unread,
# so a pickle that would call something, or allocate, cannot.


_TEXTS = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"}
_HARMLESS = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP"}


def unpack_text(packed: str, limit: int = LIMITS.packed) -> str:
    """The text, or `InputError`; never more than `limit` bytes are unpacked."""
    try:
        data = b64decode(packed, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"not base64 ({error})") from None
    return pickled_text(inflate(data, limit))


def pickled_text(data: bytes) -> str:
    """The one text a pickle holds; whatever else it holds is refused, and none of it is carried out."""
    found: list[str | bytes] = []
    try:
        for instruction, value, _ in pickletools.genops(data):
            if instruction.name in _TEXTS and isinstance(value, str | bytes):
                found.append(value)
            elif instruction.name not in _HARMLESS:
                raise InputError(f"a pickle with {instruction.name} in it is refused: a text alone is read")
    except (ValueError, IndexError, OverflowError, MemoryError) as error:
        raise InputError(f"not a pickle ({str(error)[:100]})") from None
    if len(found) != 1:
        raise InputError(f"a pickle of {len(found)} texts is refused: one text is read")
    text = found[0]
    try:
        return text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError:
        raise InputError("not a pickled text: its bytes are no UTF-8") from None


# LiveCodeBench: contest programs by the date of their contest, as `code_generation_lite` has them.
#
# The paper has 279 problems of "24.08-25.02" and 131 of "25.02-25.05". Release v5 (`test` to `test5`) has
# 279 from 2024-08-01 on, the last of 2025-01-04; release v6 adds `test6` with 175, of which 131 are of
# February or later. So a month named as an end is left out, and v5 is its own five files alone: `test6`
# has January too.


_HUB = "https://huggingface.co/datasets/livecodebench/code_generation_lite/resolve/main"
_V5 = ("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl")
_PLATFORM_MARKS = frozenset(
    {"question_content", "question_id", "contest_date", "public_test_cases", "private_test_cases"}
)
_TERMS = "see the contest sites"


def parse_livecodebench(row: Row) -> Case:
    """One problem with its public and hidden tests."""
    meant: Row = _json(row, "metadata", dict) if row.get("metadata") else {}
    tests = {
        "public": _livecodebench_tests(_json(row, "public_test_cases", list), "public_test_cases"),
        "hidden": _livecodebench_tests(_hidden(row), "private_test_cases"),
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


def _livecodebench_tests(items: list[object], name: str) -> list[Row]:
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
    parse=parse_livecodebench,
    marks=_PLATFORM_MARKS,
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
    parse=parse_livecodebench,
    marks=_PLATFORM_MARKS,
    expected=131,
    source="livecodebench/code_generation_lite, release_v6",
    licence=_TERMS,
    urls=(f"{_HUB}/test6.jsonl",),
    files=("test6.jsonl",),
    window=Window(date(2025, 2, 1), date(2025, 5, 1)),
    dated="contest_date",
    hint="they stand in test6.jsonl of release_v6",
)
