"""From a case to its entrants: signatures, sizes and features, and nothing of the text itself."""

from caps.core.types import Candidate, Case, Entrant
from caps.evidence.signatures import signature_of

CHARACTERS_PER_TOKEN = 4


def entrants_of(case: Case, *, partial_tokens: int) -> list[Entrant]:
    """Describe each candidate; sizes are estimated at four characters a token."""
    entrants = []
    for position, candidate in enumerate(case.candidates):
        full = -(-len(candidate.text) // CHARACTERS_PER_TOKEN)
        entrants.append(
            Entrant(
                position,
                signature_of(candidate, case.domain),
                (0, min(partial_tokens, full), full),
                _features(candidate),
            )
        )
    return entrants


def _features(candidate: Candidate) -> dict[str, float]:
    known = {"score": candidate.score, "logprob": candidate.logprob}
    return {name: value for name, value in known.items() if value is not None}
