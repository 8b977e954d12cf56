"""MATH-500: five hundred problems of MATH, with subject and level."""

from caps.core.types import Case
from caps.datasets.fields import Row, label, optional, present, wanted
from caps.datasets.published import Dataset, problem_case


def parse(row: Row) -> Case:
    """One problem."""
    extra = {
        "answer": label(row, "answer"),
        **present(
            difficulty=f"level {label(row, 'level')}",
            subject=optional(row, "subject", str),
            solution=optional(row, "solution", str),
        ),
    }
    return problem_case(wanted(row, "unique_id", str), wanted(row, "problem", str), "math", extra)


MATH_500 = Dataset(
    name="math-500",
    parse=parse,
    marks=frozenset({"problem", "answer", "subject", "level", "unique_id"}),
    expected=500,
    source="HuggingFaceH4/MATH-500",
    licence="MIT (MATH)",
    urls=("https://huggingface.co/datasets/HuggingFaceH4/MATH-500/resolve/main/test.jsonl",),
)
