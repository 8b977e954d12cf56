import asyncio
import sqlite3
import threading
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caps.core.errors import JournalError
from caps.journal.store import Journal, default_path
from support.journals import append, reply

WHOLE = reply(
    "k", "words\x00é", reasoning="why", prompt_tokens=90, output_tokens=40, cached_tokens=64, reasoning_tokens=30,
    estimated=True, logprobs='[["A",-0.1,[]]]', latency=1.5, attempts=3,
)  # fmt: skip


def test_a_reply_comes_back_as_it_was_stored_with_its_time(tmp_path):
    path = default_path(tmp_path / "not" / "yet" / "there")
    with Journal.open(path, clock=lambda: 123.5) as journal:
        assert append(journal, WHOLE) == [WHOLE._replace(at=123.5)]
        assert journal.get("k") == WHOLE._replace(at=123.5)
        assert journal.get("other") is None
    with Journal.open(str(path)) as journal:
        assert journal.get("k") == WHOLE._replace(at=123.5)


def test_the_first_stored_stands(tmp_path):
    with Journal.open(tmp_path / "j") as journal:
        append(journal, reply("k", "first"))
        (standing,) = append(journal, reply("k", "second"))
        assert standing.text == "first" == journal.get("k").text
        together = append(journal, reply("n", "a"), reply("other"), reply("n", "b"))
        assert [item.text for item in together] == ["a", "words", "a"]


def test_many_appends_share_few_transactions(tmp_path):
    with Journal.open(tmp_path / "j") as journal:
        commits = []
        for connection in (journal._connection, journal._quick):
            connection.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
        append(journal, *(reply(str(i)) for i in range(500)))
        assert 1 <= len(commits) <= 50
        assert journal.stats().replies == 500


def test_many_are_looked_up_at_once(tmp_path):
    with Journal.open(tmp_path / "j") as journal:
        append(journal, *(reply(str(i), f"text {i}") for i in range(700)))
        found = journal.get_many(str(i) for i in range(300, 1000))
        assert {key: item.text for key, item in found.items()} == {
            str(i): f"text {i}" for i in range(300, 700)
        }
        assert journal.get_many([]) == {}


def test_what_is_wanted_in_one_moment_is_looked_up_together(tmp_path):
    statements = []

    async def run(journal):
        await asyncio.gather(*(journal.append(reply(str(i), f"text {i}")) for i in range(5)))
        journal._quick.set_trace_callback(statements.append)
        return await asyncio.gather(*(journal.recall(str(i)) for i in range(3, 8)))

    with Journal.open(tmp_path / "j") as journal:
        found = asyncio.run(run(journal))
        assert [one and one.text for one in found] == ["text 3", "text 4", None, None, None]
        assert len(statements) == 1


def test_who_looks_up_in_a_journal_that_is_closed_meanwhile_is_told(tmp_path):
    async def run(journal):
        waiting = [journal.recall("a"), journal.recall("b")]
        journal.close()
        return await asyncio.gather(*waiting, return_exceptions=True)

    journal = Journal.open(tmp_path / "j")
    for error in asyncio.run(run(journal)):
        assert isinstance(error, JournalError)
        assert "closed" in str(error)


def test_facts_are_kept_by_kind_and_key_and_the_first_stands(tmp_path):
    async def run(journal):
        assert await journal.record("tests", "a", {"passed": [1, 2]}) == {"passed": [1, 2]}
        assert await journal.record("tests", "a", {"passed": []}) == {"passed": [1, 2]}
        assert await journal.record("equal", "a", None) is None
        await asyncio.gather(journal.record("tests", "b", 0.5), journal.append(reply("b")))

    with Journal.open(tmp_path / "j") as journal:
        asyncio.run(run(journal))
        assert journal.fact("tests", "a") == {"passed": [1, 2]}
        assert journal.fact("tests", "c") is None
        assert journal.facts("tests") == {"a": {"passed": [1, 2]}, "b": 0.5}
        assert journal.stats().facts == 3


def test_stats_add_up(tmp_path):
    times = iter([10.0, 20.0, 30.0])
    with Journal.open(tmp_path / "j", clock=lambda: next(times)) as journal:
        empty = journal.stats()
        assert (empty.replies, empty.prompt_tokens, empty.first_at, dict(empty.models)) == (0, 0, None, {})
        for i, name in enumerate("aba"):
            append(journal, reply(str(i), prompt_tokens=5, output_tokens=2)._replace(model=name))
        stats = journal.stats()
    assert (stats.replies, stats.prompt_tokens, stats.output_tokens) == (3, 15, 6)
    assert (stats.first_at, stats.last_at, dict(stats.models)) == (10.0, 30.0, {"a": 2, "b": 1})
    assert stats.bytes > 0


def test_a_cancelled_appender_has_its_reply_stored_all_the_same(tmp_path):
    async def run(journal):
        task = asyncio.create_task(journal.append(reply("k")))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await journal.append(reply("later"))

    with Journal.open(tmp_path / "j") as journal:
        asyncio.run(run(journal))
        assert journal.get("k") is not None


def test_what_was_handed_in_is_stored_by_close(tmp_path):
    async def run(journal):
        tasks = [asyncio.create_task(journal.append(reply(str(i)))) for i in range(50)]
        await asyncio.sleep(0)
        journal.close()
        await asyncio.gather(*tasks)

    asyncio.run(run(Journal.open(tmp_path / "j")))
    with Journal.open(tmp_path / "j") as journal:
        assert journal.stats().replies == 50


def test_a_closed_journal_says_so(tmp_path):
    journal = Journal.open(tmp_path / "j")
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.get("k")
    with pytest.raises(JournalError, match="closed"):
        append(journal, reply("k"))


def test_several_event_loops_and_threads_share_a_journal(tmp_path):
    with Journal.open(tmp_path / "j") as journal:
        threads = [
            threading.Thread(target=append, args=(journal, *(reply(f"{n}-{i}") for i in range(100))))
            for n in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert journal.stats().replies == 300
        append(journal, reply("another loop"))


def test_an_event_loop_goes_on_while_another_process_holds_the_file(tmp_path):
    async def run(journal, other):
        other.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(journal.append(reply("k", "mine")))
        await asyncio.sleep(0.05)  # the loop turns
        assert not task.done()
        assert journal.get("k") is None
        other.execute("COMMIT")
        return await task

    with (
        Journal.open(tmp_path / "j") as journal,
        closing(sqlite3.connect(tmp_path / "j", isolation_level=None)) as other,
    ):
        assert asyncio.run(run(journal, other)).text == "mine"
        assert journal.get("k") == asyncio.run(journal.append(reply("k", "another")))


def test_the_log_is_worked_into_the_file_while_replies_go_on_coming(tmp_path):
    async def run(journal):
        for number in range(260):
            await asyncio.gather(*(journal.append(reply(f"{number}-{i}", "x" * 4000)) for i in range(20)))

    with Journal.open(tmp_path / "j") as journal:
        asyncio.run(run(journal))
        assert (tmp_path / "j-wal").stat().st_size < 14 * 2**20 < 260 * 20 * 4000


@pytest.mark.parametrize("durable", [False, True])
def test_durable_flushes_at_every_commit(tmp_path, durable):
    with Journal.open(tmp_path / "j", durable=durable) as journal:
        append(journal, reply("k"))
        assert journal._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert journal._connection.execute("PRAGMA synchronous").fetchone() == (2 if durable else 1,)


@settings(max_examples=50)
@given(text=st.text(st.characters(codec=None, categories=None), max_size=50))
def test_any_text_is_stored_and_returned_as_it_will_be_read(tmp_path_factory, text):
    with Journal.open(tmp_path_factory.mktemp("j") / "j") as journal:
        (standing,) = append(journal, reply("k", text, reasoning=text))
        assert journal.get("k") == standing
        assert standing.text == text.encode("utf-8", "replace").decode()
