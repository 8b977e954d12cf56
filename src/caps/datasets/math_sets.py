"""Published sets of mathematics problems: AIME 2025, GSM8K, HMMT, MATH-500."""

from caps.core.errors import InputError
from caps.core.types import Case
from caps.datasets.published import Dataset, problem_case
from caps.datasets.reading import Row, drop_empty, optional, required, text_or_number

YEAR = "2025"


def parse_aime(row: Row) -> Case:
    """Parse an AIME problem; copies call the statement `problem` or `question`, and not all have ids."""
    if "year" in row and text_or_number(row, "year") != YEAR:
        raise InputError(f"year: {text_or_number(row, 'year')!r} is not {YEAR}")
    answer = text_or_number(row, "answer")
    # Some copies have a degree sign, or LaTeX for it.
    digits = answer.removesuffix("^\\circ").removesuffix("°")
    if not (digits.isascii() and digits.isdecimal() and int(digits) <= 999):
        raise InputError(f"answer: {answer!r:.40} must be an integer from 0 to 999, as in AIME")
    statement = required(row, "problem" if "problem" in row else "question", str)
    extra = {"answer": str(int(digits)), **drop_empty(problem_type=row.get("problem_type"))}
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


# GSM8K: the final number follows `####`

MARK = "####"


def parse_gsm8k(row: Row) -> Case:
    """Parse a GSM8K problem; rows have no ids."""
    solution, mark, answer = required(row, "answer", str).rpartition(MARK)
    answer = answer.replace(",", "").strip()
    if not mark or not answer:
        raise InputError(f"answer: has no number after {MARK}, as in GSM8K")
    extra = {"answer": answer, "solution": solution.strip()}
    return problem_case("", required(row, "question", str), "math", extra)


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


# HMMT February 2025, as published by MathArena


def parse_hmmt(row: Row) -> Case:
    """Parse an HMMT problem."""
    extra = {"answer": text_or_number(row, "answer"), **drop_empty(problem_type=row.get("problem_type"))}
    name = f"hmmt-feb-2025-{text_or_number(row, 'problem_idx')}"
    return problem_case(name, required(row, "problem", str), "math", extra)


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


# MATH-500


def parse_math500(row: Row) -> Case:
    """Parse a MATH-500 problem."""
    extra = {
        "answer": text_or_number(row, "answer"),
        **drop_empty(
            difficulty=f"level {text_or_number(row, 'level')}",
            subject=optional(row, "subject", str),
            solution=optional(row, "solution", str),
        ),
    }
    return problem_case(required(row, "unique_id", str), required(row, "problem", str), "math", extra)


MATH_500 = Dataset(
    name="math-500",
    parse=parse_math500,
    marks=frozenset({"problem", "answer", "subject", "level", "unique_id"}),
    expected=500,
    source="HuggingFaceH4/MATH-500",
    licence="MIT (MATH)",
    urls=("https://huggingface.co/datasets/HuggingFaceH4/MATH-500/resolve/main/test.jsonl",),
)
