"""Which signature and which views go with a kind of task: the paper's evidence maps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

from caps.core.errors import SettingError
from caps.core.settings import nearest
from caps.core.types import Candidate
from caps.registry import PROFILES, SIGNATURES, VIEWS, Registry, resolve

View: TypeAlias = Callable[[Candidate], str]
Signature: TypeAlias = Callable[[Candidate], str | None]

BY_FINDINGS = {"code-ast": "code-behaviour", "math-answer": "math-equivalent"}
SLOTS = {"signature": SIGNATURES, "partial": VIEWS, "full": VIEWS}


@dataclass(frozen=True, slots=True)
class Profile:
    """The names of a signature (E0), a partial view (E1) and a full view (E2)."""

    name: str
    signature: str
    partial: str
    full: str = "full"


CODE = Profile("code", "code-ast", "code-summary")
MATH = Profile("math", "math-answer", "math-summary")
GENERAL = Profile("general", "general-text", "general-summary")
CODE_THINKING = replace(CODE, name="code-thinking", partial="thinking")
MATH_THINKING = replace(MATH, name="math-thinking", partial="thinking")
GENERAL_THINKING = replace(GENERAL, name="general-thinking", partial="thinking")


def profile_named(name: str) -> Profile:
    """Find a profile; a domain is the name of its own."""
    found = resolve(PROFILES, name)
    if not isinstance(found, Profile):
        raise SettingError(f"{name!r} is {found!r}: not a profile")
    return found


def with_views(profile: Profile, changes: Mapping[str, str]) -> Profile:
    """Put other views or another signature in single slots: `{"partial": "thinking"}`."""
    for slot, name in changes.items():
        if slot not in SLOTS:
            slots = list(SLOTS)
            raise SettingError(
                f"a profile has no slot {slot!r}: {nearest(slot, slots)}its slots are {', '.join(slots)}"
            )
        _function(SLOTS[slot], name)
    return replace(profile, **changes)


def with_findings(profile: Profile) -> Profile:
    """The profile with the signature that goes by what was found, where there is one."""
    return replace(profile, signature=BY_FINDINGS.get(profile.signature, profile.signature))


def view_named(name: str) -> View:
    """Find a view."""
    return cast(View, _function(VIEWS, name))


def signature_named(name: str) -> Signature:
    """Find a signature."""
    return cast(Signature, _function(SIGNATURES, name))


def _function(registry: Registry, name: str) -> object:
    found = resolve(registry, name)
    if not callable(found):
        raise SettingError(
            f"{name!r} is {found!r}: not a {registry.kind}, which is a function of a candidate"
        )
    return found
