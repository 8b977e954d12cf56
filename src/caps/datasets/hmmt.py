"""HMMT February 2025: 30 problems with LaTeX answers, as MathArena publishes them."""

from caps.core.types import Case
from caps.datasets.fields import Row, label, present, wanted
from caps.datasets.published import Dataset, problem_case


def parse(row: Row) -> Case:
    """One problem."""
    extra = {"answer": label(row, "answer"), **present(problem_type=row.get("problem_type"))}
    name = f"hmmt-feb-2025-{label(row, 'problem_idx')}"
    return problem_case(name, wanted(row, "problem", str), "math", extra)


FEBRUARY_2025 = Dataset(
    name="hmmt-feb-2025",
    parse=parse,
    marks=frozenset({"problem_idx", "problem", "answer"}),
    expected=30,
    source="MathArena/hmmt_feb_2025",
    licence="CC BY-NC-SA 4.0",
    urls=(
        "https://huggingface.co/datasets/MathArena/hmmt_feb_2025/resolve/main/data/"
        "train-00000-of-00001.parquet",
    ),
)
