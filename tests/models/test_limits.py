import asyncio
from random import Random

import pytest

from caps.models.limits import AutoGate, Gate, make_gate


def flood(gate, calls, latency, *, refused=lambda _: False):
    """Send calls through a gate at once; each takes `latency(busy)` seconds, or is `refused(arrived before it)`."""

    inside = 0

    async def call():
        nonlocal inside
        async with gate as ticket:
            inside += 1
            before, busy = inside, gate.busy
            await asyncio.sleep(0)
            inside -= 1
            if refused(before):
                gate.on_overload(ticket)
            else:
                gate.on_success(ticket, latency(busy))

    async def run():
        await asyncio.gather(*(call() for _ in range(calls)))

    asyncio.run(run())
    return gate.limit


async def test_those_who_wait_go_in_the_order_they_came():
    gate, order = Gate(2), []

    async def call(name):
        async with gate:
            order.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*(call(i) for i in range(20)))
    assert order == list(range(20))


@pytest.mark.parametrize("seed", range(20))
async def test_no_slot_is_lost_whoever_is_cancelled_when(seed):
    rng, gate, busy = Random(seed), Gate(3), []

    async def call():
        async with gate:
            busy.append(gate.busy)
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)

    tasks = [asyncio.create_task(call()) for _ in range(40)]
    while not all(task.done() for task in tasks):
        rng.choice(tasks).cancel()
        await asyncio.sleep(0)
    assert (gate.busy, max(busy)) == (0, 3)
    async with gate, gate, gate:
        assert gate.busy == 3


def test_auto_doubles_while_latency_stays():
    assert flood(AutoGate(most=64), 400, lambda _: 0.2) == 64


def test_auto_grows_past_slower_replies_as_long_as_more_come_per_second():
    assert flood(AutoGate(most=128), 3000, lambda busy: 0.1 * (1 + busy / 40)) == 128


def test_auto_stays_near_what_a_queueing_server_can_do():
    limits = []

    def queueing(busy):
        limits.append(busy)
        return 0.1 * max(1.0, busy / 16)

    flood(AutoGate(), 5000, queueing)
    assert min(limits[1000:]) >= 8
    assert max(limits[1000:]) <= 40


def test_auto_backs_off_when_refused_and_finds_the_edge():
    seen = []

    def refused(busy):
        seen.append(busy)
        return busy > 40

    limit = flood(AutoGate(), 5000, lambda _: 0.1, refused=refused)
    assert 36 <= limit <= 60
    assert sum(busy > 40 for busy in seen[500:]) < 0.15 * len(seen)


@pytest.mark.parametrize("seed", range(5))
def test_failures_that_do_not_come_from_the_load_cost_no_concurrency(seed):
    rng = Random(seed)
    assert flood(AutoGate(most=128), 6000, lambda _: 0.1, refused=lambda _: rng.random() < 0.08) >= 100


def test_failures_alone_do_not_push_the_limit_below_the_floor():
    gate = AutoGate()
    assert flood(gate, 500, lambda _: 0.1, refused=lambda _: True) == AutoGate.FLOOR
    assert flood(gate, 2000, lambda _: 0.1) > 64, "it recovers"


async def test_a_call_that_is_refused_again_and_again_shows_that_the_server_takes_only_one():
    gate = AutoGate()
    for _ in range(20):
        async with gate as ticket:
            gate.on_overload(ticket, 3)
            for _ in range(4):
                gate.on_success(ticket, 0.1)
    assert gate.limit == 1


def test_every_change_of_the_limit_is_logged_with_its_reason(caplog):
    with caplog.at_level("INFO", logger="caps.models.limits"):
        flood(make_gate("auto", "http://here/v1"), 3000, lambda _: 0.1, refused=lambda busy: busy > 16)
    assert caplog.messages[0] == (
        "concurrent calls to http://here/v1: 8, before 4: calls wait and the server keeps up"
    )
    assert any(message.endswith("the server is overloaded") for message in caplog.messages)


async def test_a_burst_of_refusals_halves_once():
    gate = AutoGate(start=32)
    tickets = [await gate.__aenter__() for _ in range(32)]
    for ticket in tickets:
        gate.on_overload(ticket)
    assert gate.limit == 16
    for _ in tickets:
        await gate.__aexit__(None, None, None)
    assert gate.busy == 0


async def test_auto_does_not_grow_unless_it_is_full():
    gate = AutoGate(start=4)
    for _ in range(200):
        async with gate as ticket:
            gate.on_success(ticket, 0.1)
    assert gate.limit == 4


def test_longer_calls_are_not_mistaken_for_strain_for_long():
    gate = AutoGate(most=64)
    flood(gate, 500, lambda _: 0.1)
    assert flood(gate, 2000, lambda _: 2.0) >= 32


def test_a_fixed_limit_stays():
    assert flood(make_gate(5), 100, lambda busy: busy, refused=lambda busy: busy % 2) == 5
