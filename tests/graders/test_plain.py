"""Plain data survives the way to another process; hostile bytes are refused and nothing else."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caps.graders.results import read_value, render, sort_key
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
    assert sort_key(inert) == sort_key(read_value(encode(found)))


@settings(max_examples=100)
@given(st.binary(max_size=40) | st.text("NTFifks;:ltedzbacrIKVMDQ0123-", max_size=30).map(str.encode))
def test_hostile_bytes_raise_nothing_else(data):
    try:
        found = decode(data)
    except UnreadableError:
        return
    encoded = encode(found)
    assert render(read_value(encode(decode(encoded)))) == render(read_value(encoded)), (
        "a value like any other"
    )


def test_what_has_a_mind_of_its_own_arrives_without_it():
    class Sly(int):
        def __eq__(self, other):
            return True

        __hash__ = int.__hash__

    assert type(decode(encode(Sly(3)))) is int
    assert decode(encode([Sly(3)])) != [4]
    assert list(decode(encode(x for x in "ab"))) == ["a", "b"]
    assert decode(encode(range(1, 9, 3))) == range(1, 9, 3)
    assert decode(encode({1: 2}.keys())) == {1}
    assert math.isnan(decode(encode(math.nan)))
    assert decode(encode(10**6000)) == 10**6000


def test_functions_and_towers_of_lists_do_not_pass():
    with pytest.raises(NotPlainError):
        encode(print)
    with pytest.raises(UnreadableError, match="nested"):
        decode(b"l1:" * 300 + b"N")
