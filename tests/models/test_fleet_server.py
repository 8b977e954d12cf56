from dataclasses import replace

import pytest

from caps.core.errors import (
    AccessError,
    BrokenServerError,
    BusyError,
    GarbledError,
    RefusedError,
    TimedOutError,
    TooLongError,
    UnknownModelError,
    UnreachableError,
)
from caps.models.fleet_servers import FleetServer, HealthPolicy
from caps.models.http import HttpModel

CARE = HealthPolicy(streak=3, trial=2, first=1.0, longest=8.0, rest=0.5, max_retry_after=100.0)


def server(connections=10):
    return FleetServer(HttpModel("http://a/v1", connections=connections), 1.0, CARE, allow_queueing=False)


@pytest.mark.parametrize("error", [UnreachableError("x"), AccessError("x"), UnknownModelError("x")])
def test_one_that_is_gone_is_out_at_once(error):
    one = server()
    assert one.record_failure(error, 5.0) is None
    assert one.out
    assert (one.limit, one.is_available(5.0)) == (0, False)


@pytest.mark.parametrize("kind", [BrokenServerError, TimedOutError, GarbledError])
def test_failures_in_a_row_take_it_out_and_a_good_call_between_them_does_not(kind):
    one = server()
    for _ in range(2):
        one.record_failure(kind("x", attempts=1), 0.0)
        one.record_failure(kind("x", attempts=1), 0.0)
        assert not one.out
        one.record_success()
    for _ in range(3):
        one.record_failure(kind("x", attempts=1), 0.0)
    assert one.out
    assert one.record(2.5).seconds_out == 2.5


@pytest.mark.parametrize("error", [TooLongError("x"), RefusedError("x")])
def test_what_is_wrong_with_a_request_is_no_fault_of_the_server(error):
    one = server()
    for _ in range(9):
        one.record_failure(error, 0.0)
    assert not one.out
    assert one.record(0.0).failed == 0


def test_a_busy_one_rests_as_long_as_it_asks_and_is_not_out():
    one = server()
    one.load = 3
    assert one.record_failure(BusyError("x", wait=4.0), 10.0) == 4.0
    assert not one.has_capacity(13.9)
    assert one.has_capacity(14.0)
    assert one.load == 3, "what it has goes on"
    assert one.record(14.0).outs == 0


def test_rests_that_were_not_asked_for_grow_until_a_call_goes_well():
    one = server()
    assert one.record_failure(BusyError("x"), 0.0) == 0.5
    assert one.record_failure(BusyError("x"), 0.1) is None, "of those sent away at once one speaks for all"
    assert one.record_failure(BusyError("x"), 1.0) == 1.0
    assert one.record_failure(BusyError("x"), 2.0) == 2.0
    one.record_success()
    assert one.record_failure(BusyError("x"), 9.0) == 0.5


def test_one_that_asks_for_more_than_we_obey_is_out():
    one = server()
    one.record_failure(BusyError("x", wait=101.0), 0.0)
    assert one.out
    assert one.pause == 101.0


def test_back_again_it_is_on_trial_until_a_call_goes_well():
    one = server()
    one.record_failure(UnreachableError("x"), 0.0)
    assert one.readmit(3.0) == 3.0
    assert one.limit == 2
    one.record_failure(BrokenServerError("x", attempts=1), 3.0)
    assert one.out, "one failure is enough"
    one.readmit(5.0)
    one.record_success()
    assert one.limit == 10
    assert replace(one.record(9.0), problem="") == one.record(9.0).__class__(
        "http://a/v1", 1.0, calls=1, failed=2, outs=2, seconds_out=5.0, out=False, problem=""
    )


def test_pauses_between_looks_grow_also_when_it_comes_back_only_to_fail():
    one = server()
    one.record_failure(UnreachableError("x"), 0.0)
    pauses = []
    for _ in range(3):
        pauses.append(one.pause)
        one.record_failed_check()
    one.readmit(0.0)
    one.record_failure(UnknownModelError("x"), 0.0)
    pauses.append(one.pause)
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    one.readmit(0.0)
    one.record_success()
    assert one.pause == 1.0
