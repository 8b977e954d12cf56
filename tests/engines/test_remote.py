"""Coordinator and workers without a cluster: what Ray would call remotely is called here."""

import asyncio
import pickle
import sys
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from caps.config import RunConfig
from caps.core.errors import JournalError, MissingExtraError, SettingError
from caps.core.types import Found, Unanswered, Usage, Verdict
from caps.engines.base import Cluster
from caps.engines.budget import BudgetLimits
from caps.engines.local import LocalEngine
from caps.engines.ray import connect
from caps.engines.remote import Coordinator, Job, RemoteCoordinator, Worker, WorkerContext
from caps.judging.base import Ruling
from caps.session.parts import make_prepare, make_strategy
from caps.session.resolve import resolve
from caps.session.session import Learned, open_worker
from caps.testing import ScriptedEndpoint, better_quality_wins, cases
from support.playing import JUDGED
from support.shell import caps
from support.waiting import until

CALL, LESS = Usage(60, 20), Usage(10, 5)


class Here:
    """An object in this process, called as Ray calls a remote actor."""

    def __init__(self, thing):
        self._thing = thing

    def __getattr__(self, name):
        method = getattr(self._thing, name)

        class Method:
            remote = staticmethod(lambda *arguments: asyncio.ensure_future(method(*arguments)))

        return Method


class Gone:
    """An actor that has died."""

    def __getattr__(self, name):
        class Method:
            @staticmethod
            async def remote(*_):
                raise ConnectionResetError("the actor died")

        return Method


def coordinator_with(tokens=None, path=None):
    return Coordinator(path, BudgetLimits(tokens=tokens), None, durable=False)


class Wavering:
    """A judge that is right, silent, out of money or broken, by what it is asked."""

    def __init__(self, mode):
        self.mode, self.asked = mode, 0

    def max_usage(self, prepared, ask):
        return Usage(100, 100)

    async def rule(self, prepared, ask, budget):
        self.asked += 1
        if self.mode == "broken" and self.asked > 11:
            raise RuntimeError("boom")
        if self.mode == "silent" or (self.mode == "ends" and self.asked > 11):
            return Ruling(Unanswered("budget" if self.mode == "ends" else "timeout"))
        better = min(ask.entrants)
        return Ruling(Verdict(9, 3) if ask.entrants[0] == better else Verdict(3, 9))


@pytest.mark.parametrize("name", [name for name in JUDGED if name not in ("listwise", "pointwise")])
@pytest.mark.parametrize("mode", ["right", "silent", "ends", "broken"])
async def test_an_outcome_rebuilt_from_a_result_equals_the_original(name, mode):
    """Every strategy, every ending: rulings and findings are enough to rebuild contest and ledger."""
    (case,) = cases(1, n=8)

    async def find(one, until):
        known = [replace(c, found=Found(cluster=f"like {i // 2}")) for i, c in enumerate(one.candidates)]
        return replace(one, candidates=tuple(known))

    outcomes = []

    class Noted(LocalEngine):
        async def run(self, *arguments, **settings):
            async for outcome in super().run(*arguments, **settings):
                outcomes.append(outcome)
                yield outcome

    @asynccontextmanager
    async def context(journal, budget_pool):
        engine = Noted(Wavering(mode), make_prepare(), capacity=lambda: 3, find=find)
        yield WorkerContext(lambda _: engine, Counter())

    job = Job(0, case, make_strategy(name), 5)
    worker = Worker("w", Here(coordinator_with()), context, journaled=False, limited=False)
    result = await worker.run(job)
    await worker.close()
    result = pickle.loads(pickle.dumps(result))
    again, (outcome,) = result.rebuild(job, make_prepare()), outcomes
    assert (again.judged, again.ledger, again.failure) == (outcome.judged, outcome.ledger, outcome.failure)
    assert again.contest.transcript == outcome.contest.transcript
    assert again.contest.stopped == outcome.contest.stopped
    assert again.selection == outcome.selection
    assert again.prepared.case == outcome.prepared.case


async def test_what_a_dead_worker_had_reserved_is_spent_and_its_late_calls_change_nothing():
    coordinator = coordinator_with(tokens=200)
    await coordinator.register("w", "first")
    assert await coordinator.reserve("first", CALL) is None
    assert await coordinator.reserve("first", CALL) is None
    waiting = asyncio.ensure_future(coordinator.reserve("first", CALL))
    await asyncio.sleep(0)
    await coordinator.register("w", "second")
    assert await waiting is not None
    await coordinator.settle("first", CALL, LESS)  # from the grave
    assert await coordinator.reserve("second", CALL) is not None
    assert await coordinator.reserve("second", LESS) is None


async def test_workers_wait_while_others_may_free_budget():
    coordinator = coordinator_with(tokens=100)
    budgets = []
    for name in ("a", "b"):
        await coordinator.register(name, name)
        budgets.append(RemoteCoordinator(Here(coordinator), name))
    assert await budgets[0].reserve(CALL) is None
    waiting = [asyncio.ensure_future(budgets[1].reserve(CALL)) for _ in range(5)]
    for _ in range(50):
        await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    budgets[0].settle(CALL, LESS)
    assert await waiting[0] is None
    budgets[1].settle(CALL, CALL)
    assert None not in await asyncio.gather(*waiting[1:])


def test_without_its_coordinator_a_worker_pays_for_nothing():
    with pytest.raises(JournalError, match="run the same command again"):
        asyncio.run(RemoteCoordinator(Gone(), "life").recall("k"))


async def test_a_replaced_worker_asks_what_is_missing_and_reports_all_that_was_paid(
    tmp_path,
):
    (case,) = cases(1, n=16)
    job = Job(0, case, make_strategy("caps"), 1)

    with ScriptedEndpoint(better_quality_wins) as server:
        config = RunConfig(model="stub", base_url=(server.url,), max_connections=4, hard_evidence="off")

        def context(journal, budget_pool):
            return open_worker(resolve(config), Learned(), {}, journal, budget_pool)

        coordinator = Here(coordinator_with(path=tmp_path / "journal.sqlite"))
        first, second, third = (
            Worker(name, coordinator, context, journaled=True, limited=False) for name in ("w", "w", "v")
        )
        cut = asyncio.ensure_future(first.run(job))
        await until(lambda: server.requests >= 9)
        await first.close()
        assert cut.cancelled()
        asked = server.requests
        result = await second.run(job)
        await coordinator.mark_reported.remote(result.paid_keys)
        await second.close()
        again = await third.run(job)
        await third.close()
        await coordinator.close.remote()
        assert 9 <= asked < 18 <= server.requests <= 18 + 4
    assert len(result.rulings) == 18
    assert len(set(result.paid_keys)) == len(result.paid_keys) == 18
    assert again.paid_keys == []


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "ray://127.0.0.1:10001", "127.0.0.1:99999"])
def test_an_address_without_a_cluster_is_refused_at_once(address):
    with pytest.raises(SettingError, match="ray_address"):
        connect(Cluster(address=address))


def test_the_command_says_so_in_one_line(tmp_path):
    done = caps("select", tmp_path / "none", "--engine", "ray", "--set", "ray_address=127.0.0.1:1")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "nothing answers there" in done.stderr


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'caps-select\[ray\]'") as missing:
        connect(Cluster())
    assert str(pickle.loads(pickle.dumps(missing.value))) == str(missing.value)
