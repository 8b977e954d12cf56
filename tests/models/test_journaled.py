import asyncio
import sqlite3
from contextlib import closing

import pytest
from msgspec.structs import replace

from caps.core.errors import BusyError, JournalError
from caps.core.types import Message, TokenLogprob, Usage
from caps.journal.records import prompt_digest, request_key
from caps.journal.store import Journal
from caps.models.base import Completion, Request
from caps.models.http import HttpModel
from caps.models.journaled import JournaledModel, to_reply
from caps.models.scripted import ScriptedModel
from caps.models.servers import ServersModel
from caps.testing import Reply, ScriptedEndpoint
from support.waiting import until

WHOLE = Completion(
    "A\x00\u00e9",
    "length",
    Usage(90, 40, 64, 30, estimated=True),
    "because",
    (TokenLogprob("A", -0.1, (("A", -0.1), ("B", float("-inf")))),),
    "served-name",
    1.25,
    3,
)


def ask(text="q", **fields):
    return Request((Message("user", text),), "m", **fields)


@pytest.fixture
def journal(tmp_path):
    with Journal.open(tmp_path / "j.sqlite") as opened:
        yield opened


class Slow:
    """A model that answers when it is let go, and counts."""

    def __init__(self, text="late"):
        self.calls = self.cancelled = 0
        self.go = asyncio.Event()
        self.text = text

    async def complete(self, request):
        self.calls += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Completion(self.text, "stop", Usage(1, 1))

    async def close(self):
        pass


async def test_what_was_paid_once_is_replayed_whole(journal):
    inner = ScriptedModel([WHOLE])

    model = JournaledModel(inner, journal)
    first, *others = [await model.complete(ask()) for _ in range(3)]
    assert inner.calls == 1
    assert first == replace(
        WHOLE, key=request_key(ask()), logprobs=(TokenLogprob("A", -0.1, (("A", -0.1), ("B", -9999.0))),)
    )
    assert others == [replace(first, replayed=True)] * 2


def test_a_new_process_finds_it_too(tmp_path):
    for calls in (1, 0):
        inner = ScriptedModel(lambda _: "A")
        with Journal.open(tmp_path / "j.sqlite") as journal:
            got = asyncio.run(JournaledModel(inner, journal).complete(ask()))
        assert (got.text, got.replayed, inner.calls) == ("A", not calls, calls)


async def test_another_draw_is_another_call(journal):
    inner = ScriptedModel(["A", "B"])

    model = JournaledModel(inner, journal)
    assert [(await model.complete(ask(draw=draw))).text for draw in (0, 1, 0, 1)] == ["A", "B", "A", "B"]


async def test_a_reply_is_in_the_file_before_it_is_returned(tmp_path):
    path = tmp_path / "j.sqlite"

    with Journal.open(path) as journal:
        model = JournaledModel(ScriptedModel(lambda _: "A"), journal)
        for i in range(10):
            await model.complete(ask(str(i)))
            with sqlite3.connect(path) as other:
                assert other.execute("SELECT count(*) FROM replies").fetchone() == (i + 1,)
            other.close()


async def test_identical_requests_under_way_are_asked_once_and_paid_by_one(journal):
    inner = Slow()
    model = JournaledModel(inner, journal)
    tasks = [asyncio.create_task(model.complete(ask())) for _ in range(5)]
    await until(lambda: inner.calls)
    inner.go.set()
    calls, got = inner.calls, [(got.text, got.replayed) for got in await asyncio.gather(*tasks)]
    assert calls == 1
    assert sorted(got) == [("late", False)] + [("late", True)] * 4


@pytest.mark.parametrize(("leaver", "calls"), [(0, 2), (2, 1)])
async def test_whoever_leaves_the_others_are_answered_and_if_the_first_left_another_asks(
    journal, leaver, calls
):
    inner = Slow()
    model = JournaledModel(inner, journal)
    tasks = [asyncio.create_task(model.complete(ask())) for _ in range(3)]
    await until(lambda: inner.calls)
    tasks.pop(leaver).cancel()
    await until(lambda: inner.calls == calls)
    inner.go.set()
    got = await asyncio.gather(*tasks)
    assert (inner.calls, sorted(reply.replayed for reply in got)) == (calls, [False, True])


async def test_a_call_nobody_waits_for_is_ended_and_may_be_asked_anew_at_once(journal):
    inner = Slow()
    model = JournaledModel(inner, journal)
    task = asyncio.create_task(model.complete(ask()))
    await until(lambda: inner.calls)
    task.cancel()
    await asyncio.wait([task])
    inner.go.set()
    got = await model.complete(ask())
    assert (inner.calls, inner.cancelled, got.text) == (2, 1, "late")


async def test_failures_are_raised_to_all_and_not_stored(journal):
    inner = ScriptedModel([BusyError("later"), "fine"])

    model = JournaledModel(inner, journal)
    failed = await asyncio.gather(*[model.complete(ask())] * 1, model.complete(ask()), return_exceptions=True)
    got = await model.complete(ask())
    assert [str(error) for error in failed] == ["later", "later"]
    assert (got.text, inner.calls) == ("fine", 2)


async def test_when_another_process_was_first_its_words_stand_but_our_cost_is_reported(journal):
    inner = Slow("ours")
    model = JournaledModel(inner, journal)
    task = asyncio.create_task(model.complete(ask()))
    await until(lambda: inner.calls)
    digest = prompt_digest(ask().messages)
    theirs = Completion("theirs", "stop", Usage(7, 7))
    await journal.append(to_reply(request_key(ask()), digest, ask(), theirs))
    inner.go.set()
    got = await task
    assert (got.text, got.usage, got.replayed) == ("theirs", Usage(1, 1), False)


def test_a_journal_that_cannot_store_stops_the_call(journal):
    async def run():
        inner = Slow()
        model = JournaledModel(inner, journal)
        task = asyncio.create_task(model.complete(ask()))
        await until(lambda: inner.calls)
        journal.close()
        inner.go.set()
        await task

    with pytest.raises(JournalError, match="closed"):
        asyncio.run(run())


@pytest.mark.parametrize("connect", [HttpModel, lambda url, **more: ServersModel([url], **more)])
def test_no_call_takes_the_place_of_one_whose_reply_is_not_stored_yet(tmp_path, connect):
    path = tmp_path / "j.sqlite"
    with ScriptedEndpoint([Reply("fine")]) as server, Journal.open(path) as journal:

        async def run():
            model = JournaledModel(connect(server.url, connections=3), journal)
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")  # now nobody else can store anything
                calls = [asyncio.ensure_future(model.complete(ask(str(i)))) for i in range(10)]
                await until(lambda: sum(server.tokens.values()) >= 3 * 2)
                await asyncio.sleep(0.3)
                held = server.requests, sum(call.done() for call in calls)
                other.execute("ROLLBACK")
            await asyncio.gather(*calls)
            await model.close()
            return held

        assert asyncio.run(run()) == (3, 0)
        assert server.requests == 10


def test_neither_prompt_nor_key_is_in_the_file(tmp_path):
    path = tmp_path / "j.sqlite"
    with ScriptedEndpoint([Reply("an answer")]) as server, Journal.open(path) as journal:

        async def run():
            model = JournaledModel(HttpModel(server.url, "sk-secret-key"), journal)
            await model.complete(ask("the private prompt", extra={"top_k": 1}))
            await model.close()

        asyncio.run(run())
        bytes_ = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"an answer" in bytes_
    assert b"private prompt" not in bytes_
    assert b"sk-secret-key" not in bytes_


def test_a_real_server_is_asked_once_for_each_request(journal):
    with ScriptedEndpoint(lambda body, _: Reply(f"to {body['messages'][0]['content']}")) as server:

        async def run():
            model = JournaledModel(HttpModel(server.url, connections=16), journal)
            wanted = [ask(str(i % 20)) for i in range(100)]
            first = await asyncio.gather(*(model.complete(request) for request in wanted))
            again = await asyncio.gather(*(model.complete(request) for request in wanted))
            await model.close()
            return first, again

        first, again = asyncio.run(run())
        assert server.requests == 20
        assert (
            [got.text for got in first] == [got.text for got in again] == [f"to {i % 20}" for i in range(100)]
        )
        paid = [got.usage for got in first if not got.replayed]
        assert len(paid) == 20
        assert sum(usage.prompt for usage in paid) == server.tokens["prompt"]
        assert all(got.replayed for got in again)
