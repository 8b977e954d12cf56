"""Processes that are killed, and processes that share a file: real ones."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from caps.journal.store import Journal

APPENDER = """
import asyncio, os, sys
from caps.journal.records import Reply
from caps.journal.store import Journal

path, name, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

async def run(journal):
    numbers = iter(range(first, last))

    async def appender():
        for i in numbers:
            reply = Reply(f"{i}", 0.0, "m", "m", "t", "d", "stop", f"{name} {i} " + "x" * 500)
            standing = await journal.append(reply)
            os.write(1, f"{i} {standing.text.split()[0]}\\n".encode())

    await asyncio.gather(*(appender() for _ in range(16)))

with Journal.open(path) as journal:
    asyncio.run(run(journal))
"""
from waiting import PATIENCE


def appender(path, name, first, last):
    command = [sys.executable, "-c", APPENDER, str(path), name, str(first), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def whole(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("lines", [1, 150, 2500])
def test_all_that_was_acknowledged_survives_a_kill(tmp_path, lines):
    path = tmp_path / "j"
    with appender(path, "a", 0, 10**9) as process:
        acknowledged = [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        acknowledged += process.stdout.readlines()
    keys = [line.split()[0] for line in acknowledged if line.endswith("\n")]
    assert len(keys) >= lines
    with Journal.open(path) as journal:
        found = journal.get_many(keys)
        assert set(found) == set(keys)
        assert all(found[key].text.startswith(f"a {key} x") for key in keys)
    assert whole(path)


def test_processes_that_create_and_fill_one_file_agree_on_what_stands(tmp_path):
    path = tmp_path / "j"
    ranges = {"a": (0, 900), "b": (300, 1200), "c": (0, 600)}
    processes = [appender(path, name, *bounds) for name, bounds in ranges.items()]
    said = {}
    for (first, last), process in zip(ranges.values(), processes, strict=True):
        out, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        lines = dict(line.split() for line in out.splitlines())
        assert len(lines) == last - first
        for key, owner in lines.items():
            assert said.setdefault(key, owner) == owner
    with Journal.open(path) as journal:
        assert journal.stats().replies == 1200
        assert {key: reply.text.split()[0] for key, reply in journal.get_many(said).items()} == said
    assert whole(path)
