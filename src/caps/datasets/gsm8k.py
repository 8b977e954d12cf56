"""GSM8K: grade-school word problems; the final number stands behind `####`."""

from caps.core.errors import InputError
from caps.core.types import Case
from caps.datasets.fields import Row, wanted
from caps.datasets.published import Dataset, problem_case

MARK = "####"


def parse(row: Row) -> Case:
    """One problem; rows have no names."""
    solution, mark, answer = wanted(row, "answer", str).rpartition(MARK)
    answer = answer.replace(",", "").strip()
    if not mark or not answer:
        raise InputError(f"answer: has nothing behind {MARK}, as GSM8K has")
    extra = {"answer": answer, "solution": solution.strip()}
    return problem_case("", wanted(row, "question", str), "math", extra)


TEST = Dataset(
    name="gsm8k",
    parse=parse,
    marks=frozenset({"question", "answer"}),
    expected=1319,
    source="openai/grade-school-math, test.jsonl",
    licence="MIT",
    urls=(
        "https://raw.githubusercontent.com/openai/grade-school-math/master/grade_school_math/data/test.jsonl",
    ),
    hint="the test split has 1319, the training split 7473",
)
