"""The Responses API and the Messages API in front of the same selection."""

import asyncio
import json
import threading

import pytest

from caps.server.admission import Limits
from caps.testing import ManyApis, Pieces, Raw, Reply, ScriptedEndpoint, Status, asked, upstream
from support.fuzzing import APIS, fuzz
from support.serving import inside, served
from support.waiting import until

KEY = "sk-of-a-client"


def message(text="vary", model="caps/m", **more):
    return {"max_tokens": 9, **asked(text, model, **more)}


def test_every_status_has_the_error_object_of_the_api():
    limits = Limits(max_body=2000)

    async def work(call):
        def send(body, path="/v1/messages", **headers):
            return call(path=path, body=body, **{"x_api_key": KEY, **headers})

        return [
            await send(message(), x_api_key="sk-wrong"),
            await send(message("x" * 3000)),
            await send(message(), content_type="text/plain"),
            await send(b"{"),
            await send(message(max_tokens=None)),
            await call("GET", "/v1/messages", x_api_key=KEY),
            await call("GET", "/v1/messages/none", x_api_key=KEY),
            await call("GET", "/v1/none", x_api_key=KEY, anthropic_version="2023-06-01"),
            await send(message("refuse")),
            await send({"model": "caps/m"}, "/v1/messages/count_tokens"),
        ]

    with ScriptedEndpoint(
        [Status(400, {"error": {"message": "temperature must be 1"}})], models=("m",)
    ) as stub:
        answers = inside(stub.url, work, limits=limits, keys=(KEY,), host="0.0.0.0")
    assert [(one.status, one.json["error"]["type"]) for one in answers] == [
        (401, "authentication_error"),
        (413, "request_too_large"),
        (415, "invalid_request_error"),
        (400, "invalid_request_error"),
        (400, "invalid_request_error"),
        (405, "invalid_request_error"),
        (404, "not_found_error"),
        (404, "not_found_error"),
        (400, "invalid_request_error"),
        (400, "invalid_request_error"),
    ]
    assert all(one.json["type"] == "error" for one in answers)

    async def down(call):
        bodies = {"/v1/messages": message(caps={"n": 1}), "/v1/responses": {"model": "caps/m", "input": "?"}}
        return [await call(path=path, body=body) for path, body in bodies.items()]

    messages, responses = inside("http://127.0.0.1:9/v1", down)
    assert (messages.status, messages.json["error"]["type"]) == (502, "api_error")
    assert (responses.status, responses.json["error"]["code"]) == (502, "upstream_unreachable")


async def test_a_full_queue_is_reported_in_the_form_of_each_api():
    go = threading.Event()

    async with (
        ScriptedEndpoint([Reply("same", until=go.is_set)]) as stub,
        served(stub.url, limits=Limits(max_concurrent=1, max_waiting=0)) as call,
    ):
        first = asyncio.ensure_future(call(path="/v1/messages", body=message(stream=True, caps={"n": 1})))
        await until(lambda: stub.busy == 1)
        refused = [
            await call(path="/v1/messages", body=message(caps={"n": 1})),
            await call(path="/v1/responses", body={"model": "caps/m", "input": "?", "stream": True}),
        ]
        go.set()
        answers = [await first, *refused]
    assert [one.status for one in answers] == [200, 429, 429]
    assert [one.json["error"]["type"] for one in answers[1:]] == ["rate_limit_error"] * 2
    assert answers[1].headers["retry-after"] == "1"


@pytest.mark.parametrize("api", ["responses", "messages"])
async def test_an_error_after_the_first_heartbeat_is_an_event_of_the_api(api):
    received = []
    given = {"input": "?"} if api == "responses" else message()

    async with (
        ScriptedEndpoint(
            [Status(400, {"error": {"message": "no"}}, until=lambda: len(received) > 1)]
        ) as stub,
        served(stub.url, limits=Limits(heartbeat=0.05)) as call,
    ):
        body = {**given, "model": "caps/m", "stream": True, "caps": {"n": 1}}
        said = (await call(path=f"/v1/{api}", body=body, on_body=received.append)).body.decode()
    events = [json.loads(line[6:]) for line in said.splitlines() if line.startswith("data: ")]
    names = [line[7:] for line in said.splitlines() if line.startswith("event: ")]
    assert names == [event["type"] for event in events]
    if api == "messages":
        assert names[0] == "ping"
        assert events[-1]["error"]["type"] == "invalid_request_error"
    else:
        assert ": keep-alive" in said
        assert names == ["response.created", "response.in_progress", "error", "response.failed"]
        assert events[-1]["response"]["error"]["code"] == "upstream_refused"


async def test_other_models_are_forwarded_with_the_version_of_the_api():
    whole = Pieces((b"event: message_start\n", b"data: {}\n\n"), lambda: True)
    async with ManyApis([whole]) as stub, served(stub.url) as call:
        head = {"anthropic_version": "2023-06-01", "x_api_key": "any"}
        answers = [
            await call(path="/v1/messages", body=message(model="m", stream=True), **head),
            await call(path="/v1/messages/count_tokens", body=message(model="m"), **head),
            await call(path="/v1/responses", body={"model": "m", "input": "?"}),
        ]
    assert [one.body for one in answers] == [b"event: message_start\ndata: {}\n\n"] * 3
    assert stub.headers[0]["anthropic-version"] == "2023-06-01"
    assert "x-api-key" not in {name.lower() for name in stub.headers[0]}
    assert stub.bodies[0] == message(model="m", stream=True)


async def test_tokens_of_forwarded_messages_are_counted_with_those_read_from_a_cache():
    usage = {
        "input_tokens": 5,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 2,
        "output_tokens": 7,
    }
    async with (
        ManyApis([Raw(json.dumps({"type": "message", "usage": usage}).encode())]) as stub,
        served(stub.url) as call,
    ):
        await call(path="/v1/messages", body=message(model="m"))
        page = (await call("GET", "/metrics")).body.decode()
    assert 'caps_tokens_total{kind="prompt",part="forwarded"} 27.0' in page
    assert 'caps_tokens_total{kind="cached",part="forwarded"} 20.0' in page
    assert 'caps_tokens_total{kind="completion",part="forwarded"} 7.0' in page


async def test_large_requests_virtual_models_and_the_other_name_of_the_limit():
    def picky(body, number):
        if "max_tokens" in body:
            said = "Unsupported parameter: use max_completion_tokens"
            return Status(400, {"error": {"message": said, "param": "max_tokens"}})
        return Reply("It is \\boxed{4}")

    table = {"team": {"generators": ["small", "large"], "max_n": 4}}
    async with (
        ScriptedEndpoint(picky) as stub,
        served(stub.url, config_={"models": table, "samples": 2}) as call,
    ):
        long = "word " * 20_000
        plain, team, wrong = [
            await call(path="/v1/messages", body=message(long)),
            await call(
                path="/v1/responses", body={"model": "caps/team", "input": long, "max_output_tokens": 5}
            ),
            await call(
                path="/v1/responses", body={"model": "caps/team", "input": [{"role": "me"}, {"x": long}]}
            ),
        ]
    assert plain.json["content"][0]["text"] == "It is \\boxed{4}"
    assert team.json["caps"]["model"] in ("small", "large")
    assert (wrong.status, wrong.json["error"]["param"]) == (400, "input")
    assert stub.bodies[-1]["max_completion_tokens"] == 5


async def test_streams_may_be_followed_in_each_api():
    async with ScriptedEndpoint(upstream) as stub, served(stub.url, config_={"samples": "auto"}) as call:
        more = {"stream": True, "stream_options": {"include_progress": True}}
        answers = [
            await call(path="/v1/messages", body=message("4?", **more)),
            await call(path="/v1/responses", body={"model": "caps/m", "input": "4?", **more}),
        ]
    for answer in answers:
        assert b'"progress":' in answer.body
        assert answer.body.count(b"event: ") == answer.body.count(b"data: ")


@pytest.mark.parametrize("api", APIS)
def test_no_request_causes_a_500(api):
    reply = json.dumps({"choices": [{"message": {"content": "same"}}]}).encode()
    with ManyApis([Raw(reply)]) as stub:
        statuses = inside(
            stub.url,
            lambda call: fuzz(call, api, seed=11, count=600),
            model="m",
            config_={"keep_going": True},
        )
    assert {200, 400} <= statuses
