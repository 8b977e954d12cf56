"""Profiles: the signature and views of a kind of task (the paper's evidence maps)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import FunctionType
from typing import Any, cast

from caps.core.domains import Domain, PairView, Signature, View
from caps.core.errors import SettingError
from caps.core.settings import nearest
from caps.evidence import domains
from caps.evidence.domains import domain_named
from caps.evidence.signatures import cluster
from caps.registry import (
    LOCAL_PREFIX,
    PAIR_VIEWS,
    PROFILES,
    SIGNATURES,
    VIEWS,
    Registry,
    check_call,
    names,
    resolve,
)

CLUSTERS = "clusters"
SLOTS = {"signature": SIGNATURES, "partial": VIEWS, "full": VIEWS, "pair": PAIR_VIEWS}
_ARTICLE = {"candidate": "a candidate", "candidates": "the candidates of a case"}


@dataclass(frozen=True, slots=True)
class Profile:
    """A signature (E0), a partial view (E1) and a full view (E2), as names or functions.

    `pair` replaces the partial views of two candidates where it finds something that separates them. With
    `clusters`, candidates that the findings put into one cluster are equal, and others are compared by their
    signature.
    """

    name: str
    signature: str | Signature
    partial: str | View
    full: str | View = "full"
    pair: str | PairView | None = None
    clusters: bool = False

    @property
    def names(self) -> tuple[str, ...] | None:
        """Signature and views by name; None if a function has no name that other processes can resolve."""
        slots = (self.signature, self.partial, self.full)
        named = [slot for slot in slots if isinstance(slot, str)]
        is_portable = not any(name.startswith(("__main__", LOCAL_PREFIX)) for name in named)
        return tuple(named) if len(named) == len(slots) and is_portable else None


def signature_of(profile: Profile) -> Signature:
    """The function that decides which candidates are equal: those for which it returns the same text.

    Nothing else decides that; it returns None for a candidate without an answer.
    """
    signature = signature_named(profile.signature)
    if not profile.clusters:
        return signature
    return lambda candidate: cluster(candidate) or signature(candidate)


def profile_of(domain: Domain) -> Profile:
    """The signature and the views of a domain."""
    return Profile(domain.name, domain.signature, domain.partial, domain.full, domain.pair)


CODE = profile_of(domains.CODE)
MATH = profile_of(domains.MATH)
GENERAL = profile_of(domains.GENERAL)
CODE_PAPER = replace(CODE, name="code-paper", partial="code-summary", pair=None)
MATH_PAPER = replace(MATH, name="math-paper", signature="math-answer", partial="math-summary")
CODE_THINKING = replace(CODE, name="code-thinking", partial="thinking", pair=None)
MATH_THINKING = replace(MATH, name="math-thinking", partial="thinking")
GENERAL_THINKING = replace(GENERAL, name="general-thinking", partial="thinking")


def profile_for(domain: str) -> Profile:
    """The profile of a domain by its name."""
    return profile_of(domain_named(domain))


def profile_named(name: str) -> Profile:
    """Find a profile by name."""
    profile = resolve(PROFILES, name)
    if not isinstance(profile, Profile):
        raise SettingError(f"{name!r} is {profile!r}: not a profile")
    return profile


def with_views(profile: Profile, changes: Mapping[str, str]) -> Profile:
    """Replace single slots of a profile: `{"partial": "thinking"}`.

    The signature `clusters` adds the clusters of the findings to the signature of the profile.
    A pair view may be named as the partial view; it leaves the partial view of single candidates as it is.
    Another partial view is shown of all pairs, unless a pair view is named as well.
    """
    for slot, name in changes.items():
        if slot not in SLOTS:
            slots = list(SLOTS)
            raise SettingError(
                f"a profile has no slot {slot!r}: {nearest(slot, slots)}its slots are {', '.join(slots)}"
            )
        if slot == "signature":
            profile = replace(profile, clusters=name == CLUSTERS)
            if profile.clusters:
                continue
        if slot == "partial" and name in names(PAIR_VIEWS):
            profile = replace(profile, pair=_named(PAIR_VIEWS, name))
            continue
        if slot == "partial" and "pair" not in changes:
            profile = replace(profile, pair=None)
        change: dict[str, Any] = {slot: _named(SLOTS[slot], name)}
        profile = replace(profile, **change)
    return profile


def _named(registry: Registry, name: str) -> str:
    """The name itself, if there is a function under it."""
    _find_function(registry, name)
    return name


def view_named(name: str | View) -> View:
    """Find a view by name; a function is returned as it is."""
    return cast(View, _find_function(VIEWS, name)) if isinstance(name, str) else name


def pair_view_named(name: str | PairView) -> PairView:
    """Find a pair view by name; a function is returned as it is."""
    return cast(PairView, _find_function(PAIR_VIEWS, name)) if isinstance(name, str) else name


def signature_named(name: str | Signature) -> Signature:
    """Find a signature by name; a function is returned as it is."""
    return cast(Signature, _find_function(SIGNATURES, name)) if isinstance(name, str) else name


def _find_function(registry: Registry, name: str) -> object:
    function = resolve(registry, name)
    argument = "candidates" if registry is PAIR_VIEWS else "candidate"
    if not callable(function):
        raise SettingError(
            f"{name!r} is {function!r}: not a {registry.kind}, which is a function of {_ARTICLE[argument]}"
        )
    (_check_once if isinstance(function, FunctionType) else check_call)(
        f"{registry.kind} {name!r}", function, (argument,)
    )
    return function


_check_once = lru_cache(maxsize=256)(check_call)  # every case asks for its views by name
