"""Measuring a judge without labels, on pairs of candidates of which the better one is nearly known.

An answer that at least half of the candidates give is compared with one that a single candidate gives; a
program that passes all public tests with one that fails some. Votes count for answers that are compared by
value only: of texts and programs, the most frequent one is wrong too often (docs/research/forecasts.md).
"""

from collections.abc import Sequence
from dataclasses import replace

from caps.core.judge_profile import JudgeProfile
from caps.core.types import Entrant
from caps.strategies.dedup import clusters
from caps.studies.diagnosis import Subject

MAJORITY = 0.5  # least share of the candidates that gives the most frequent answer
LEAST_CANDIDATES = 4
WRONG = 0.15  # share of pairs without a right candidate; the best of the values tried on development pools
SUREST = 0.98  # accuracy of a corrected profile at most

ABOUT = (
    "no candidate is labelled, so the judge was measured on pairs of which the better one is nearly known: "
    "an answer that at least half of the candidates give against one that a single candidate gives, or a "
    "program that passes all public tests against one that fails some"
)
CORRECTED = f"corrected for {100 * WRONG:.0f} % of pairs that are assumed to hold no right candidate"


def with_presumed_labels(subject: Subject) -> Subject:
    """The case with labels for the candidates that are nearly known to be right or wrong."""
    return replace(subject, labels=presumed_labels(subject.pool.entrants))


def presumed_labels(entrants: Sequence[Entrant]) -> dict[int, bool | None]:
    """Labels by public tests, else by votes; None for candidates of which nothing is known."""
    passed = {entrant.id: entrant.features.get("tests_passed") for entrant in entrants}
    if any(share is not None for share in passed.values()):
        return {number: None if share is None else share == 1 for number, share in passed.items()}
    labels: dict[int, bool | None] = dict.fromkeys(passed)
    groups = clusters(entrants)
    most = max(groups, key=len)
    known = len(entrants) >= LEAST_CANDIDATES and len(most) >= MAJORITY * len(entrants)
    if not known or most[0].answer != "value":
        return labels
    labels |= {group[0].id: False for group in groups if len(group) == 1}
    return labels | {entrant.id: True for entrant in most}


def corrected(profile: JudgeProfile) -> JudgeProfile:
    """The profile on the pairs that hold a right candidate; on the others any judge is a coin."""

    def accuracy(share: float) -> float:
        return round(min(SUREST, max(1 - SUREST, 0.5 + (share - 0.5) / (1 - WRONG))), 4)

    return replace(
        profile,
        e1_high=accuracy(profile.e1_high),
        e1_low=accuracy(profile.e1_low),
        e2_high=accuracy(profile.e2_high),
        e2_low=accuracy(profile.e2_low),
    )
