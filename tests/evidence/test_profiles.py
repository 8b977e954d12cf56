from dataclasses import replace

import pytest

from caps.core.errors import SettingError
from caps.core.types import Candidate, Found
from caps.evidence.profiles import (
    Profile,
    profile_for,
    profile_named,
    signature_named,
    signature_of,
    view_named,
    with_views,
)
from caps.registry import DOMAINS, PROFILES, SIGNATURES, VIEWS, listing


@pytest.mark.parametrize("name", PROFILES.table)
def test_every_profile_is_called_what_it_is_called_and_names_what_exists(name):
    profile = profile_named(name)
    assert profile.name == name
    assert signature_named(profile.signature)
    assert view_named(profile.partial)
    assert view_named(profile.full)


@pytest.mark.parametrize("registry", [PROFILES, SIGNATURES, VIEWS], ids=lambda registry: registry.kind)
def test_every_entry_has_a_line_and_a_reference(registry):
    built_in = [entry for entry in listing(registry) if entry.name in registry.table]
    assert all(entry.about and entry.reference and entry.package == "caps" for entry in built_in)


@pytest.mark.parametrize("domain", ["code", "math", "general"])
def test_the_thinking_form_of_a_profile_differs_in_its_partial_view_only(domain):
    plain, thinking = profile_named(domain), profile_named(f"{domain}-thinking")
    assert with_views(plain, {"partial": "thinking"}) == Profile(
        domain, thinking.signature, thinking.partial, thinking.full
    )


@pytest.mark.parametrize("name", DOMAINS.table)
def test_every_domain_prefers_the_clusters_of_the_findings_if_asked_to(name):
    alike = [Candidate(text, found=Found(cluster="c")) for text in ("\\boxed{1/2}", "\\boxed{0.5}")]
    without = [
        Candidate(text, found=Found()) for text in ("```python\nx = 1\n```", "```python\nx  =  1\n```")
    ]
    plain = profile_for(name)
    merged = with_views(plain, {"signature": "clusters"})
    assert signature_of(merged)(alike[0]) == signature_of(merged)(alike[1]) == "c"
    assert signature_of(plain)(alike[0]) != "c"
    assert list(map(signature_of(merged), without)) == list(map(signature_of(plain), without))
    assert with_views(merged, {"signature": "math-final"}) == replace(plain, signature="math-final")


def test_an_unknown_slot_or_name_is_answered_with_what_there_is():
    for changes, message in (
        ({"partail": "thinking"}, r"no slot 'partail': did you mean 'partial'\? .*signature, partial, full"),
        ({"name": "x"}, "no slot 'name'"),
        ({"partial": "code-sumary"}, r"no view is called 'code-sumary': did you mean 'code-summary'\?"),
        ({"signature": "full"}, "no signature is called 'full'"),
    ):
        with pytest.raises(SettingError, match=message):
            with_views(profile_named("code"), changes)


def test_a_dotted_path_will_do_for_a_view():
    profile = with_views(profile_named("code"), {"full": "caps.evidence.views:code_only"})
    assert view_named(profile.full)(Candidate("```\nx\n```")) == "x"


def test_a_path_to_something_else_is_refused():
    with pytest.raises(SettingError, match="not a view"):
        with_views(profile_named("code"), {"full": "caps.evidence.views:CODE_CUT"})
    with pytest.raises(SettingError, match="not a profile"):
        profile_named("caps.evidence.views:full")
