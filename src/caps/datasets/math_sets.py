"""Published sets of mathematics problems: AIME 2025, GSM8K, HMMT, MATH-500."""

from caps.core.errors import InputError
from caps.core.types import Case
from caps.datasets.published import Dataset, problem_case
from caps.datasets.reading import Row, label, optional, present, wanted

YEAR = "2025"


def parse_aime(row: Row) -> Case:
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
    parse=parse_aime,
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


# GSM8K: grade-school word problems; the final number stands behind `####`.


MARK = "####"


def parse_gsm8k(row: Row) -> Case:
    """One problem; rows have no names."""
    solution, mark, answer = wanted(row, "answer", str).rpartition(MARK)
    answer = answer.replace(",", "").strip()
    if not mark or not answer:
        raise InputError(f"answer: has nothing behind {MARK}, as GSM8K has")
    extra = {"answer": answer, "solution": solution.strip()}
    return problem_case("", wanted(row, "question", str), "math", extra)


TEST = Dataset(
    name="gsm8k",
    parse=parse_gsm8k,
    marks=frozenset({"question", "answer"}),
    expected=1319,
    source="openai/grade-school-math, test.jsonl",
    licence="MIT",
    urls=(
        "https://raw.githubusercontent.com/openai/grade-school-math/master/grade_school_math/data/test.jsonl",
    ),
    hint="the test split has 1319, the training split 7473",
)


# HMMT February 2025: 30 problems with LaTeX answers, as MathArena publishes them.


def parse_hmmt(row: Row) -> Case:
    """One problem."""
    extra = {"answer": label(row, "answer"), **present(problem_type=row.get("problem_type"))}
    name = f"hmmt-feb-2025-{label(row, 'problem_idx')}"
    return problem_case(name, wanted(row, "problem", str), "math", extra)


FEBRUARY_2025 = Dataset(
    name="hmmt-feb-2025",
    parse=parse_hmmt,
    marks=frozenset({"problem_idx", "problem", "answer"}),
    expected=30,
    source="MathArena/hmmt_feb_2025",
    licence="CC BY-NC-SA 4.0",
    urls=(
        "https://huggingface.co/datasets/MathArena/hmmt_feb_2025/resolve/main/data/"
        "train-00000-of-00001.parquet",
    ),
)


# MATH-500: five hundred problems of MATH, with subject and level.


def parse_math500(row: Row) -> Case:
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
    parse=parse_math500,
    marks=frozenset({"problem", "answer", "subject", "level", "unique_id"}),
    expected=500,
    source="HuggingFaceH4/MATH-500",
    licence="MIT (MATH)",
    urls=("https://huggingface.co/datasets/HuggingFaceH4/MATH-500/resolve/main/test.jsonl",),
)
