import asyncio
import logging
import traceback
from dataclasses import replace
from random import Random

import pytest

from caps.core.errors import (
    AccessError,
    BrokenServerError,
    BusyError,
    GarbledError,
    ModelError,
    RefusedError,
    SettingError,
    TimedOutError,
    TooLongError,
    UnknownModelError,
    UnreachableError,
)
from caps.core.types import Message, Usage
from caps.models.base import Completion, Request
from caps.models.faults import Retries
from caps.models.http import HttpModel, Timeouts
from caps.testing import Half, Hang, Raw, Reply, Reset, ScriptedEndpoint, Status
from support.closing import closing
from support.waiting import reserved_port, until

QUICK = Retries(first=0.001, longest=0.002)
KEY = "sk-very-secret-0123456789"


def ask(text="Which is right?", **fields):
    return Request((Message("user", text),), "stub", **fields)


def complete(server, *requests, **settings):
    """Send requests at once through a fresh model; replies in order, an error is raised."""

    async def run():
        async with closing(HttpModel(server.url, **{"retries": QUICK, **settings})) as model:
            return await asyncio.gather(*(model.complete(request) for request in requests or [ask()]))

    return asyncio.run(run())


def one(server, *requests, **settings) -> Completion:
    return complete(server, *requests, **settings)[0]


def test_a_reply_carries_text_usage_model_and_finish():
    with ScriptedEndpoint([Reply("A is right")]) as server:
        got = one(server)
    assert (got.text, got.finish, got.model, got.attempts) == ("A is right", "stop", "stub", 1)
    assert got.usage == Usage(prompt=4, output=3)
    assert got.latency > 0
    assert not got.replayed


def test_the_body_holds_what_was_asked_and_only_that():
    with ScriptedEndpoint() as server:
        one(server, ask(max_tokens=7, seed=3, top_p=0.9, top_logprobs=5, template="t", draw=2))
        one(server, ask(), api_key=" key\n")
        assert server.bodies[0] == {
            "model": "stub",
            "messages": [{"role": "user", "content": "Which is right?"}],
            "max_tokens": 7,
            "temperature": 0.0,
            "top_p": 0.9,
            "seed": 3,
            "logprobs": True,
            "top_logprobs": 5,
        }
        assert set(server.bodies[1]) == {"model", "messages", "max_tokens", "temperature"}
        assert "Authorization" not in server.headers[0]
        assert server.headers[1]["Authorization"] == "Bearer key"


def test_extra_goes_into_the_body_and_null_in_it_leaves_a_field_out():
    extra = {"chat_template_kwargs": {"enable_thinking": False}, "top_k": 1, "temperature": None}
    with ScriptedEndpoint() as server:
        one(server, ask(extra=extra))
    (body,) = server.bodies
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["top_k"] == 1
    assert "temperature" not in body


@pytest.mark.parametrize("name", ["messages", "model", "stream", "n"])
def test_extra_may_not_set_what_the_reply_is_read_by(name):
    with ScriptedEndpoint() as server, pytest.raises(SettingError, match=name):
        one(server, ask(extra={name: 2}))


def test_details_of_usage_and_reasoning_are_read():
    usage = {
        "prompt_tokens": 90,
        "completion_tokens": 40,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 30},
    }
    with ScriptedEndpoint([Reply("B", usage=usage, message={"reasoning_content": "hm"})]) as server:
        got = one(server)
    assert got.usage == Usage(90, 40, cached=64, reasoning=30)
    assert got.reasoning == "hm"


@pytest.mark.parametrize(
    "trouble",
    [
        Status(408),
        Status(409),
        Status(425),
        Status(429),
        Status(429, headers={"Retry-After": "0.01"}),
        Status(500, "oops"),
        Status(502, "<html>bad gateway</html>"),
        Status(503, {"error": {"message": "overloaded"}}),
        Status(529),
        Reset(),
        Half(),
        Raw(b"<html>"),
        Raw(b""),
        Raw(b'{"choices": [{"mess'),
        Raw(b"[]"),
        Raw(b'{"choices": []}'),
        Raw(b'{"error": {"message": "engine died"}}'),
        Raw(b'{"error": {"message": "slow down", "code": 429}}'),
        Raw(b'{"choices": [{"error": {"code": 502, "message": "upstream"}}]}'),
    ],
)
def test_transient_trouble_is_retried_and_every_attempt_counted(trouble):
    with ScriptedEndpoint([trouble, trouble, Reply("fine")]) as server:
        got = one(server)
        assert (got.text, got.attempts, server.requests) == ("fine", 3, 3)


def test_a_server_that_hangs_is_timed_out_and_asked_again():
    with ScriptedEndpoint([Hang(), Reply("fine")]) as server:
        got = one(server, timeouts=Timeouts(read=1.0))
        assert (got.text, got.attempts) == ("fine", 2)


@pytest.mark.parametrize(
    ("trouble", "error", "words"),
    [
        (Status(429), BusyError, "lower max_connections"),
        (Status(500, {"error": {"message": "boom"}}), BrokenServerError, "boom"),
        (Reset(), BrokenServerError, "closed the connection"),
        (Raw(b"<html>login</html>"), GarbledError, "login"),
        (Hang(), TimedOutError, "read timeout"),
    ],
)
def test_trouble_that_stays_is_raised_with_what_to_do(trouble, error, words):
    timeouts = Timeouts(read=0.1) if trouble == Hang() else Timeouts()
    with ScriptedEndpoint([trouble]) as server:
        with pytest.raises(error, match=words) as caught:
            one(server, retries=replace(QUICK, most=2), timeouts=timeouts)
        assert caught.value.attempts == server.requests == 3


@pytest.mark.parametrize(
    ("trouble", "error", "words"),
    [
        (Status(401, {"error": {"message": "bad key"}}), AccessError, "API key.*bad key"),
        (Status(403, "forbidden"), AccessError, "API key"),
        (Status(402, {"error": {"message": "no balance"}}), AccessError, "account"),
        (Status(429, {"error": {"code": "insufficient_quota", "message": "x"}}), AccessError, "account"),
        (Status(404, {"error": {"message": "The model `stub` does not exist"}}), UnknownModelError, "'stub'"),
        (
            Status(404, {"error": {"message": 'model "stub" not found, try pulling it'}}),
            UnknownModelError,
            "pull",
        ),
        (Status(400, {"error": {"message": "stub is not a valid model ID"}}), UnknownModelError, "valid"),
        (Status(404, {"detail": "Not Found"}), UnreachableError, "/v1"),
        (Status(308, headers={"Location": "http://elsewhere/"}), UnreachableError, "base URL"),
        (
            Status(400, {"error": {"message": "x", "code": "context_length_exceeded"}}),
            TooLongError,
            "longer context",
        ),
        (
            Status(
                400, {"error": {"message": "the request exceeds the available context size", "type": "e"}}
            ),
            TooLongError,
            "max_tokens",
        ),
        (Status(413), TooLongError, "shorten"),
        (Status(400, {"error": {"message": "temperature must be 1"}}), RefusedError, "temperature must be 1"),
        (Status(422, {"detail": [{"loc": "seed"}]}), RefusedError, "seed"),
        (Raw(b'{"error": {"code": 401, "message": "no"}}'), AccessError, "API key"),
    ],
)
def test_what_cannot_get_better_is_raised_at_once_with_what_to_do(trouble, error, words):
    with ScriptedEndpoint([trouble]) as server:
        with pytest.raises(error, match=words) as caught:
            one(server)
        assert caught.value.attempts == server.requests == 1


def test_a_server_that_asks_for_too_long_a_wait_is_not_waited_for():
    with ScriptedEndpoint([Status(429, headers={"Retry-After": "3600"})]) as server:
        with pytest.raises(BusyError, match="3600 s"):
            one(server)
        assert server.requests == 1


def test_a_loading_server_is_polled_without_using_up_the_retries():
    loading = Status(503, {"error": {"message": "Loading model", "code": 503}}, {"Retry-After": "0.01"})
    with ScriptedEndpoint([loading] * 9 + [Reply("up")]) as server:
        assert one(server, retries=replace(QUICK, most=1)).text == "up"
        assert server.requests == 10
    with ScriptedEndpoint([loading]) as server, pytest.raises(BusyError, match="loading"):
        one(server, retries=replace(QUICK, most=1, loading=0.05))


def test_nobody_at_the_address_is_said_soon():
    with reserved_port() as port:
        server = ScriptedEndpoint(port=port)
        with pytest.raises(UnreachableError, match=server.url) as caught:
            one(server)
    assert caught.value.attempts == 0


def test_a_server_that_wants_the_other_name_for_max_tokens_gets_it():
    said = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."

    def behave(body, number):
        error = {"error": {"message": said, "param": "max_tokens", "code": "unsupported_parameter"}}
        return Status(400, error) if "max_tokens" in body else Reply()

    with ScriptedEndpoint(behave) as server:
        got = complete(server, *[ask()] * 3, connections=3)
        assert [reply.text for reply in got] == ["OK"] * 3
        assert [reply.attempts for reply in got] == [2, 2, 2]
        assert server.bodies[-1]["max_completion_tokens"] == 1024


def test_no_more_calls_are_under_way_than_connections():
    with ScriptedEndpoint(lambda *_: Reply(delay=0.02, until=lambda: server.peak >= 3)) as server:
        complete(server, *(ask(str(i)) for i in range(12)), connections=3)
        assert (server.requests, server.peak) == (12, 3)


def test_attempts_add_up_to_what_a_flaky_server_saw():
    troubles = [Status(429), Status(500), Reset(), Half(), Raw(b"{"), Reply("cut", finish="length")]

    def behave(body, number):
        rng = Random(number)
        return rng.choice(troubles) if rng.random() < 0.5 else Reply("fine")

    with ScriptedEndpoint(behave) as server:
        got = complete(
            server, *(ask(str(i)) for i in range(60)), connections=8, retries=replace(QUICK, most=30)
        )
        assert sum(reply.attempts for reply in got) == server.requests > 60
        assert sum(reply.usage.output for reply in got) == server.tokens["output"]


def test_a_model_may_be_used_again_after_it_was_closed():
    with ScriptedEndpoint() as server:
        model = HttpModel(server.url)
        for _ in range(2):

            async def run():
                await model.complete(ask())
                await model.close()
                await model.close()

            asyncio.run(run())
        assert server.requests == 2


def test_a_cancelled_call_gives_its_slot_back():
    with ScriptedEndpoint([Hang(), Reply("fine")]) as server:

        async def run():
            model = HttpModel(server.url, connections=1)
            hanging = asyncio.create_task(model.complete(ask()))
            await until(lambda: server.requests)
            hanging.cancel()
            try:
                return await model.complete(ask())
            finally:
                await model.close()

        assert asyncio.run(run()).text == "fine"


@pytest.mark.parametrize(
    "trouble", [None, Status(500, f"echo {KEY}"), Reset(), Half(), Raw(f"<{KEY}".encode())]
)
def test_the_key_is_nowhere_to_be_read(trouble, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    with ScriptedEndpoint([trouble or Reply()], api_key="another" if trouble is None else None) as server:
        with pytest.raises(ModelError) as caught:
            one(server, api_key=KEY, retries=replace(QUICK, most=1))
        assert KEY in server.headers[0]["Authorization"]
    chain, error = [], caught.value
    while error is not None:
        chain.append(repr(error) + str(vars(error)) + "".join(traceback.format_exception(error)))
        error = error.__cause__ or error.__context__
    assert KEY not in "".join(chain) + caplog.text + "".join(capfd.readouterr())
    assert KEY not in repr(HttpModel(server.url, KEY))
    assert len(chain) == 1, "nothing of aiohttp's hangs on the error"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("http://host:8000", "http://host:8000/v1"),
        ("http://host:8000/", "http://host:8000/v1"),
        ("http://host/v1/", "http://host/v1"),
        ("http://host/v1/chat/completions", "http://host/v1"),
        ("https://host/openai/deployments/d?api-version=1", "https://host/openai/deployments/d"),
    ],
)
def test_a_base_url_is_understood_as_people_write_it(given, meant):
    assert HttpModel(given).address == meant


@pytest.mark.parametrize("base_url", ["", "localhost:8000", "ftp://host", "http://", "/v1"])
def test_a_base_url_that_is_none_is_refused(base_url):
    with pytest.raises(SettingError, match="base URL"):
        HttpModel(base_url)


def test_a_key_with_a_line_break_is_refused_without_showing_it():
    with pytest.raises(SettingError, match="line break") as caught:
        HttpModel("http://host", f"{KEY}\nX: y")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("connections", [0, -1, True, "many", 2.5])
def test_connections_are_a_number_or_auto(connections):
    with pytest.raises(SettingError, match="connections"):
        HttpModel("http://host", connections=connections)
