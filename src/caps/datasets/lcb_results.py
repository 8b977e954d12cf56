"""`*_eval_all.json` of LiveCodeBench: problems with outputs, the code in them, and whether it passed."""

from collections.abc import Iterable, Iterator

from caps.core.errors import InputError
from caps.core.types import Candidate, Case, Problem
from caps.datasets.fields import Row, kind_of, label, present, texts, wanted
from caps.datasets.reading import LIMITS, Limits, decode, whole

_KEPT = ("starter_code", "difficulty", "contest_date", "platform")


def read_results(lines: Iterable[bytes], path: str, limits: Limits = LIMITS) -> Iterator[Case | InputError]:
    """Read the cases of a results file."""
    try:
        rows = wanted({"results": decode(whole(lines, path, limits))}, "results", list)
    except InputError as error:
        raise InputError(f"{path}: not a list of results: {error}") from None
    if not any(isinstance(row, dict) and "code_list" in row for row in rows):
        raise InputError(
            f"{path}: a list, but not of LiveCodeBench results; cases are one JSON object a line"
        )
    seen: set[str] = set()
    for i, row in enumerate(rows):
        try:
            if not isinstance(row, dict):
                raise InputError(f"must be an object, not {kind_of(row)}")
            case = _case(row)
            if case.id in seen:
                raise InputError(f"question_id: {case.id!r} stands earlier; ids must be unique")
        except InputError as error:
            yield InputError(f"{path}[{i}]: {error}")
            continue
        seen.add(case.id)
        yield case


def _case(row: Row) -> Case:
    codes = texts(row, "code_list")
    outputs = texts(row, "output_list") if row.get("output_list") else codes
    graded = row.get("graded_list") or [None] * len(codes)
    if not codes:
        raise InputError("code_list: is empty; at least one is needed")
    if not isinstance(graded, list) or not len(codes) == len(outputs) == len(graded):
        raise InputError("output_list, code_list and graded_list: must be equally long")
    candidates = tuple(
        Candidate(text, code=code or None, correct=right if isinstance(right, bool) else None)
        for text, code, right in zip(outputs, codes, graded, strict=True)
    )
    extra = present(title=row.get("question_title"), **{name: row.get(name) for name in _KEPT})
    statement = Problem.of(wanted(row, "question_content", str))
    return Case(label(row, "question_id"), statement, candidates, "code", extra=extra)
