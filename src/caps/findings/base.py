"""The seam to whatever looks into a case before its contest: a case in, a fact for each candidate out.

Rules that must not be broken:

* A fact depends on the case and the finder's `version` alone, because it is kept under them.
* Truth is not looked at: no hidden test, no gold answer, no label.
"""

from collections.abc import Sequence
from typing import Protocol

from caps.core.types import Case, Found


class Finder(Protocol):
    """Whatever finds facts."""

    @property
    def version(self) -> str:
        """Changes whenever a fact could."""
        ...

    async def find(self, case: Case, until: float | None = None) -> Sequence[Found]:
        """What is found of each candidate, in order; empty where there is nothing to go by.

        It ends at `until`, a time of the loop's clock: with what is known by then, or with `TimeoutError`.
        """
        ...

    async def close(self) -> None:
        """Let go of workers."""
        ...
