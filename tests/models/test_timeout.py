import asyncio

import pytest

from caps.models.limits import SharedTimeout
from support.waiting import skip

SECONDS, FOREVER = 100.0, 10_000.0


async def stay(timeout, seconds=FOREVER):
    with timeout:
        await asyncio.sleep(seconds)
    return "done"


async def test_who_is_quick_enough_is_let_be_and_who_is_not_is_broken_off():
    timeout = SharedTimeout(SECONDS)
    seconds = (0, FOREVER, 0, FOREVER)
    staying = asyncio.gather(*(stay(timeout, each) for each in seconds), return_exceptions=True)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    skip(SECONDS)
    outcomes = [outcome if outcome == "done" else type(outcome) for outcome in await staying]
    assert outcomes == ["done", TimeoutError, "done", TimeoutError]


async def test_everyone_has_the_whole_time_whenever_they_come():
    timeout, loop = SharedTimeout(SECONDS), asyncio.get_running_loop()

    async def late():
        began = loop.time()
        with pytest.raises(TimeoutError):
            await stay(timeout)
        return loop.time() - began

    staying = []
    for _ in range(4):
        staying.append(asyncio.create_task(late()))
        await asyncio.sleep(0)
        skip(0.6 * SECONDS)
        await asyncio.sleep(0)
    skip(SECONDS)
    assert all(taken >= SECONDS for taken in await asyncio.gather(*staying))


async def test_a_task_goes_on_after_it_was_broken_off():
    timeout = SharedTimeout(0.05)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await stay(timeout)
    assert asyncio.current_task().cancelling() == 0
    assert await stay(timeout, 0) == "done"


async def test_whoever_else_cancels_is_heard():
    early = asyncio.create_task(stay(SharedTimeout(FOREVER)))
    both = asyncio.create_task(stay(SharedTimeout(SECONDS)))
    await asyncio.sleep(0)
    early.cancel()
    # In the very moment its time is over, someone cancels it too: that is the stronger.
    asyncio.get_running_loop().call_later(SECONDS, both.cancel)
    skip(2 * SECONDS)
    await asyncio.wait([early, both])
    assert early.cancelled()
    assert both.cancelled()


async def test_what_is_raised_inside_comes_out_as_it_is():
    with pytest.raises(ValueError, match="mine"), SharedTimeout(60):
        raise ValueError("mine")


def test_it_serves_in_one_event_loop_after_the_other():
    timeout = SharedTimeout(0.05)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            asyncio.run(stay(timeout))
        assert asyncio.run(stay(timeout, 0)) == "done"
