import asyncio

import pytest

from caps.core.errors import UnreachableError
from caps.models import fleet_servers
from caps.models.fleet_servers import FleetServer, HealthPolicy, ServerQueue
from caps.models.http import HttpModel


def servers(count, connections=1, **more):
    made = [HttpModel(f"http://{name}/v1", connections=connections) for name in "abcdefgh"[:count]]
    return [FleetServer(model, 1.0, HealthPolicy(), **{"allow_queueing": False, **more}) for model in made]


async def settled():
    for _ in range(3):
        await asyncio.sleep(0)


def played(work, count=2, **more):
    """Do some work with a line and its servers."""

    async def run():
        made = servers(count, **more)
        return await work(ServerQueue(made, lambda: 0.0), *made)

    return asyncio.run(run())


def test_a_slot_goes_to_who_prefers_it_before_who_came_first():
    async def work(queue, a, b):
        assert await queue.acquire([a, b], b"first") is a
        assert await queue.acquire([b, a], b"second") is b
        waiting = [asyncio.ensure_future(queue.acquire(order, group)) for order, group in [
            ([a, b], b"first"), ([b, a], b"second"),
        ]]  # fmt: skip
        await settled()
        queue.release(b)
        await settled()
        return [turn.done() for turn in waiting], waiting[1].result() is b

    assert played(work) == ([False, True], True)


def test_a_group_stays_where_its_first_call_found_room():
    async def work(queue, a, b):
        for _ in range(2):
            await queue.acquire([a, b], b"others")
        assert await queue.acquire([a, b], b"spilled") is b
        queue.release(a)
        return await queue.acquire([a, b], b"spilled") is b

    assert played(work, connections=2)


def test_a_slot_that_nobody_prefers_goes_to_a_group_without_a_home():
    async def work(queue, a, b):
        await queue.acquire([a, b], b"at home")
        await queue.acquire([b, a], b"others")
        old = asyncio.ensure_future(queue.acquire([a, b], b"at home"))
        new = asyncio.ensure_future(queue.acquire([a, b], b"new"))
        await settled()
        queue.release(b)
        await settled()
        return old.done(), new.result() is b

    assert played(work) == (False, True)


def test_nobody_is_passed_by_for_ever(monkeypatch):
    monkeypatch.setattr(fleet_servers, "MAX_OVERTAKEN", 5)

    async def work(queue, a, b):
        await queue.acquire([a, b], b"slow")
        await queue.acquire([b, a], b"quick")
        patient = asyncio.ensure_future(queue.acquire([a, b], b"slow"))
        for overtakers in range(20):
            other = asyncio.ensure_future(queue.acquire([b, a], b"quick"))
            await settled()
            queue.release(b)
            await settled()
            if patient.done():
                other.cancel()
                return overtakers
            assert other.done()
        return None

    assert played(work) == 5


def test_a_cancelled_call_loses_no_slot_also_in_the_moment_it_gets_one():
    async def work(queue, a):
        await queue.acquire([a])
        leaving, staying = (asyncio.ensure_future(queue.acquire([a])) for _ in range(2))
        await settled()
        queue.release(a)  # now `leaving` has it, and does not know yet
        leaving.cancel()
        await settled()
        return leaving.cancelled(), staying.result() is a, a.load

    assert played(work, count=1) == (True, True, 1)


def test_one_call_may_wait_at_a_gate_that_finds_its_own_limit():
    async def work(queue, a, b):
        first = [await queue.acquire([a, b], b"group") for _ in range(6)]
        return first.count(a), first.count(b)

    assert played(work, connections="auto", allow_queueing=True) == (5, 1)


def test_who_waits_is_sent_away_when_nobody_is_left():
    async def work(queue, a):
        await queue.acquire([a])
        waiting = asyncio.ensure_future(queue.acquire([a]))
        await settled()
        queue.reject_all(lambda: UnreachableError("nobody"))
        with pytest.raises(UnreachableError):
            await waiting
        return a.load

    assert played(work, count=1) == 1


def test_who_failed_a_call_does_not_get_it_again_while_another_is_awake():
    async def work(queue, a, b):
        await queue.acquire([b, a], b"others")
        again = asyncio.ensure_future(queue.acquire([a, b], b"group", failed={a}))
        await settled()
        waited = not again.done()
        b.record_failure(UnreachableError("gone"), 0.0)
        queue.dispatch()
        return waited, await again is a

    assert played(work) == (True, True)
