import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from caps.core.errors import SettingError
from caps.core.types import Message
from caps.journal.records import prompt_digest, request_key
from caps.models.base import Request

texts = st.text(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
LISTED = {
    "model": texts,
    "template": texts,
    "messages": st.lists(st.builds(Message, texts, texts), max_size=3).map(tuple),
    "temperature": st.floats(0, 2),
    "top_p": st.none() | st.floats(0, 1),
    "max_tokens": st.integers(1, 10**6),
    "seed": st.none() | st.integers(-(2**40), 2**40),
    "top_logprobs": st.integers(0, 20),
    "draw": st.integers(0, 99),
    "attempt": st.integers(0, 9),
    "extra": st.dictionaries(texts, values, max_size=3),
}
requests = st.fixed_dictionaries(LISTED).map(lambda made: Request(**made))


def test_every_field_of_a_request_that_may_change_a_reply_is_in_the_list():
    assert {field.name for field in fields(Request)} - {"group", "cache_at"} == set(LISTED)


@given(requests, requests, st.sampled_from(sorted(LISTED)))
def test_keys_differ_when_any_listed_field_differs(request, other, name):
    changed = replace(request, **{name: getattr(other, name)})
    same = repr(getattr(request, name)) == repr(getattr(changed, name))
    assert (request_key(request) == request_key(changed)) == (same or request == changed)


@given(requests, st.randoms())
def test_keys_do_not_depend_on_how_a_request_was_written(request, rng):
    def shuffled(value):
        if not isinstance(value, dict):
            return value
        items = [(name, shuffled(inner)) for name, inner in value.items()]
        rng.shuffle(items)
        return dict(items)

    again = replace(request, extra=shuffled(request.extra), messages=tuple(request.messages))
    assert request_key(request) == request_key(again)
    assert request_key(request, digest=prompt_digest(request.messages)) == request_key(request)


def test_keys_do_not_depend_on_who_sends_the_request():
    class FromElsewhere(Request):
        base_url, api_key, connections = "http://other", "sk-other", 7

    ask = ((Message("user", "q"),), "m")
    assert request_key(FromElsewhere(*ask)) == request_key(Request(*ask))


def test_whole_and_broken_numbers_of_one_value_are_one():
    ask = Request((), "m", temperature=0.0, top_p=1.0)
    assert request_key(ask) == request_key(replace(ask, temperature=0, top_p=1))


def test_the_key_of_version_1_stays_what_it_is():
    ask = Request(
        (Message("system", "be brief"), Message("user", "é?")), "m", "pairwise-e1", extra={"b": 1, "a": [2]}
    )
    assert request_key(ask) == "683d561ae19ecdc43d3ea391b07966fb2a58033c9a7ce8964d695def7def5822"


def test_messages_that_run_together_do_not_share_a_digest():
    assert prompt_digest([Message("user", "ab")]) != prompt_digest([Message("usera", "b")])
    assert prompt_digest([Message("a", "b"), Message("c", "d")]) != prompt_digest([Message("a", "b1:c1:d")])


def test_half_a_surrogate_pair_has_a_key():
    assert request_key(Request((Message("user", "\ud800"),), "m")) != request_key(
        Request((Message("user", "?"),), "m")
    )


def test_an_extra_that_is_no_json_is_refused():
    with pytest.raises(SettingError, match="JSON"):
        request_key(Request((), "m", extra={"x": object()}))
