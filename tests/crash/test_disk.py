"""`caps select` on a disk that fails: one message with the file and the way out, and nothing stored is harmed."""

import json
import os
import resource
import shutil
import sqlite3
import subprocess
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from caps.journal.store import Journal
from caps.testing import Reply, ScriptedEndpoint, better_quality_wins, write_cases
from shell import caps, caps_json, installed

CALLS = 3  # of a case of four
PADDING = "so many words " * 150


def wordy(body, number):
    """The better quality wins, at length."""
    reply = better_quality_wins(body)
    return Reply(f"{PADDING}\n{reply.text}")


@pytest.fixture(scope="module")
def server():
    with ScriptedEndpoint(wordy, models=("stub",)) as running:
        yield running


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return write_cases(tmp_path_factory.mktemp("cases") / "cases.jsonl", 40, n=4)


@pytest.fixture(scope="module")
def select(server, cases):
    """Run `caps select` with this journal on the first few of the cases, by default on ten."""

    def run(journal, *, limit=10, before=None):
        # Without findings: those of forty cases could fill a small disk before the first reply comes in.
        words = (
            "select", cases, "--base-url", server.url, "--model", "stub", "--hard-evidence", "off",
            "--journal", journal, "--strategy", "caps", "--limit", limit,
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


def told(done, path, *words):
    """It ended with code 2 and one line that names the file and has these words."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("caps: ")
    for word in (str(path), *words):
        assert word in line


def refused(select, server, path, *words):
    """The run ends before anyone is asked, and the file stays as it is, byte by byte."""
    before, asked = path.read_bytes(), server.requests
    told(select(path), path, *words)
    assert server.requests == asked
    assert path.read_bytes() == before


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


def test_a_read_only_file(select, server, path):
    with read_only(path):
        refused(select, server, path, "writable")


def test_a_read_only_folder_whose_journal_can_still_be_looked_at(select, server, path, tmp_path):
    with read_only(tmp_path):
        refused(select, server, path, "writable")
        assert caps_json("journal", "stats", "--journal", path)["replies"] == 10 * CALLS


def test_a_directory_in_the_place_of_the_log(select, server, path, tmp_path):
    (tmp_path / "j-wal").mkdir()
    refused(select, server, path, "cannot be opened")


def test_a_file_in_the_place_of_the_folder(select, server, path):
    refused_path, asked = path / "j", server.requests
    told(select(refused_path), refused_path, "--journal")
    assert server.requests == asked


def test_a_file_that_is_no_journal(select, server, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, please keep them\n" * 300)
    refused(select, server, path, "not a journal", "name another file")


def test_the_database_of_another_program(select, server, tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE replies (mine)")
        other.commit()
    refused(select, server, path, "another program", "name another file")


def test_a_journal_of_a_newer_version(select, server, path, original):
    with closing(sqlite3.connect(path)) as later:
        (version,) = later.execute("PRAGMA user_version").fetchone()
        later.execute("PRAGMA user_version = 99")
    refused(select, server, path, "newer version", "upgrade caps")
    with closing(sqlite3.connect(path)) as later:
        later.execute(f"PRAGMA user_version = {version}")
    asked = server.requests
    assert winners(select(path)) == original[1]
    assert server.requests == asked


def test_a_damaged_page_in_the_middle(select, server, path):
    page = path.stat().st_size // 4096 // 2
    with path.open("r+b") as file:
        file.seek(page * 4096)
        file.write(b"\xff" * 4096)
    refused(select, server, path, "damaged", "name another file", ".recover")


def goes_on(select, server, path, asked):
    """With room again the same command finishes, and asks again only what was under way when it ended."""
    with Journal.open(path) as journal:
        stored = journal.stats().replies
    assert 0 < stored < 40 * CALLS
    lost = server.requests - asked - 1 - stored
    assert lost >= 0
    again = server.requests
    done = select(path, limit=40)
    assert done.returncode == 0, done.stderr
    assert server.requests - again == 1 + 40 * CALLS - stored
    return winners(done)


def test_a_disk_that_fills_up_during_the_run(select, server, tmp_path, original):
    disk = tmp_path / "disk"
    with small_disk(disk, "250k"):
        asked = server.requests
        told(select(disk / "j", limit=40), disk / "j", "no space", "run again", "what was stored is safe")
        assert mount("-o", "remount,size=10m", disk)
        assert goes_on(select, server, disk / "j", asked)[:10] == original[1]


def test_a_file_that_may_not_grow_any_more_during_the_run(select, server, tmp_path, original):
    asked = server.requests
    path = tmp_path / "j"
    limit = (150_000, resource.RLIM_INFINITY)
    done = select(path, limit=40, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    told(done, path, "full disk", "run again", "what was stored is safe")
    assert goes_on(select, server, path, asked)[:10] == original[1]


def test_a_disk_that_was_full_before(select, server, tmp_path):
    disk = tmp_path / "disk"
    with small_disk(disk, "64k"):
        (disk / "other").write_bytes(b"x" * 61_000)
        asked = server.requests
        told(select(disk / "j"), disk / "j", "run again")
        assert server.requests == asked
