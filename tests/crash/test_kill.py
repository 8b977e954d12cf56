"""Killed at any moment and run again: nothing is lost, and only what was in flight is asked twice."""

import json
import random
import signal
import time
from collections import defaultdict

from judging import better_quality_wins, write_cases
from models.server import Reply, StubServer
from shell import caps, start
from waiting import wait_until

KILLS = 25
LONG_BEFORE = (
    12  # who has asked so many times since has the answer in the journal: four at most are under way
)


def slowly(body, number):
    return Reply(better_quality_wins(body).text, delay=0.03)


def asked(server):
    """What was judged, in order: who asked (each run has a key of its own) and the whole request."""
    heard = zip(server.headers, server.bodies, strict=True)
    return [
        (headers["Authorization"], json.dumps(body, sort_keys=True))
        for headers, body in heard
        if "quality=" in str(body)
    ]


def run_and_kill(server, words, key, pause):
    """Kill a run so long after its first request."""
    before, process = server.requests, start(*words, CAPS_API_KEY=key)
    wait_until(lambda: server.requests > before or process.poll() is not None)
    time.sleep(pause)
    process.kill()
    process.communicate()


def selections(done):
    return {line["id"]: (line["winner"], line["order"]) for line in map(json.loads, done.stdout.splitlines())}


def test_a_run_killed_25_times_selects_the_same_and_repeats_only_what_was_in_flight(tmp_path):
    cases, chance, connections = write_cases(tmp_path / "cases.jsonl", 40), random.Random(1), 4
    with StubServer(slowly) as server:
        words = (
            "select", cases, "--model", "stub", "--base-url", server.url, "--journal", tmp_path / "journal.sqlite",
            "--max-connections", connections, "--out", tmp_path / "run", "--strategy", "caps", "--quiet",
        )  # fmt: skip
        for number in range(KILLS):
            run_and_kill(server, words, f"run {number}", chance.uniform(0, 0.25))
        at_last = caps(*words, CAPS_API_KEY="the last run")
        assert at_last.returncode == 0, at_last.stderr
        came = asked(server)
        undisturbed = caps(
            *words[:6], "--no-journal", "--strategy", "caps", "--quiet", "--max-connections", 64
        )
    by_run, last = defaultdict(list), {request: who for who, request in came}
    for who, request in came:
        by_run[who].append(request)
    for who, requests in by_run.items():
        assert len(set(requests)) == len(requests)
        lost = {request for request in requests if last[request] != who}
        assert len(lost) <= connections
        assert lost <= set(requests[-LONG_BEFORE:]), "it was answered before the kill"
    assert len(last) == 40 * 18
    assert selections(at_last) == selections(undisturbed)


def test_two_processes_on_one_journal_neither_corrupt_it_nor_pay_twice_for_what_is_finished(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 12)
    with StubServer(slowly) as server:
        words = (
            "select", cases, "--model", "stub", "--base-url", server.url, "--journal", tmp_path / "journal.sqlite",
            "--max-connections", 3, "--strategy", "caps", "--quiet",
        )  # fmt: skip
        first = start(*words, CAPS_API_KEY="first")
        wait_until(lambda: server.requests >= 60 or first.poll() is not None)
        for process in (first, start(*words, CAPS_API_KEY="second")):
            _, said = process.communicate()
            assert process.returncode == 0, said
        came, so_far = asked(server), server.requests
        again = caps(*words)
        assert server.requests == so_far + 1
    assert len(selections(again)) == 12
    places, number = defaultdict(list), {}
    for place, (who, request) in enumerate(came):
        assert (who, request) not in number
        number[who, request] = len(places[who])
        places[who].append(place)
    for (who, request), nth in number.items():
        for other in places.keys() - {who}:
            stored = places[who][nth + LONG_BEFORE :][:1]
            looked_for = places[other][: max(0, number.get((other, request), 0) - LONG_BEFORE)][-1:]
            assert not (stored and looked_for) or looked_for < stored, "paid again although it was finished"


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
        with StubServer(slowly) as server:
            words, code, said = interrupted(folder, server, sign)
            assert code == 130
            assert "run the same command again" in said
            assert "Traceback" not in said
            assert caps(*words).returncode == 0
            judged = [json.dumps(body) for body in server.bodies if "quality=" in str(body)]
        assert len(set(judged)) == len(judged) == 12 * 18, "what was in flight came in"
