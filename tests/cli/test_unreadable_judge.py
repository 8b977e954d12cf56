"""A judge whose replies cannot be read stops a run, is asked again by a new run, and is never a success."""

import json
from collections import Counter
from collections.abc import Callable

import pytest

from caps.core.text import number
from caps.journal.store import Journal
from caps.testing import Reply, ScriptedEndpoint, better_quality_wins, count_tokens, is_judge, write_cases
from support.shell import caps, json_lines, read_lines

STUDY = """
title = "Two strategies"
suites = [{ name = "real", cases = "cases.jsonl", n = 4 }]
strategies = [{ name = "CAPS", use = "caps" }, { name = "Ratings", use = "pointwise" }]
tables = [{ name = "t", title = "t", metrics = ["pass_at_1"] }]
"""
KEY = "sk-live-3f9a8b7c6d5e4f3a2b1c"


class MendableJudge:
    """Replies to every question, or by its text, as it is told to; without a reply it judges."""

    reply: Reply | Callable[[str], Reply | None] | None = Reply("Both look fine.")

    def __call__(self, body, number):
        if not is_judge(body):
            return Reply("OK")
        reply = self.reply(body["messages"][0]["content"]) if callable(self.reply) else self.reply
        return better_quality_wins(body) if reply is None else reply


@pytest.fixture
def judge():
    return MendableJudge()


@pytest.fixture
def server(judge):
    with ScriptedEndpoint(judge) as running:
        yield running


def trial(server):
    """Tokens of the calls that only test the endpoint."""
    first = server.bodies[: server.requests - len(asked(server))]
    return sum(count_tokens(str(one["content"])) for body in first for one in body["messages"])


def asked(server):
    return list(filter(is_judge, server.bodies))


# Three tries for each ask of the first rounds of as few cases as are looked at, and for those under way.
@pytest.mark.parametrize(
    ("strategy", "most"), [("posterior", 90), ("caps", 90), ("pointwise", 160), ("v1-infer", 90)]
)
def test_a_judge_that_cannot_be_read_stops_the_run_early_with_its_own_exit_code(
    select, server, tmp_path, strategy, most
):
    file = write_cases(tmp_path / "cases.jsonl", 40)
    done = select(file, "--strategy", strategy, "--max-connections", 4)
    assert done.returncode == 5, done.stderr
    assert "cannot be read" in done.stderr
    assert "a reply begins: 'Both look fine.'" in done.stderr
    assert "--reply auto" in done.stderr
    assert "--keep-going" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(asked(server)) <= most  # all cases would take more than a thousand
    with Journal.open(tmp_path / "journal.sqlite") as journal:
        assert journal.stats().replies == len(asked(server))  # everything paid for is kept


def test_with_keep_going_the_run_ends_and_says_which_answers_are_provisional_and_why(select, tmp_path):
    done = select(write_cases(tmp_path / "cases.jsonl", 4, n=4), "--keep-going")
    assert done.returncode == 3, done.stderr
    lines = json_lines(done)
    assert len(lines) == 4
    for line in lines:
        assert (line["provisional"], line["cause"]) == (True, "unreadable")
        assert line["causes"] == {"no-tag": line["malformed"]}


def test_a_single_case_is_judged_by_all_its_asks(select, tmp_path):
    done = select(write_cases(tmp_path / "cases.jsonl", 1, n=4), "--strategy", "caps")
    assert done.returncode == 5
    (line,) = json_lines(done)  # a case that was finished by then is delivered
    assert (line["provisional"], line["cause"]) == (True, "unreadable")


def test_half_of_the_replies_may_be_unreadable(select, judge, tmp_path):
    seen = {}
    judge.reply = lambda prompt: Reply("Hm.") if seen.setdefault(prompt, len(seen) % 2 == 1) else None
    done = select(write_cases(tmp_path / "cases.jsonl", 6, n=4), "--strategy pointwise --max-connections 1")
    assert done.returncode == 0, done.stderr
    assert not any(line["provisional"] for line in json_lines(done))


def test_cases_that_are_finished_are_delivered_before_the_run_stops(select, judge, server, tmp_path):
    file = tmp_path / "cases.jsonl"
    alike = {"id": "agreed", "problem": "2+2?", "domain": "math", "candidates": ["\\boxed{4}", "\\boxed{4}"]}
    write_cases(file, 12)
    file.write_text(json.dumps(alike) + "\n" + file.read_text())
    done = select(file, "--strategy", "caps", "--out", tmp_path / "out")
    assert done.returncode == 5
    assert json_lines(done)[0]["id"] == "agreed"
    assert "1 case finished; " in done.stderr
    assert f"{number(server.tokens['prompt'] - trial(server), 0)} tokens read" in done.stderr
    for line in json_lines(done):
        assert line in read_lines(tmp_path / "out" / "selections.jsonl")


@pytest.mark.parametrize("connections", [1, 3, 16])
def test_whether_it_stops_does_not_depend_on_the_order_of_replies(select, judge, tmp_path, connections):
    """The judge reads poorly about the first cases and well about the rest: they would outvote them."""
    early = [f"What is it, case {number}?" for number in range(6)]
    judge.reply = lambda prompt: Reply("Hm.", delay=0.05) if any(q in prompt for q in early) else None
    cases = write_cases(tmp_path / "cases.jsonl", 30, n=4)
    done = select(cases, "--strategy", "pointwise", "--max-connections", connections)
    assert done.returncode == 5
    assert "12 of 12 asks about 3 cases" in done.stderr


def test_a_key_in_a_reply_is_not_shown(judge, tmp_path):
    judge.reply = Reply(f"\x1b[31mI was sent {KEY} and {'x' * 500}")
    with ScriptedEndpoint(judge, api_key=KEY) as server:
        done = caps(
            "select", write_cases(tmp_path / "cases.jsonl", 3, n=4), "--base-url", server.url,
            "--model", "stub", "--journal", tmp_path / "journal.sqlite", CAPS_API_KEY=KEY,
        )  # fmt: skip
    assert done.returncode == 5
    assert "a reply begins: " in done.stderr
    assert KEY not in done.stderr
    assert "\x1b" not in done.stderr
    assert "x" * 300 not in done.stderr


def test_replies_that_are_cut_off_bring_other_advice(select, judge, tmp_path):
    judge.reply = Reply("I think that", finish="length")
    done = select(write_cases(tmp_path / "cases.jsonl", 3, n=4))
    assert done.returncode == 5
    assert "raise --max-tokens" in done.stderr


def test_a_new_run_asks_again_what_could_not_be_read_and_a_resumed_one_does_not(
    select, judge, server, tmp_path
):
    file = write_cases(tmp_path / "cases.jsonl", 3, n=4)
    broken = select(file, "--strategy", "caps", "--keep-going", "--out", tmp_path / "broken")
    assert broken.returncode == 3
    paid = len(asked(server))
    judge.reply = None  # mended

    resumed = select(file, "--strategy", "caps", "--keep-going", "--out", tmp_path / "broken")
    assert len(asked(server)) == paid
    assert [line["order"] for line in json_lines(resumed)] == [line["order"] for line in json_lines(broken)]

    new = select(file, "--strategy", "caps", "--out", tmp_path / "new")
    assert new.returncode == 0, new.stderr
    assert not any(line["malformed"] for line in json_lines(new))
    assert len(asked(server)) > paid
    paid = len(asked(server))

    again = select(file, "--strategy", "caps", "--out", tmp_path / "third")  # readable replies are final
    assert len(asked(server)) == paid
    assert [line["order"] for line in json_lines(again)] == [line["order"] for line in json_lines(new)]

    for name, was in (("broken", broken), ("new", new)):
        replayed = caps("replay", tmp_path / name)
        assert replayed.returncode == 0, replayed.stderr
        assert "all as in the run" in replayed.stderr
        assert [line["order"] for line in json_lines(replayed)] == [line["order"] for line in json_lines(was)]
        assert [line["malformed"] for line in json_lines(replayed)] == [
            line["malformed"] for line in json_lines(was)
        ]
    assert len(asked(server)) == paid
    with Journal.open(tmp_path / "journal.sqlite") as journal:
        assert journal.stats().replies == paid  # the old ones are there for audit


def test_an_ask_with_a_readable_retry_is_not_asked_again(select, judge, server, tmp_path):
    tries = Counter()

    def readable_at_the_second_try(prompt):
        tries[prompt] += 1
        return Reply("Hm.") if tries[prompt] == 1 else None

    judge.reply = readable_at_the_second_try
    file = write_cases(tmp_path / "cases.jsonl", 3, n=4)
    assert select(file, "--strategy", "caps").returncode == 0
    paid = len(asked(server))
    assert select(file, "--strategy", "caps").returncode == 0
    assert len(asked(server)) == paid


def test_force_makes_a_new_run_of_the_same_folder(select, judge, server, tmp_path):
    file = write_cases(tmp_path / "cases.jsonl", 3, n=4)
    assert select(file, "--out", tmp_path / "out").returncode == 5
    assert select(file, "--out", tmp_path / "out").returncode == 5  # the same replies
    judge.reply = None
    done = select(file, "--out", tmp_path / "out", "--force")
    assert done.returncode == 0, done.stderr


def test_the_skipped_replies_of_earlier_runs_are_not_charged_to_the_budget_of_a_case(select, judge, tmp_path):
    file = write_cases(tmp_path / "cases.jsonl", 3, n=4)
    words = ("--strategy", "pointwise", "--max-tokens", 100)
    assert select(file, *words).returncode == 5
    judge.reply = None
    plain = select(file, *words)
    spent = max(line["tokens"]["asked"] + line["tokens"]["output"] for line in json_lines(plain))
    limited = select(file, *words, "--budget-tokens", spent + 4000)
    assert limited.returncode == 0, limited.stderr


@pytest.mark.parametrize("command", ["bench", "diagnose"])
def test_a_benchmark_and_a_diagnosis_stop_too(server, tmp_path, command):
    file = write_cases(tmp_path / "cases.jsonl", 8, n=4)
    (tmp_path / "study.toml").write_text(STUDY)
    words = (tmp_path / "study.toml", "--out", tmp_path / "out") if command == "bench" else (file,)
    where = (f"--base-url {server.url} --model stub --journal", tmp_path / "journal.sqlite")
    done = caps(command, *words, *where)
    assert done.returncode == 5, done.stderr
    assert "cannot be read" in done.stderr


def test_one_question_stops_too(tmp_path):
    def behave(body, number):
        if is_judge(body):
            return Reply("Both look fine.")
        return Reply(f"{'Long thoughts. ' * 300} It is \\boxed{{{number % 2}}}")

    with ScriptedEndpoint(behave) as server:
        where = (f"--base-url {server.url} --model stub --journal", tmp_path / "journal.sqlite")
        for samples in ("--n 4", "--n auto --max-n 4 --price-input 0.001 --price-output 100"):
            done = caps("solve", f"What is it, with {samples}?", *where, samples)
            assert done.returncode == 5, done.stderr
