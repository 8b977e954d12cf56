"""Grading of a stream of cases: every candidate gets a label, several cases at once."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

from caps.core.domains import Grade, Grader, Opening
from caps.core.errors import InputError, UserError
from caps.core.types import Candidate, Case
from caps.evidence.domains import domain_named
from caps.journal.store import Journal

KIND = "grade"
AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class GradedCase:
    """A labelled case with its grades, or the reason why it could not be graded."""

    case: Case | None
    grades: tuple[Grade, ...] = ()
    failure: str | None = None


class GradeStore:
    """Grades candidates by domain and caches grades in the journal; graders are created when needed."""

    def __init__(self, graders: Mapping[str, Opening], journal: Journal | None = None) -> None:
        self._openings, self._journal = graders, journal
        self._graders: dict[str, Grader] = {}
        self._lock = asyncio.Lock()

    async def grade_all(self, cases: Iterable[Case | InputError]) -> AsyncIterator[GradedCase]:
        """Grade a stream of cases and yield them in order."""
        waiting: deque[asyncio.Task[GradedCase]] = deque()
        source = iter(cases)
        try:
            while True:
                while len(waiting) < AT_ONCE and (case := _next(source)) is not None:
                    waiting.append(asyncio.ensure_future(self.grade_case(case)))
                if not waiting:
                    return
                yield await waiting[0]
                waiting.popleft()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def grade_case(self, case: Case | InputError) -> GradedCase:
        """Grade all candidates of a case; unusable reference answers or tests are a failure of the case."""
        if isinstance(case, InputError):
            return GradedCase(None, failure=str(case))
        if case.domain not in self._openings:
            known = " and ".join(sorted(self._openings))
            return GradedCase(case, failure=f"domain: {case.domain!r} cannot be graded; only {known} can")
        grader = await self._grader(case.domain)
        try:
            grades = await asyncio.gather(*(self._grade(grader, case, one) for one in case.candidates))
        except InputError as error:
            return GradedCase(case, failure=str(error))
        pairs = zip(case.candidates, grades, strict=True)
        labelled = tuple(
            replace(one, correct=grade.correct, passed_public_tests=grade.passed_public_tests)
            for one, grade in pairs
        )
        return GradedCase(replace(case, candidates=labelled), tuple(grades))

    async def grade(self, case: Case, candidate: Candidate) -> Grade:
        """Grade one candidate; undecided if the case has no usable reference answer or tests."""
        if case.domain not in self._openings:
            return Grade(None, "no grader")
        try:
            return await self._grade(await self._grader(case.domain), case, candidate)
        except UserError as error:
            return Grade(None, "no truth", str(error))

    async def close(self) -> None:
        """Close the graders."""
        for grader in self._graders.values():
            await grader.close()

    async def _grader(self, domain: str) -> Grader:
        async with self._lock:
            if domain not in self._graders:
                self._graders[domain] = await self._openings[domain]()
            return self._graders[domain]

    async def _grade(self, grader: Grader, case: Case, candidate: Candidate) -> Grade:
        key = _key(grader.version, case, candidate)
        stored = None if self._journal is None else self._journal.fact(KIND, key)
        if stored is None:
            grade = await grader.grade(case, candidate)
            if self._journal is None:
                return grade
            row = [grade.correct, grade.reason, grade.detail]
            if grade.passed_public_tests is not None or grade.decided_by:
                row.append(grade.passed_public_tests)
            if grade.decided_by:
                row.append(grade.decided_by)
            stored = await self._journal.record(KIND, key, row)
        return Grade(*stored)


def _next(source: "Iterable[Case | InputError]") -> Case | InputError | None:
    """The next case; the error if a file ends early."""
    try:
        return next(iter(source), None)
    except InputError as error:
        return error


def _key(version: str, case: Case, candidate: Candidate) -> str:
    names = domain_named(case.domain).truth
    truth = {
        name: case.extra[name] for name in (case.extra if names is None else names) if name in case.extra
    }
    problem = case.problem.text if names is None or "problem" in names else ""
    listed = [version, truth, problem, candidate.text, candidate.code, candidate.answer]
    return sha256(json.dumps(listed, sort_keys=True, default=str).encode()).hexdigest()
