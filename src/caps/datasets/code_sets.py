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
    drop_empty,
    inflate,
    kind_of,
    objects,
    optional,
    required,
    text_or_number,
    texts,
)

_SOURCES = ("unknown", "codechef", "codeforces", "hackerearth", "codejam", "atcoder", "aizu")
_DIFFICULTIES = ("", "easy", "medium", "hard", "harder", "hardest", "external", *"ABCDEFGHIJKLMNOPQRSTUV")


def parse_codecontests(row: Row) -> Case:
    """Parse a CodeContests problem; private and generated tests are hidden."""
    tests = {
        "public": _codecontests_tests(row, "public_tests"),
        "hidden": [*_codecontests_tests(row, "private_tests"), *_codecontests_tests(row, "generated_tests")],
    }
    extra = drop_empty(
        difficulty=_choice_name(row, "difficulty", _DIFFICULTIES),
        platform=_choice_name(row, "source", _SOURCES),
        rating=optional(row, "cf_rating", float) or None,
        time_limit=_time_limit(row),
        memory_limit_bytes=optional(row, "memory_limit_bytes", int) or None,
        input_file=optional(row, "input_file", str),
        output_file=optional(row, "output_file", str),
    )
    name, statement = required(row, "name", str), required(row, "description", str)
    return problem_case(name, statement, "code", {"tests": tests, **extra})


def _codecontests_tests(row: Row, name: str) -> list[Row]:
    """Tests given as columns of inputs and outputs, or as a list of pairs."""
    if row.get(name) is None:
        return []
    if isinstance(row[name], list):
        return [
            {"input": required(one, "input", str, f"{name}[{i}]."), "output": required(one, "output", str)}
            for i, one in enumerate(objects(row, name))
        ]
    columns, where = required(row, name, dict), f"{name}."
    inputs, outputs = texts(columns, "input", where), texts(columns, "output", where)
    if len(inputs) != len(outputs):
        raise InputError(f"{name}: has {len(inputs)} inputs and {len(outputs)} outputs")
    return [{"input": one, "output": other} for one, other in zip(inputs, outputs, strict=True)]


def _choice_name(row: Row, name: str, names: tuple[str, ...]) -> str:
    value = row.get(name)
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    raise InputError(f"{name}: must be a number below {len(names)}, not {value!r:.20} ({kind_of(value)})")


def _time_limit(row: Row) -> float | None:
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


# HumanEval, and HumanEval+ of EvalPlus

_MARKS = frozenset({"task_id", "prompt", "canonical_solution", "entry_point"})

# HumanEval+ has inputs without outputs: the reference solution computes the expected values.
_REFERENCE_TEST = """\
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
    """Parse a HumanEval problem with its test program."""
    if "plus_input" in row:
        raise InputError("plus_input: this is a row of humaneval-plus, not of humaneval")
    return _humaneval_case(row, required(row, "test", str))


def parse_humaneval_plus(row: Row) -> Case:
    """Parse a HumanEval+ problem; rows without a test program are compared with the reference solution."""
    if "plus_input" in row:
        return _humaneval_case(row, _reference_test(row))
    test = required(row, "test", str)
    if "inputs = [" not in test:
        raise InputError("test: has no list of inputs, as HumanEval+ has: is this a row of humaneval?")
    return _humaneval_case(row, test)


def _humaneval_case(row: Row, tests: str) -> Case:
    extra = {
        "tests": tests,
        "entry_point": required(row, "entry_point", str),
        **drop_empty(canonical_solution=optional(row, "canonical_solution", str)),
    }
    return problem_case(required(row, "task_id", str), required(row, "prompt", str), "code", extra)


def _reference_test(row: Row) -> str:
    inputs = [*required(row, "base_input", list), *required(row, "plus_input", list)]
    return _REFERENCE_TEST.format(
        inputs=msgspec.json.encode(inputs).decode(),
        reference=required(row, "prompt", str) + required(row, "canonical_solution", str),
        tolerance=float(optional(row, "atol", float) or 0),
        entry_point=required(row, "entry_point", str),
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


# MBPP: tasks 11 to 510, and the sanitized set

_DEFINITION = re.compile(r"^\s*def\s+(\w+)", re.MULTILINE)
_RAW = "https://raw.githubusercontent.com/google-research/google-research/master/mbpp"
TEST_SPLIT = range(11, 511)


def parse_mbpp(row: Row) -> Case | None:
    """Parse an MBPP problem; None outside the test split."""
    if required(row, "task_id", int) not in TEST_SPLIT:
        return None
    setup = optional(row, "test_setup_code", str) or ""
    more = texts(row, "challenge_test_list") if row.get("challenge_test_list") else []
    return _mbpp_case(row, required(row, "text", str), setup, more)


def parse_mbpp_sanitized(row: Row) -> Case:
    """Parse a problem of sanitized MBPP."""
    setup = "\n".join(texts(row, "test_imports")) if row.get("test_imports") else ""
    return _mbpp_case(row, required(row, "prompt", str), setup, [])


def _mbpp_case(row: Row, statement: str, setup: str, more: list[str]) -> Case:
    tests, code = texts(row, "test_list"), required(row, "code", str)
    if not tests:
        raise InputError("test_list: is empty")
    # The statement does not name the function, so the asserts are shown, as in the MBPP paper.
    shown = f"{statement}\n\nYour code should pass these tests:\n\n" + "\n".join(tests)
    entry_point = _tested_function(code, tests[0])
    asserts = indent("\n".join([*tests, *more]), "    ")
    program = f"{setup}\n\n\ndef check(candidate):\n    {entry_point} = candidate\n{asserts}\n".lstrip()
    extra = {"tests": program, "entry_point": entry_point, **drop_empty(canonical_solution=code)}
    return problem_case(f"mbpp-{required(row, 'task_id', int)}", shown, "code", extra)


def _tested_function(code: str, test: str) -> str:
    """The function of the reference solution that a test calls."""
    for name in _DEFINITION.findall(code):
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


# LiveCodeBench ships hidden tests as a text that is pickled, compressed and base64-encoded
#
# Nothing is ever unpickled. Only the opcodes that build one text are read, and any other opcode is refused,
# so a pickle cannot call or allocate anything.

_TEXT_OPCODES = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"}
_IGNORED_OPCODES = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP"}


def unpack_text(packed: str, limit: int = LIMITS.packed) -> str:
    """Decode a packed text, or raise `InputError`; unpacks at most `limit` bytes."""
    try:
        data = b64decode(packed, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"not base64 ({error})") from None
    return pickled_text(inflate(data, limit))


def pickled_text(data: bytes) -> str:
    """Read the single text of a pickle without executing it; anything else is refused."""
    texts_read: list[str | bytes] = []
    try:
        for opcode, value, _ in pickletools.genops(data):
            if opcode.name in _TEXT_OPCODES and isinstance(value, str | bytes):
                texts_read.append(value)
            elif opcode.name not in _IGNORED_OPCODES:
                raise InputError(f"a pickle with opcode {opcode.name} is refused: only a single text is read")
    except (ValueError, IndexError, OverflowError, MemoryError) as error:
        raise InputError(f"not a pickle ({str(error)[:100]})") from None
    if len(texts_read) != 1:
        raise InputError(f"a pickle of {len(texts_read)} texts is refused: only a single text is read")
    text = texts_read[0]
    try:
        return text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError:
        raise InputError("not a pickled text: its bytes are not UTF-8") from None


# LiveCodeBench: `code_generation_lite`, selected by contest date
#
# The paper uses 279 problems of "24.08-25.02" and 131 of "25.02-25.05". Release v5 (`test` to `test5`) has
# 279 from 2024-08-01 to 2025-01-04. Release v6 adds `test6` with 175, of which 131 are of February or later.
# So the end month is exclusive, and v5 reads only its own five files, because `test6` also has January.

_HUB = "https://huggingface.co/datasets/livecodebench/code_generation_lite/resolve/main"
_V5 = ("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl")
_PLATFORM_MARKS = frozenset(
    {"question_content", "question_id", "contest_date", "public_test_cases", "private_test_cases"}
)
_LICENCE = "see the contest sites"


def parse_livecodebench(row: Row) -> Case:
    """Parse a LiveCodeBench problem with its public and hidden tests."""
    metadata: Row = _json(row, "metadata", dict) if row.get("metadata") else {}
    tests = {
        "public": _livecodebench_tests(_json(row, "public_test_cases", list), "public_test_cases"),
        "hidden": _livecodebench_tests(_hidden(row), "private_test_cases"),
    }
    extra = drop_empty(
        entry_point=optional(metadata, "func_name", str, "metadata."),
        starter_code=optional(row, "starter_code", str),
        difficulty=optional(row, "difficulty", str),
        title=optional(row, "question_title", str),
        platform=optional(row, "platform", str),
        contest_date=str(row["contest_date"]),
    )
    return problem_case(
        text_or_number(row, "question_id"),
        required(row, "question_content", str),
        "code",
        {"tests": tests, **extra},
    )


def _hidden(row: Row) -> list[object]:
    """Hidden tests: JSON, or JSON that is pickled, compressed and base64-encoded."""
    name = "private_test_cases"
    if isinstance(row.get(name), list):
        return list(row[name])
    text = required(row, name, str)
    if not text.lstrip().startswith("["):
        try:
            text = unpack_text(text)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    return list(_json({name: text}, name, list))


def _json(row: Row, name: str, kind: type) -> Any:
    """A field with JSON, either serialised or already decoded."""
    value = row.get(name)
    if isinstance(value, str):
        try:
            value = decode(value)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    return required({name: value} if value is not None else row, name, kind)


def _livecodebench_tests(items: list[object], name: str) -> list[Row]:
    tests = []
    for i, item in enumerate(items):
        where = f"{name}[{i}]."
        if not isinstance(item, dict):
            raise InputError(f"{where[:-1]}: must be an object with input and output")
        test = {"input": required(item, "input", str, where), "output": required(item, "output", str, where)}
        tests.append(test | drop_empty(testtype=optional(item, "testtype", str, where)))
    return tests


V5 = Dataset(
    name="livecodebench-v5",
    parse=parse_livecodebench,
    marks=_PLATFORM_MARKS,
    expected=279,
    source="livecodebench/code_generation_lite, release_v5",
    licence=_LICENCE,
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
    licence=_LICENCE,
    urls=(f"{_HUB}/test6.jsonl",),
    files=("test6.jsonl",),
    window=Window(date(2025, 2, 1), date(2025, 5, 1)),
    dated="contest_date",
    hint="they are in test6.jsonl of release_v6",
)
