"""Final answers of equal value, whatever they look like: ½ and 0.5 are one answer."""

from collections.abc import Sequence

from caps.core.types import Case, Found
from caps.graders.math import MathGrader
from caps.graders.prose import candidate_answer


class AnswerFinder:
    """Sorts the answers of a case into classes, by the grader's rules and without the gold answer."""

    def __init__(self, grader: MathGrader) -> None:
        self._grader = grader

    @property
    def version(self) -> str:
        """The grader's."""
        return f"answers-1 {self._grader.version}"

    async def find(self, case: Case) -> Sequence[Found]:
        """The class of each answer, named by the first in it."""
        classes = await self._grader.classes([candidate_answer(one) for one in case.candidates])
        return [Found(cluster=None if home is None else f"like {home}") for home in classes]

    async def close(self) -> None:
        """End the grader's workers."""
        await self._grader.close()
