"""The grader of replies in free text: JSON is compared as a whole, other replies by the answer they state."""

import json
from dataclasses import dataclass, field

from caps.core.domains import Resources
from caps.core.types import Candidate, Case
from caps.evidence.anatomy import final_answer
from caps.evidence.signatures import canonical, general_answer
from caps.grading.base import Grade
from caps.grading.math import MathGrader


@dataclass(frozen=True, slots=True)
class ReplyGrader:
    """Grades against `answer` of a case: a JSON object, or what `MathGrader` takes.

    A reply that neither equals the answer nor announces its own is undecided: prose may be right in other
    words.
    """

    answers: MathGrader = field(default_factory=MathGrader)

    @property
    def version(self) -> str:
        """The version of the rules, here and for single answers."""
        return f"replies-1 {self.answers.version}"

    async def grade(self, case: Case, candidate: Candidate) -> Grade:
        """Correct if the JSON of the reply, or the answer it states, equals that of the case."""
        stated = case.extra.get("answer")
        expected = stated if isinstance(stated, str) else json.dumps(stated)
        if expected.lstrip().startswith("{") and canonical(expected) is not None:
            is_equal = general_answer(candidate) == general_answer(Candidate(expected))
            return Grade(correct=is_equal, reason="" if is_equal else "different", decided_by="exact")
        grade = await self.answers.grade(case, candidate)
        if grade.correct is False and final_answer(candidate) is None:
            return Grade(correct=None, reason="no answer stated", detail=grade.detail)
        return grade

    async def close(self) -> None:
        """Stop the processes that compare answers."""
        await self.answers.close()


def make_grader(resources: Resources) -> ReplyGrader:  # noqa: ARG001
    """Make the grader of replies."""
    return ReplyGrader()
