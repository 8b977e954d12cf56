"""Through a Batch API, whatever happens on the way: the same selections, and nothing paid for twice."""

import asyncio
import json
import zlib
from contextlib import aclosing

import pytest
from aiohttp import web

from caps.config import RunConfig
from caps.core.errors import AccessError, BusyError, MissingFeatureError, RefusedError, SettingError
from caps.engines.base import CaseRun
from caps.engines.batch_carriers import batches_under_way
from caps.engines.local import fast_forward
from caps.journal.store import Journal
from caps.session.parts import make_strategy
from caps.session.resolve import resolve
from caps.session.session import open_session, replayed_judge
from caps.testing import Reply, ScriptedEndpoint, Status, better_quality_wins, cases
from support.batching import DROPPED, EXPIRED, GARBAGE, BatchServer, by_quality, to_the_end
from support.waiting import until

QUICK = {"poll": 0.01}
TOO_LONG = Status(
    400, {"error": {"message": "over the maximum context length", "code": "context_length_exceeded"}}
)


def setup_at(server, tmp_path, *, engine="batch", **more):
    usual = {
        "batch": QUICK,
        "max_tokens": 64,
        "journal": tmp_path / f"{engine}.sqlite",
        "hard_evidence": "off",
    }
    settings = {"model": "stub", "base_url": (server.url,), "engine": engine, "seed": 3, **usual, **more}
    return RunConfig(**settings)


async def played(setup, some, strategy="caps", messages=None, silent=None):
    """Selections, and what was asked, billed and went wrong, of each case."""
    async with open_session(resolve(setup)) as ready:
        if messages is not None:
            ready.engine.notices.on_progress = ready.engine.notices.on_warning = messages.append
        found = {}
        async with aclosing(ready.engine.run(some, make_strategy(strategy), seed=3)) as outcomes:
            async for outcome in outcomes:
                sums = outcome.ledger.total()
                troubles = (dict(outcome.ledger.malformed), dict(outcome.ledger.unanswered))
                if silent is not None:
                    silent |= {
                        (outcome.name, one.ask): one.ruling.unanswered
                        for one in outcome.judged
                        if one.ruling.unanswered
                    }
                found[outcome.name] = (outcome.selection, sums.asked, sums.billed, sums.attempts, troubles)
        return found


def play(*words, **more):
    return asyncio.run(played(*words, **more))


def moody(body, number=0):
    """Mostly right; by its content some requests get no verdict, some are cut, some are too long."""
    mood = zlib.crc32(json.dumps(body, sort_keys=True).encode()) % 12
    if "quality=" not in body["messages"][0]["content"]:
        return better_quality_wins(body)
    if mood == 0:
        return Reply("I cannot tell.")
    if mood == 1 and body["max_tokens"] < 200:
        return Reply("On the one hand", finish="length")
    if mood == 2 and not body.get("seed"):
        return TOO_LONG
    return better_quality_wins(body)


@pytest.mark.parametrize("strategy", ["caps-r", "v1-infer", "pointwise", "listwise"])
def test_batch_live_and_replay_select_the_same_in_the_same_words(tmp_path, strategy):
    some, silent = cases(4), {}
    with BatchServer(moody) as server, ScriptedEndpoint(moody) as live_server:
        batch = play(setup_at(server, tmp_path), some, strategy)
        live_setup = setup_at(live_server, tmp_path, engine="local")
        live = play(live_setup, some, strategy, silent=silent)
        sent = {
            json.dumps(json.loads(line)["body"])
            for text in server.files.values()
            for line in text.splitlines()
            if "method" in line
        }
        spoken = {json.dumps(body) for body in live_server.bodies if "quality=" in str(body)}
    assert batch == live
    assert sent == spoken
    assert max(server.paid.values()) == 1
    with Journal.open(tmp_path / "batch.sqlite") as journal, Journal.open(tmp_path / "local.sqlite") as other:
        assert len(journal.get_many(server.paid)) == len(other.get_many(server.paid)) > 0
        resolved = resolve(live_setup, started=0)
        judge = replayed_judge(resolved, journal, {"": silent})
        prepare = resolved.preparation(findings=resolved.merges_equal)
        for number, case in enumerate(some):
            again = CaseRun(number, prepare(case), make_strategy(strategy), 3)
            assert fast_forward(again, judge) == []
            assert again.outcome.selection == live[case.id][0]


@pytest.mark.parametrize("strategy", ["caps-r", "v1-infer", "pointwise", "listwise"])
def test_files_select_and_bill_as_a_live_run(tmp_path, strategy):
    some, folder = cases(4), tmp_path / "batch"
    with ScriptedEndpoint(moody) as server:
        files = setup_at(server, tmp_path, batch_dir=str(folder))
        found = to_the_end(lambda: play(files, some, strategy), folder, moody)
        assert server.requests == 0
        live = play(setup_at(server, tmp_path, engine="local"), some, strategy)
    assert found == live


def test_a_benchmark_takes_three_batches_and_the_second_time_none(tmp_path):
    some, messages = cases(5, n=16), []
    with BatchServer() as server:
        first = play(setup_at(server, tmp_path), some, messages=messages)
        assert server.sizes == [5 * 8, 5 * 4, 5 * 6]
        again = play(setup_at(server, tmp_path), some)
        assert server.sizes == [5 * 8, 5 * 4, 5 * 6]
    assert [one[0] for one in again.values()] == [one[0] for one in first.values()]
    assert sum(one[2] for one in first.values()) == sum(one[1] for one in first.values()) > 0
    assert sum(one[2] for one in again.values()) == 0
    assert messages[0] == "step 1: 40 requests open; batches: 1 new"
    assert messages[-1] == "batch batch_2: completed, 0 of 30 done"


def test_identical_requests_are_sent_and_billed_once(tmp_path):
    (case,) = cases(1)
    twin = type(case)("twin", case.problem, case.candidates, case.domain)
    with BatchServer() as server:
        found = play(setup_at(server, tmp_path), [case, twin], "pointwise")
    assert server.sizes == [8]
    assert [one[2] for one in found.values()] == [found["case 0"][1], 0]


def test_files_are_cut_at_both_limits_and_only_so_many_batches_are_under_way(tmp_path):
    with BatchServer() as server:
        play(setup_at(server, tmp_path, batch={"lines": 10, "at_once": 2, "poll": 0.01}), cases(6))
        assert sorted(server.sizes[:3]) == [4, 10, 10]  # two at once arrive in either order
        assert sorted(server.sizes[3:]) == [6, 10, 10, 10]
        assert server.busiest == 2
    (tmp_path / "more").mkdir()
    with BatchServer() as server:
        play(setup_at(server, tmp_path / "more", batch={"megabytes": 0.01, "poll": 0.01}), cases(6))
        requests = [text for text in server.files.values() if '"method"' in text]
        assert max(map(len, requests)) <= 10_000
        assert len(requests) > 6
        assert max(server.paid.values()) == 1


def test_another_judge_at_partial_views_gets_files_of_its_own(tmp_path):
    with BatchServer() as server, BatchServer() as small:
        tables = [
            {"model": "small", "base_url": small.url, "level": "partial"},
            {"model": "m", "base_url": server.url, "level": "full"},
        ]
        play(setup_at(server, tmp_path, judges=tables), cases(2))
        assert (server.sizes, small.sizes) == ([2 * 6], [2 * 4])


def test_failed_expired_lost_and_garbled_items_are_sent_again(tmp_path):
    failed, odd = (
        Status(500, {"error": {"message": "oops"}}),
        Reply(None, message={"content": 3}, more={"choices": []}),
    )
    fates = dict(enumerate((EXPIRED, DROPPED, failed, GARBAGE, odd)))
    messages = []
    with BatchServer(lambda body, number: fates.get(number) or by_quality(body, number)) as server:
        found = play(setup_at(server, tmp_path), cases(6), messages=messages)
    with BatchServer() as server_at_peace:
        (tmp_path / "peace").mkdir()
        peace = play(setup_at(server_at_peace, tmp_path / "peace"), cases(6))
    assert {name: one[0] for name, one in found.items()} == {name: one[0] for name, one in peace.items()}
    assert sum(count - 1 for count in server.paid.values()) == 5, "only the five are sent again"
    assert any(message.startswith("file-1:") and "not JSON" in message for message in messages)


def test_what_is_refused_for_good_is_asked_once_and_what_keeps_failing_three_times(tmp_path):
    refusing = {0: TOO_LONG}
    with BatchServer(lambda body, number: refusing.get(number) or by_quality(body, number)) as server:
        found = play(setup_at(server, tmp_path), cases(2))
    assert [one[4][1] for one in found.values() if one[4][1]] == [{"too-long": 1}]
    assert max(server.paid.values()) == 1
    (tmp_path / "more").mkdir()
    cursed = []

    def curse(body, number):
        cursed[:] = cursed or [body]
        return Status(503, "busy") if body == cursed[0] else by_quality(body, number)

    with BatchServer(curse) as server:
        found = play(setup_at(server, tmp_path / "more"), cases(2))
    assert [one[4][1] for one in found.values() if one[4][1]] == [{"busy": 1}]
    assert sorted(server.paid.values())[-2:] == [1, 3]
    assert any(one[0].provisional for one in found.values())


@pytest.mark.parametrize(
    ("fate", "error", "words"),
    [
        (lambda *_: EXPIRED, BusyError, "none of the 8 requests of this step was answered"),
        (lambda *_: DROPPED, BusyError, "none of the 8 requests of this step was answered"),
        (lambda *_: Status(401, {"error": {"message": "bad key"}}), AccessError, "bad key"),
    ],
)
def test_a_step_that_brings_nothing_is_the_last_and_says_why(tmp_path, fate, error, words):
    with BatchServer(fate) as server, pytest.raises(error, match=words):
        play(setup_at(server, tmp_path), cases(2))
    assert len(server.batches) == 1


def test_a_batch_refused_as_a_whole_and_a_server_without_batches_are_told_apart(tmp_path):
    with BatchServer() as server:
        server.refusal = "Enqueued token limit reached"
        with pytest.raises(RefusedError, match="Enqueued token limit reached.*lines="):
            play(setup_at(server, tmp_path), cases(1))
        server.refusal = None
        assert len(play(setup_at(server, tmp_path), cases(1))) == 1
    with (
        ScriptedEndpoint(better_quality_wins) as server,
        pytest.raises(MissingFeatureError, match="no Batch API"),
    ):
        play(setup_at(server, tmp_path), cases(2))


def test_a_server_that_wants_the_newer_name_of_the_limit_gets_it_in_the_next_file(tmp_path):
    words = "Unsupported parameter: use 'max_completion_tokens' instead."
    refusal = Status(400, {"error": {"message": words, "param": "max_tokens"}})

    def newer(body, number):
        return by_quality(body, number) if "max_completion_tokens" in body else refusal

    with BatchServer(newer) as server:
        found = play(setup_at(server, tmp_path), cases(2))
    assert server.sizes == [8, 8, 12]
    assert not any(one[0].provisional for one in found.values())


def test_a_budget_of_tokens_for_a_case_ends_where_it_ends_live(tmp_path):
    budget = 2_500
    with BatchServer() as server:
        batch = play(setup_at(server, tmp_path, budget_tokens=budget), cases(3))
        live = play(setup_at(server, tmp_path, engine="local", budget_tokens=budget), cases(3))
    assert batch == live
    assert any(one[0].provisional for one in live.values())
    assert server.sizes[0] == 3, "one by one, because the money might not last for a whole round"


@pytest.mark.parametrize("more", [{"budget_seconds": 9}, {"budget_total_tokens": 9}, {"journal": None}])
def test_what_a_batch_cannot_keep_is_refused_before_anything_is_sent(tmp_path, more):
    with BatchServer() as server:
        setup = setup_at(server, tmp_path, **more)
        with pytest.raises(SettingError, match="a batch keeps|need a journal"):
            play(setup, cases(1))
    assert (server.requests, server.calls) == (0, [])


def test_an_endpoint_that_is_away_while_a_batch_is_under_way_is_waited_for(tmp_path):
    away = Status(503, {"error": {"message": "maintenance"}}, {"retry-after": "900"})  # longer than one obeys
    messages = []
    with BatchServer() as server:
        server.away = [away, away]
        assert len(play(setup_at(server, tmp_path), cases(1), messages=messages)) == 1
    assert sum("checking again later" in message for message in messages) == 2
    assert max(server.paid.values()) == 1


def test_troubles_of_the_endpoint_are_waited_out_and_no_batch_is_made_twice(tmp_path):
    with BatchServer() as server:
        server.lost_reply.set()
        server.trouble = [web.Response(status=409, headers={"retry-after-ms": "1"})]
        found = play(setup_at(server, tmp_path), cases(2))
    assert len(found) == 2
    assert server.sizes == [8, 12]
    assert "GET /v1/batches" in server.calls, "looked for the batch whose reply was lost"


@pytest.mark.parametrize(
    ("call", "times"),
    [
        ("POST /v1/files", 1),
        ("POST /v1/batches", 1),
        ("GET /v1/batches/batch_0", 1),
        ("GET /v1/files/file-1/content", 1),
        ("POST /v1/batches", 2),
    ],
)
def test_cut_off_at_any_point_it_goes_on_and_pays_nothing_twice(tmp_path, call, times):
    messages = []

    async def cut_off():
        run = asyncio.ensure_future(played(setup_at(server, tmp_path), cases(3), messages=messages))
        await until(lambda: server.calls.count(call) >= times)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    with BatchServer(looks=3) as server:
        asyncio.run(cut_off())
        found = play(setup_at(server, tmp_path), cases(3), messages=messages)
    with BatchServer() as other:
        (tmp_path / "other").mkdir()
        whole = play(setup_at(other, tmp_path / "other"), cases(3))
    assert {name: one[0] for name, one in found.items()} == {name: one[0] for name, one in whole.items()}
    assert max(server.paid.values()) == 1
    if "batch_0" in call:
        assert any("batch batch_0 continues at" in message for message in messages)
        assert any("under way already" in message for message in messages)


def test_a_batch_that_vanishes_ends_the_run_and_is_not_paid_again_by_itself(tmp_path):
    with BatchServer() as server:
        server.away = [Status(404, {"error": {"message": "No such batch"}})] * 5
        with pytest.raises(RefusedError, match="created batch batch_0 and no longer knows it"):
            play(setup_at(server, tmp_path), cases(1))
    assert server.sizes == [4]


def test_a_forgotten_batch_is_sent_again_and_that_of_another_run_left_alone(tmp_path):
    messages = []

    async def leave():
        run = asyncio.ensure_future(played(setup_at(server, tmp_path), cases(3)))
        await until(lambda: "GET /v1/batches/batch_0" in server.calls)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

    with BatchServer(looks=10**6) as server:
        asyncio.run(leave())
        server.looks = 1
        assert len(play(setup_at(server, tmp_path), cases(2, n=6), "pointwise")) == 2, (
            "others need not wait for it"
        )
        with Journal.open(tmp_path / "batch.sqlite") as journal:
            (left,) = batches_under_way(journal, [server.url])
            assert (left.batch, len(left.keys)) == ("batch_0", 12)
        del server.batches["batch_0"]
        assert len(play(setup_at(server, tmp_path), cases(3), messages=messages)) == 3
    assert any("no longer knows batch batch_0" in message for message in messages)
