"""A disk that fails, a file that is damaged or somebody else's: one message with the file and the way out, nobody is
asked, and nothing stored is harmed."""

import asyncio
import json
import os
import resource
import shutil
import sqlite3
import subprocess
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import pytest

from caps.core.errors import JournalError
from caps.journal.database import create, inspect
from caps.journal.store import Journal
from caps.testing import Reply as Answer
from caps.testing import ScriptedEndpoint, better_quality_wins, write_cases
from support.journals import append, reply
from support.shell import caps, caps_json, installed, one_sentence

CASES, CALLS = 10, 3  # cases of four candidates, and the calls of each
PADDING = "so many words " * 150


def wordy(body, number):
    """The better quality wins, at length."""
    return Answer(f"{PADDING}\n{better_quality_wins(body).text}")


@pytest.fixture(scope="module")
def server():
    with ScriptedEndpoint(wordy, models=("stub",)) as running:
        yield running


@pytest.fixture(scope="module")
def select(server, tmp_path_factory):
    """Run `caps select` with this journal on the first few of the cases."""
    cases = write_cases(tmp_path_factory.mktemp("cases") / "cases.jsonl", 4 * CASES, n=4)

    def run(journal, *, limit=CASES, before=None):
        # Without findings: those of forty cases could fill a small disk before the first reply comes in.
        words = (
            "select", cases, "--base-url", server.url, "--model", "stub", "--hard-evidence", "off",
            "--journal", journal, "--strategy", "caps", "--limit", limit, "--quiet",
        )  # fmt: skip
        return caps(*words) if before is None else installed(*words, before=before)

    return run


@pytest.fixture(scope="module")
def original(select, tmp_path_factory):
    """A journal of ten cases, and the winners it led to."""
    path = tmp_path_factory.mktemp("original") / "j"
    done = select(path)
    assert done.returncode == 0, done.stderr
    return path, winners(done)


@pytest.fixture
def path(original, tmp_path):
    return Path(shutil.copy(original[0], tmp_path / "j"))


def winners(done):
    return [json.loads(line)["winner"] for line in done.stdout.splitlines()]


def mount(*words):
    """Whether this could be mounted."""
    command = ["mount", *map(str, words)]
    return shutil.which("mount") and not subprocess.run(command, capture_output=True, check=False).returncode


def unmount(place):
    subprocess.run(["umount", str(place)], check=True)


@contextmanager
def read_only(place):
    """Nobody can write there, root included."""
    if os.geteuid():
        mode = place.stat().st_mode
        place.chmod(mode & ~0o222)
        try:
            yield
        finally:
            place.chmod(mode)
        return
    if not mount("--bind", place, place):
        pytest.skip("for root nothing is read-only here: mounting is forbidden")
    try:
        assert mount("-o", "remount,bind,ro", place)
        yield
    finally:
        unmount(place)


@contextmanager
def small_disk(place, size):
    place.mkdir()
    if not mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", place):
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield
    finally:
        unmount(place)


def a_read_only_folder(path):
    return read_only(path.parent)


def a_directory(path):
    path.unlink()
    path.mkdir()


def a_directory_in_the_place_of_the_log(path):
    path.with_name("j-wal").mkdir()


def a_file_that_is_no_database(path):
    path.write_text("these are my notes, please keep them\n" * 300)


def the_database_of_another_program(path):
    path.unlink()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE replies (mine)")
        other.commit()


def a_journal_of_a_newer_version(path):
    with closing(sqlite3.connect(path)) as later:
        later.execute("PRAGMA user_version = 99")


def a_damaged_first_page(path):
    with path.open("r+b") as file:
        file.write(b"\x00" * 100)


def damaged_pages_in_the_middle(path):
    with path.open("r+b") as file:
        for page in range(4, path.stat().st_size // 4096):
            file.seek(page * 4096)
            file.write(b"\xff" * 64)


FAULTS = {
    read_only: ["writable"],
    a_read_only_folder: ["writable"],
    a_directory: ["is a directory"],
    a_directory_in_the_place_of_the_log: ["cannot be opened"],
    a_file_that_is_no_database: ["not a journal", "name another file"],
    the_database_of_another_program: ["another program", "name another file"],
    a_journal_of_a_newer_version: ["newer version", "upgrade caps"],
    a_damaged_first_page: ["not a journal"],
    damaged_pages_in_the_middle: ["damaged", "name another file", ".recover"],
}


@pytest.mark.parametrize(("fault", "words"), FAULTS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_an_unusable_journal_ends_the_run_before_any_call_and_stays_as_it_is(
    select, server, path, fault, words
):
    with fault(path) or nullcontext():
        before, asked = path.is_file() and path.read_bytes(), server.requests
        one_sentence(select(path), path, *words)
        assert server.requests == asked
        assert (path.is_file() and path.read_bytes()) == before


def test_a_file_in_the_place_of_its_folder_is_named(select, server, path):
    asked = server.requests
    one_sentence(select(path / "j"), path / "j", "--journal")
    assert server.requests == asked


def test_a_journal_in_a_read_only_folder_can_still_be_looked_at(path, tmp_path):
    with read_only(tmp_path):
        assert caps_json("journal", "stats", "--journal", path)["replies"] == CASES * CALLS


def goes_on(select, server, path, asked):
    """With room again the same command finishes, and asks again only what was under way when it ended."""
    with Journal.open(path) as journal:
        stored = journal.stats().replies
    assert 0 < stored < 4 * CASES * CALLS
    assert server.requests - asked >= stored
    again = server.requests
    done = select(path, limit=4 * CASES)
    assert done.returncode == 0, done.stderr
    once_more = server.requests
    assert winners(select(path, limit=4 * CASES)) == winners(done)
    of_every_run = server.requests - once_more
    assert once_more - again - of_every_run == 4 * CASES * CALLS - stored
    return winners(done)


def test_a_disk_that_fills_up_during_the_run(select, server, tmp_path, original):
    disk = tmp_path / "disk"
    with small_disk(disk, "250k"):
        asked = server.requests
        done = select(disk / "j", limit=4 * CASES)
        one_sentence(done, disk / "j", "no space", "run again", "what was stored is safe")
        assert mount("-o", "remount,size=10m", disk)
        assert goes_on(select, server, disk / "j", asked)[:CASES] == original[1]


def test_a_file_that_may_not_grow_any_more_during_the_run(select, server, tmp_path, original):
    asked = server.requests
    path = tmp_path / "j"
    limit = (150_000, resource.RLIM_INFINITY)
    done = select(path, limit=4 * CASES, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    one_sentence(done, path, "full disk", "run again", "what was stored is safe")
    assert goes_on(select, server, path, asked)[:CASES] == original[1]


def test_a_disk_that_was_full_before(select, server, tmp_path):
    disk = tmp_path / "disk"
    with small_disk(disk, "64k"):
        (disk / "other").write_bytes(b"x" * 61_000)
        asked = server.requests
        one_sentence(select(disk / "j"), disk / "j", "run again")
        assert server.requests == asked


def wordy_reply(key):
    return reply(key, "words " * 200)


def filled(path, rows=400):
    """A closed journal with so many replies."""
    with Journal.open(path) as journal:
        append(journal, *(wordy_reply(f"{i:05d}") for i in range(rows)))
    return path


def test_a_journal_that_another_process_is_creating_is_waited_for(tmp_path):
    path = tmp_path / "j"
    for moment in range(1, 4):
        path.unlink(missing_ok=True)
        looks = list[str]()

        def make_it_meanwhile(statement, moment=moment, looks=looks):
            looks.append(statement)
            if len(looks) == moment:
                with closing(sqlite3.connect(path, isolation_level=None)) as other:
                    create(other)

        with closing(sqlite3.connect(path)) as connection:
            connection.set_trace_callback(make_it_meanwhile)
            inspect(connection, path)
        assert len(looks) == 3


def test_an_empty_file_becomes_a_journal(tmp_path):
    (tmp_path / "j").touch()
    with Journal.open(filled(tmp_path / "j", 1)) as journal:
        assert journal.stats().replies == 1


def test_a_damaged_page_of_a_file_too_large_to_check_is_told_when_it_is_met(tmp_path):
    path = filled(tmp_path / "j")
    damaged_pages_in_the_middle(path)
    before = path.read_bytes()
    with Journal.open(path, checked=0) as journal:
        with pytest.raises(JournalError, match="damaged.*recover") as caught:
            journal.get_many(f"{i:05d}" for i in range(400))
        assert str(path) in str(caught.value)
        with pytest.raises(JournalError, match="damaged"):
            append(journal, *(wordy_reply(f"{i:05d}x") for i in range(400)))
    assert path.read_bytes() == before


def test_a_journal_held_by_another_for_too_long(tmp_path):
    path = filled(tmp_path / "j", 1)
    with (
        Journal.open(path, patience=0.1) as journal,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalError, match="another process"):
            append(journal, reply("k"))
        with pytest.raises(JournalError, match=f"{path}.*another process"):
            Journal.open(path, patience=0.1)
        other.execute("ROLLBACK")
        append(journal, reply("k"))
        assert journal.get("k") is not None


DAMAGE = (
    "text = CAST(x'ff41' AS TEXT)",
    "text = x'ff41'",
    "finish = CAST(x'ff' AS TEXT)",
    "prompt_tokens = 'many'",
    "logprobs = '[['",
    "logprobs = '[7]'",
)


def test_only_rows_that_cannot_be_read_are_named_and_asked_for_again(select, server, path, original):
    with closing(sqlite3.connect(path)) as connection, connection:
        keys = [key for (key,) in connection.execute("SELECT key FROM replies ORDER BY key")][: len(DAMAGE)]
        for key, damage in zip(keys, DAMAGE, strict=True):
            connection.execute(f"UPDATE replies SET {damage} WHERE key = ?", (key,))
    before = server.requests
    mended = select(path)
    asked = server.requests - before
    complete = select(path)
    of_every_run = server.requests - before - asked
    assert mended.returncode == complete.returncode == 0, mended.stderr
    assert all(f"reply {key} cannot be read" in mended.stderr for key in keys)
    assert asked - of_every_run == len(DAMAGE)
    assert "cannot be read" not in complete.stderr
    assert winners(mended) == winners(complete) == original[1]


@pytest.mark.parametrize("damage", ["value = '{'", "value = CAST(x'ff' AS TEXT)", "value = x'00'"])
def test_a_fact_that_cannot_be_read_is_named_and_recorded_again(tmp_path, damage, caplog):
    with Journal.open(tmp_path / "j") as journal:
        asyncio.run(journal.record("kind", "key", [1]))
        asyncio.run(journal.record("kind", "other", [2]))
    with closing(sqlite3.connect(tmp_path / "j")) as connection, connection:
        connection.execute(f"UPDATE facts SET {damage} WHERE key = 'key'")
    with Journal.open(tmp_path / "j") as journal:
        assert journal.fact("kind", "key") is None
        assert journal.facts("kind") == {"other": [2]}
        assert "kind key cannot be read" in caplog.text
        assert asyncio.run(journal.record("kind", "key", [3])) == [3]
        assert journal.fact("kind", "key") == [3]
