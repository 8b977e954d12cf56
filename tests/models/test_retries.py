from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps.models.faults import Attempts, Retries, retry_after

NOW = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": "Fri, 15 Jan 2027 08:00:30 GMT"}, 30.0),
        ({"Retry-After": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "inf"}, None),
        ({"retry-after-ms": "250", "Retry-After": "1"}, 0.25),
    ],
)
def test_a_wish_to_wait_is_read_as_seconds_or_date(headers, seconds):
    assert retry_after(headers, NOW) == seconds


def pauses(tries, *, count=50, loading=False, known=True, asked=None, now=0.0):
    """Pauses until the tries end."""
    found = []
    while len(found) < count:
        pause = tries.pause(loading=loading, known=known, asked=asked, now=now)
        if pause is None:
            break
        found.append(pause)
    return found


@given(st.integers(0, 8), st.integers())
def test_waits_are_bounded_and_as_many_as_allowed(most, seed):
    found = pauses(Attempts(Retries(most=most, first=1.0, longest=8.0), Random(seed)))
    assert len(found) == most
    assert all(0 <= pause <= min(8.0, 2.0**i) for i, pause in enumerate(found))


def test_at_least_what_the_server_asks_for_is_waited():
    assert all(3 <= pause <= 4 for pause in pauses(Attempts(Retries(), Random(1)), asked=3.0))
    assert pauses(Attempts(Retries(max_retry_after=2), Random(1)), asked=3.0) == []


def test_an_address_that_never_answered_is_given_up_sooner():
    assert len(pauses(Attempts(Retries(most=5, most_unknown=1), Random(1)), known=False)) == 1


def test_a_loading_server_is_polled_until_patience_ends():
    tries = Attempts(Retries(most=0, loading=10), Random(1))
    assert pauses(tries, loading=True, count=5, now=100.0) == [1.0] * 5
    assert pauses(tries, loading=True, count=5, now=109.9) == [1.0] * 5
    assert pauses(tries, loading=True, now=110.0) == []
