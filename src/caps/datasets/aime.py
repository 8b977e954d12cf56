"""AIME 2025, I and II: 30 problems whose answers are whole numbers from 0 to 999."""

from caps.core.errors import InputError
from caps.core.types import Case
from caps.datasets.fields import Row, label, present, wanted
from caps.datasets.published import Dataset, problem_case

YEAR = "2025"


def parse(row: Row) -> Case:
    """One problem, its statement called `problem` or `question`; not all copies name their rows."""
    if "year" in row and label(row, "year") != YEAR:
        raise InputError(f"year: {label(row, 'year')!r} is not {YEAR}")
    answer = label(row, "answer")
    # Some copies carry the degree sign of an angle, or LaTeX for it.
    digits = answer.removesuffix("^\\circ").removesuffix("°")
    if not (digits.isascii() and digits.isdecimal() and int(digits) <= 999):
        raise InputError(f"answer: {answer!r:.40} is no whole number from 0 to 999, as AIME has them")
    statement = wanted(row, "problem" if "problem" in row else "question", str)
    extra = {"answer": str(int(digits)), **present(problem_type=row.get("problem_type"))}
    return problem_case("", statement, "math", extra)


AIME_2025 = Dataset(
    name="aime-2025",
    parse=parse,
    marks=frozenset({"answer"}),
    expected=30,
    source="opencompass/AIME2025 or MathArena/aime_2025",
    licence="MIT; CC BY-NC-SA 4.0",
    urls=tuple(
        f"https://huggingface.co/datasets/opencompass/AIME2025/resolve/main/aime2025-{part}.jsonl"
        for part in ("I", "II")
    ),
    hint="AIME I and II have 15 each: give the folder with both",
)
