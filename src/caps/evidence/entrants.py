"""Entrants of a case, and the views of them that a judge reads."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from caps.core.types import Candidate, Case, Entrant, Found, Level
from caps.evidence.profiles import Profile, signature_named, view_named
from caps.evidence.signatures import verbatim
from caps.evidence.windows import fit

Read: TypeAlias = tuple[str | None, str, str]
"""The signature, partial view and full view of a candidate."""


@dataclass(frozen=True, slots=True)
class Views:
    """The entrants of a case (all that a strategy sees), and their partial and full views."""

    entrants: tuple[Entrant, ...]
    views: tuple[tuple[str, str], ...]

    def view(self, id: int, level: Level) -> str:  # noqa: A002
        """The text a judge reads of an entrant; at E0, its signature or nothing."""
        if level is Level.SIGNATURE:
            return self.entrants[id].signature or ""
        partial, full = self.views[id]
        return partial if level is Level.PARTIAL else full


def describe(case: Case, profile: Profile, count: Callable[[str], int], room: int | None = None) -> Views:
    """Compute the signature, views and view sizes of each candidate; equal candidates are read once."""
    return views_of(case, read_candidates(case.candidates, profile, room), count)


def read_candidates(candidates: Iterable[Candidate], profile: Profile, room: int | None = None) -> list[Read]:
    """Compute the signature, partial and full view of each candidate; equal candidates are read once.

    Views are shortened to about `room` characters.
    A candidate without a signature, such as one without an answer, gets a hash of its text, so equal texts
    are equal in every domain. A partial view that is longer than the full view is replaced by it.
    """
    signature = signature_named(profile.signature)
    partial, full = view_named(profile.partial), view_named(profile.full)

    @cache  # samples repeat
    def read(candidate: Candidate) -> Read:
        whole, shown = full(candidate), partial(candidate)
        if room is not None:
            whole, shown = fit(whole, room), fit(shown, room)
        shown = min(whole, shown, key=len)
        return signature(candidate) or verbatim(candidate), whole if shown == whole else shown, whole

    return [read(candidate) for candidate in candidates]


def views_of(case: Case, read: Iterable[Read], count: Callable[[str], int]) -> Views:
    """The entrants and views of a case whose candidates were read before."""
    counted = cache(count)
    entrants, views = [], []
    for index, (candidate, (signature, shown, whole)) in enumerate(zip(case.candidates, read, strict=True)):
        sizes = (0, counted(shown), counted(whole))
        entrants.append(Entrant(index, signature, sizes, _features(candidate)))
        views.append((shown, whole))
    return Views(tuple(entrants), tuple(views))


def _features(candidate: Candidate) -> dict[str, float]:
    known: dict[str, float | None] = {"score": candidate.score, "logprob": candidate.logprob}
    if candidate.found is not None:
        known |= {"parses": candidate.found.parses, "tests_passed": _share_passed(candidate.found)}
    return {name: float(value) for name, value in known.items() if value is not None}


def _share_passed(found: Found) -> float | None:
    return None if found.passed is None or not found.examples else found.passed / found.examples
