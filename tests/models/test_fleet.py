import asyncio
import time
from collections import Counter
from dataclasses import replace

import pytest

from caps.core.errors import BusyError, ModelError, RefusedError, SettingError, UnreachableError
from caps.models.base import ConnectOptions
from caps.models.discovery import connect
from caps.models.fleet import FleetModel, rank
from caps.models.http import Timeouts
from caps.testing import Half, Hang, Raw, Reply, Reset, ScriptedEndpoint, Status
from models.fleets import CARE, FINE, ask, complete, said, with_fleet
from waiting import until

NOBODY = "http://127.0.0.1:9/v1"  # the port of `discard`, where no server listens


def test_calls_of_a_group_meet_at_one_server_while_that_has_room():
    asks = [ask(f"problem {i % 12}", text=f"problem {i % 12}") for i in range(72)]
    with ScriptedEndpoint([FINE]) as one, ScriptedEndpoint([FINE]) as other:
        complete(one, other, requests=asks, connections=64)
        mine, theirs = Counter(said(one)), Counter(said(other))
    assert not mine.keys() & theirs.keys()
    assert set((mine + theirs).values()) == {6}


def test_a_group_that_nobody_names_is_how_a_request_begins():
    asks = [ask(text=f"question {i % 6}", seed=i) for i in range(24)]
    with ScriptedEndpoint([FINE]) as one, ScriptedEndpoint([FINE]) as other:
        complete(one, other, requests=asks, connections=64)
        assert one.requests + other.requests == 24
        assert not set(said(one)) & set(said(other))


def test_what_does_not_fit_goes_on_to_the_next_server_at_once():
    all_there = Reply(until=lambda: one.requests + other.requests == 4)
    with ScriptedEndpoint([all_there]) as one, ScriptedEndpoint([all_there]) as other:
        complete(one, other, requests=[ask("one problem")] * 4, connections=2)
        assert (one.peak, other.peak) == (2, 2)


def test_weights_share_the_groups_out():
    with ScriptedEndpoint([FINE]) as one, ScriptedEndpoint([FINE]) as other:
        asks = [ask(f"problem {i}") for i in range(200)]
        complete(one, f"{other.url}=3", requests=asks, connections=200)
        assert 25 <= one.requests <= 75
        assert one.requests + other.requests == 200


@pytest.mark.parametrize("trouble", [Status(500, "oops"), Reset(), Half(), Raw(b"<html>"), Status(429)])
def test_a_call_that_fails_at_one_server_is_answered_by_the_next(trouble):
    with ScriptedEndpoint([trouble]) as bad, ScriptedEndpoint([FINE]) as good:
        got = complete(bad, good, requests=[ask(f"problem {i}") for i in range(8)])
        assert {one.text for one in got} == {"fine"}
        assert sum(one.attempts for one in got) == bad.requests + good.requests
        assert bad.requests >= 1


def test_a_call_that_nobody_took_was_not_billed():
    messages = []
    with ScriptedEndpoint([FINE]) as good:
        got = complete(NOBODY, good, requests=[ask(f"problem {i}") for i in range(8)], notify=messages.append)
    assert [one.attempts for one in got] == [1] * 8
    assert len(messages) == 1
    assert (
        "a server is out, its calls go to the others: no server answers at http://127.0.0.1:9/v1"
        in messages[0]
    )


def test_what_is_wrong_with_a_request_is_asked_once():
    with (
        ScriptedEndpoint([Status(400, "no such field")]) as one,
        ScriptedEndpoint([Status(400, "no such field")]) as two,
    ):
        with pytest.raises(RefusedError) as caught:
            complete(one, two)
        assert one.requests + two.requests == caught.value.attempts == 1


def test_a_server_that_hangs_is_left_for_another():
    with ScriptedEndpoint([Hang()]) as stuck, ScriptedEndpoint([FINE]) as good:
        asks = [ask(f"problem {i}") for i in range(12)]
        got = complete(stuck, good, requests=asks, timeouts=Timeouts(read=1.0))
        assert [one.text for one in got] == ["fine"] * 12
        assert 1 <= stuck.requests < 12, "it is out before all of them tried"


def test_too_many_requests_at_one_server_do_not_slow_the_other():
    def busy(body, number):
        return Status(429, headers={"Retry-After": "50"})

    with ScriptedEndpoint(busy) as strained, ScriptedEndpoint([FINE]) as good:
        started = time.perf_counter()
        got = complete(strained, good, requests=[ask(f"problem {i}") for i in range(40)], connections=4)
        assert time.perf_counter() - started < 45
        assert len(got) == 40
        assert 1 <= strained.requests <= 4, "it is left alone for as long as it asks"


def test_one_that_drains_finishes_what_it_has():
    def draining(body, number):
        last = Reply("last words", until=lambda: old.requests == 3)
        return Status(503, "going down", {"Retry-After": "60"}) if number else last

    async def work(model):
        home = next(
            f"problem {i}" for i in range(99) if model_first(model, f"problem {i}") is model.members[0]
        )
        calls = [model.complete(ask(home)) for _ in range(3)]
        return [one.text for one in await asyncio.gather(*calls)]

    with ScriptedEndpoint(draining) as old, ScriptedEndpoint([FINE]) as new:
        assert sorted(with_fleet(work, old, new)) == ["fine", "fine", "last words"]
        assert (old.requests, new.requests) == (3, 2)


def model_first(model: FleetModel, group: str):
    return rank(group.encode(), model._ranks)[0].model


def test_a_server_that_returns_is_given_calls_again():
    messages = []

    async def until_back(model):
        asks = [ask(f"problem {i}") for i in range(40)]
        with ScriptedEndpoint([FINE], port=port) as first:
            await asyncio.gather(*(model.complete(one) for one in asks))
            seen = first.requests
            assert model.connections == 16
        await asyncio.gather(*(model.complete(one) for one in asks))
        assert model.connections == 8, "the engine's room follows"
        with ScriptedEndpoint([FINE], port=port) as again:
            await until(lambda: any("is back" in words for words in messages))
            await model.complete(ask("problem 0"))
            for one in asks:
                await model.complete(one)
            assert again.requests >= 5
            assert model.connections == 16
        return seen, model.records()

    with ScriptedEndpoint() as gone:
        port = gone.port
    with ScriptedEndpoint([FINE]) as other:
        seen, records = with_fleet(
            until_back, f"http://127.0.0.1:{port}", other, notify=messages.append, connections=8
        )
    assert seen >= 5
    assert [record.outs for record in records] == [1, 0]
    assert not records[0].out
    assert records[0].seconds_out > 0
    assert ["out" in messages[0], "back" in messages[1]] == [True, True]


def test_one_that_lists_models_and_fails_every_call_is_tried_ever_more_rarely():
    async def work(model):
        for i in range(150):
            await model.complete(ask(f"problem {i}"))
            await asyncio.sleep(0.002)

    with ScriptedEndpoint([Status(500)]) as sick, ScriptedEndpoint([FINE]) as good:
        with_fleet(work, sick, good, health=replace(CARE, longest=60.0))
        assert 3 <= sick.requests <= 16
        assert good.requests == 150


def test_all_down_is_said_with_all_addresses():
    with ScriptedEndpoint() as gone:
        port = gone.port
    other = f"http://user:secret@127.0.0.1:{port}/v1"
    started = time.perf_counter()
    with pytest.raises(UnreachableError, match="none of the 2 servers is available") as caught:
        complete(NOBODY, other, requests=[ask(f"problem {i}") for i in range(9)])
    assert "http://127.0.0.1:9/v1" in str(caught.value)
    assert f"http://127.0.0.1:{port}/v1" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.attempts == 0
    assert time.perf_counter() - started < 30, "nobody is waited for"


def test_all_refusing_for_one_reason_is_that_reason():
    asks = [ask(f"problem {i}") for i in range(4)]
    with (
        ScriptedEndpoint([Status(503)]) as one,
        ScriptedEndpoint([Status(503)]) as two,
        pytest.raises(BusyError) as caught,
    ):
        complete(one, two, requests=asks)
    assert caught.value.attempts >= 6, "as patient as with one server"


def test_a_cancelled_call_gives_its_slot_back():
    async def work(model):
        calls = [asyncio.create_task(model.complete(ask("problem"))) for _ in range(6)]
        await until(lambda: one.busy == 2)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        return await model.complete(ask("another"))

    with ScriptedEndpoint([Hang(), Hang(), FINE]) as one:
        assert with_fleet(work, f"{one.url}=2", connections=2).text == "fine"


def test_many_calls_teach_every_server_its_own_limit():
    async def work(model):
        await asyncio.gather(*(model.complete(ask(f"problem {i // 8}")) for i in range(160)))

    with ScriptedEndpoint([Reply(delay=0.03)]) as one, ScriptedEndpoint([Reply(delay=0.03)]) as other:
        with_fleet(work, one, other)
        assert min(one.peak, other.peak) > 4, "both began with four"


def test_the_key_goes_to_every_listed_address_and_is_shown_nowhere():
    key = "sk-very-secret-0123456789"
    with ScriptedEndpoint([FINE]) as one, ScriptedEndpoint([FINE], api_key="another") as other:
        messages = []
        complete(
            one, other, requests=[ask(f"problem {i}") for i in range(8)], api_key=key, notify=messages.append
        )
        sent = {headers.get("Authorization") for server in (one, other) for headers in server.headers}
    assert sent == {f"Bearer {key}"}
    assert "refused the API key" in messages[0], "and who refuses it is out, not the run"
    assert key not in messages[0]


def test_addresses_of_a_fleet_make_one():
    made = connect(ConnectOptions(address="http://a:8000,http://u:pw@b:8000/v1=2?v=3", model="m"))
    assert isinstance(made, FleetModel)
    assert repr(made) == "FleetModel('http://a:8000/v1, http://b:8000/v1')"
    with pytest.raises(SettingError, match="must look like"):
        connect(ConnectOptions(address="http://a:8000,htp://b:8000", model="m"))


def test_where_it_was_out_is_forgotten_at_the_end():
    async def work(model):
        with pytest.raises(ModelError):
            await model.complete(ask())
        await model.close()
        with ScriptedEndpoint([FINE], port=port):
            return await model.complete(ask())

    with ScriptedEndpoint() as gone:
        port = gone.port
    assert with_fleet(work, f"http://127.0.0.1:{port}=1").text == "fine"
