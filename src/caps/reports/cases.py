"""What a page says about a case: its problem, the chosen answer, and how many candidates gave it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from statistics import fmean

from caps.core.domains import Signature
from caps.core.errors import CapsError
from caps.core.types import Candidate, Case, Entrant
from caps.evidence.anatomy import dissect, final_answer, spoken
from caps.evidence.domains import domain_named
from caps.evidence.profiles import profile_for, profile_named, signature_of, with_views
from caps.evidence.signatures import same_text
from caps.runs.rebuild import RebuiltRun
from caps.runs.result_lines import Line
from caps.strategies.dedup import count_votes, dedup

ANSWER_CHARACTERS = 120
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
    short = domain_named(case.domain).short_answers
    others = dict.fromkeys(
        answer_text(candidates[signatures.index(one)], short=True) for one in votes if one != signature
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
    )


def answer_text(candidate: Candidate, *, short: bool) -> str:
    """The answer of a candidate in a line: its final answer, the head of its program, or its first words."""
    text = final_answer(candidate) if short else dissect(candidate).code
    if text is None:
        text = spoken(candidate.text).strip()
        if short:  # no answer is stated or boxed: the last words may say what it is
            ends = [line.strip() for line in text[-1000:].splitlines() if any(map(str.isalnum, line))]
            return shortened((ends or [""])[-1], ANSWER_CHARACTERS)
    lines = [line.strip() for line in text.strip()[:4000].splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("def ", "class ", "+++ "))]
    return shortened((telling or lines or [""])[0], ANSWER_CHARACTERS)


def shortened(text: str, most: int) -> str:
    """A text on one line, shortened with an ellipsis."""
    words = " ".join(text[: 2 * most].split())
    return words if len(words) <= most and len(text) <= 2 * most else words[: most - 1] + "…"


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
