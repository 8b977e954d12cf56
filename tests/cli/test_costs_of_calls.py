"""What calls cost: free replies of a journal, calls that a budget refuses, and calls without a reply."""

import asyncio
import json
import re

import pytest

import caps as library
from caps import Level, Pairing
from caps.core.errors import BusyError, GarbledError, TimedOutError
from caps.core.types import Usage
from caps.engines.budget import BudgetLimits, CaseBudget, RunBudget
from caps.judging.llm import JudgeSettings, JudgingModel, LlmJudge
from caps.judging.payment import USUAL_REPLY
from caps.models.http import HttpModel
from caps.models.scripted import ScriptedModel
from caps.session.parts import load_templates, make_prepare
from caps.testing import Hang, Raw, Reply, ScriptedEndpoint, cases, write_cases
from support.closing import closing
from support.shell import caps, json_lines

PAIR = Pairing(0, 1, Level.FULL)
GOOD = "Read.\n<winner>B</winner>\n<confidence>HIGH</confidence>"


def judge_with(model):
    judging_model = JudgingModel(model, "m")
    return LlmJudge(judging_model, load_templates(), JudgeSettings())


@pytest.mark.parametrize("strategy", ["caps", "posterior", "pointwise"])
def test_no_total_budget_refuses_replies_that_the_journal_holds(select, server, tmp_path, strategy):
    file = write_cases(tmp_path / "cases.jsonl", 4, n=6)
    paid = select(file, "--strategy", strategy)
    assert paid.returncode == 0, paid.stderr
    requests = server.requests
    for limit in (("--budget-total-tokens", 0), ("--budget-total-usd", 0, "--price-input", 1)):
        price = ("--price-output", 1) if "--price-input" in limit else ()
        again = select(file, "--strategy", strategy, *limit, *price)
        assert again.returncode == 0, again.stderr
        assert [line["order"] for line in json_lines(again)] == [line["order"] for line in json_lines(paid)]
        assert not any(line["unanswered"] for line in json_lines(again))
    judged = [body for body in server.bodies[requests:] if "quality=" in str(body)]
    assert judged == []


def test_samples_that_the_journal_holds_are_not_refused_either(tmp_path):
    (tmp_path / "problems.jsonl").write_text(json.dumps({"id": "a", "problem": "What is it?"}) + "\n")
    with ScriptedEndpoint(lambda _, number: Reply(f"It is {number}.")) as server:
        words = (
            "sample", tmp_path / "problems.jsonl", "-n", 4, "--base-url", server.url, "--model", "stub",
            "--journal", tmp_path / "journal.sqlite",
        )  # fmt: skip
        first = caps(*words)
        assert first.returncode == 0, first.stderr
        again = caps(*words, "--budget-total-tokens", 0)
    assert again.returncode == 0, again.stderr
    assert again.stdout == first.stdout


def test_answers_of_a_function_that_the_journal_holds_are_not_refused_either(tmp_path):
    def longer_wins(problem, a, b):
        return ("A" if len(a) > len(b) else "B"), Usage(1000, 10)

    longer_wins.judge_id = "longer wins"
    words = {"judge": longer_wins, "journal": tmp_path / "journal.sqlite", "strategy": "caps"}
    paid = library.select_many_sync(cases(3, n=4), **words)
    again = library.select_many_sync(cases(3, n=4), **words, budget_total_tokens=1)
    assert [one.order for one in again] == [one.order for one in paid]


def test_a_budget_that_ends_a_run_says_what_a_call_reserves_and_what_was_left(select, tmp_path):
    file = write_cases(tmp_path / "cases.jsonl", 3, n=4)
    done = select(file, "--budget-total-tokens", 3000, "--out", tmp_path / "out")
    assert done.returncode == 3
    said = re.search(
        r"--budget-total-tokens ended: a call reserves at least ([\d,]+) tokens .* ([\d,]+) tokens were left",
        done.stderr,
    )
    assert said, done.stderr
    reserves, left = (int(one.replace(",", "")) for one in said.groups())
    assert reserves > 4096  # the room for a reply
    assert left <= 3000
    summary = json.loads((tmp_path / "out" / "run.json").read_text())["summary"]
    assert summary["budget_ended"] == {"budget_total_tokens": {"call_reserves": reserves, "left": left}}
    assert all(line["cause"] == "budget" for line in json_lines(done))


def test_so_does_the_budget_of_a_case_and_one_in_dollars(select, tmp_path):
    file = write_cases(tmp_path / "cases.jsonl", 1, n=4)
    tokens = select(file, "--budget-tokens", 100)
    assert "--budget-tokens ended: a call reserves at least " in tokens.stderr
    dollars = select(file, "--budget-usd", 0.000001, "--price-input", 1, "--price-output", 1)
    assert "--budget-usd ended: a call reserves at least $0.00" in dollars.stderr
    assert "$0.000001 were left" in dollars.stderr


@pytest.mark.slow
def test_calls_that_a_deadline_cancels_are_estimated_and_marked(tmp_path):
    def behave(body, number):
        return Hang() if "BEGIN CANDIDATE" in str(body["messages"][0]["content"]) else Reply()

    with ScriptedEndpoint(behave) as server:
        done = caps(
            "select", write_cases(tmp_path / "cases.jsonl", 1, n=4), "--base-url", server.url,
            "--model", "stub", "--journal", tmp_path / "journal.sqlite", "--budget-seconds", 4,
            "--price-input", 10, "--price-output", 10, "--strategy", "pointwise", "--out", tmp_path / "out",
        )  # fmt: skip
        sent = [body for body in server.bodies if "BEGIN CANDIDATE" in str(body)]
    (line,) = json_lines(done)
    read = sum(len(body["messages"][0]["content"]) / 4 for body in sent)
    assert line["tokens"]["estimated"] is True
    assert line["tokens"]["billed"] == pytest.approx(read, rel=0.05)
    assert line["tokens"]["output"] == len(sent) * USUAL_REPLY
    assert line["usd"] == pytest.approx((line["tokens"]["billed"] + line["tokens"]["output"]) * 10 / 1e6)
    assert "tokens: about " in done.stderr
    assert "cost: about $" in done.stderr
    rulings = [json.loads(row) for row in (tmp_path / "out" / "rulings.jsonl").read_text().splitlines()]
    assert [row["estimated"] for row in rulings if row.get("tokens")] == [True] * len(sent)
    loaded = library.load_run(tmp_path / "out")
    assert loaded.results[0].ledger.estimated


@pytest.mark.parametrize("error", [TimedOutError, GarbledError])
async def test_a_call_whose_replies_were_lost_is_estimated_for_every_request(error):
    model = ScriptedModel([GOOD, error("lost", attempts=3)])
    judge, prepared = judge_with(model), make_prepare()(cases(1)[0])

    readable, lost = await judge.rule(prepared, PAIR), await judge.rule(prepared, Pairing(1, 2, Level.FULL))
    (attempt,) = lost.attempts
    prompt = len(model.requests[1].messages[0].content)
    assert attempt.usage.estimated
    assert attempt.usage.prompt == pytest.approx(3 * prompt / 4, rel=0.01)
    assert attempt.usage.output == 3 * readable.attempts[0].usage.output  # as long as the replies so far
    assert attempt.requests == 3


def test_a_call_that_was_refused_or_not_sent_costs_nothing():
    model, prepared = ScriptedModel([GOOD, BusyError("busy", attempts=4)]), make_prepare()(cases(1)[0])
    judge = judge_with(model)

    async def ask_twice():
        await judge.rule(prepared, PAIR)
        return await judge.rule(prepared, Pairing(1, 2, Level.FULL))

    (attempt,) = asyncio.run(ask_twice()).attempts
    assert (attempt.usage, attempt.requests) == (Usage(0, 0), 4)

    async def wait_for_budget():
        total = RunBudget(BudgetLimits(tokens=10_000), None)
        await total.reserve(Usage(10_000, 0))
        deadline = asyncio.get_running_loop().time() + 0.05
        budget = CaseBudget(BudgetLimits(), None, total, deadline=deadline)
        return await judge_with(ScriptedModel([GOOD])).rule(prepared, PAIR, budget)

    (attempt,) = asyncio.run(wait_for_budget()).attempts
    assert (attempt.cause, attempt.usage, attempt.requests) == ("time", Usage(0, 0), 0)


@pytest.mark.slow
def test_a_lost_sample_is_estimated(tmp_path):
    (tmp_path / "problems.jsonl").write_text(json.dumps({"id": "a", "problem": "What is it?"}) + "\n")

    def behave(body, number):
        return Reply("OK") if number < 1 else Raw(b"no JSON")

    with ScriptedEndpoint(behave) as server:
        done = caps(
            "sample", tmp_path / "problems.jsonl", "-n", 2, "--base-url", server.url, "--model", "stub",
            "--journal", tmp_path / "journal.sqlite",
        )  # fmt: skip
    assert "failed samples" in done.stderr
    assert "tokens: about" in done.stderr


async def test_a_judge_at_an_endpoint_that_hangs_is_estimated_at_its_deadline():
    with ScriptedEndpoint([Hang()]) as server:
        async with closing(HttpModel(server.url)) as model:
            deadline = asyncio.get_running_loop().time() + 0.5
            budget = CaseBudget(BudgetLimits(), None, RunBudget(BudgetLimits(), None), deadline=deadline)
            ruling = await judge_with(model).rule(make_prepare()(cases(1)[0]), PAIR, budget)
    (attempt,) = ruling.attempts
    assert ruling.unanswered == "time"
    assert attempt.usage.estimated
    assert attempt.usage.prompt > 100


def test_a_run_without_lost_calls_is_not_marked(select, tmp_path):
    done = select(write_cases(tmp_path / "cases.jsonl", 2, n=4))
    assert not any(line["tokens"]["estimated"] for line in json_lines(done))
    assert "about" not in done.stderr.partition("tokens:")[2].partition("\n")[0]
