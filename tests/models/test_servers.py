"""Several servers of one model: which gets a call, and what follows when one fails."""

import asyncio
import subprocess
import sys
from collections import Counter

import pytest

from caps.core.errors import (
    AccessError,
    BusyError,
    RefusedError,
    SettingError,
    UnknownModelError,
    UnreachableError,
)
from caps.core.secrets import shown_address, split_addresses
from caps.models.base import ConnectOptions
from caps.models.endpoints import connect
from caps.models.faults import Retries
from caps.models.http import Timeouts
from caps.models.servers import ServersModel, join_addresses, prefix_of, prefix_of_body, rank
from caps.models.wire import encode_body
from caps.testing import Half, Hang, Raw, Reply, Reset, ScriptedEndpoint, Status
from support.several_servers import FINE, NOBODY, QUICK, ask, complete, said, with_servers
from support.waiting import reserved_port, until

A, B, C = (f"http://{name}:8000/v1" for name in "abc")
PREFIXES = [f"problem {i}".encode() for i in range(2000)]


def problems(count):
    return [ask(f"problem {i}") for i in range(count)]


# Addresses


def test_several_addresses_are_separated_by_commas_or_blanks():
    for text in (f"{A},{B}", f"{A} , {B},", f"{A}\n{B}", join_addresses([A, B])):
        assert split_addresses(text) == [A, B]
    assert split_addresses("http://c/a,b/v1") == ["http://c/a,b/v1"]
    assert split_addresses("") == []


def test_several_addresses_make_one_model_and_show_no_password():
    given = "http://a:8000,http://u:pw@b:8000/v1?v=3"
    assert repr(connect(ConnectOptions(address=given, model="m"))) == (
        "ServersModel('http://a:8000/v1, http://b:8000/v1')"
    )
    assert repr(connect(ConnectOptions(address=f"{A},{A}", model="m"))) == f"ServersModel('{A}')"
    assert "pw" not in shown_address(given)
    with pytest.raises(SettingError, match="must look like"):
        connect(ConnectOptions(address="http://a:8000,htp://b:8000", model="m"))


# Which server a call prefers


def test_every_server_is_preferred_by_its_share_and_one_that_leaves_moves_only_that():
    first_of_three = {prefix: rank(prefix, [A, B, C])[0] for prefix in PREFIXES}
    first_of_two = {prefix: rank(prefix, [A, B])[0] for prefix in PREFIXES}
    assert min(Counter(first_of_three.values()).values()) > 0.3 * len(PREFIXES)
    assert all(first_of_two[prefix] == first for prefix, first in first_of_three.items() if first != C)
    moved = Counter(first_of_two[prefix] for prefix, first in first_of_three.items() if first == C)
    assert min(moved.values()) > 0.4 * moved.total()


def test_another_process_prefers_the_same_order_whatever_the_order_of_the_list():
    code = f"from caps.models.servers import rank; print([rank(b'%d' % i, {[C, A, B]}) for i in range(50)])"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert there.strip() == str([rank(b"%d" % i, [A, B, C]) for i in range(50)])


def test_the_prefix_is_the_group_or_the_messages_up_to_the_first_of_the_user():
    assert prefix_of(ask("g", "one")) == prefix_of(ask("g", "other")) != prefix_of(ask("h", "one"))
    assert (
        prefix_of(ask(text="one", seed=1)) == prefix_of(ask(text="one", seed=2)) != prefix_of(ask(text="two"))
    )
    bodies = [encode_body(ask(text="one", seed=seed)) for seed in (1, 2)]
    assert bodies[0] != bodies[1]
    assert prefix_of_body(bodies[0]) == prefix_of_body(bodies[1])
    for odd in (b"", b"{", b'{"messages": 3}', b"[" * 9999, b'{"text_1": "a"}'):
        assert prefix_of_body(odd) == odd


def test_calls_of_a_problem_meet_at_one_server_while_that_has_room():
    asks = [ask(f"problem {i % 12}", text=f"problem {i % 12}") for i in range(72)]
    with ScriptedEndpoint([FINE]) as one, ScriptedEndpoint([FINE]) as other:
        complete(one, other, requests=asks, connections=72)  # ports decide who prefers which server
        mine, theirs = Counter(said(one)), Counter(said(other))
    assert not mine.keys() & theirs.keys()
    assert set((mine + theirs).values()) == {6}


def test_what_does_not_fit_goes_to_the_next_server_at_once():
    all_there = Reply(until=lambda: one.requests + other.requests == 4)
    with ScriptedEndpoint([all_there]) as one, ScriptedEndpoint([all_there]) as other:
        complete(one, other, requests=[ask("one problem")] * 4, connections=2)
        assert (one.peak, other.peak) == (2, 2)


def test_a_server_with_room_takes_the_call_that_prefers_it_before_an_older_one():
    async def work(model):
        of_first, of_second = (
            next(name for name in map(str, range(99)) if rank(name.encode(), addresses)[0] == address)
            for address in addresses
        )
        running = [asyncio.ensure_future(model.complete(ask(name, "run"))) for name in (of_first, of_second)]
        await until(lambda: first.busy == second.busy == 1)
        older = asyncio.ensure_future(model.complete(ask(of_first, "prefers the first")))
        newer = asyncio.ensure_future(model.complete(ask(of_second, "prefers the second")))
        await asyncio.sleep(0)
        open_second.append(True)
        await asyncio.gather(older, newer)
        open_first.append(True)
        await asyncio.gather(*running)
        return said(second)

    open_first, open_second = [], []
    with (
        ScriptedEndpoint([Reply(until=lambda: open_first), FINE]) as first,
        ScriptedEndpoint([Reply(until=lambda: open_second), FINE]) as second,
    ):
        addresses = [first.url, second.url]
        seen = with_servers(work, first, second, connections=1)
    assert seen == ["run", "prefers the second", "prefers the first"], "and it is never idle"


def test_the_limit_of_every_server_adapts():
    with ScriptedEndpoint([Reply(delay=0.03)]) as one, ScriptedEndpoint([Reply(delay=0.03)]) as other:
        complete(one, other, requests=[ask(f"problem {i // 8}") for i in range(160)])
        assert min(one.peak, other.peak) > 4, "both began with four"


def test_a_cancelled_call_gives_its_place_back_also_in_the_moment_it_gets_one():
    async def work(model):
        running = [asyncio.create_task(model.complete(ask(text="hang"))) for _ in range(2)]
        await until(lambda: server.busy == 2)
        leaving, staying = (asyncio.create_task(model.complete(ask())) for _ in range(2))
        await asyncio.sleep(0)
        running[0].cancel()
        await asyncio.wait([running[0]])  # now `leaving` has its place, and does not know yet
        leaving.cancel()
        assert (await staying).text == "fine"
        running[1].cancel()
        await asyncio.wait([running[1], leaving])
        return [done.text for done in await asyncio.gather(*(model.complete(ask()) for _ in range(4)))]

    def reply(body, _):
        return Hang() if body["messages"][0]["content"] == "hang" else FINE

    with ScriptedEndpoint(reply) as server:
        assert with_servers(work, server, connections=2) == ["fine"] * 4


# Servers that fail


@pytest.mark.parametrize("trouble", [Status(500, "oops"), Reset(), Half(), Raw(b"<html>"), Status(429)])
def test_a_call_that_fails_at_one_server_is_answered_by_the_next(trouble):
    with ScriptedEndpoint([trouble]) as bad, ScriptedEndpoint([FINE]) as good:
        got = complete(bad, good, requests=problems(8))
        assert {one.text for one in got} == {"fine"}
        assert sum(one.attempts for one in got) == bad.requests + good.requests
        assert bad.requests >= 1


def test_a_server_that_hangs_is_left_for_another():
    with ScriptedEndpoint([Hang()]) as stuck, ScriptedEndpoint([FINE]) as good:
        got = complete(stuck, good, requests=problems(24), timeouts=Timeouts(read=1.0), connections=2)
        assert [one.text for one in got] == ["fine"] * 24
        assert 1 <= stuck.requests <= 6, "it is out before all of them tried"


def test_a_server_that_asks_for_time_gets_no_calls_and_finishes_what_it_has():
    def draining(body, number):
        last = Reply("last words", until=lambda: old.requests == 3)
        return Status(503, "going down", {"Retry-After": "60"}) if number else last

    async def work(model):
        home = next(
            name for name in map(str, range(99)) if rank(name.encode(), [old.url, new.url])[0] == old.url
        )
        texts = [one.text for one in await asyncio.gather(*(model.complete(ask(home)) for _ in range(3)))]
        texts += [(await model.complete(ask(home))).text for _ in range(20)]
        return texts, model.connections

    with ScriptedEndpoint(draining) as old, ScriptedEndpoint([FINE]) as new:
        texts, connections = with_servers(work, old, new, connections=8)
        assert sorted(texts) == ["fine"] * 22 + ["last words"]
        assert (old.requests, new.requests) == (3, 22)
        assert connections == 8, "the engine's room follows"


def test_a_call_that_no_server_took_was_not_billed():
    messages = []
    with ScriptedEndpoint([FINE]) as good:
        got = complete(NOBODY, good, requests=problems(8), notify=messages.append)
    assert [one.attempts for one in got] == [1] * 8
    assert len(messages) == 1
    assert (
        f"a server is unavailable, its calls go to the others: no server answers at {NOBODY}" in messages[0]
    )


def test_a_server_of_another_model_or_that_refuses_the_key_is_out_and_named():
    key = "sk-very-secret-0123456789"
    with (
        ScriptedEndpoint([FINE]) as good,
        ScriptedEndpoint(models=("other",), check_model=True) as wrong,
        ScriptedEndpoint([FINE], api_key="another") as closed,
    ):
        messages = []
        got = complete(good, wrong, closed, requests=problems(24), api_key=key, notify=messages.append)
        sent = {
            headers.get("Authorization") for server in (good, wrong, closed) for headers in server.headers
        }
    assert {one.text for one in got} == {"fine"}
    assert sent == {f"Bearer {key}"}
    assert any(wrong.url in line and "it offers other" in line for line in messages)
    assert any(closed.url in line and "refused the API key" in line for line in messages)
    assert key not in str(messages)


def test_what_is_wrong_with_a_request_is_asked_once_and_no_fault_of_a_server():
    async def work(model):
        for _ in range(5):
            with pytest.raises(RefusedError) as caught:
                await model.complete(ask())
            assert caught.value.attempts == 1
        return model.records()

    with ScriptedEndpoint([Status(400, "no such field")]) as one, ScriptedEndpoint([Status(400)]) as two:
        records = with_servers(work, one, two)
        assert one.requests + two.requests == 5
    assert [(record.failed, record.out) for record in records] == [(0, False)] * 2


def test_a_server_that_returns_gets_calls_again():
    messages = []

    async def work(model):
        with ScriptedEndpoint([FINE], port=port) as first:
            await asyncio.gather(*map(model.complete, problems(40)))
            assert first.requests >= 5
            assert model.connections == 16
        await asyncio.gather(*map(model.complete, problems(40)))
        assert model.records()[0].out
        assert model.connections <= 9
        with ScriptedEndpoint([FINE], port=port) as again:
            while not any("is back" in line for line in messages):
                await asyncio.gather(*map(model.complete, problems(40)))
                await asyncio.sleep(0.01)
            await asyncio.gather(*map(model.complete, problems(40)))
            assert again.requests >= 5
            assert model.connections == 16
        return model.records()

    with reserved_port() as port, ScriptedEndpoint([FINE]) as other:
        back, _ = with_servers(work, f"http://127.0.0.1:{port}", other, notify=messages.append, connections=8)
    assert (back.out, back.failed > 0) == (False, True)
    assert back.problem
    assert "unavailable" in messages[0]


def test_a_server_that_fails_every_call_is_tried_ever_more_rarely():
    async def work(model):
        for _ in range(15):
            await asyncio.gather(*map(model.complete, problems(10)))
            await asyncio.sleep(0.02)

    with ScriptedEndpoint([Status(500)]) as sick, ScriptedEndpoint([FINE]) as good:
        with_servers(work, sick, good, retries=Retries(first=0.01, longest=60.0))
        assert 3 <= sick.requests <= 25
        assert good.requests == 150


def test_all_down_is_said_with_all_addresses():
    gone = Retries(most=0, first=60.0, longest=60.0)  # none is back before the last call has failed
    with reserved_port() as port:
        other = f"http://user:secret@127.0.0.1:{port}/v1"
        with pytest.raises(UnreachableError, match="none of the 2 servers is available") as caught:
            complete(NOBODY, other, requests=problems(9), retries=gone)
    assert NOBODY in str(caught.value)
    assert f"http://127.0.0.1:{port}/v1" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.attempts == 0


def test_calls_wait_for_the_first_server_that_returns_when_all_are_down():
    async def work(model):
        await asyncio.gather(*map(model.complete, problems(6)))
        first.__exit__()
        second.__exit__()
        calls = [asyncio.create_task(model.complete(one)) for one in problems(6)]
        await until(lambda: all(record.out for record in model.records()))
        with ScriptedEndpoint([FINE], port=port) as again:
            texts = [done.text for done in await asyncio.gather(*calls)]
            return texts, again.requests

    with (
        reserved_port() as port,
        ScriptedEndpoint([FINE]) as first,
        ScriptedEndpoint([FINE], port=port) as second,
    ):
        patient = Retries(most=200, first=0.01, longest=0.05)
        assert with_servers(work, first, second, retries=patient) == (["fine"] * 6, 6)


def test_all_failing_for_one_reason_is_that_reason():
    for trouble, kind, least in (
        (Status(503), BusyError, 6),
        (Status(401), AccessError, 2),
        (Status(404, "model not found"), UnknownModelError, 2),
    ):
        with ScriptedEndpoint([trouble]) as one, ScriptedEndpoint([trouble]) as two:
            with pytest.raises(kind) as caught:
                complete(one, two)
            assert one.requests + two.requests == caught.value.attempts
            assert least <= caught.value.attempts <= least + 1
            if least == 2:
                assert one.url in str(caught.value)
                assert two.url in str(caught.value)


def test_it_can_be_used_again_after_it_was_closed():
    async def use(model):
        done = await model.complete(ask())
        await model.close()
        return done.text

    with ScriptedEndpoint([FINE]) as server:
        model = ServersModel([server.url, NOBODY], retries=QUICK)
        assert [asyncio.run(use(model)) for _ in range(2)] == ["fine"] * 2
