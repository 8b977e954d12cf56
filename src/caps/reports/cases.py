"""What a page says about a case: its problem, the chosen answer, and how many candidates gave it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from caps.core.domains import Signature
from caps.core.errors import CapsError
from caps.core.types import Candidate, Case
from caps.evidence.anatomy import dissect, final_answer, spoken
from caps.evidence.domains import domain_named
from caps.evidence.profiles import profile_for, profile_named, signature_named, with_findings, with_views
from caps.evidence.signatures import same_text
from caps.runs.rebuild import RebuiltRun
from caps.runs.result_lines import Line

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


def case_facts(run: RebuiltRun, case: Case, line: Line) -> CaseFacts:
    """Read a case, with its findings, and its result."""
    candidates = case.candidates
    sign = _signature(run, case.domain)
    signatures = [sign(one) or same_text(one) for one in candidates]
    votes = Counter(signatures)
    winner = line.get("winner")
    chosen = candidates[winner] if isinstance(winner, int) and 0 <= winner < len(candidates) else None
    signature = None if chosen is None else signatures[winner or 0]
    most = max(votes.values(), default=0)
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
        majority=_majority([one.correct for one in candidates], signatures, votes, most),
        signatures=tuple(signatures),
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


def _majority(
    labels: Sequence[bool | None], signatures: Sequence[str | None], votes: Counter[str | None], most: int
) -> float | None:
    """How often the choice of a most common answer is right; None where that has no label."""
    leading = [one for one, count in votes.items() if count == most]
    known = [labels[signatures.index(one)] for one in leading]
    return None if not known or None in known else sum(map(bool, known)) / len(known)


@cache
def _found_signature(
    profile: str | None, domain: str, views: tuple[tuple[str, str], ...], *, found: bool
) -> Signature:
    shown = with_views(profile_for(domain) if profile is None else profile_named(profile), dict(views))
    return signature_named((with_findings(shown) if found else shown).signature)


def _signature(run: RebuiltRun, domain: str) -> Signature:
    config = run.file.config
    views = tuple((name, str(value)) for name, value in config.views.items())
    try:
        return _found_signature(config.profile, domain, views, found=run.runner.merges_found)
    except CapsError:  # a view of this run that is not installed here
        return same_text
