"""The Responses API and the Messages API in front of the same selection, through the clients people use."""

import asyncio
import json
import threading

import anthropic
import openai
import pytest

from caps.server.admission import Limits
from caps.testing import (
    ManyApis,
    Pieces,
    Raw,
    Reply,
    ScriptedEndpoint,
    Status,
    asked,
    is_judge,
    running,
    upstream,
)
from server.fuzzing import APIS, fuzz
from server.serving import inside
from waiting import until

PICTURE = "iVBORw0KGgoAAAANSUhEUg=="
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
KEY = "sk-of-a-client"
pytestmark = pytest.mark.xdist_group("apis")  # one server for all of them


def behave(body, number):
    if is_judge(body):
        return upstream(body, number)
    text = str(body["messages"][-1]["content"])
    if "refuse" in text:
        return Status(400, {"error": {"message": "temperature must be 1"}})
    if "cut" in text:
        return Reply("It is", finish="length")
    if body.get("tools") and body["messages"][-1]["role"] != "tool":
        call = {"name": "look_up", "arguments": '{"city": "Oslo"}'}
        calls = [{"id": f"call_{number}", "type": "function", "function": call}]
        return Reply("I look it up.", finish="tool_calls", message={"tool_calls": calls})
    if "think" in text:
        return Reply("It is 4.", message={"reasoning_content": "two and two"})
    return upstream(body, number)


@pytest.fixture(scope="module")
def stub():
    with ScriptedEndpoint(behave, models=("m",)) as running_stub:
        yield running_stub


@pytest.fixture(scope="module")
def server(stub):
    words = ("--heartbeat", 0.1, "--samples", 3, "--max-connections", 32)
    with running(stub.url, *words, CAPS_SERVER_API_KEY=KEY) as up:
        yield up


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0) as talks:
        yield talks


@pytest.fixture
def claude(server):
    address = server.url.removesuffix("/v1")
    with anthropic.Anthropic(base_url=address, api_key=KEY, auth_token=None, max_retries=0) as talks:
        yield talks


def respond(client, given="vary", **more):
    return client.responses.create(model="caps/m", input=given, **more)


def ask(claude, content="vary", **more):
    messages = [{"role": "user", "content": content}]
    return claude.messages.create(model="caps/m", max_tokens=100, messages=messages, **more)


def spent_since(stub, before):
    return tuple(stub.tokens[name] - before[name] for name in ("prompt", "output"))


def test_an_answer_says_how_sure_it_is_and_on_request_why(client):
    def chat(**more):
        given = {"messages": [{"role": "user", "content": "vary"}], **more}
        return client.chat.completions.with_raw_response.create(model="caps/m", **given)

    asked_why = chat(extra_body={"caps": {"explain": True}})
    facts = asked_why.parse().caps
    assert float(asked_why.headers["x-caps-probability"]) == facts["probability"] > 0
    assert asked_why.headers["x-caps-run-id"] == facts["run_id"]
    assert facts["costs"] == {"generation_usd": None, "judge_usd": None, "usd": None}
    assert [one["text"][:5] for one in facts["candidates"]] == ["With "] * 3
    assert sorted(one["cluster"] for one in facts["candidates"]) == [0, 1, 2]
    best = facts["candidates"][facts["winner"]]
    assert (best["rank"], best["score"]) == (0, facts["probability"])
    assert {one["verdict"] for one in facts["verdicts"]} <= {"A", "B", "TIE"}
    assert facts["explanation"][-1]["to"] == facts["probability"]
    silent = chat(extra_body={"caps": {"strategy": "majority"}}).parse().caps
    assert silent["probability"] is None
    assert not {"candidates", "verdicts", "explanation"} & set(silent)
    assert list(chat(stream=True).parse())[-1].caps["strategy"] == "posterior"


def test_a_response_is_the_best_answer_whole_or_as_events(client, stub):
    before = dict(stub.tokens)
    raw = client.responses.with_raw_response.create(
        model="caps/m", input="vary", instructions="Be brief.", max_output_tokens=64, metadata={"a": "b"}
    )
    answer = raw.parse()
    assert answer.output_text.startswith("With quality")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == spent_since(stub, before)
    assert (answer.status, answer.model, answer.metadata) == ("completed", "caps/m", {"a": "b"})
    assert answer.caps["samples"] == 3
    assert float(raw.headers["x-caps-probability"]) == answer.caps["probability"]
    with client.responses.stream(model="caps/m", input="think") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [one.sequence_number for one in events] == list(range(len(events)))
    assert [one.type.removeprefix("response.") for one in events] == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done",
        "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done",
        "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert (final.output_text, final.caps["clusters"]) == ("It is 4.", 1)
    assert final.usage.total_tokens > 0


def test_a_message_is_the_best_answer_whole_or_as_events(claude, stub):
    before = dict(stub.tokens)
    raw = claude.messages.with_raw_response.create(
        model="caps/m", max_tokens=9, messages=[{"role": "user", "content": "vary"}]
    )
    answer = raw.parse()
    assert answer.content[0].text.startswith("With quality")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == spent_since(stub, before)
    assert (answer.stop_reason, answer.model, answer.caps["samples"]) == ("end_turn", "caps/m", 3)
    assert float(raw.headers["x-caps-probability"]) == answer.caps["probability"]
    before = dict(stub.tokens)
    with claude.messages.stream(
        model="caps/m", max_tokens=9, messages=[{"role": "user", "content": "think"}]
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert [kind for kind in kinds if kind not in ("text", "thinking", "signature")] == [
        "message_start",
        *["content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"],
        *["content_block_start", "content_block_delta", "content_block_stop"],
        "message_delta", "message_stop",
    ]  # fmt: skip
    assert [block.type for block in final.content] == ["thinking", "text"]
    assert (final.usage.input_tokens, final.usage.output_tokens) == spent_since(stub, before)
    assert (final.caps["clusters"], final.stop_reason) == (1, "end_turn")
    assert ask(claude, "cut").stop_reason == "max_tokens"


def test_responses_call_functions_and_read_what_they_returned(client, stub):
    tools = [{"type": "function", "name": "look_up", "parameters": SCHEMA, "strict": True}]
    given = [{"role": "user", "content": "How is Oslo?"}]
    answer = respond(client, given, tools=tools, tool_choice={"type": "function", "name": "look_up"})
    (call,) = [item for item in answer.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == ("look_up", {"city": "Oslo"})
    sent = stub.bodies[-1] if not is_judge(stub.bodies[-1]) else stub.bodies[-4]
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "look_up"}}
    assert sent["tools"][0]["function"] == {"name": "look_up", "parameters": SCHEMA, "strict": True}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "cold"}
    respond(client, [*given, *answer.output, result], tools=tools)
    roles = [(one["role"], one.get("tool_call_id")) for one in stub.bodies[-1]["messages"]]
    assert roles == [("user", None), ("assistant", None), ("tool", call.call_id)]
    assert stub.bodies[-1]["messages"][1]["tool_calls"][0]["id"] == call.call_id
    with client.responses.stream(model="caps/m", input="How?", tools=tools) as stream:
        final = stream.get_final_response()
    assert final.output[-1].arguments == '{"city": "Oslo"}'


def test_messages_call_tools_and_read_what_they_returned(claude, stub):
    tools = [{"name": "look_up", "description": "weather", "input_schema": SCHEMA}]
    choice = {"type": "any", "disable_parallel_tool_use": True}
    answer = ask(
        claude, "How is Oslo?", tools=tools, tool_choice=choice, system="Be brief.", stop_sequences=["x"]
    )
    text, call = answer.content
    assert (text.text, call.name, call.input) == ("I look it up.", "look_up", {"city": "Oslo"})
    assert answer.stop_reason == "tool_use"
    sent = next(body for body in reversed(stub.bodies) if not is_judge(body))
    assert (sent["tool_choice"], sent["parallel_tool_calls"], sent["stop"]) == ("required", False, ["x"])
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
    assert sent["max_tokens"] == 100
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
    result = {
        "type": "tool_result",
        "tool_use_id": call.id,
        "content": [{"type": "text", "text": "cold"}, picture],
    }
    turns = [
        {"role": "user", "content": "How is Oslo?"},
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [result, {"type": "text", "text": "2 + 2?"}]},
    ]
    claude.messages.create(model="caps/m", max_tokens=10, messages=turns)
    sent = next(body for body in reversed(stub.bodies) if not is_judge(body))["messages"]
    assert [one["role"] for one in sent] == ["user", "assistant", "tool", "user"]
    assert (sent[2]["tool_call_id"], sent[2]["content"]) == (call.id, "cold")
    assert sent[3]["content"][0]["image_url"]["url"] == f"data:image/png;base64,{PICTURE}"
    with claude.messages.stream(model="caps/m", max_tokens=9, messages=turns[:1], tools=tools) as stream:
        assert stream.get_final_message().content[1].input == {"city": "Oslo"}


def test_images_and_forms_of_answers_reach_the_model(client, claude, stub):
    address = f"data:image/png;base64,{PICTURE}"
    part = {"type": "input_image", "image_url": address, "detail": "low"}
    form = {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}
    given = [{"role": "user", "content": [{"type": "input_text", "text": "What?"}, part]}]
    respond(client, given, text={"format": form}, reasoning={"effort": "low"})
    sent = stub.bodies[-1]
    assert sent["messages"][0]["content"][1]["image_url"] == {"url": address, "detail": "low"}
    assert sent["response_format"]["json_schema"] == {"name": "place", "schema": SCHEMA, "strict": True}
    assert sent["reasoning_effort"] == "low"
    picture = {"type": "image", "source": {"type": "url", "url": "https://example.org/cat.png"}}
    ask(claude, [picture, {"type": "text", "text": "What?"}])
    assert stub.bodies[-1]["messages"][0]["content"][0]["image_url"]["url"] == "https://example.org/cat.png"


def test_errors_are_the_exceptions_of_each_client(client, claude, server):
    with pytest.raises(openai.BadRequestError, match=r"previous_response_id: this server stores no"):
        respond(client, previous_response_id="resp_1")
    with pytest.raises(openai.BadRequestError, match="temperature must be 1"):
        respond(client, "refuse")
    with pytest.raises(anthropic.BadRequestError, match=r"caps.n: must be a whole number") as caught:
        ask(claude, extra_body={"caps": {"n": 1000}})
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert caught.value.body["request_id"] == caught.value.response.headers["x-caps-run-id"]
    with pytest.raises(anthropic.NotFoundError) as caught:
        claude.messages.batches.list()
    assert caught.value.body["error"]["type"] == "not_found_error"
    stranger = anthropic.Anthropic(base_url=server.url.removesuffix("/v1"), api_key="sk-no", max_retries=0)
    with stranger, pytest.raises(anthropic.AuthenticationError):
        ask(stranger)


def test_anthropic_clients_count_tokens_and_list_models(claude):
    counted = claude.messages.count_tokens(model="caps/m", messages=[{"role": "user", "content": "x" * 400}])
    assert counted.input_tokens == 100
    assert [model.id for model in claude.models.list()] == ["caps/m", "m"]
    assert claude.models.retrieve("caps/m").display_name == "caps/m"


def message(text="vary", model="caps/m", **more):
    return {"max_tokens": 9, **asked(text, model, **more)}


def test_every_status_has_the_error_object_of_the_api(stub):
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


def test_a_full_queue_is_reported_in_the_form_of_each_api():
    go = threading.Event()

    async def work(call):
        first = asyncio.ensure_future(call(path="/v1/messages", body=message(stream=True, caps={"n": 1})))
        await until(lambda: stub.busy == 1)
        refused = [
            await call(path="/v1/messages", body=message(caps={"n": 1})),
            await call(path="/v1/responses", body={"model": "caps/m", "input": "?", "stream": True}),
        ]
        go.set()
        return [await first, *refused]

    with ScriptedEndpoint([Reply("same", until=go.is_set)]) as stub:
        answers = inside(stub.url, work, limits=Limits(max_concurrent=1, max_waiting=0))
    assert [one.status for one in answers] == [200, 429, 429]
    assert [one.json["error"]["type"] for one in answers[1:]] == ["rate_limit_error"] * 2
    assert answers[1].headers["retry-after"] == "1"


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_an_error_after_the_first_heartbeat_is_an_event_of_the_api(api):
    received = []
    given = {"input": "?"} if api == "responses" else message()

    async def work(call):
        body = {**given, "model": "caps/m", "stream": True, "caps": {"n": 1}}
        return await call(path=f"/v1/{api}", body=body, on_body=received.append)

    with ScriptedEndpoint(
        [Status(400, {"error": {"message": "no"}}, until=lambda: len(received) > 1)]
    ) as stub:
        said = inside(stub.url, work, heartbeat=0.05).body.decode()
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


def test_other_models_are_forwarded_with_the_version_of_the_api():
    whole = Pieces((b"event: message_start\n", b"data: {}\n\n"), lambda: True)
    with ManyApis([whole]) as stub:

        async def work(call):
            head = {"anthropic_version": "2023-06-01", "x_api_key": "any"}
            return [
                await call(path="/v1/messages", body=message(model="m", stream=True), **head),
                await call(path="/v1/messages/count_tokens", body=message(model="m"), **head),
                await call(path="/v1/responses", body={"model": "m", "input": "?"}),
            ]

        answers = inside(stub.url, work)
    assert [one.body for one in answers] == [b"event: message_start\ndata: {}\n\n"] * 3
    assert stub.headers[0]["anthropic-version"] == "2023-06-01"
    assert "x-api-key" not in {name.lower() for name in stub.headers[0]}
    assert stub.bodies[0] == message(model="m", stream=True)


def test_tokens_of_forwarded_messages_are_counted_with_those_read_from_a_cache():
    usage = {
        "input_tokens": 5,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 2,
        "output_tokens": 7,
    }
    with ManyApis([Raw(json.dumps({"type": "message", "usage": usage}).encode())]) as stub:

        async def work(call):
            await call(path="/v1/messages", body=message(model="m"))
            return (await call("GET", "/metrics")).body.decode()

        page = inside(stub.url, work)
    assert 'caps_tokens_total{kind="prompt",part="forwarded"} 27.0' in page
    assert 'caps_tokens_total{kind="cached",part="forwarded"} 20.0' in page
    assert 'caps_tokens_total{kind="completion",part="forwarded"} 7.0' in page


def test_large_requests_virtual_models_and_the_other_name_of_the_limit():
    def picky(body, number):
        if "max_tokens" in body:
            said = "Unsupported parameter: use max_completion_tokens"
            return Status(400, {"error": {"message": said, "param": "max_tokens"}})
        return Reply("It is \\boxed{4}")

    async def work(call):
        long = "word " * 20_000
        return [
            await call(path="/v1/messages", body=message(long)),
            await call(
                path="/v1/responses", body={"model": "caps/team", "input": long, "max_output_tokens": 5}
            ),
            await call(
                path="/v1/responses", body={"model": "caps/team", "input": [{"role": "me"}, {"x": long}]}
            ),
        ]

    table = {"team": {"generators": ["small", "large"], "max_n": 4}}
    with ScriptedEndpoint(picky) as stub:
        plain, team, wrong = inside(stub.url, work, config_={"models": table, "samples": 2})
    assert plain.json["content"][0]["text"] == "It is \\boxed{4}"
    assert team.json["caps"]["model"] in ("small", "large")
    assert (wrong.status, wrong.json["error"]["param"]) == (400, "input")
    assert stub.bodies[-1]["max_completion_tokens"] == 5


def test_streams_may_be_followed_in_each_api():
    async def work(call):
        more = {"stream": True, "stream_options": {"include_progress": True}}
        return [
            await call(path="/v1/messages", body=message("4?", **more)),
            await call(path="/v1/responses", body={"model": "caps/m", "input": "4?", **more}),
        ]

    with ScriptedEndpoint(upstream) as stub:
        answers = inside(stub.url, work, config_={"samples": "auto"})
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
