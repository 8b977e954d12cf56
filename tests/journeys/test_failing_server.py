"""A server that fails in every way: all cases end, every failure has a cause, and the costs add up."""

import json
import random

import pytest

from caps.testing import (
    Half,
    Hang,
    Raw,
    Reply,
    Reset,
    ScriptedEndpoint,
    Status,
    better_quality_wins,
    write_cases,
)
from support.shell import caps, read_lines


def faulty(share, seed):
    """Misbehave in this share of calls, in all ways there are."""
    chance = random.Random(seed)
    ways = [
        Status(429, {"error": {"message": "slow down"}}, {"Retry-After": "0"}),
        Status(500, "oops"),
        Status(503, {"error": {"message": "overloaded"}}),
        Reset(),
        Hang(),
        Raw(b"<html>garbage</html>"),
        Half(),
        Reply("I'm sorry, but I cannot help with that."),
        Reply("The first one seems to", finish="length"),
        Reply(None),
    ]

    def behave(body, number):
        if "quality=" not in body["messages"][0]["content"] or chance.random() >= share:
            return better_quality_wins(body)
        return chance.choice(ways)

    return behave


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_all_cases_end_and_the_costs_add_up(tmp_path, share):
    out = tmp_path / "run"
    with ScriptedEndpoint(faulty(share, 7)) as server:
        done = caps(
            "select", write_cases(tmp_path / "cases.jsonl", 5, n=8), "--model", "stub", "--base-url", server.url,
            "--journal", tmp_path / "journal.sqlite", "--timeout", 3, "--max-connections", 16, "--out", out,
            "--strategy", "caps", "--json", "--keep-going",
        )  # fmt: skip
        requests, served = server.requests, dict(server.tokens)
    assert done.returncode in (0, 1, 3), done.stderr
    assert "Traceback" not in done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    run = json.loads((out / "run.json").read_text())
    assert len(lines) + run["summary"]["failed"] == 5
    rulings = read_lines(out / "rulings.jsonl")
    trial = run["summary"]["trial"]
    assert trial == {"billed": 0, "cached": 0, "output": 0}
    reported = [row for row in rulings if not row.get("estimated")]  # the others had no reply
    assert sum(row.get("tokens", 0) for row in reported) + trial["billed"] == served["prompt"]
    assert sum(row.get("output", 0) for row in reported) + trial["output"] == served["output"]
    assert sum(row.get("requests", 0) for row in rulings) == requests
    for line in lines:
        assert sum(line["causes"].values()) == line["malformed"] + line["unanswered"]
        assert line["provisional"] == (line["unanswered"] > 0 or line.get("cause") == "unreadable")
    counted = run["summary"]
    causes = {**counted["malformed"], **counted["unanswered"]}
    usual = "truncated no-tag refused empty busy server timeout garbled unreachable"
    assert set(causes) <= set(usual.split())
    replayed = caps("replay", out)
    assert [json.loads(line)["order"] for line in replayed.stdout.splitlines()] == [
        line["order"] for line in lines
    ]


def test_a_server_that_goes_away_midway_fails_what_is_left_and_can_be_gone_on_with(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 6, n=8)
    where = ("--model stub --journal", tmp_path / "journal.sqlite", "--max-connections 32 --strategy caps")

    def dying(body, number):
        return better_quality_wins(body) if number < 40 else Status(500, "dead")

    with ScriptedEndpoint(dying) as server:
        first = caps("select", cases, "--base-url", server.url, *where)
    assert first.returncode in (1, 3)
    assert "server" in first.stderr
    with ScriptedEndpoint(better_quality_wins) as server:
        second = caps("select", cases, "--base-url", server.url, *where)
        assert second.returncode == 0, second.stderr
        assert server.requests < 6 * 10 + 1
    assert all("quality=0.8889" in json.loads(line)["text"] for line in second.stdout.splitlines())
