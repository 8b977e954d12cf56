"""Killed at any moment and run again: nothing is lost, and only what was in flight is asked twice."""

import json
import random
import signal

import pytest

from caps.testing import Reply, ScriptedEndpoint, better_quality_wins, write_cases
from support.ledger import Ledger
from support.shell import caps, start
from support.waiting import wait_until

KILLS = 30
CONNECTIONS = 4
CASES, CALLS_EACH = 40, 18


def slowly(body, number):
    return Reply(better_quality_wins(body).text, delay=0.03)


def selections(done):
    return {line["id"]: (line["winner"], line["order"]) for line in map(json.loads, done.stdout.splitlines())}


def words_for(server, tmp_path, *more):
    cases = write_cases(tmp_path / "cases.jsonl", CASES)
    return (
        "select", cases, "--model", "stub", "--base-url", server.url, "--journal", tmp_path / "journal.sqlite",
        "--max-connections", CONNECTIONS, "--strategy", "caps", "--quiet", *more,
    )  # fmt: skip


def test_a_run_killed_30_times_asks_again_only_what_had_not_been_answered(tmp_path):
    chance, journal = random.Random(1), tmp_path / "journal.sqlite"
    with Ledger() as server:
        words = words_for(server, tmp_path, "--out", tmp_path / "run")
        for number in range(KILLS):
            server.may_answer += chance.randrange(24)
            process = start(*words, CAPS_API_KEY=f"run {number}")
            wait_until(lambda: server.holds(journal))
            process.kill()
            _, said = process.communicate()
            assert process.returncode == -signal.SIGKILL, said
            wait_until(lambda: server.busy == 0)
            server.give_up(f"run {number}")
            server.may_answer = len(server.asked)
        server.may_answer = 10**9
        at_last = caps(*words, CAPS_API_KEY="the last run")
        assert at_last.returncode == 0, at_last.stderr
        assert server.repeated == [], "it was paid twice although it had been answered"
        assert KILLS <= len(server.lost) <= KILLS * CONNECTIONS
        assert len({request for _, request in server.asked}) == CASES * CALLS_EACH
        undisturbed = caps(
            *words[:6],
            "--no-journal --strategy caps --quiet --max-connections 64",
            CAPS_API_KEY="undisturbed",
        )
    assert selections(at_last) == selections(undisturbed)


@pytest.mark.linux
@pytest.mark.parametrize("killed", [False, True])
def test_two_processes_on_one_journal_repeat_only_what_a_killed_one_left_unanswered(tmp_path, killed):
    with Ledger() as server:
        words = words_for(server, tmp_path)
        first, second = (start(*words, CAPS_API_KEY=name) for name in ("first", "second"))
        server.may_answer = 150
        wait_until(lambda: server.holds(tmp_path / "journal.sqlite"))
        if killed:
            first.kill()
            first.communicate()
            server.give_up("first")
        server.may_answer = 10**9
        for process in (second,) if killed else (first, second):
            _, said = process.communicate()
            assert process.returncode == 0, said
        asked = len(server.asked)
        again = caps(*words)
        assert len(server.asked) == asked, "everything is in the journal"
    assert server.repeated == []
    assert len({request for _, request in server.asked}) == CASES * CALLS_EACH
    assert len(selections(again)) == CASES


@pytest.mark.linux
@pytest.mark.parametrize("names", [("shared", "shared"), ("first", "second")])
def test_a_killed_shard_is_run_again_and_all_shards_are_the_whole_run(tmp_path, names):
    journals = [tmp_path / f"{name}.sqlite" for name in names]
    with Ledger() as server:
        cases = write_cases(tmp_path / "cases.jsonl", CASES)
        to = ("select", cases, "--model", "stub", "--base-url", server.url, "--strategy", "caps", "--quiet")

        def shard(number, run=caps):
            split = ("--shard", f"{number}/2", "--out", tmp_path / "run", "--max-connections", CONNECTIONS)
            return run(*to, *split, "--journal", journals[number - 1], CAPS_API_KEY=f"shard {number}")

        first, second = shard(1, start), shard(2, start)
        server.may_answer = 150
        wait_until(lambda: server.holds(*journals))
        first.kill()
        first.communicate()
        server.give_up("shard 1")
        server.may_answer = 10**9
        _, said = second.communicate()
        assert second.returncode == 0, said
        assert "unfinished" in caps("replay", tmp_path / "run").stderr
        assert shard(1).returncode == 0
        assert server.repeated == [], "it was paid twice although it had been answered"
        assert len({request for _, request in server.asked}) == CASES * CALLS_EACH
        undisturbed = caps(*to, "--no-journal", CAPS_API_KEY="undisturbed")
    replayed = caps("replay", tmp_path / "run")
    assert replayed.returncode == 0, replayed.stderr
    assert list(selections(replayed).items()) == list(selections(undisturbed).items())


def interrupted(tmp_path, server, sign):
    words = (
        "select", write_cases(tmp_path / "cases.jsonl", 12), "--model", "stub", "--base-url", server.url,
        "--journal", tmp_path / "journal.sqlite", "--max-connections", 2, "--strategy", "caps",
    )  # fmt: skip
    process = start(*words)
    wait_until(lambda: server.requests >= 20 or process.poll() is not None)
    process.send_signal(sign)
    _, said = process.communicate()
    return words, process.returncode, said


def test_ctrl_c_and_sigterm_keep_what_was_paid_and_say_how_to_go_on(tmp_path):
    for sign in (signal.SIGINT, signal.SIGTERM):
        folder = tmp_path / sign.name
        folder.mkdir()
        with ScriptedEndpoint(slowly) as server:
            words, code, said = interrupted(folder, server, sign)
            assert code == 130
            assert "run the same command again" in said
            assert "Traceback" not in said
            assert caps(*words).returncode == 0
            judged = [json.dumps(body) for body in server.bodies if "quality=" in str(body)]
        assert len(set(judged)) == len(judged) == 12 * 18, "what was in flight came in"
