"""Findings: facts about candidates established before a contest, stored in the journal by domain."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from hashlib import sha256
from typing import Any

from caps.core.domains import Finder
from caps.core.errors import InputError, NotRecordedError, SlowTextError, UserError
from caps.core.types import BY_CLOCK, Case, Found, Run, Survived
from caps.evidence.domains import domain_named
from caps.grading.test_suites import public_tests
from caps.journal.records import ReplyStore
from caps.journal.store import Journal

__all__ = ["Finder"]


FOUND = "finding"
SKIPPED = "finding skipped"
TIME_ENDED = "the case's time ended first"


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
        self.watch: Callable[[], object] = int  # called after each case that has a finder

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
        if rows is None:
            rows = await self._compute(finder, case, key, until)
        self.watch()
        return _with_rows(case, rows)

    async def close(self) -> None:
        """Close the finders."""
        for finder in self._finders.values():
            await finder.close()

    async def _compute(self, finder: Finder, case: Case, key: str, until: float | None) -> Any:
        """Compute and store findings; those that the clock cut off are computed again next time."""
        kind, findings, cut = FOUND, list[Found](), False
        try:
            findings = list(await finder.find(_without_truth(case), until))
            cut = until is not None and asyncio.get_running_loop().time() >= until
        except TimeoutError:
            cut = True
        except InputError as error:
            self.unusable[": ".join(str(error).split(": ", 2)[:2])] += 1  # the field, and what is wrong
            kind = SKIPPED if isinstance(error, SlowTextError) else FOUND
        except UserError as error:
            if self._insist:
                raise
            self.unusable[str(error).partition(":")[0]] += 1
            kind = SKIPPED
        if cut:
            self.unusable[TIME_ENDED] += 1
        if cut or any(BY_CLOCK in finding.note for finding in findings):
            kind = SKIPPED
        rows = _to_rows(findings)
        return rows if self._journal is None else await self._journal.record(kind, key, rows)


def recall(journal: Journal, versions: Mapping[str, str], case: Case) -> Case:
    """The case with the findings in the journal; nothing is run and no model is asked."""
    version = versions.get(case.domain)
    if version is None:
        return case
    key = _key(version, case)
    for kind in (FOUND, SKIPPED):
        rows = journal.fact(kind, key)
        if rows is not None:
            return _with_rows(case, rows)
    raise NotRecordedError(f"case {case.id!r}: its findings are not in the journal")


def _to_rows(findings: Sequence[Found]) -> Any:
    """Findings as plain data: a row for each candidate; the inputs of its runs are stored once for all."""
    inputs = [(run.kind, run.input) for run in findings[0].runs] if findings else []
    rows = []
    for finding in findings:
        runs = [(run.status, run.output, run.digest) for run in finding.runs]
        survived = None if finding.survived is None else astuple(finding.survived)
        told = (finding.note, finding.context, finding.seconds)
        rows.append(
            (finding.cluster, finding.passed, finding.examples, finding.parses, runs, survived, *told)
        )
    return {"inputs": inputs, "rows": rows}


def _from_row(inputs: Sequence[Any], row: Sequence[Any]) -> Found:
    cluster, passed, examples, parses, results, survived, note, context, seconds = row
    runs = tuple(Run(text, kind, *result) for (kind, text), result in zip(inputs, results, strict=True))
    counted = None if survived is None else Survived(*survived)
    return Found(cluster, passed, examples, parses, runs, counted, note, context=context, seconds=seconds)


def _with_rows(case: Case, stored: Any) -> Case:
    """The case with stored findings."""
    findings = [_from_row(stored["inputs"], row) for row in stored["rows"]]
    if not findings:
        return case
    pairs = zip(case.candidates, findings, strict=True)
    candidates = tuple(replace(candidate, found=finding) for candidate, finding in pairs)
    return replace(case, candidates=candidates)


def _without_truth(case: Case) -> Case:
    """The case as a finder may see it: no labels, only public tests, no field its domain does not name."""
    fields = domain_named(case.domain).fields
    extra = {name: case.extra[name] for name in fields if name in case.extra and name != "tests"}
    if "tests" in fields and (public := public_tests(case.extra)) is not None:
        extra["tests"] = public
    candidates = tuple(
        replace(candidate, correct=None, passed_public_tests=None) for candidate in case.candidates
    )
    return replace(case, candidates=candidates, extra=extra)


def _key(version: str, case: Case) -> str:
    """The key of a finding: a digest of the finder and of all that it may see of a case."""
    shown = [(candidate.text, candidate.code, candidate.answer) for candidate in case.candidates]
    seen = [version, case.problem.text, _without_truth(case).extra, shown]
    return sha256(json.dumps(seen, sort_keys=True, default=str).encode()).hexdigest()
