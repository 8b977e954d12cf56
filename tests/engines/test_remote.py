"""Coordinator and workers without a cluster: what Ray would call remotely is called here."""

import asyncio
import pickle
import sys
from dataclasses import replace

import pytest

from caps.building import make_prepare, make_strategy
from caps.config import RunConfig
from caps.core.errors import InputError, JournalError, MissingExtraError, SettingError
from caps.core.types import Found, Unanswered, Usage, Verdict
from caps.datasets.case_files import cases_in_rows
from caps.engines.base import Cluster
from caps.engines.budget import BudgetLimits
from caps.engines.local import LocalEngine
from caps.engines.ray import connect
from caps.engines.remote import CaseResult, Coordinator, Job, RemoteBudget, RemoteJournal, Worker, rebuild
from caps.judging.base import Ruling
from caps.runner import Runner
from caps.testing import ScriptedEndpoint, better_quality_wins, cases
from playing import JUDGED
from shell import caps
from waiting import until

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
    return Coordinator(None, path, BudgetLimits(tokens=tokens), None, durable=False)


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
def test_an_outcome_rebuilt_from_a_result_equals_the_original(name, mode):
    """Every strategy, every ending: rulings and findings are enough to rebuild contest and ledger."""
    (case,) = cases(1, n=8)
    strategy = make_strategy(name)

    async def find(one, until, budget):
        known = [replace(c, found=Found(cluster=f"like {i // 2}")) for i, c in enumerate(one.candidates)]
        return replace(one, candidates=tuple(known))

    async def play():
        engine = LocalEngine(Wavering(mode), make_prepare(), capacity=lambda: 3, find=find)
        return [outcome async for outcome in engine.run([case], strategy, seed=5)]

    (outcome,) = asyncio.run(play())
    result = pickle.loads(pickle.dumps(CaseResult.of(outcome, {})))
    again = asyncio.run(rebuild(Job(0, case, strategy, 5), result, make_prepare()))
    assert (again.judged, again.ledger, again.failure) == (outcome.judged, outcome.ledger, outcome.failure)
    assert again.contest.transcript == outcome.contest.transcript
    assert again.contest.stopped == outcome.contest.stopped
    assert again.selection == outcome.selection
    assert again.prepared.case == outcome.prepared.case


def test_a_case_without_a_contest_is_rebuilt_as_failed():
    (case,) = cases(1)
    result = CaseResult(failure="no profile")
    job = Job(3, case, make_strategy("caps"), 5)
    assert asyncio.run(rebuild(job, result, make_prepare())).failure == "no profile"


def test_what_a_dead_worker_had_reserved_is_spent_and_its_late_calls_change_nothing():
    async def lives():
        coordinator = coordinator_with(tokens=200)
        first = (await coordinator.register("w")).lease
        assert await coordinator.reserve("w", first, CALL) is None
        assert await coordinator.reserve("w", first, CALL) is None
        waiting = asyncio.ensure_future(coordinator.reserve("w", first, CALL))
        await asyncio.sleep(0)
        second = (await coordinator.register("w")).lease
        assert await waiting is not None
        await coordinator.settle("w", first, CALL, LESS)  # from the grave
        assert await coordinator.reserve("w", second, CALL) is not None
        assert await coordinator.reserve("w", second, LESS) is None

    asyncio.run(lives())


def test_workers_wait_while_others_may_free_budget():
    async def two():
        coordinator = coordinator_with(tokens=100)
        budgets = []
        for name in ("a", "b"):
            budgets.append(RemoteBudget(Here(coordinator), name, (await coordinator.register(name)).lease))
        assert await budgets[0].reserve(CALL) is None
        waiting = [asyncio.ensure_future(budgets[1].reserve(CALL)) for _ in range(5)]
        await asyncio.sleep(0.01)
        assert not any(one.done() for one in waiting)
        budgets[0].settle(CALL, LESS)
        assert await waiting[0] is None
        budgets[1].settle(CALL, CALL)
        assert None not in await asyncio.gather(*waiting[1:])

    asyncio.run(two())


def test_without_its_coordinator_a_worker_pays_for_nothing():
    with pytest.raises(JournalError, match="run the same command again"):
        asyncio.run(RemoteJournal(Gone()).recall("k"))


def test_a_worker_replaced_in_the_middle_asks_only_what_is_missing(tmp_path):
    (case,) = cases(1, n=16)
    job = Job(0, case, make_strategy("caps"), 1)

    async def lives(server):
        config = RunConfig(model="stub", base_url=(server.url,), max_connections=4, hard_evidence="off")

        def make_context(journal, budget_pool):
            return Runner(config).worker("verbal", journal, budget_pool)

        coordinator = Here(
            Coordinator(make_context, tmp_path / "journal.sqlite", BudgetLimits(), None, durable=False)
        )
        first, second = Worker("w"), Worker("w")
        cut = asyncio.ensure_future(first.run(coordinator, job))
        await until(lambda: server.requests >= 9)
        await first.close()
        assert cut.cancelled()
        asked = server.requests
        result = await second.run(coordinator, job)
        await second.close()
        await coordinator.close.remote()
        return result, asked

    with ScriptedEndpoint(better_quality_wins) as server:
        result, asked = asyncio.run(lives(server))
        assert 18 <= server.requests <= 18 + 4
    assert len(result.rulings) == 18
    paid = sum(not attempt.replayed for ruling in result.rulings for attempt in ruling.attempts)
    assert 0 < paid <= server.requests - asked < 18


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "ray://127.0.0.1:10001", "127.0.0.1:99999"])
def test_an_address_without_a_cluster_is_refused_at_once(address):
    with pytest.raises(SettingError, match="--ray-address"):
        connect(Cluster(address=address))


def test_the_command_says_so_in_one_line(tmp_path):
    done = caps("select", tmp_path / "none", "--engine", "ray", "--ray-address", "127.0.0.1:1")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "nothing answers there" in done.stderr


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'caps-select\[ray\]'") as missing:
        connect(Cluster())
    assert str(pickle.loads(pickle.dumps(missing.value))) == str(missing.value)


def test_a_table_row_is_read_like_a_line_and_a_wrong_one_is_named(tmp_path):
    row = {"id": None, "problem": "?", "candidates": [{"text": "a", "code": None}], "tests": {"public": None}}
    good, bad = cases_in_rows(enumerate([row, {"problem": "?", "candidates": None}], 1), "t.parquet")
    assert (good.id, good.candidates[0].code, good.extra) == ("1", None, {"tests": {}})
    assert isinstance(bad, InputError)
    assert str(bad).startswith("t.parquet:2: candidates:")
