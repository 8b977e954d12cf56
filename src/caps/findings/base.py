"""Findings: facts about candidates established before a contest, stored in the journal by domain.

Rules that must not be broken:

* A fact depends only on the case and the finder's `version`, because they are its key.
* No hidden test, gold answer or label is used.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from hashlib import sha256
from typing import Any, Protocol

from caps.core.errors import InputError, NotRecordedError, SlowTextError, UserError
from caps.core.types import Case, Found
from caps.journal.records import ReplyStore
from caps.journal.store import Journal


class Finder(Protocol):
    """Finds facts about the candidates of a case."""

    @property
    def version(self) -> str:
        """Changes whenever a fact could change."""
        ...

    async def find(self, case: Case, until: float | None = None) -> Sequence[Found]:
        """The facts about each candidate, in order; empty if there is nothing to compare.

        It ends at `until`, a time of the loop's clock: with the facts known by then, or with `TimeoutError`.
        """
        ...

    async def close(self) -> None:
        """End workers."""
        ...


FOUND = "finding"
SKIPPED = "finding skipped"
TIME_ENDED = "the case's time ended first"
ABOUT = ("entry_point", "fn_name", "starter_code", "preamble")


class Findings:
    """Adds findings to cases with the finder of their domain; each is computed once and journaled.

    If a finder does not work here (no sandbox), cases continue without findings and `unusable` counts the
    reasons; `insist` raises instead.
    """

    def __init__(
        self, finders: Mapping[str, Finder], journal: ReplyStore | None = None, *, insist: bool = False
    ) -> None:
        self._finders, self._journal, self._insist = finders, journal, insist
        self.unusable: Counter[str] = Counter()

    @property
    def versions(self) -> dict[str, str]:
        """The version of the finder of each domain."""
        return {domain: finder.version for domain, finder in self._finders.items()}

    async def find(self, case: Case, until: float | None = None) -> Case:
        """The case with the findings of its candidates; `until` is a time of the loop's clock."""
        finder = self._finders.get(case.domain)
        if finder is None:
            return case
        key = _key(finder.version, case)
        rows = None if self._journal is None else await self._journal.recall_fact(FOUND, key)
        return _with_rows(case, await self._compute(finder, case, key, until) if rows is None else rows)

    async def close(self) -> None:
        """Close the finders."""
        for finder in self._finders.values():
            await finder.close()

    async def _compute(self, finder: Finder, case: Case, key: str, until: float | None) -> Sequence[Any]:
        """Compute and store findings; those cut off by the deadline are computed again next time."""
        kind, found, cut = FOUND, list[Found](), False
        try:
            found = list(await finder.find(case, until))
            cut = until is not None and asyncio.get_running_loop().time() >= until
        except TimeoutError:
            cut = True
        except InputError as error:
            self.unusable[str(error).partition(":")[0]] += 1
            kind = SKIPPED if isinstance(error, SlowTextError) else FOUND
        except UserError as error:
            if self._insist:
                raise
            self.unusable[str(error).partition(":")[0]] += 1
            kind = SKIPPED
        if cut:
            self.unusable[TIME_ENDED] += 1
            kind = SKIPPED
        rows = [astuple(fact) for fact in found]
        return rows if self._journal is None else await self._journal.record(kind, key, rows)


def recall(journal: Journal, versions: Mapping[str, str], case: Case) -> Case:
    """The case with the findings in the journal; nothing is run."""
    version = versions.get(case.domain)
    if version is None:
        return case
    key = _key(version, case)
    for kind in (FOUND, SKIPPED):
        rows = journal.fact(kind, key)
        if rows is not None:
            return _with_rows(case, rows)
    raise NotRecordedError(f"case {case.id!r}: its findings are not in the journal")


def _with_rows(case: Case, rows: Sequence[Any]) -> Case:
    if not rows:
        return case
    pairs = zip(case.candidates, rows, strict=True)
    return replace(case, candidates=tuple(replace(one, found=Found(*row)) for one, row in pairs))


def _key(version: str, case: Case) -> str:
    """The key of a finding: a digest of the finder, the problem with its examples, and the candidates."""
    tests = case.extra.get("tests")
    public: Any = tests.get("public") if isinstance(tests, Mapping) else None
    about = {name: case.extra.get(name) for name in ABOUT}
    shown = [(one.text, one.code, one.answer) for one in case.candidates]
    listed = [version, case.problem.text, public, about, shown]
    return sha256(json.dumps(listed, sort_keys=True, default=str).encode()).hexdigest()
