"""Runs in several processes of this machine: real ones, that are interrupted, killed and continued."""

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from caps.config import RunConfig
from caps.core.errors import AccessError, InputError, SettingError
from caps.journal.store import Journal
from caps.runner import Runner
from caps.testing import ScriptedEndpoint, better_quality_wins, cases, write_cases
from engines.workers import CONNECTIONS, Counted, config_for, interrupted, played, seen
from waiting import wait_until

pytestmark = pytest.mark.linux


def setup_for(server, tmp_path, **settings):
    return config_for(server, tmp_path, processes=2, **settings)


def views(outcomes):
    return [(one.prepared.evidence, one.prepared.nonce, one.prepared.code) for one in outcomes]


def test_interrupted_and_then_a_worker_killed_only_what_was_in_flight_is_asked_twice(tmp_path, capfd):
    counted, source, flying = Counted(), cases(20, n=16), []
    with ScriptedEndpoint(counted) as server:
        setup = setup_for(server, tmp_path, hard_evidence="on")

        async def kill(engine):
            with Journal.open(tmp_path / "journal.sqlite") as journal:
                stored = journal.stats().replies
            os.kill(engine.workers[0].pid, signal.SIGKILL)
            flying.append(server.requests - stored)

        asyncio.run(interrupted(setup, iter(source), server))
        assert 30 <= server.requests < 20 * 18
        assert set(counted.came.values()) == {1}
        outcomes, rulings = asyncio.run(played(setup, iter(source), strike=kill))
        assert server.requests - len(counted.came) <= max(flying[0], CONNECTIONS)
        asked = server.requests
        resumed, _ = asyncio.run(played(replace(setup, processes=1), iter(source)))
        assert server.requests == asked, "every reply was in the journal"
    assert seen(outcomes) == seen(resumed)
    assert views(outcomes) == views(resumed)
    assert len(rulings) == len(counted.came) == 20 * 18
    assert capfd.readouterr().out == ""


def test_results_and_costs_are_those_of_one_process_also_for_equal_cases(tmp_path):
    source = [*cases(6, n=6), *(replace(case, id=f"again {case.id}") for case in cases(6, n=6))]
    asked = []
    for processes in (1, 3):
        with ScriptedEndpoint(better_quality_wins) as server:
            setup = replace(setup_for(server, tmp_path / f"{processes}"), processes=processes)
            outcomes, _ = asyncio.run(played(setup, iter(source)))
            paid = sum(one.ledger.total().billed for one in outcomes)
            asked.append((server.requests, paid, seen(outcomes), views(outcomes)))
    assert asked[0] == asked[1]


def test_a_budget_of_the_run_holds_across_processes_and_a_bad_line_fails_alone(tmp_path):
    source = [InputError("cases.jsonl:1: not JSON"), *cases(12)]
    with ScriptedEndpoint(Counted(delay=0)) as server:
        setup = setup_for(server, tmp_path, budget_total_tokens=25_000)
        outcomes, _ = asyncio.run(played(setup, iter(source)))
        spent = sum(server.tokens.values())
    assert 10_000 < spent <= 25_000
    assert [one.number for one in outcomes] == list(range(13))
    assert outcomes[0].failure == "cases.jsonl:1: not JSON"
    assert any(one.selection.provisional for one in outcomes[1:])


def test_a_refused_key_ends_the_run_as_it_would_in_one_process(tmp_path):
    with ScriptedEndpoint(Counted(), api_key="right") as server, pytest.raises(AccessError) as refused:
        asyncio.run(played(setup_for(server, tmp_path), iter(cases(4)), key="sk-wrong-key"))
    assert "sk-wrong-key" not in str(refused.value)


@pytest.mark.slow
def test_workers_end_with_a_command_that_is_killed_and_the_next_one_continues(tmp_path):
    counted = Counted()
    write_cases(tmp_path / "cases.jsonl", 12, n=8)
    with ScriptedEndpoint(counted) as server:
        command = [
            sys.executable, "-m", "caps", "select", str(tmp_path / "cases.jsonl"), "--model", "stub",
            "--base-url", server.url, "--processes", "2", "--max-connections", "4", "--strategy", "caps",
            "--journal", str(tmp_path / "j"), "--hard-evidence", "off",
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            wait_until(lambda: server.requests >= 20)
            process.kill()  # its output ends once the workers, which share it, have ended
            process.stdout.read()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 12
    assert sum(counted.came.values()) - len(counted.came) <= 4


def test_what_cannot_be_shared_is_refused_with_a_way_out(tmp_path):
    setup = RunConfig(model="stub", base_url=("http://127.0.0.1:9",), processes=2, journal=None)

    async def opened(runner):
        async with runner.session():
            pass

    with pytest.raises(SettingError, match="--processes 2: is for --engine local, not ray"):
        asyncio.run(opened(Runner(replace(setup, engine="ray"))))
    with pytest.raises(SettingError, match="processes: a function cannot be the judge; leave it out"):
        asyncio.run(opened(Runner(setup, judge=lambda *_: "A")))
