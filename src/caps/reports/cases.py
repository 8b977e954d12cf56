"""What a page says about a case: its problem, the chosen answer, and how many candidates gave it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from statistics import fmean

from caps.core.domains import Signature
from caps.core.errors import CapsError
from caps.core.types import Candidate, Case, Entrant
from caps.evidence.profiles import profile_for, profile_named, signature_of, with_views
from caps.evidence.signatures import same_text
from caps.reports.answers import answer_text, domain_of
from caps.runs.rebuild import RebuiltRun
from caps.runs.result_lines import Line
from caps.strategies.dedup import count_votes, dedup

GROUPED_CHARACTERS = 40  # longer values of a field are texts, which group nothing
# Fields that are answers, and the names of columns.
NOT_GROUPING = frozenset(
    ("answer", "solution", "case", "result", "problem", "probability", "votes", "answers", "calls",
     "tokens read", "cost", "note")
)  # fmt: skip
MOST_ANSWERS = 12  # of the other candidates, to be found by a search


@dataclass(frozen=True, slots=True)
class CaseFacts:
    """A case as a list shows it. `majority` is how often a choice by most votes is right; ties are shared."""

    problem: str
    answer: str
    signature: str | None
    others: tuple[str, ...]
    votes: int
    voters: int
    leads: bool  # no answer has more votes than the chosen one
    majority: float | None
    signatures: tuple[str | None, ...]  # of all candidates; equal for equal answers
    texts: int  # a hash of all candidates: two runs with the same have the same candidates
    fields: Mapping[str, str] = field(default_factory=dict)  # by which cases can be grouped


def case_facts(run: RebuiltRun, case: Case, line: Line) -> CaseFacts:
    """Read a case, with its findings, and its result."""
    candidates = case.candidates
    entrants = _entrants(candidates, _signature(run, case.domain))
    signatures = [entrant.signature for entrant in entrants]
    voted = count_votes(entrants, dedup(entrants, "first", Random(0)))  # by the first of each cluster
    votes = {signatures[player]: count for player, count in voted.items()}
    winner = line.get("winner")
    chosen = candidates[winner] if isinstance(winner, int) and 0 <= winner < len(candidates) else None
    signature = None if chosen is None else signatures[winner or 0]
    most = max(votes.values(), default=0)
    labels = [candidates[player].correct for player, count in voted.items() if count == most]
    short = domain_of(case).short_answers
    others = dict.fromkeys(
        answer_text(candidates[signatures.index(other)], short=True) for other in votes if other != signature
    )
    return CaseFacts(
        problem=case.problem.text,
        answer="" if chosen is None else answer_text(chosen, short=short),
        signature=signature,
        others=tuple(list(others)[:MOST_ANSWERS]) if short else (),
        votes=0 if chosen is None else votes[signature],
        voters=len(candidates),
        leads=chosen is not None and votes[signature] == most,
        majority=None if not labels or None in labels else fmean(map(bool, labels)),
        signatures=tuple(signatures),
        texts=hash(tuple(candidate.text for candidate in candidates)),
        fields=grouping_fields(case),
    )


def grouping_fields(case: Case) -> dict[str, str]:
    """The domain of a case and its other fields that hold a short value."""
    return {"domain": case.domain} | {
        name: str(value)
        for name, value in case.extra.items()
        if isinstance(value, str | int | float)
        and 0 < len(str(value)) <= GROUPED_CHARACTERS
        and name not in NOT_GROUPING
    }


def _entrants(candidates: Sequence[Candidate], sign: Signature) -> list[Entrant]:
    """The candidates as the strategy `majority` sees them."""
    answers = [sign(candidate) for candidate in candidates]
    return [
        Entrant(place, answer or same_text(candidates[place]), signature_kind="value" if answer else "text")
        for place, answer in enumerate(answers)
    ]


@cache
def _found_signature(profile: str | None, domain: str, views: tuple[tuple[str, str], ...]) -> Signature:
    shown = with_views(profile_for(domain) if profile is None else profile_named(profile), dict(views))
    return signature_of(replace(shown, clusters=True))


def _signature(run: RebuiltRun, domain: str) -> Signature:
    """What makes two answers equal: the findings, for every strategy, so that runs can be compared."""
    config = run.file.config
    views = tuple((name, str(value)) for name, value in config.views.items())
    try:
        return _found_signature(config.profile, domain, views)
    except CapsError:  # a view of this run that is not installed here
        return same_text
