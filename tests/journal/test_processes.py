"""Processes that are killed, and processes that share a file: real ones."""

import signal
import sqlite3
import subprocess
import sys
import threading
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
from caps.testing import Reply, ScriptedEndpoint
from support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.linux


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


ASKER = """
import asyncio, sys
from caps.core.types import Message
from caps.journal.store import Journal
from caps.models.base import Request
from caps.models.http import HttpModel
from caps.models.journaled import JournaledModel

async def run(journal):
    model = JournaledModel(HttpModel(sys.argv[2], connections=64), journal)
    asked = [Request((Message("user", f"question {i}"),), "stub") for i in range(12)]
    tasks = [asyncio.ensure_future(model.complete(one)) for one in asked]
    await asyncio.sleep(0)
    print("asking", flush=True)
    print(sum(not one.replayed for one in await asyncio.gather(*tasks)), flush=True)
    await model.close()

with Journal.open(sys.argv[1]) as journal:
    asyncio.run(run(journal))
"""


@pytest.mark.parametrize("killed", [False, True])
def test_two_processes_that_ask_the_same_pay_once_and_a_dead_one_holds_up_nothing(tmp_path, killed):
    held = threading.Event()
    with ScriptedEndpoint(lambda _, __: Reply("fine", until=held.is_set)) as server:
        command = [sys.executable, "-c", ASKER, str(tmp_path / "j"), server.url]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as one,
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other,
        ):
            assert [one.stdout.readline(), other.stdout.readline()] == ["asking\n"] * 2
            wait_until(lambda: server.requests >= 12)
            if killed:
                one.kill()
                one.wait()
            held.set()
            paid = [int(process.stdout.readline() or 0) for process in (one, other)]
        assert sum(paid) == 12 if not killed else paid == [0, 12]
        assert server.requests <= (12 if not killed else 24)
    with Journal.open(tmp_path / "j") as journal:
        assert journal.stats().replies == 12
    assert not (tmp_path / "j-lock").exists()
