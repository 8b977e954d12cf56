"""Entrants of a case, and the views of them that a judge reads."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import TypeAlias

from caps.core.domains import Differences
from caps.core.types import (
    AnswerKind,
    Ask,
    Candidate,
    Case,
    Entrant,
    Level,
    Media,
    Survived,
    shows_difference,
)
from caps.evidence.domains import domain_named
from caps.evidence.profiles import Profile, pair_view_named, signature_of, view_named
from caps.evidence.signatures import same_text
from caps.evidence.windows import fit

Read: TypeAlias = tuple[str | None, bool, str, str]
"""The signature of a candidate, whether that is an answer (else of its text), its partial and full view."""


FOUND = ("parses", "tests_passed")  # features that findings add
MOST_NAMED = 3  # candidates in one message


@dataclass(frozen=True, slots=True)
class Views:
    """The entrants of a case (all that a strategy sees), and their partial and full views."""

    entrants: tuple[Entrant, ...]
    views: tuple[tuple[str, str], ...]
    differences: Differences | None = field(default=None, compare=False)

    def shown(self, ask: Ask) -> tuple[str, ...]:
        """The texts a judge reads of the candidates of an ask: their views, or what separates the two."""
        if self.differences is not None and shows_difference(self.entrants, ask):
            a, b = ask.entrants
            texts = self.differences(a, b)
            if texts is not None:
                return texts
        if ask.level is Level.SIGNATURE:
            return tuple([self.view(entrant, ask.level) for entrant in ask.entrants])
        place = 0 if ask.level is Level.PARTIAL else 1
        return tuple([self.views[entrant][place] for entrant in ask.entrants])

    def view(self, id: int, level: Level) -> str:  # noqa: A002
        """The text a judge reads of an entrant; at E0, its signature or nothing."""
        if level is Level.SIGNATURE:
            return self.entrants[id].signature or ""
        partial, full = self.views[id]
        return partial if level is Level.PARTIAL else full


def describe(case: Case, profile: Profile, count: Callable[[str], int], room: int | None = None) -> Views:
    """Compute the signature, views and view sizes of each candidate; equal candidates are read once."""
    return views_of(case, read_candidates(case.candidates, profile, room), count, profile)


def read_candidates(candidates: Sequence[Candidate], profile: Profile, room: int | None = None) -> list[Read]:
    """Compute the signature, partial and full view of each candidate; equal candidates are read once.

    Views are shortened to about `room` characters.
    A candidate without an answer gets a signature of its text, so equal texts are equal in every domain. A
    partial view that is longer than the full view is replaced by it.
    """
    signature = signature_of(profile)
    partial, full = view_named(profile.partial), view_named(profile.full)

    @cache  # samples repeat
    def read(candidate: Candidate) -> Read:
        whole, shown = full(candidate), partial(candidate)
        if room is not None:
            whole, shown = fit(whole, room), fit(shown, room)
        shown = min(whole, shown, key=len)
        answer = signature(candidate)
        signed = answer or same_text(candidate)
        return signed, answer is not None, whole if shown == whole else shown, whole

    return [read(candidate) for candidate in candidates]


def views_of(case: Case, read: Iterable[Read], count: Callable[[str], int], profile: Profile) -> Views:
    """The entrants and views of a case whose candidates were read before."""
    counted = cache(count)
    entrants, views = [], []
    differences = differences_of(case.candidates, profile)
    beside: list[dict[int, int]] = [{} for _ in case.candidates]
    for (a, b), texts in separated(differences, len(beside)):
        beside[a][b], beside[b][a] = map(count, texts)
    kind: AnswerKind = "value" if domain_named(case.domain).short_answers else "open"
    numbers: dict[tuple[str, str, tuple[Media, ...]], int] = {}
    pairs = zip(case.candidates, read, strict=True)
    for index, (candidate, (signature, answered, shown, whole)) in enumerate(pairs):
        partial, full = counted(shown), counted(whole)
        if candidate.media:
            partial += media_tokens(candidate.media, shown)
            full += media_tokens(candidate.media, whole)
        entrants.append(
            Entrant(
                index,
                signature,
                (0, partial, full),
                _features(candidate),
                beside[index],
                kind if answered else "text",
                numbers.setdefault((shown, whole, candidate.media), len(numbers)),
            )
        )
        views.append((shown, whole))
    return Views(tuple(entrants), tuple(views), differences)


def differences_of(candidates: Sequence[Candidate], profile: Profile) -> Differences | None:
    """What separates two candidates of a case, if the profile shows that and anything was found."""
    if profile.pair is None or all(candidate.found is None for candidate in candidates):
        return None
    return pair_view_named(profile.pair)(candidates)


def separated(
    differences: Differences | None, count: int
) -> Iterator[tuple[tuple[int, int], tuple[str, str]]]:
    """Each pair of `count` candidates that something separates, with what is shown of the two."""
    if differences is not None:
        for a, b in combinations(range(count), 2):
            if (texts := differences(a, b)) is not None:
                yield (a, b), texts


def missing_numbers(case: Case, name: str) -> str:
    """A message about the candidates of a case without a number of this name; empty if all have it.

    Findings (`tests_passed`, `parses`) are not known yet, and are never missing.
    """
    if name in FOUND:
        return ""
    lacking = [k for k, candidate in enumerate(case.candidates) if name not in _features(candidate)]
    if not lacking:
        return ""
    words = [
        f"candidates[{k}].{name} {'is not a number' if name in case.candidates[k].numbers else 'is missing'}"
        for k in lacking[:MOST_NAMED]
    ]
    words += [f"and {len(lacking) - MOST_NAMED} more"] if len(lacking) > MOST_NAMED else []
    return f"{case.where or f'case {case.id!r}'}: {', '.join(words)}"


def shown_media(media: Iterable[Media], view: str) -> tuple[Media, ...]:
    """The images and documents of a candidate that a view shows: those whose label it kept."""
    return tuple(medium for medium in media if medium.label in view)


def media_tokens(media: Iterable[Media], view: str) -> int:
    """Estimated tokens of the images and documents that a view shows."""
    return sum(medium.tokens for medium in shown_media(media, view))


def _features(candidate: Candidate) -> dict[str, float]:
    features = {name: value for name, value in candidate.numbers.items() if name not in FOUND}
    features |= {"score": candidate.score, "logprob": candidate.logprob}
    features["tests_passed"] = _share_passed(candidate)
    if candidate.found is not None:
        features["parses"] = candidate.found.parses
        if candidate.found.survived is not None:
            features |= _features_of(candidate.found.survived)
    return {name: float(value) for name, value in features.items() if value is not None}


def _features_of(survived: Survived) -> dict[str, float]:
    """Shares of the inputs on which programs of the case differ, and how many there are."""
    tried = survived.inputs or 1
    return {
        "inputs": survived.inputs,
        "agreement": survived.agreed / tried,
        "crashes": survived.crashes / tried,
        "timeouts": survived.timeouts / tried,
        "varied": float(survived.varied),
    }


def _share_passed(candidate: Candidate) -> float | None:
    """The share of public tests that a candidate passes; its label counts as one more test."""
    passed = tests = 0
    if candidate.found is not None and candidate.found.passed is not None:
        passed, tests = candidate.found.passed, candidate.found.examples
    if candidate.passed_public_tests is not None:
        passed, tests = passed + candidate.passed_public_tests, tests + 1
    return passed / tests if tests else None
