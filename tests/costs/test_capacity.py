import pytest

from caps.costs.capacity import (
    CALL_SECONDS,
    CHARACTER_SECONDS,
    JOURNAL_ROWS,
    REPLAY_SECONDS,
    Bound,
    Fleet,
    Load,
    scale_load,
)

LOAD = Load(calls=1_000, tokens=1_000_000, output=400_000, rounds=3)


def test_gpus_read_then_write_and_share_the_work():
    fleet = Fleet(read_rate=1000, write_rate=100, gpus=2)
    assert fleet.gpu_seconds(LOAD) == 1_000 + 4_000
    assert fleet.live(LOAD) == Bound(2_500, "GPUs")


def test_one_rate_is_for_what_is_read_and_written():
    assert Fleet(read_rate=1000).gpu_seconds(LOAD) == 1_400


def test_more_connections_help_until_the_rounds_are_waited_for():
    assert Fleet(latency=10, connections=10).live(LOAD) == Bound(1_000, "connections")
    assert Fleet(latency=10, connections=10).live(LOAD, processes=20) == Bound(50, "connections")
    assert Fleet(latency=10, connections=10_000).live(LOAD) == Bound(30, "rounds")


def test_where_nothing_else_is_known_our_own_work_is_left_and_then_the_journal():
    ours = 1_000 * CALL_SECONDS + 4_000_000 * CHARACTER_SECONDS
    assert Fleet().live(LOAD) == Bound(pytest.approx(ours), "our own work")
    assert Fleet().live(LOAD, processes=2).seconds == pytest.approx(ours / 2)
    assert Fleet().live(LOAD, processes=10_000) == Bound(1_000 / JOURNAL_ROWS, "journal")
    assert Fleet(calls_rate=10).live(LOAD) == Bound(100, "our own work")


def test_a_batch_takes_a_trip_a_round_however_many_gpus_there_are():
    bound = Fleet(read_rate=1, gpus=1).batch(LOAD, hours=24)
    assert bound.seconds == pytest.approx(3 * 86_400 + 3_000 * REPLAY_SECONDS)
    assert bound.by == "trips"


def test_more_problems_are_more_calls_but_not_more_rounds():
    assert scale_load(LOAD, 10) == Load(10_000, 10_000_000, 4_000_000, 3)
    assert LOAD.journal_bytes > 4 * LOAD.output
    assert LOAD.network_bytes == 4 * 1_400_000
