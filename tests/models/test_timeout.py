import asyncio
from time import perf_counter, sleep

import pytest

from caps.models.limits import SharedTimeout


async def stay(timeout, seconds=60.0):
    with timeout:
        await asyncio.sleep(seconds)
    return "done"


async def test_who_is_quick_enough_is_let_be_and_who_is_not_is_broken_off():
    timeout, began = SharedTimeout(0.1), perf_counter()
    outcomes = await asyncio.gather(
        stay(timeout, 0), stay(timeout), stay(timeout, 0.01), stay(timeout), return_exceptions=True
    )
    assert 0.1 <= perf_counter() - began < 30
    assert [outcome if outcome == "done" else type(outcome) for outcome in outcomes] == [
        "done",
        TimeoutError,
        "done",
        TimeoutError,
    ]


def test_everyone_has_the_whole_time_whenever_they_come():
    async def late(timeout, delay):
        await asyncio.sleep(delay)
        began = perf_counter()
        with pytest.raises(TimeoutError):
            await stay(timeout)
        return perf_counter() - began

    async def run():
        timeout = SharedTimeout(0.2)
        return await asyncio.gather(*(late(timeout, delay) for delay in (0, 0.05, 0.15, 0.4)))

    assert all(taken >= 0.19 for taken in asyncio.run(run()))


async def test_a_task_goes_on_after_it_was_broken_off():
    timeout = SharedTimeout(0.05)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await stay(timeout)
    assert asyncio.current_task().cancelling() == 0
    assert await stay(timeout, 0) == "done"


async def test_whoever_else_cancels_is_heard():
    timeout = SharedTimeout(0.05)
    early, both = asyncio.create_task(stay(SharedTimeout(60))), asyncio.create_task(stay(timeout))
    await asyncio.sleep(0)
    early.cancel()
    # In the very moment its time is over, someone cancels it too: that is the stronger.
    asyncio.get_running_loop().call_later(0.05, both.cancel)
    sleep(0.15)  # the loop stands still, so both have happened when the task is next heard
    await asyncio.wait([early, both])
    early, both = early.cancelled(), both.cancelled()
    assert early
    assert both


async def test_what_is_raised_inside_comes_out_as_it_is():
    with pytest.raises(ValueError, match="mine"), SharedTimeout(60):
        raise ValueError("mine")


def test_it_serves_in_one_event_loop_after_the_other():
    timeout = SharedTimeout(0.05)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            asyncio.run(stay(timeout))
        assert asyncio.run(stay(timeout, 0)) == "done"
