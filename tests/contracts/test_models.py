"""What every model keeps to, whoever answers: a stub, several of them, llama.cpp over HTTP, llama.cpp inside, the journal, a script."""

import asyncio
from random import Random

import pytest
from platformdirs import user_cache_path

from caps.core.errors import TooLongError
from caps.core.types import Message, TokenLogprob, Usage
from caps.journal.store import Journal
from caps.models.base import Completion, Request
from caps.models.embedded import EmbeddedModel, LlamaServer
from caps.models.http import HttpModel
from caps.models.journaled import JournaledModel
from caps.models.scripted import ScriptedModel
from caps.models.servers import ServersModel
from caps.models.weights import default_weights
from caps.testing import Reply, ScriptedEndpoint, Status

pytestmark = pytest.mark.xdist_group("llama.cpp")

CONTEXT = 512
WORDS = ["once", "there", "was", "a", "cat", "who", "read", "every", "proof", "twice"]


def ask(text="Tell me a tale.", **fields):
    return Request((Message("user", text),), "any", **{"max_tokens": 3, **fields})


def tale(seed, tokens):
    """What the models that are none say: words drawn by the seed, as many as may be."""
    return [" " + Random(f"{seed}/{place}").choice(WORDS) for place in range(min(tokens, 40))]


def stub_reply(body, number):
    prompt = body["messages"][0]["content"]
    if len(prompt.split()) > CONTEXT:
        return Status(400, {"error": {"code": "context_length_exceeded", "message": "too many tokens"}})
    said = tale(body.get("seed"), body["max_tokens"])
    rows = [{"token": t, "logprob": -1.0, "top_logprobs": [{"token": t, "logprob": -1.0}]} for t in said]
    usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": len(said)}
    finish = "length" if len(said) == body["max_tokens"] else "stop"
    return Reply("".join(said), finish, usage=usage, logprobs=rows if body.get("logprobs") else None)


def scripted_line(request):
    prompt = request.messages[0].content
    if len(prompt.split()) > CONTEXT:
        return TooLongError("too many words for this script")
    said = tale(request.seed, request.max_tokens)
    rows = tuple(TokenLogprob(t, -1.0, ((t, -1.0),)) for t in said) if request.top_logprobs else ()
    finish = "length" if len(said) == request.max_tokens else "stop"
    return Completion("".join(said), finish, Usage(len(prompt.split()), len(said)), logprobs=rows)


@pytest.fixture(scope="module")
def run():
    """One event loop for all, so that a model stays loaded from test to test."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(scope="module")
def weights():
    return default_weights(user_cache_path("caps"))


@pytest.fixture(scope="module")
def embedded(run, weights):
    model = EmbeddedModel(weights, context=CONTEXT, threads=1)
    yield model
    run(model.close())


@pytest.fixture(
    scope="module", params=["stub", "several stubs", "script", "llama.cpp", "embedded", "journal"]
)
def model(request, run, tmp_path_factory):
    if request.param == "stub":
        with ScriptedEndpoint(stub_reply) as server:
            made = HttpModel(server.url)
            yield made
            run(made.close())
    elif request.param == "several stubs":
        with ScriptedEndpoint(stub_reply) as one, ScriptedEndpoint(stub_reply) as other:
            made = ServersModel([one.url, other.url])
            yield made
            run(made.close())
    elif request.param == "script":
        yield ScriptedModel(scripted_line)
    elif request.param == "llama.cpp":
        with LlamaServer(request.getfixturevalue("weights"), context=CONTEXT) as server:
            made = HttpModel(server.url)
            yield made
            run(made.close())
    elif request.param == "embedded":
        yield request.getfixturevalue("embedded")
    else:
        with Journal.open(tmp_path_factory.mktemp("journal") / "j.sqlite") as journal:
            yield JournaledModel(request.getfixturevalue("embedded"), journal)


def test_a_call_is_answered_with_what_it_took(run, model):
    got = run(model.complete(ask(max_tokens=4)))
    assert got.text.strip()
    assert got.usage.prompt > 0
    assert 0 < got.usage.output <= 4
    assert not got.usage.estimated


def test_the_same_seed_says_the_same_and_others_something_else(run, model):
    asks = [ask(seed=seed, temperature=1.5, max_tokens=6) for seed in (7, 7, 8, 9)]

    async def in_turn():
        return [(await model.complete(one)).text for one in asks]

    first, again, *others = run(in_turn())
    assert first == again
    assert set(others) - {first}


def test_a_reply_stops_at_max_tokens_and_says_so(run, model):
    got = run(model.complete(ask(max_tokens=2)))
    assert (got.finish, got.usage.output) == ("length", 2)


def test_log_probabilities_come_when_asked_for_and_only_then(run, model):
    got = run(model.complete(ask(max_tokens=3, top_logprobs=2)))
    assert len(got.logprobs) == got.usage.output
    assert "".join(one.token for one in got.logprobs) == got.text
    assert all(one.logprob <= 0 and 1 <= len(one.top) <= 2 for one in got.logprobs)
    assert run(model.complete(ask(max_tokens=2))).logprobs == ()


def test_calls_at_once_get_each_its_own_answer(run, model):
    async def at_once():
        return await asyncio.gather(*(model.complete(ask(max_tokens=n, draw=n)) for n in (1, 2, 3)))

    assert [got.usage.output for got in run(at_once())] == [1, 2, 3]


def test_a_prompt_that_does_not_fit_is_said_to_be_too_long(run, model):
    with pytest.raises(TooLongError) as caught:
        run(model.complete(ask("word " * (2 * CONTEXT))))
    if isinstance(model, EmbeddedModel):
        assert "has 1055 tokens and the context 512: raise --context-tokens" in str(caught.value)


def test_a_cancelled_call_leaves_the_model_usable(run, model):
    async def leave():
        call = asyncio.create_task(model.complete(ask("Count to a hundred.", max_tokens=300)))
        await asyncio.sleep(0.1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        return await model.complete(ask("And now?", max_tokens=1))

    assert run(leave()).usage.output == 1


def test_a_model_closes_twice_and_serves_again(run, model):
    async def close():
        await model.close()
        await model.close()
        return await model.complete(ask("Still there?", max_tokens=1))

    assert run(close()).usage.output == 1
