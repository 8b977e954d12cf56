"""Clusters of equal final answers: ½ and 0.5 are one answer."""

from collections.abc import Sequence
from functools import partial

from caps.core.domains import Resources
from caps.core.types import Candidate, Case, Found
from caps.evidence.anatomy import final_answer
from caps.evidence.signatures import short_or_digest
from caps.grading.answer_forms import candidate_answer
from caps.grading.answers import canonical
from caps.grading.math import MathGrader, compare_exactly
from caps.workers.texts import TextWorkers

SIGNS = frozenset("\\$√π∞")  # of mathematics, beside digits
LONG_ANSWERS = 4_000  # characters in total: comparing all pairs of long answers takes seconds


class AnswerFinder:
    """Clusters the answers of a case by the grader's rules, without the gold answer.

    `texts` processes long texts and answers in worker processes.
    """

    def __init__(self, grader: MathGrader, texts: TextWorkers | None = None) -> None:
        self._grader, self._texts = grader, texts or TextWorkers()
        self._owns_texts = texts is None

    @property
    def version(self) -> str:
        """The version of the grader."""
        return f"answers-3 {self._grader.version}"

    async def find(self, case: Case, until: float | None = None) -> Sequence[Found]:
        """The cluster of each answer, named by its first member; undecided answers count as different.

        The name does not depend on the other candidates, so that runs with other candidates can be compared.
        """
        size = sum(len(candidate.text) + len(candidate.answer or "") for candidate in case.candidates)
        answers = await self._texts.run(partial(answers_of, case.candidates), size=size, until=until)
        size = sum(len(answer) for answer in set(answers) if answer is not None)
        comparisons = await self._texts.run(
            partial(compare_exactly, answers), size=size, limit=LONG_ANSWERS, until=until
        )
        budget = self._grader.case_budget(until)
        classes = await self._grader.classes(answers, comparisons=comparisons, budget=budget)
        firsts = [None if first is None else answers[first] for first in classes]
        return [Found(cluster=None if first is None else _name(first), note=budget.note) for first in firsts]

    async def close(self) -> None:
        """End the workers."""
        await self._grader.close()
        if self._owns_texts:
            await self._texts.close()


def make_finder(resources: Resources) -> AnswerFinder:
    """What compares answers by value."""
    return AnswerFinder(MathGrader(), resources.texts)


def _name(answer: str) -> str:
    return f"= {short_or_digest(canonical(answer))}"


def answers_of(candidates: Sequence[Candidate]) -> list[str | None]:
    """The final answer of each candidate; None where it has none."""
    return [_answer_of(candidate) for candidate in candidates]


def _answer_of(candidate: Candidate) -> str | None:
    """A stated, boxed or announced answer, or a value that the text gives; other words are no answer.

    A grader may take the whole text for the answer. Here equal answers are votes, and "No idea." is not one.
    """
    answer = candidate_answer(candidate)
    if answer is None or final_answer(candidate) is not None:
        return answer
    is_choice = len(answer.strip("(). ")) == 1
    return answer if is_choice or any(sign.isnumeric() or sign in SIGNS for sign in answer) else None
