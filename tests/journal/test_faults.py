"""A file that cannot be used is refused with its name and the way out, and nothing in it is changed."""

import asyncio
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from caps.core.errors import JournalError
from caps.journal.database import MIGRATIONS, inspect, migrate
from caps.journal.records import Reply
from caps.journal.store import Journal
from caps.testing import ScriptedEndpoint, better_quality_wins, write_cases
from shell import caps

NOBODY = 65534


def reply(key, text="words " * 200):
    return Reply(key, 0.0, "m", "m", "t", "d", "stop", text)


def append(journal, *keys):
    async def run():
        for key in keys:
            await journal.append(reply(key))

    asyncio.run(run())


def filled(path, rows=400):
    """A closed journal with so many replies."""
    with Journal.open(path) as journal:
        append(journal, *(f"{i:05d}" for i in range(rows)))
    return path


def fill(journal, stored):
    """Append until it fails; `stored` are the keys that were acknowledged."""
    for i in range(1000):
        append(journal, f"more {i}")
        stored.append(f"more {i}")


def refused(path, words, **settings):
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(JournalError, match=words) as caught:
        Journal.open(path, **settings)
    assert str(path) in str(caught.value)
    assert (path.read_bytes() if path.is_file() else None) == before


@pytest.fixture
def open_folder():
    """A folder that others may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)
    shutil.rmtree(folder)


@contextmanager
def as_nobody():
    """Without the rights of root, for whom nothing is read-only."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_directory(tmp_path):
    refused(tmp_path, "is a directory")


def test_a_file_in_the_place_of_its_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file" / "j", "cannot be used")


def test_a_file_that_is_no_database(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, please keep them\n" * 100)
    refused(path, "not a journal")


def test_the_database_of_another_program(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE replies (mine)")
        other.commit()
    refused(path, "another program")


def test_a_file_that_another_process_is_just_making_is_not_taken_for_another_programs(tmp_path):
    path = tmp_path / "j"
    for moment in range(1, 4):
        path.unlink(missing_ok=True)
        looks = list[str]()

        def make_it_meanwhile(statement, moment=moment, looks=looks):
            looks.append(statement)
            if len(looks) == moment:
                with closing(sqlite3.connect(path, isolation_level=None)) as other:
                    migrate(other)

        with closing(sqlite3.connect(path)) as connection:
            connection.set_trace_callback(make_it_meanwhile)
            inspect(connection, path)
        assert len(looks) == 3


def test_an_empty_file_becomes_a_journal(tmp_path):
    (tmp_path / "j").touch()
    with Journal.open(filled(tmp_path / "j", 1)) as journal:
        assert journal.stats().replies == 1


def test_a_journal_of_a_newer_version(tmp_path):
    path = filled(tmp_path / "j", 3)
    with closing(sqlite3.connect(path)) as later:
        later.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    refused(path, "newer version.*upgrade")


def test_a_read_only_file(open_folder):
    path = filled(open_folder / "j", 3)
    path.chmod(0o444)
    with as_nobody():
        refused(path, "writable")


def test_a_read_only_folder(open_folder):
    path = filled(open_folder / "j", 3)
    path.chmod(0o666)
    open_folder.chmod(0o555)
    with as_nobody():
        refused(path, "writable")
        refused(open_folder / "new", "writable")


def test_a_damaged_first_page(tmp_path):
    path = filled(tmp_path / "j")
    with path.open("r+b") as file:
        file.write(b"\x00" * 100)
    refused(path, "not a journal|damaged")


def damaged(path):
    """A journal whose pages in the middle are overwritten."""
    filled(path)
    with path.open("r+b") as file:
        for page in range(4, path.stat().st_size // 4096):
            file.seek(page * 4096)
            file.write(b"\xff" * 64)
    return path


def test_a_damaged_page_in_the_middle(tmp_path):
    refused(damaged(tmp_path / "j"), "damaged.*recover")


def test_a_damaged_page_of_a_file_too_large_to_check_is_told_when_it_is_met(tmp_path):
    path = damaged(tmp_path / "j")
    before = path.read_bytes()
    with Journal.open(path, checked=0) as journal:
        with pytest.raises(JournalError, match="damaged.*recover") as caught:
            journal.get_many(f"{i:05d}" for i in range(400))
        assert str(path) in str(caught.value)
        with pytest.raises(JournalError, match="damaged"):
            append(journal, *(f"{i:05d}x" for i in range(400)))
    assert path.read_bytes() == before


def test_a_full_disk_is_told_and_what_was_stored_is_safe(tmp_path):
    path = filled(tmp_path / "j", 20)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    stored = []
    with Journal.open(path) as journal:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
            with pytest.raises(JournalError, match="full disk") as caught:
                fill(journal, stored)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert str(path) in str(caught.value)
        append(journal, "there is room again")
    with Journal.open(path) as journal:
        assert stored
        assert len(journal.get_many([*stored, "00019", "there is room again"])) == len(stored) + 2


def test_a_disk_without_room_is_told_and_what_was_stored_is_safe(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        stored = []
        with Journal.open(disk / "j") as journal:
            with pytest.raises(JournalError, match="room"):
                fill(journal, stored)
            assert stored
            assert len(journal.get_many(stored)) == len(stored)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_journal_held_by_another_for_too_long(tmp_path):
    path = filled(tmp_path / "j", 1)
    with (
        Journal.open(path, patience=0.1) as journal,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalError, match="another process"):
            append(journal, "k")
        refused(path, "another process", patience=0.1)
        other.execute("ROLLBACK")
        append(journal, "k")
        assert journal.get("k") is not None


DAMAGE = {
    "a text that is not UTF-8": "text = CAST(x'ff41' AS TEXT)",
    "bytes": "text = x'ff41'",
    "another text that is not UTF-8": "finish = CAST(x'ff' AS TEXT)",
    "tokens that are no number": "prompt_tokens = 'many'",
    "log-probabilities that are no JSON": "logprobs = '[['",
    "log-probabilities of another shape": "logprobs = '[7]'",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_row_that_cannot_be_read_is_named_and_asked_for_again_and_the_others_are_not(tmp_path, damage):
    cases, path = write_cases(tmp_path / "cases.jsonl", 3), tmp_path / "j.sqlite"
    with ScriptedEndpoint(better_quality_wins) as server:
        words = (
            "select",
            cases,
            "--model",
            "stub",
            "--base-url",
            server.url,
            "--journal",
            path,
            "--strategy",
            "caps",
        )
        first = caps(*words)
        with closing(sqlite3.connect(path)) as connection, connection:
            (key,) = connection.execute("SELECT key FROM replies ORDER BY key LIMIT 1").fetchone()
            connection.execute(f"UPDATE replies SET {damage} WHERE key = ?", (key,))
        before = server.requests
        second = caps(*words)
        asked_again = server.requests - before
        third, last = caps(*words), server.requests
    assert second.returncode == 0, second.stderr
    assert f"reply {key} cannot be read" in second.stderr
    assert asked_again == 2, "the reply and the trial call of a run"
    assert "cannot be read" not in third.stderr
    assert last == before + 2 + 1
    assert [json.loads(line)["winner"] for line in second.stdout.splitlines()] == [
        json.loads(line)["winner"] for line in first.stdout.splitlines()
    ]


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
