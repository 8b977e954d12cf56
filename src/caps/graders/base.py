"""The grader protocol: a case and a candidate go in, a grade with a reason comes out.

Rules that must not be broken:

* A candidate is hostile: whatever it contains, a grader returns a grade within its limits and goes on.
* A grade depends on the case, the candidate and the grader's `version` alone, because it is kept under them.
* A truth that cannot be used (a gold answer that does not parse, tests that cannot run) is the case's fault:
  `InputError`, naming the field.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from caps.core.types import Candidate, Case


@dataclass(frozen=True, slots=True)
class Grade:
    """Right, wrong, or undecided (`correct` is None); why in a word, and at more length for whoever asks.

    `reason` is empty for a right candidate; `detail` shows the two answers, or the test that failed. Where
    there are public tests only, `passed_public_tests` says whether they passed; that decides nothing.
    """

    correct: bool | None
    reason: str = ""
    detail: str = ""
    passed_public_tests: bool | None = None


class Grader(Protocol):
    """Whatever tells right from wrong."""

    @property
    def version(self) -> str:
        """Changes whenever a grade could: part of the key under which grades are kept."""
        ...

    async def grade(self, case: Case, candidate: Candidate) -> Grade:
        """Grade one candidate; several may be under way at once."""
        ...

    async def close(self) -> None:
        """Let go of workers and folders."""
        ...


Opening: TypeAlias = Callable[[], Awaitable[Grader]]
