import asyncio
from pathlib import Path

import pytest

from caps.core.errors import BrokenServerError, RefusedError, TooLongError, UnknownModelError
from caps.core.types import Usage
from caps.journal.store import Journal
from caps.judging.payment import ReplyHistory
from caps.models.base import Completion
from caps.models.faults import Retries
from caps.models.http import HttpModel
from caps.models.journaled import JournaledModel
from caps.models.probing import missing_logprobs
from caps.models.scripted import ScriptedModel
from caps.testing import Reply, ScriptedEndpoint, Status, better_quality_wins, write_cases
from support.closing import closing
from support.shell import caps

TOKEN = {"token": "OK", "logprob": -0.1, "top_logprobs": [{"token": "OK", "logprob": -0.1}]}


def test_log_probabilities_are_found_with_one_small_call():
    paid = []
    with ScriptedEndpoint([Reply(logprobs=[TOKEN])]) as server:
        assert missing(server, extra={"top_k": 1}, paid=paid.append) is None
        assert server.requests == len(paid) == 1
        assert server.bodies[0]["max_tokens"] <= 64
        assert server.bodies[0]["top_k"] == 1


def test_missing_log_probabilities_are_found_and_what_that_took_is_told():
    paid = []
    with ScriptedEndpoint([Reply()]) as server:
        assert "it ignores the field" in missing(server, paid=paid.append)
        assert [(usage.prompt, usage.output) for usage in paid] == [tuple(server.tokens.values())]


def test_a_server_that_refuses_log_probabilities_is_told_from_one_that_refuses_all():
    def behave(body, number):
        return Status(400, {"error": {"message": "no logprobs here"}}) if "logprobs" in body else Reply()

    paid = []
    with ScriptedEndpoint(behave) as server:
        assert "no logprobs here" in missing(server, paid=paid.append)
    assert len(paid) == 1
    with ScriptedEndpoint([Status(400, "no")]) as server, pytest.raises(RefusedError):
        missing(server)


def test_a_model_still_thinking_leaves_log_probabilities_open():
    with ScriptedEndpoint([Reply(None, finish="length", message={"reasoning_content": "hm"})]) as server:
        assert missing(server) is None


async def test_a_journal_does_not_answer_for_the_server(tmp_path):
    with Journal.open(tmp_path / "j.sqlite") as journal:
        inner = ScriptedModel(lambda _: "OK")
        for _ in range(2):
            await missing_logprobs(JournaledModel(inner, journal), "m", {}, repr)
        assert inner.calls == 2


def test_a_run_that_leaves_nothing_open_makes_no_test_call(cases):
    with ScriptedEndpoint(better_quality_wins) as server:
        assert select(cases, server.url).returncode == 0
        assert all("Reply with the word OK" not in str(body) for body in server.bodies)


# What the first call of a run meets, it reports once, for all cases


@pytest.fixture
def cases(tmp_path):
    return write_cases(tmp_path / "cases.jsonl", 40)


def select(cases: Path, url: str, *words: str):
    options = ("--model", "qwen3-8", "--base-url", url, "--no-journal", "--timeout", "5")
    return caps("select", cases, "--strategy", "caps-r", *options, *words)


def test_an_unknown_model_is_told_where_no_names_are_offered():
    with ScriptedEndpoint(models=None, check_model=True) as server, pytest.raises(UnknownModelError) as told:
        missing(server, "qwen")
    assert "'qwen'" in str(told.value)
    assert "offers" not in str(told.value)


def test_a_refusal_of_one_text_leaves_the_other_cases_alone(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 6)

    def behave(body, number):
        refused = number == 0
        return Status(400, "this prompt is not allowed") if refused else better_quality_wins(body, number)

    with ScriptedEndpoint(behave) as server:
        done = select(cases, server.url, "--max-connections", "1")
    assert done.returncode == 3, "one case is provisional"
    assert len(done.stdout.splitlines()) == 6
    assert "refused 1" in done.stderr


async def test_only_the_failures_of_a_server_that_never_replied_concern_all_calls():
    broken, too_long = BrokenServerError("status 500"), TooLongError("too long")
    history = ReplyHistory(expected=0)
    assert await history.affects_all(broken)
    assert not await history.affects_all(too_long)
    history.add(Completion("from the journal", "stop", Usage(5, 5), replayed=True))
    assert await history.affects_all(broken)
    history.add(Completion("fresh", "stop", Usage(5, 5)))
    assert not await history.affects_all(broken)
    assert await history.affects_all(UnknownModelError("unloaded meanwhile"))


def test_a_failure_waits_for_the_calls_that_are_under_way():
    """What comes first, a refusal or a reply, depends on the load; what a run does must not."""

    async def run(reply):
        history = ReplyHistory(expected=0)
        with history.call():
            failed = asyncio.create_task(history.affects_all(BrokenServerError("status 500")))
            await asyncio.sleep(0)
            assert not failed.done()
            if reply:
                history.add(Completion("late", "stop", Usage(5, 5)))
        return await failed

    assert asyncio.run(run(reply=False))
    assert not asyncio.run(run(reply=True))


def missing(server, name="stub", *, extra=None, paid=repr):
    async def run():
        async with closing(HttpModel(server.url, retries=Retries(first=0.01))) as model:
            return await missing_logprobs(model, name, extra or {}, paid)

    return asyncio.run(run())
