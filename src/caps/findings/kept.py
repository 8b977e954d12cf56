"""Findings by domain, kept in the journal: what was found once is never looked for again."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from hashlib import sha256
from typing import Any

from caps.core.errors import InputError, NotRecordedError
from caps.core.types import Case, Found
from caps.findings.base import Finder
from caps.journal.store import Journal

KIND = "finding"


class Findings:
    """Looks into each case with the finder of its domain; `unusable` counts why there was nothing to find by.

    `recorded`: only what the journal holds is told, and nothing is run.
    """

    def __init__(
        self, finders: Mapping[str, Finder], journal: Journal | None = None, *, recorded: bool = False
    ) -> None:
        self._finders, self._journal, self._recorded = finders, journal, recorded
        self.unusable: Counter[str] = Counter()

    async def find(self, case: Case) -> Case:
        """The case with what was found of its candidates."""
        finder = self._finders.get(case.domain)
        if finder is None:
            return case
        found = await self._found(finder, case)
        if not found:
            return case
        pairs = zip(case.candidates, found, strict=True)
        return replace(case, candidates=tuple(replace(one, found=fact) for one, fact in pairs))

    async def close(self) -> None:
        """Close the finders."""
        for finder in self._finders.values():
            await finder.close()

    async def _found(self, finder: Finder, case: Case) -> Sequence[Found]:
        key = _key(finder.version, case)
        rows = None if self._journal is None else self._journal.fact(KIND, key)
        if rows is None and self._recorded:
            raise NotRecordedError(
                f"case {case.id!r}: what was found of its candidates is not in the journal"
            )
        if rows is None:
            rows = [astuple(fact) for fact in await self._look(finder, case)]
            if self._journal is not None:
                rows = await self._journal.record(KIND, key, rows)
        return [Found(*row) for row in rows]

    async def _look(self, finder: Finder, case: Case) -> Sequence[Found]:
        try:
            return await finder.find(case)
        except InputError as error:
            self.unusable[str(error).partition(":")[0]] += 1
            return ()


def _key(version: str, case: Case) -> str:
    """What a finding depends on: the finder, the problem with its examples, the candidates."""
    tests = case.extra.get("tests")
    public: Any = tests.get("public") if isinstance(tests, Mapping) else None
    about = {name: case.extra.get(name) for name in ("entry_point", "starter_code", "preamble", "fn_name")}
    listed = [
        version,
        case.problem.text,
        public,
        about,
        [(c.text, c.code, c.answer) for c in case.candidates],
    ]
    return sha256(json.dumps(listed, sort_keys=True, default=str).encode()).hexdigest()
