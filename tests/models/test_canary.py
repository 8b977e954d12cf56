import asyncio

import pytest

from caps.core.errors import (
    AccessError,
    MissingFeatureError,
    RefusedError,
    UnknownModelError,
    UnreachableError,
)
from caps.journal.store import Journal
from caps.models.canary import canary
from caps.models.faults import Retries
from caps.models.http import HttpModel
from caps.models.journaled import JournaledModel
from caps.models.scripted import ScriptedModel
from caps.testing import Reply, ScriptedEndpoint, Status

TOKEN = {"token": "OK", "logprob": -0.1, "top_logprobs": [{"token": "OK", "logprob": -0.1}]}


def probe(server_or_url, name="stub", *, want_logprobs=False, api_key=None, extra=None, paid=repr):
    async def run():
        url = server_or_url if isinstance(server_or_url, str) else server_or_url.url
        model = HttpModel(url, api_key, retries=Retries(first=0.01))
        try:
            return await canary(model, name, want_logprobs=want_logprobs, extra=extra, paid=paid)
        finally:
            await model.close()

    return asyncio.run(run())


def test_a_good_endpoint_is_reported_after_one_small_call():
    with ScriptedEndpoint([Reply(logprobs=[TOKEN])]) as server:
        report = probe(server, want_logprobs=True, extra={"top_k": 1})
        assert (report.model, report.logprobs, report.counts_tokens) == ("stub", True, True)
        assert server.requests == 1
        assert server.bodies[0]["max_tokens"] <= 64
        assert server.bodies[0]["top_k"] == 1


def test_an_unknown_model_is_answered_with_the_names_there_are_the_nearest_first():
    offered = ["llama", "qwen3-8b", "qwen3-32b"]
    words = "'qwen3-8'.*offers qwen3-8b, qwen3-32b, llama"
    with (
        ScriptedEndpoint(models=offered, check_model=True) as server,
        pytest.raises(UnknownModelError, match=words),
    ):
        probe(server, "qwen3-8")


def test_an_unknown_model_is_found_where_no_names_are_offered():
    with (
        ScriptedEndpoint(models=None, check_model=True) as server,
        pytest.raises(UnknownModelError, match="'qwen'"),
    ):
        probe(server, "qwen")


def test_a_wrong_key_is_found():
    with ScriptedEndpoint(api_key="right") as server:
        with pytest.raises(AccessError, match="API key"):
            probe(server, api_key="wrong-key")
        assert probe(server, api_key="right").model == "stub"


def test_an_address_without_a_server_is_found():
    with ScriptedEndpoint() as server:
        url = server.url
    with pytest.raises(UnreachableError, match="base URL"):
        probe(url)


def test_missing_log_probabilities_are_found_and_what_that_took_is_told():
    paid = []
    with ScriptedEndpoint([Reply()]) as server:
        with pytest.raises(MissingFeatureError, match="--confidence verbal"):
            probe(server, want_logprobs=True, paid=paid.append)
        assert [(one.prompt, one.output) for one in paid] == [tuple(server.tokens.values())]


def test_a_server_that_refuses_log_probabilities_is_told_from_one_that_refuses_all():
    def behave(body, number):
        return Status(400, {"error": {"message": "no logprobs here"}}) if "logprobs" in body else Reply()

    paid = []
    with ScriptedEndpoint(behave) as server, pytest.raises(MissingFeatureError, match="no logprobs here"):
        probe(server, want_logprobs=True, paid=paid.append)
    assert len(paid) == 1
    with ScriptedEndpoint([Status(400, "no")]) as server, pytest.raises(RefusedError):
        probe(server, want_logprobs=True)


def test_a_model_still_thinking_leaves_log_probabilities_open():
    with ScriptedEndpoint([Reply(None, finish="length", message={"reasoning_content": "hm"})]) as server:
        assert probe(server, want_logprobs=True).logprobs is None


def test_a_journal_does_not_answer_for_the_server(tmp_path):
    async def run(journal):
        inner = ScriptedModel(lambda _: "OK")
        for _ in range(2):
            await canary(JournaledModel(inner, journal), "m", want_logprobs=False)
        return inner.calls

    with Journal.open(tmp_path / "j.sqlite") as journal:
        assert asyncio.run(run(journal)) == 2
