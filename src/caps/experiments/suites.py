"""The cases of a suite: read, cut to N candidates, and checked for labels."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from caps.core.errors import InputError
from caps.core.types import Candidate, Case
from caps.datasets.imports import open_cases
from caps.datasets.writing import write_case
from caps.experiments.pools import INSTRUCTION_TOKENS, LabelledPool
from caps.experiments.results import digest
from caps.experiments.study import Suite
from caps.judges.base import Bout


def suite_cases(suite: Suite, limit: int | None) -> Iterator[Case]:
    """The labelled cases of a suite's file; the first that lacks a label, or cannot be read, is an error."""
    for case in islice(open_cases(str(suite.cases)), limit):
        if isinstance(case, InputError):
            raise case
        kept = replace(case, candidates=case.candidates[: suite.n])
        for place, candidate in enumerate(kept.candidates):
            if candidate.correct is None:
                raise InputError(
                    f"{suite.cases}: case {case.id!r}: candidates[{place}].correct: is missing; a study "
                    f"needs every candidate labelled: {how_to_label(candidate)}"
                )
        yield kept


def how_to_label(candidate: Candidate) -> str:
    """Where the label of a candidate would come from."""
    if candidate.passed_public_tests is None:
        return "see caps grade"
    return "its case has public tests only, which give no label; add tests.hidden and see caps grade"


def labels(case: Case) -> tuple[bool, ...]:
    """Which candidates are right."""
    return tuple(bool(candidate.correct) for candidate in case.candidates)


def difficulty(case: Case) -> str | None:
    """The stratum a case belongs to."""
    found = case.extra.get("difficulty")
    return None if found is None else str(found)


def case_digest(case: Case) -> str:
    """A digest of all a result may depend on."""
    return digest(write_case(case).decode("utf-8", "replace"))


def pool_of(bout: Bout, number: int) -> LabelledPool:
    """A real case as a pool for simulated verdicts."""
    overhead = INSTRUCTION_TOKENS + bout.statement
    return LabelledPool(number, bout.described.entrants, labels(bout.case), overhead)
