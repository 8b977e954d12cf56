"""What is taken out is gone from the bytes of the file, and only what was meant is taken out."""

import asyncio
import sqlite3
import threading
import time
from contextlib import closing

import pytest

from caps.core.errors import JournalError
from caps.core.types import Message
from caps.journal.maintenance import Removal, ReplyFilter, count, prune, read_stats, redact
from caps.journal.records import Reply
from caps.journal.store import Journal
from caps.models.base import Request
from caps.models.journaled import JournaledModel
from caps.models.scripted import ScriptedModel
from support.journals import append
from support.journals import reply as plain_reply

SECRET = "the-secret-words-of-"


def reply(key, model="m", text="plain"):
    logprobs = f'[["{text}",-0.1,[]]]'
    return plain_reply(
        key, text, model, reasoning=f"{text} reasoned", logprobs=logprobs, prompt_tokens=10, output_tokens=3
    )


def filled(path, *, facts=2):
    """Twenty replies of model a at times 0 to 19, twenty of model b at times 20 to 39, facts at 40 and on."""
    times = iter(range(100))
    with Journal.open(path, clock=lambda: float(next(times))) as journal:
        for model in "ab":
            # Longer than a page, so that words lie on overflow pages too.
            append(
                journal, *(reply(f"{model}{i}", model, f"{SECRET}{model} " * (i * 40 + 1)) for i in range(20))
            )
        for i in range(facts):
            asyncio.run(journal.record("tests", str(i), i))
    return path


def raw(path):
    """The bytes of the file and of whatever lies beside it."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(path.name + "*")))


def test_redacted_words_are_gone_from_the_bytes_and_their_figures_stay(tmp_path):
    path = filled(tmp_path / "j")
    before = read_stats(path)
    assert raw(path).count(f"{SECRET}a".encode()) > 20
    assert redact(path, ReplyFilter(), now=50.0).replies == 40
    assert SECRET.encode() not in raw(path)
    after = read_stats(path)
    assert (after.replies, after.redacted, after.facts) == (0, 40, 2)
    assert (after.prompt_tokens, after.output_tokens) == (before.prompt_tokens, before.output_tokens)
    assert (after.first_at, after.last_at) == (before.first_at, before.last_at) == (0.0, 39.0)
    assert after.bytes < before.bytes
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute("SELECT * FROM redacted WHERE key = 'a7'").fetchone()
    digest = "d" * 64
    assert row == ("a7", 7.0, "a", "served", "pairwise", digest, "stop", 10, 3, 0, 0, 0, 0.0, 1, 50.0)


def test_words_are_gone_while_others_have_the_journal_open_and_what_they_kept_stays(tmp_path):
    path = filled(tmp_path / "j")
    with Journal.open(path) as other:
        append(other, reply("new", "a", f"{SECRET}a in the log"))
        assert f"{SECRET}a in the log".encode() in raw(path)
        redact(path, ReplyFilter(model="a"), now=50.0)
        assert f"{SECRET}a".encode() not in raw(path)
        assert f"{SECRET}b".encode() in raw(path)
        assert other.get("a1") is None
        assert other.get("new") is None
        assert other.get("b1").text == f"{SECRET}b " * 41
        append(other, reply("a1", "a", "asked anew"))
        assert other.get("a1").text == "asked anew"


def test_pruned_words_are_gone_too_and_the_room_is_given_back(tmp_path):
    path = filled(tmp_path / "j")
    size = path.stat().st_size
    gone = prune(path, ReplyFilter(model="a"))
    assert (gone.replies, gone.redacted, gone.facts) == (20, 0, 0)
    assert gone.bytes == size - path.stat().st_size > size // 3
    assert f"{SECRET}a".encode() not in raw(path)
    with Journal.open(path) as journal:
        assert len(journal.get_many(f"b{i}" for i in range(20))) == 20


@pytest.mark.parametrize(
    ("which", "gone"),
    [
        (ReplyFilter(), (40, 2)),
        (ReplyFilter(model="b"), (20, 0)),
        (ReplyFilter(before=5.0), (5, 0)),
        (ReplyFilter(before=41.0), (40, 1)),
        (ReplyFilter(model="b", before=25.0), (5, 0)),
        (ReplyFilter(model="nobody"), (0, 0)),
    ],
)
def test_only_what_is_meant_goes_and_it_is_what_was_counted(tmp_path, which, gone):
    path = filled(tmp_path / "j")
    before = raw(path)
    counted = count(path, which)
    assert raw(path) == before
    taken = prune(path, which)
    assert (taken.replies, taken.facts) == (counted.replies, counted.facts) == gone
    assert read_stats(path).replies == 40 - gone[0]


def test_the_bytes_of_words_are_counted_as_they_are_stored(tmp_path):
    with Journal.open(tmp_path / "j") as journal:
        append(journal, Reply("k", 0.0, "m", "m", "t", "d", "stop", "é", reasoning="why"))
    assert count(tmp_path / "j", ReplyFilter()) == Removal(replies=1, bytes=5)


def test_a_redacted_request_is_asked_anew_stored_and_may_be_redacted_again(tmp_path):
    path = tmp_path / "j"
    words = iter(f"{SECRET}{number}" for number in range(9))
    request = Request((Message("user", "?"),), "m")

    def ask():
        with Journal.open(path) as journal:
            model = JournaledModel(ScriptedModel(lambda _: next(words)), journal)
            return asyncio.run(model.complete(request))

    for number in range(3):
        asked, again = ask(), ask()
        assert (asked.text, asked.replayed) == (f"{SECRET}{number}", False)
        assert (again.text, again.replayed) == (f"{SECRET}{number}", True)
        redact(path, ReplyFilter(), now=1.0)
        assert SECRET.encode() not in raw(path)
        assert (read_stats(path).replies, read_stats(path).redacted) == (0, number + 1)
    assert prune(path, ReplyFilter()).redacted == 3
    assert read_stats(path).by_model == ()


def test_an_empty_file_holds_nothing(tmp_path):
    (tmp_path / "j").touch()
    assert read_stats(tmp_path / "j").replies == 0
    assert count(tmp_path / "j", ReplyFilter()) == Removal()


ALL = [read_stats, lambda path: count(path, ReplyFilter()), lambda path: prune(path, ReplyFilter()),
       lambda path: redact(path, ReplyFilter(), now=0.0)]  # fmt: skip


@pytest.mark.parametrize("act", ALL)
def test_a_journal_that_is_not_there_is_not_made(tmp_path, act):
    with pytest.raises(JournalError, match="does not exist"):
        act(tmp_path / "folder" / "j")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(JournalError, match="is a directory"):
        act(tmp_path)


def newer(path):
    with closing(sqlite3.connect(filled(path))) as connection:
        connection.execute("PRAGMA user_version = 99")


def broken(path):
    with filled(path).open("r+b") as file:
        file.seek(8 * 4096)
        file.write(b"\xff" * 4096)


@pytest.mark.parametrize("act", ALL)
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (newer, "newer version.*upgrade"),
        (broken, "damaged.*recover"),
        (lambda path: path.write_text("my notes\n" * 500), "not a journal"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_and_left_as_it_is(tmp_path, make, words, act):
    path = tmp_path / "j"
    make(path)
    before = path.read_bytes()
    with pytest.raises(JournalError, match=words) as caught:
        act(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_a_journal_that_another_process_writes_to_is_waited_for(tmp_path):
    path = filled(tmp_path / "j")
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalError, match="another process.*end that process"):
            prune(path, ReplyFilter(), patience=0.1)
        assert read_stats(path, patience=0.1).replies == 40
        started = time.monotonic()
        threading.Timer(0.4, other.execute, ["COMMIT"]).start()
        assert prune(path, ReplyFilter(), patience=20.0).replies == 40
        assert time.monotonic() - started > 0.3


def test_a_reader_that_keeps_old_bytes_is_reported_and_a_second_run_finishes(tmp_path):
    path = filled(tmp_path / "j")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM replies").fetchone()
        with pytest.raises(JournalError, match="bytes remain.*again"):
            redact(path, ReplyFilter(), now=50.0, patience=0.1)
        assert read_stats(path).replies == 0
        other.execute("ROLLBACK")
        assert SECRET.encode() in raw(path)
        assert redact(path, ReplyFilter(), now=50.0).replies == 0
        assert SECRET.encode() not in raw(path)
    assert read_stats(path).redacted == 40
