"""Killed at any moment and run again: nothing is lost, and only what was in flight is asked twice."""

import json
import os
import random
import signal
import subprocess
import time
from collections import defaultdict
from itertools import pairwise

from judging import better_quality_wins, write_cases
from models.server import Reply, StubServer
from shell import CAPS, caps

KILLS = 25
DELAY = 0.03


class Clocked:
    """Remembers when each prompt came in; answers after a while."""

    def __init__(self):
        self.came = defaultdict(list)

    def __call__(self, body, number):
        self.came[json.dumps(body, sort_keys=True)].append(time.monotonic())
        reply = better_quality_wins(body)
        return Reply(reply.text, delay=DELAY)

    @property
    def judged(self):
        return {body: times for body, times in self.came.items() if "quality=" in body}


def start(words):
    return subprocess.Popen(
        [str(CAPS), *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def selections(done):
    return {line["id"]: (line["winner"], line["order"]) for line in map(json.loads, done.stdout.splitlines())}


def test_a_run_killed_25_times_selects_the_same_and_repeats_only_what_was_in_flight(tmp_path):
    cases, clock, chance, killed = write_cases(tmp_path / "cases.jsonl", 40), Clocked(), random.Random(1), []
    with StubServer(clock) as server:
        words = (
            "select", cases, "--model", "stub", "--base-url", server.url, "--journal", tmp_path / "journal.sqlite",
            "--max-connections", 4, "--out", tmp_path / "run", "--strategy", "caps", "--quiet",
        )  # fmt: skip
        for _ in range(KILLS):
            before = server.requests
            process = start(words)
            while server.requests == before and process.poll() is None:
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.25))
            killed.append(time.monotonic())
            process.kill()
            process.communicate()
        at_last = caps(*words)
        assert at_last.returncode == 0, at_last.stderr
        repeated = [times for times in clock.judged.values() if len(times) > 1]
        for times in repeated:
            for first, again in pairwise(times):
                assert any(-0.3 < kill - first < 0.5 and kill <= again for kill in killed)
        assert len(clock.judged) == 40 * 18
        assert sum(len(times) - 1 for times in repeated) <= KILLS * 6
        undisturbed = caps(
            *words[:6], "--no-journal", "--strategy", "caps", "--quiet", "--max-connections", 64
        )
    assert selections(at_last) == selections(undisturbed)


def test_two_processes_on_one_journal_neither_corrupt_it_nor_pay_twice_for_what_is_finished(tmp_path):
    cases, clock = write_cases(tmp_path / "cases.jsonl", 12), Clocked()
    with StubServer(clock) as server:
        words = (
            "select", cases, "--model", "stub", "--base-url", server.url, "--journal", tmp_path / "journal.sqlite",
            "--max-connections", 3, "--strategy", "caps", "--quiet",
        )  # fmt: skip
        processes = [start(words) for _ in range(2)]
        for process in processes:
            _, said = process.communicate(timeout=60)
            assert process.returncode == 0, said
        for times in clock.judged.values():
            assert len(times) <= 2
            if len(times) == 2:
                assert times[1] - times[0] < 10 * DELAY, "paid again although it was finished"
        asked = server.requests
        again = caps(*words)
        assert server.requests == asked + 1
    assert len(selections(again)) == 12


def interrupted(tmp_path, server, number):
    words = (
        "select", write_cases(tmp_path / "cases.jsonl", 12), "--model", "stub", "--base-url", server.url,
        "--journal", tmp_path / "journal.sqlite", "--max-connections", 2, "--strategy", "caps",
    )  # fmt: skip
    process = start(words)
    while server.requests < 20:
        time.sleep(0.01)
    os.kill(process.pid, number)
    _, said = process.communicate(timeout=30)
    return words, process.returncode, said


def test_ctrl_c_and_sigterm_keep_what_was_paid_and_say_how_to_go_on(tmp_path):
    for number in (signal.SIGINT, signal.SIGTERM):
        clock = Clocked()
        folder = tmp_path / str(number)
        folder.mkdir()
        with StubServer(clock) as server:
            words, code, said = interrupted(folder, server, number)
            assert code == 130
            assert "run the same command again" in said
            assert "Traceback" not in said
            assert caps(*words).returncode == 0
            assert sum(len(times) - 1 for times in clock.judged.values()) == 0, "what was in flight came in"
            assert len(clock.judged) == 12 * 18
