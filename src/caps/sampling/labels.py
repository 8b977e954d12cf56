"""Right or wrong at a glance: final answers that read the same as the known one."""

from caps.core.types import Candidate, Case
from caps.evidence.signatures import math_answer
from caps.graders.base import Grade


async def same_answer(case: Case, candidate: Candidate) -> Grade:
    """Compare final answers as Stage 0 does; equal values written differently count as wrong."""
    known = case.extra.get("answer")
    if case.domain != "math" or not isinstance(known, str | int | float) or isinstance(known, bool):
        return Grade(None, "no known answer")
    wanted = math_answer(Candidate("", answer=str(known)))
    right = wanted is not None and math_answer(candidate) == wanted
    return Grade(right, "" if right else "another answer")
