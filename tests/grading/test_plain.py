"""Plain data survives the way to another process; hostile bytes are refused and nothing else."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caps.grading.results import comparison_key, read_value, render
from caps.sandbox.inside.plain import NotPlainError, UnreadableError, decode, encode

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.complex_numbers(allow_nan=False),
)
hashable = st.recursive(
    scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5
)
values = st.recursive(
    hashable,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(hashable, inner, max_size=3)
        | st.sets(hashable, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=60)
@given(values)
def test_a_value_arrives_as_it_was(value):
    found = decode(encode(value))
    assert found == value
    assert type(found) is type(value)
    inert = read_value(encode(value))
    assert render(inert) == render(read_value(encode(found)))
    assert comparison_key(inert) == comparison_key(read_value(encode(found)))


class Sly:
    """What a candidate could define to decide a comparison, or to run code where its result is read."""

    def __repr__(self):
        raise AssertionError("called")

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0

    def __reduce__(self):
        return print, ("called",)


def test_subclasses_arrive_as_their_base_type_without_methods_of_the_sender():
    for value in (3, 0.5, "text", (1, 2), [1, 2], {1: 2}, {1, 2}, frozenset({1}), b"ab", bytearray(b"ab")):
        kind = type(value)
        sly = type("Sly", (Sly, kind), {})(value)
        arrived = decode(encode([sly]))[0]
        assert type(arrived) is kind
        assert arrived == value


def test_kinds_of_values_stay_apart():
    values = [True, 1, 1.0, (1,), [1], {1}, frozenset({1}), {1: 1}, {"1": 1}, "1", b"1", None, 1 + 0j]
    arrived = decode(encode(values))
    assert list(map(type, arrived)) == list(map(type, values))
    assert arrived == values
    assert list(map(type, arrived[7])) == [int]
    assert list(decode(encode(x for x in "ab"))) == ["a", "b"]
    assert decode(encode(range(1, 9, 3))) == range(1, 9, 3)
    assert decode(encode({1: 2}.keys())) == {1}
    assert math.isnan(decode(encode(math.nan)))
    assert decode(encode([math.inf, -math.inf, -0.0])) == [math.inf, -math.inf, 0.0]
    assert decode(encode([10**6000, -(10**6000)])) == [10**6000, -(10**6000)]
    assert decode(encode("\ud800 \0 é")) == "\ud800 \0 é"


def test_what_is_not_plain_data_does_not_pass():
    for value in (print, object(), Sly(), type, len):
        with pytest.raises(NotPlainError):
            encode([value])
    with pytest.raises(UnreadableError, match="nested"):
        decode(b'["list",' * 300 + b"null" + b"]" * 300)
    for data in (b"{}", b"NaN", b"-Infinity", b"[]", b"[1]", b'["object", 3, 4]', "é".encode(), b'["list"'):
        with pytest.raises(UnreadableError):
            decode(data)
