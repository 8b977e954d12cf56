import asyncio
import os
import signal
from contextlib import asynccontextmanager

import pytest

from caps.workers import pool as workers
from caps.workers.pool import NoReplyError, Workers
from support.closing import closing

pytestmark = pytest.mark.linux


@asynccontextmanager
async def worker_pool(program="support.chores:serve", arguments=(), *, count=1, seconds=5.0):
    async with closing(Workers(program, arguments, count=count, seconds=seconds)) as pool:
        yield pool


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_worker_starts_when_asked_and_is_used_again():
    async with worker_pool() as pool:
        assert pool.started == 0
        first, second = await pool.ask("pid"), await pool.ask("pid")
        assert first == second != os.getpid()
        assert pool.started == 1
    assert gone(first)


@pytest.mark.parametrize(
    ("deed", "message"),
    [
        ("sleep", "no reply within 2 s by the clock"),
        ("work", "no reply within 0.2 s of processor time"),
        ("die", "died"),
        ("shout", "too long"),
    ],
)
async def test_a_worker_that_fails_is_replaced(deed, message, monkeypatch):
    if deed == "work":  # the clock is only a backstop
        monkeypatch.setattr(workers, "CLOCK", 1000)

    async with worker_pool(seconds=0.2) as pool:
        before = await pool.ask("pid")
        with pytest.raises(NoReplyError, match=message):
            await pool.ask(deed)
        assert gone(before)
        assert await pool.ask("pid") != before


async def test_a_worker_killed_while_idle_costs_one_question():
    async with worker_pool() as pool:
        os.kill(await pool.ask("pid"), signal.SIGKILL)
        with pytest.raises(NoReplyError):
            await pool.ask("pid")
        assert await pool.ask("pid")


async def test_memory_beyond_the_limit_is_refused_to_a_worker():
    async with worker_pool(arguments=(1 << 28,)) as pool:
        assert await pool.ask("eat") == "no more"


async def test_a_cancelled_question_takes_its_worker_along():
    async with worker_pool() as pool:
        before = await pool.ask("pid")
        question = asyncio.create_task(pool.ask("sleep"))
        await asyncio.sleep(0.05)
        question.cancel()
        with pytest.raises(asyncio.CancelledError):
            await question
        assert gone(before)
        assert await pool.ask("pid") != before


async def test_closing_ends_busy_workers_too():
    async with worker_pool() as pool:
        pid = await pool.ask("pid")
        question = asyncio.create_task(pool.ask("sleep"))
        await asyncio.sleep(0.05)
        await pool.close()
        with pytest.raises(NoReplyError):
            await question
        assert gone(pid)


async def test_no_more_workers_run_than_allowed():
    async with worker_pool(count=2) as pool:
        assert len(set(await asyncio.gather(*(pool.ask("pid") for _ in range(12))))) == 2


async def test_a_worker_that_has_done_enough_is_replaced(monkeypatch):
    monkeypatch.setattr(workers, "TASKS_EACH", 2)
    async with worker_pool() as pool:
        pids = [await pool.ask("pid") for _ in range(4)]
        assert pids[0] == pids[1] != pids[2] == pids[3]


async def test_a_worker_knows_nothing_of_our_environment():
    async with worker_pool() as pool:
        # The interpreter itself may name the locale.
        assert set(await pool.ask("environment")) <= {"PYTHONHASHSEED", "LC_CTYPE"}


async def test_a_program_that_cannot_start_is_no_reply():
    async with worker_pool("support.chores:never_ready") as pool:
        with pytest.raises(NoReplyError, match="died"):
            await pool.ask("pid")
