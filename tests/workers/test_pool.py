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
    async with closing(Workers(program, arguments, count=count, seconds=seconds)) as made:
        yield made


def run(story):
    return asyncio.run(story())


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_worker_starts_when_asked_and_is_used_again():
    async def story():
        async with worker_pool() as made:
            assert made.started == 0
            first, second = await made.ask("pid"), await made.ask("pid")
            assert first == second != os.getpid()
            assert made.started == 1
        assert gone(first)

    run(story)


@pytest.mark.parametrize(
    ("deed", "message"),
    [
        ("sleep", "no reply within 2 s by the clock"),
        ("work", "no reply within 0.2 s of processor time"),
        ("die", "died"),
        ("shout", "too long"),
    ],
)
def test_a_worker_that_fails_is_replaced(deed, message, monkeypatch):
    if deed == "work":  # the clock is only a backstop
        monkeypatch.setattr(workers, "CLOCK", 1000)

    async def story():
        async with worker_pool(seconds=0.2) as made:
            before = await made.ask("pid")
            with pytest.raises(NoReplyError, match=message):
                await made.ask(deed)
            assert gone(before)
            assert await made.ask("pid") != before

    run(story)


def test_a_worker_killed_while_idle_costs_one_question():
    async def story():
        async with worker_pool() as made:
            os.kill(await made.ask("pid"), signal.SIGKILL)
            with pytest.raises(NoReplyError):
                await made.ask("pid")
            assert await made.ask("pid")

    run(story)


def test_memory_beyond_the_limit_is_refused_to_a_worker():
    async def story():
        async with worker_pool(arguments=(1 << 28,)) as made:
            assert await made.ask("eat") == "no more"

    run(story)


def test_a_cancelled_question_takes_its_worker_along():
    async def story():
        async with worker_pool() as made:
            before = await made.ask("pid")
            question = asyncio.create_task(made.ask("sleep"))
            await asyncio.sleep(0.05)
            question.cancel()
            with pytest.raises(asyncio.CancelledError):
                await question
            assert gone(before)
            assert await made.ask("pid") != before

    run(story)


def test_closing_ends_busy_workers_too():
    async def story():
        async with worker_pool() as made:
            pid = await made.ask("pid")
            question = asyncio.create_task(made.ask("sleep"))
            await asyncio.sleep(0.05)
            await made.close()
            with pytest.raises(NoReplyError):
                await question
            assert gone(pid)

    run(story)


def test_no_more_workers_run_than_allowed():
    async def story():
        async with worker_pool(count=2) as made:
            assert len(set(await asyncio.gather(*(made.ask("pid") for _ in range(12))))) == 2

    run(story)


def test_a_worker_that_has_done_enough_is_replaced(monkeypatch):
    async def story():
        monkeypatch.setattr(workers, "TASKS_EACH", 2)
        async with worker_pool() as made:
            pids = [await made.ask("pid") for _ in range(4)]
            assert pids[0] == pids[1] != pids[2] == pids[3]

    run(story)


def test_a_worker_knows_nothing_of_our_environment():
    async def story():
        async with worker_pool() as made:
            # The interpreter itself may name the locale.
            assert set(await made.ask("environment")) <= {"PYTHONHASHSEED", "LC_CTYPE"}

    run(story)


def test_a_program_that_cannot_start_is_no_reply():
    async def story():
        async with worker_pool("support.chores:never_ready") as made:
            with pytest.raises(NoReplyError, match="died"):
                await made.ask("pid")

    run(story)
