"""CodeContests: the 165 test problems of AlphaCode, with the columns of the Hugging Face release."""

from caps.core.errors import InputError
from caps.core.types import Case
from caps.datasets.fields import Row, kind_of, objects, optional, present, texts, wanted
from caps.datasets.published import Dataset, problem_case

_SOURCES = ("unknown", "codechef", "codeforces", "hackerearth", "codejam", "atcoder", "aizu")
_DIFFICULTIES = ("", "easy", "medium", "hard", "harder", "hardest", "external", *"ABCDEFGHIJKLMNOPQRSTUV")


def parse(row: Row) -> Case:
    """One problem; private and generated tests are hidden ones."""
    tests = {
        "public": _tests(row, "public_tests"),
        "hidden": [*_tests(row, "private_tests"), *_tests(row, "generated_tests")],
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


def _tests(row: Row, name: str) -> list[Row]:
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
    parse=parse,
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
