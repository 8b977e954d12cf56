"""Adaptive sampling end to end: real HTTP servers, a real journal."""

import asyncio
import json
import threading

import pytest

from caps import CapsError, SettingError, solve_sync
from caps.config import Keys, RunConfig
from caps.core.types import Case, Problem
from caps.session.resolve import resolve
from caps.session.solving import solve_case
from caps.strategies.posterior import UNFITTED
from caps.testing import Hang, Reply, ScriptedEndpoint, Status, better_quality_wins
from support.waiting import wait_until

LONG = "and then " * 800  # a sample is worth judging only if it is not far cheaper than a verdict


def saying(*answers, late=()):
    """Samples with these answers, by their seed; late ones never come."""

    def behave(body, number):
        if "BEGIN CANDIDATE" in body["messages"][0]["content"]:
            return better_quality_wins(body)
        which = body["seed"] - 1234
        if which in late:
            return Hang()
        answer = answers[which % len(answers)]
        return Reply(f"quality=0.{answer} {LONG} so \\boxed{{{answer}}}")

    return behave


def solve(server, case=None, **settings):
    config = RunConfig(model="m", base_url=(server.url,), samples="auto", **settings)
    resolved = resolve(config, Keys(), generating=True)
    return asyncio.run(solve_case(resolved, case or Case("1", Problem.of("What is it?"), (), "math")))


def test_agreement_ends_it_early_and_the_ledger_counts_what_the_server_counted(tmp_path):
    with ScriptedEndpoint(saying(7)) as server:
        found = solve(server, journal=str(tmp_path / "j.sqlite"))
        assert found.outcome.selection.facts["probability"] == UNFITTED
        assert found.outcome.selection.facts["agree"] >= 2
        (ledger,) = found.adapted.ledgers
        assert 2 <= server.requests == ledger.started <= 4
        assert ledger.cancelled == 0
        assert (ledger.paid.prompt, ledger.paid.output) == (server.tokens["prompt"], server.tokens["output"])


def test_disagreement_is_judged_and_both_costs_add_up_to_the_servers(tmp_path):
    with ScriptedEndpoint(saying(3, 8, 5, 8, 3, 4)) as server:
        found = solve(server, journal=str(tmp_path / "j.sqlite"), max_n=8)
        judged = found.outcome.ledger.total()
        (ledger,) = found.adapted.ledgers
        assert judged.calls > 0
        if not ledger.cancelled:
            assert ledger.paid.prompt + judged.billed == server.tokens["prompt"]
            assert ledger.paid.output + judged.output == server.tokens["output"]
        winner = found.outcome.selection.winner
        assert "8" in found.sampled.case.candidates[winner].text


def test_the_same_question_again_is_answered_from_the_journal_in_the_same_order(tmp_path):
    with ScriptedEndpoint(saying(3, 8, 5, 8, 3, 4)) as server:
        first = solve(server, journal=str(tmp_path / "j.sqlite"), max_n=8)
        asked = server.requests
        again = solve(server, journal=str(tmp_path / "j.sqlite"), max_n=8)
        assert server.requests == asked
    assert again.outcome.selection == first.outcome.selection
    assert [one.samples for one in again.adapted.steps] == [one.samples for one in first.adapted.steps]
    assert again.adapted.ledgers[0].paid.output == 0


def test_samples_of_a_fixed_number_are_reused(tmp_path):
    with ScriptedEndpoint(saying(7)) as server:
        solve_sync("What is it?", n=2, domain="math", model="m", base_url=server.url, journal=tmp_path / "j")
        found = solve(server, journal=str(tmp_path / "j"))
        assert found.adapted.ledgers[0].replayed == 2


def test_a_straggler_is_cancelled_once_the_choice_is_settled_and_estimated():
    with ScriptedEndpoint(saying(7, late=(1,))) as server:
        found = solve(server)
        (ledger,) = found.adapted.ledgers
        assert ledger.cancelled == 1
        assert ledger.paid.estimated
        usual = (ledger.paid.output - ledger.cancelled_usage.output) / ledger.ended
        assert usual < ledger.cancelled_usage.output <= 3 * usual + 1  # it ran longer than those that ended
        wait_until(lambda: server.busy == 0)


def test_without_any_sample_there_is_an_error_and_no_empty_answer():
    never = pytest.raises(CapsError, match="refused the request")
    with ScriptedEndpoint([Status(400, "never")]) as server, never:
        solve_sync("What?", n="auto", max_n=4, model="m", base_url=server.url)


def test_a_budget_covers_samples_and_verdicts_and_ends_with_the_best_so_far():
    room = {"settings": {"max_tokens": "4000"}}

    def spent(found):
        usage, judged = found.adapted.ledgers[0].usage, found.outcome.ledger.total()
        return usage.prompt + usage.output + judged.asked + judged.output

    with ScriptedEndpoint(saying(3, 8, 5, 8, 3, 4)) as server:
        free = solve(server, **room)
        tight = solve(server, budget_tokens=6_000, **room)
        with pytest.raises(CapsError, match="the budget ended"):
            solve_sync("What?", n="auto", budget_tokens=100, domain="math", model="m", base_url=server.url)
    assert spent(free) > 6_000 >= spent(tight)
    assert len(tight.sampled.case.candidates) == 2, "the second fits once the first is known"
    assert tight.outcome.selection is not None


def test_seconds_end_with_the_best_so_far():
    release = threading.Event()

    def behave(body, number):
        if body["seed"] == 1234:
            return Reply("so \\boxed{7}")
        return Reply("so \\boxed{8}", until=release.is_set)

    with ScriptedEndpoint(behave) as server:
        found = solve(server, budget_seconds=1.0)
        release.set()
    assert found.adapted.stopped == "time"
    assert found.outcome.selection.provisional
    assert found.sampled.case.candidates[found.outcome.selection.winner].text == "so \\boxed{7}"


def test_several_generators_each_with_their_own_address_key_and_price(monkeypatch):
    monkeypatch.setenv("SECOND_KEY", "sk-second")
    with (
        ScriptedEndpoint(saying(3, 4, 5)) as first,
        ScriptedEndpoint(saying(7), api_key="sk-second") as second,
    ):
        tables = (
            {"model": "one", "price_input": 1.0, "price_output": 4.0},
            {
                "model": "two", "base_url": second.url, "api_key_env": "SECOND_KEY", "price_input": 1.0,
                "price_output": 4.0, "quality": 0.8,
            },
        )  # fmt: skip
        config = RunConfig(base_url=(first.url,), model="one", samples="auto", generator=tables)
        resolved = resolve(config, Keys.find(config, api_key="sk-first"), generating=True)
        case = Case("1", Problem.of("What is it?"), (), "math")
        found = asyncio.run(solve_case(resolved, case))
        assert found.sampled.case.candidates[found.outcome.selection.winner].text.endswith("\\boxed{7}")
        _, two = found.adapted.ledgers
        assert two.started >= 2
        assert two.usd == pytest.approx((two.paid.prompt + 4 * two.paid.output) / 1e6)
        assert all(headers["Authorization"] == "Bearer sk-second" for headers in second.headers)
        assert all(headers["Authorization"] == "Bearer sk-first" for headers in first.headers)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"model": "m", "colour": "red"}, "generator 1: colour: no such key; keys are model"),
        ({"model": ""}, "generator 1: model: is empty"),
        ({"base_url": "http://x"}, "generator 1: .*model"),
        ({"model": "m", "price_input": 1.0}, "needs both price_input and price_output"),
        ({"model": "m", "quality": 2.0}, "quality: must be a number below 1, not 2"),
        ({"model": "m", "api_key_env": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE"),
    ],
)
def test_a_wrong_table_is_named(table, said):
    with pytest.raises(SettingError, match=said):
        solve_sync("What?", n="auto", generator=[table], base_url="http://127.0.0.1:9")


def test_rewritten_samples_are_written_from_the_others_and_confirm_nothing(tmp_path):
    def behave(body, number):
        text = json.dumps(body["messages"])
        if "BEGIN CANDIDATE" in text and body["temperature"] == 0.0:
            return better_quality_wins(body)
        if "BEGIN CANDIDATE" in text or body["seed"] >= 1_000_000:
            return Reply("quality=0.9 so \\boxed{9}")
        return Reply(f"quality=0.{body['seed'] % 3 + 1} so \\boxed{{{body['seed'] % 3}}}")

    with ScriptedEndpoint(behave) as server:
        found = solve(server, method="aggregate", max_n=6)
        independent, rewriting = found.adapted.ledgers
        assert independent.started > 0
        assert rewriting.name.endswith("rewriting")
        assert found.outcome.selection is not None


def test_a_fixed_number_takes_no_several_generators():
    with pytest.raises(SettingError, match="several generators need --n auto"):
        solve_sync("What?", n=4, generator=["a", "b"], base_url="http://127.0.0.1:9")


def test_an_interrupted_question_continues_where_it_stopped(tmp_path):
    release, first_is_in = threading.Event(), threading.Event()

    def behave(body, number):
        if body["seed"] == 1234:
            return Reply("so \\boxed{7}")
        return Reply("so \\boxed{7}", until=release.is_set)

    async def interrupted(resolved, case):
        task = asyncio.ensure_future(solve_case(resolved, case, watch=lambda _: first_is_in.set()))
        while not first_is_in.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    case = Case("1", Problem.of("What is it?"), (), "math")
    with ScriptedEndpoint(behave) as server:
        config = RunConfig(
            model="m", base_url=(server.url,), samples="auto", journal=str(tmp_path / "j.sqlite")
        )
        asyncio.run(interrupted(resolve(config, Keys(), generating=True), case))
        wait_until(lambda: server.busy == 0)
        release.set()
        found = asyncio.run(solve_case(resolve(config, Keys(), generating=True), case))
        assert sum(body["seed"] == 1234 for body in server.bodies) == 1
    assert found.adapted.ledgers[0].replayed == 1
    assert found.outcome.selection is not None
