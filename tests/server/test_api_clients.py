"""The Responses API and the Messages API through the clients of OpenAI and Anthropic."""

import json

import anthropic
import openai
import pytest

from caps.testing import Reply, ScriptedEndpoint, Status, is_judge, running, upstream

PICTURE = "iVBORw0KGgoAAAANSUhEUg=="
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
KEY = "sk-of-a-client"

pytestmark = pytest.mark.xdist_group("api clients")  # one server for all of them


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
