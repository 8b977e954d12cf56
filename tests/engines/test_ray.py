"""A real cluster on this machine, real workers, a real server."""

import asyncio
import os
import signal
from dataclasses import replace
from itertools import count

import pytest

from caps.core.errors import AccessError, InputError
from caps.engines.base import Cluster
from caps.engines.ray import READ_AHEAD, connect
from caps.journal.store import Journal
from caps.testing import ScriptedEndpoint, better_quality_wins, cases
from support.clusters import CONNECTIONS, Counted, config_for, interrupted, played, seen

pytestmark = [
    pytest.mark.linux,
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning:ray"),
]
WORKERS = 2


@pytest.fixture(scope="module")
def cluster():
    ray = connect(Cluster())
    yield ray
    ray.shutdown()


def setup_for(server, tmp_path, **settings):
    return config_for(server, tmp_path, engine="ray", ray_workers=WORKERS, **settings)


@pytest.mark.slow
def test_after_an_interrupt_and_a_killed_worker_only_open_requests_are_repeated(cluster, tmp_path, capfd):
    counted, source, flying = Counted(), cases(20, n=16), []
    with ScriptedEndpoint(counted) as server:
        setup = setup_for(server, tmp_path, hard_evidence="on")

        async def kill(engine):
            process = await engine.workers[0].ready.remote()
            with Journal.open(tmp_path / "journal.sqlite") as journal:
                stored = journal.stats().replies
            os.kill(process, signal.SIGKILL)
            flying.append(server.requests - stored)

        asyncio.run(interrupted(setup, iter(source), server))
        assert 30 <= server.requests < 20 * 18
        assert set(counted.came.values()) == {1}
        outcomes, rulings = asyncio.run(played(setup, iter(source), strike=kill))
        assert server.requests - len(counted.came) <= flying[0] < 60
        assert max(counted.came.values()) <= 2
        asked = server.requests
        resumed, _ = asyncio.run(played(replace(setup, engine="local"), iter(source)))
        assert server.requests == asked, "every reply was in the driver's journal"
    assert seen(outcomes) == seen(resumed)
    assert all(one.prepared.case.candidates[one.selection.winner].correct for one in outcomes)
    assert all(one.found.cluster for outcome in outcomes for one in outcome.prepared.case.candidates)
    assert len(rulings) == len(counted.came) == 20 * 18
    with Journal.open(tmp_path / "journal.sqlite") as journal:
        assert journal.stats().replies == len(counted.came)
        assert len(journal.facts("finding")) == len(source)
    assert capfd.readouterr().out == "", "what Ray says of a death is not a result"


@pytest.mark.slow
def test_a_budget_of_the_run_holds_across_workers_and_a_bad_line_fails_alone(cluster, tmp_path):
    source = [InputError("cases.jsonl:1: not JSON"), *cases(12)]
    with ScriptedEndpoint(Counted(delay=0)) as server:
        setup = setup_for(server, tmp_path, budget_total_tokens=25_000)
        outcomes, _ = asyncio.run(played(setup, iter(source)))
        spent = sum(server.tokens.values())
    assert 10_000 < spent <= 25_000
    assert [one.number for one in outcomes] == list(range(13))
    assert outcomes[0].failure == "cases.jsonl:1: not JSON"
    assert any(one.selection.provisional for one in outcomes[1:])


@pytest.mark.slow
def test_a_refused_key_ends_the_run_and_an_endless_source_is_not_read_ahead(cluster, tmp_path):
    read = count()

    def endless():
        while True:
            yield from (replace(case, id=f"{next(read)}") for case in cases(4))

    with ScriptedEndpoint(Counted(), api_key="right") as server:
        setup = setup_for(server, tmp_path)
        with pytest.raises(AccessError) as refused:
            asyncio.run(played(replace(setup, ray_workers=1), endless(), key="sk-wrong-key"))
    assert "sk-wrong-key" not in str(refused.value)
    assert next(read) <= READ_AHEAD * CONNECTIONS


@pytest.mark.slow
def test_workers_ask_every_judge_and_the_journal_holds_all_replies(cluster, tmp_path):
    source = cases(3, n=5)
    with ScriptedEndpoint(better_quality_wins) as one, ScriptedEndpoint(better_quality_wins) as other:
        tables = [{"model": "stub", "base_url": one.url}, {"model": "other", "base_url": other.url}]
        setup = replace(setup_for(one, tmp_path), model=None, base_url=(), judges=tables)
        outcomes, _ = asyncio.run(played(setup, iter(source)))
        asked = one.requests, other.requests
        again, _ = asyncio.run(played(replace(setup, engine="local"), iter(source)))
        assert (one.requests, other.requests) == asked
    assert asked[0] == asked[1] > 0
    assert seen(outcomes) == seen(again)
    assert {opinion.judge for ruled in outcomes[0].judged for opinion in ruled.ruling.opinions} == {
        "stub",
        "other",
    }
