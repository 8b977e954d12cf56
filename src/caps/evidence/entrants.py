"""From a case to its entrants, and to the views a judge may read of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from caps.core.types import Candidate, Case, Entrant, Found, Level
from caps.evidence.profiles import Profile, signature_named, view_named
from caps.evidence.signatures import verbatim


@dataclass(frozen=True, slots=True)
class Described:
    """The entrants of a case, which is all a strategy sees, and the partial and full view of each."""

    entrants: tuple[Entrant, ...]
    views: tuple[tuple[str, str], ...]

    def view(self, id: int, level: Level) -> str:  # noqa: A002
        """What a judge reads of an entrant; at E0 that is its signature, if it has one."""
        if level is Level.SIGNATURE:
            return self.entrants[id].signature or ""
        partial, full = self.views[id]
        return partial if level is Level.PARTIAL else full


def describe(case: Case, profile: Profile, count: Callable[[str], int]) -> Described:
    """Make the signature and views of each candidate, of equal ones once, and count the views.

    Where a candidate has no signature (no answer was found, say), its own text is one: candidates of equal
    text are equal whatever the domain.
    A partial view longer than the full one would cost more and show less, so the full one takes its place.
    """
    signature = signature_named(profile.signature)
    partial, full = view_named(profile.partial), view_named(profile.full)

    @cache  # samples repeat themselves
    def read(candidate: Candidate) -> tuple[str | None, tuple[int, int, int], tuple[str, str]]:
        whole = full(candidate)
        shown = min(whole, partial(candidate), key=len)
        large = count(whole)
        small = large if shown == whole else count(shown)
        return signature(candidate) or verbatim(candidate), (0, small, large), (shown, whole)

    entrants, views = [], []
    for place, candidate in enumerate(case.candidates):
        known, sizes, shown = read(candidate)
        entrants.append(Entrant(place, known, sizes, _features(candidate)))
        views.append(shown)
    return Described(tuple(entrants), tuple(views))


def _features(candidate: Candidate) -> dict[str, float]:
    known: dict[str, float | None] = {"score": candidate.score, "logprob": candidate.logprob}
    if candidate.found is not None:
        known |= {"parses": candidate.found.parses, "tests_passed": _share_passed(candidate.found)}
    return {name: float(value) for name, value in known.items() if value is not None}


def _share_passed(found: Found) -> float | None:
    return None if found.passed is None or not found.examples else found.passed / found.examples
