from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from caps.core.text import estimate_tokens
from caps.core.types import Candidate, Case, Level, Problem
from caps.evidence.entrants import describe
from caps.evidence.profiles import profile_named

LONG = Candidate("step " * 900 + "\\boxed{4}", score=0.5, logprob=-3.0)
SHORT = Candidate("It is \\boxed{4}.", score=0.25)
MUTE = Candidate("")
CASE = Case("sum", Problem.of("2 + 2?"), (LONG, SHORT, MUTE), "math")
MATH = profile_named("math")


def test_an_entrant_is_a_signature_sizes_and_named_numbers():
    long, short, mute = describe(CASE, MATH, estimate_tokens).entrants
    assert [long.id, short.id, mute.id] == [0, 1, 2]
    assert [long.signature, short.signature, mute.signature] == ["4", "4", None]
    assert dict(long.features) == {"score": 0.5, "logprob": -3.0}
    assert dict(short.features) == {"score": 0.25}
    assert dict(mute.features) == {}


def test_sizes_are_counts_of_the_views():
    evidence = describe(CASE, MATH, len)
    for entrant in evidence.entrants:
        partial, full = evidence.view(entrant.id, Level.PARTIAL), evidence.view(entrant.id, Level.FULL)
        assert entrant.sizes == (0, len(partial), len(full))
    assert evidence.entrants[0].sizes[1] < evidence.entrants[0].sizes[2]


def test_the_profile_decides_what_is_seen():
    evidence = describe(CASE, MATH, estimate_tokens)
    assert evidence.view(0, Level.FULL) == LONG.text
    assert "[...reasoning truncated...]" in evidence.view(0, Level.PARTIAL)
    assert evidence.view(0, Level.SIGNATURE) == "4"
    assert evidence.view(2, Level.SIGNATURE) == ""
    everything = describe(CASE, replace(MATH, partial="full"), estimate_tokens)
    assert everything.view(0, Level.PARTIAL) == LONG.text


def test_each_view_is_counted_once():
    counted = []
    describe(CASE, MATH, lambda text: counted.append(text) or 1)
    assert len(counted) == len({*counted}) == 4, "two views of the long one, one of the others"


def test_equal_candidates_are_read_once():
    counted = []
    twice = replace(CASE, candidates=(LONG, SHORT, LONG))
    evidence = describe(twice, MATH, lambda text: counted.append(text) or len(text))
    assert len(counted) == 3
    first, _, again = evidence.entrants
    assert again == replace(first, id=2)
    assert evidence.view(2, Level.PARTIAL) == evidence.view(0, Level.PARTIAL) != LONG.text


def test_a_partial_view_is_never_longer_than_the_full_one_of_its_profile():
    code = Candidate("A long plan before it.\n```\nx = 1\n```")
    profile = replace(profile_named("code"), full="code-only")
    evidence = describe(Case("c", Problem.of("?"), (code,), "code"), profile, len)
    assert evidence.view(0, Level.PARTIAL) == evidence.view(0, Level.FULL) == "x = 1"


@given(st.text())
def test_an_estimate_is_four_characters_a_token_rounded_up(text):
    assert 4 * estimate_tokens(text) - len(text) in range(4)
