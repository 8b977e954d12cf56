"""The OpenAI client and curl against a real server: only the model name changes."""

import asyncio
import json
import shutil
import subprocess
import threading

import openai
import pytest

from caps.testing import Half, Pieces, Reply, ScriptedEndpoint, Status, is_judge, running, upstream
from support.waiting import PATIENCE

TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
VARY = [{"role": "user", "content": "vary"}]
BEGUN = threading.Event()
pytestmark = pytest.mark.xdist_group("clients")  # one server for all of them


def calling(city, name="call_1"):
    arguments = json.dumps({"city": city})
    call = {"id": name, "type": "function", "function": {"name": "look_up", "arguments": arguments}}
    return Reply(None, finish="tool_calls", message={"tool_calls": [call]})


def behave(body, number):
    text = str(body["messages"][-1]["content"])
    if body["model"] == "broken":
        return Half()
    if body["model"] == "other":
        if body.get("stream"):
            return Pieces((b'data: {"choices": []}\n\n', b"data: [DONE]\n\n"), BEGUN.is_set)
        return Reply("as it is", more={"strange": {"kept": True}})
    if is_judge(body):
        return upstream(body, number)
    if "refuse" in text:
        return Status(400, {"error": {"message": "temperature must be 1"}})
    if "slow" in text:
        return Reply("slow quality=0.5", delay=1.2)
    if body.get("tools"):
        return calling("Oslo" if number % 4 else "Rome", f"call_{number}")
    if body.get("response_format"):
        return Reply(['{"a": 1, "b": 2}', '{"b":2,"a":1}'][number % 2])
    return upstream(body, number)


@pytest.fixture(scope="module")
def stub():
    with ScriptedEndpoint(behave, models=("m", "other")) as running_stub:
        yield running_stub


@pytest.fixture(scope="module")
def server(stub):
    with running(stub.url, "--heartbeat", 0.1, "--samples", 4) as up:
        yield up


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as talks:
        yield talks


@pytest.fixture
def chat(client):
    return lambda model="caps/m", messages=VARY, **more: client.chat.completions.create(
        model=model, messages=messages, **more
    )


def test_the_answer_is_the_winner_and_the_usage_is_what_the_upstream_counted(chat, stub):
    seen, before = stub.requests, dict(stub.tokens)
    answer = chat(extra_body={"caps": {"n": 8, "strategy": "caps-r"}})
    assert answer.choices[0].message.content.endswith(f"\\boxed{{{seen + 7}}}")
    spent = {name: stub.tokens[name] - before[name] for name in before}
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (spent["prompt"], spent["output"])
    split = answer.usage.caps
    assert split["generation"]["calls"] == 8
    assert split["verifier"]["calls"] == stub.requests - seen - 8 == 10
    assert sum(stage["prompt_tokens"] for stage in split["stages"]) == split["verifier"]["prompt_tokens"]
    assert (answer.model, answer.caps["clusters"], answer.caps["provisional"]) == ("caps/m", 8, False)


def test_no_judge_is_called_if_all_samples_agree(chat, stub):
    seen = stub.requests
    answer = chat(messages=[{"role": "user", "content": "What is 2 + 2?"}])
    assert answer.choices[0].message.content == "It is 4."
    assert stub.requests - seen == 4
    assert answer.usage.caps["verifier"]["calls"] == 0


def test_a_stream_has_heartbeats_then_the_same_answer_in_chunks_then_the_usage(server, chat):
    parts = list(chat(stream=True, stream_options={"include_usage": True}))
    assert parts[0].choices[0].delta.role == "assistant"
    text = "".join(part.choices[0].delta.content or "" for part in parts[:-1])
    assert text.startswith("With quality=0.")
    assert parts[-2].choices[0].finish_reason == "stop"
    assert parts[-1].choices == []
    assert parts[-1].usage.caps["generation"]["calls"] == 4
    plain = list(chat(stream=True))
    assert all(part.usage is None for part in plain)
    assert plain[-1].choices[0].finish_reason == "stop"

    body = json.dumps({"model": "caps/m", "stream": True, "messages": [{"role": "user", "content": "slow"}]})
    raw = curl(server, "/chat/completions", "-N", "-d", body)
    assert raw.count(": keep-alive\n\n") >= 2
    assert raw.endswith("data: [DONE]\n\n")


async def test_many_at_once_through_the_async_client(server, stub):
    async with openai.AsyncOpenAI(base_url=server.url, api_key="any", max_retries=0) as talks:
        asks = [talks.chat.completions.create(model="caps/m", messages=VARY) for _ in range(12)]
        stream = await talks.chat.completions.create(model="caps/m", messages=VARY, stream=True)
        answers, parts = await asyncio.gather(*asks), [part async for part in stream]
    assert len({answer.id for answer in answers}) == 12
    assert all(answer.choices[0].finish_reason == "stop" for answer in answers)
    assert parts[-1].choices[0].finish_reason == "stop"


def test_tools_are_forwarded_and_equal_calls_are_one_answer(chat, stub):
    seen = stub.requests
    answer = chat(tools=TOOLS, tool_choice="auto", seed=5, extra_body={"caps": {"strategy": "majority"}})
    sent = stub.bodies[seen : stub.requests]
    assert all(body["tools"] == TOOLS and body["tool_choice"] == "auto" for body in sent)
    assert sorted(body["seed"] for body in sent) == [5, 6, 7, 8]
    assert not {"caps", "n", "stream"} & set(sent[0])
    (call,) = answer.choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("look_up", {"city": "Oslo"})
    assert (answer.choices[0].finish_reason, answer.caps["clusters"]) == ("tool_calls", 2)
    assert answer.caps["domain"] == "general"
    parts = list(chat(tools=TOOLS, stream=True, extra_body={"caps": {"strategy": "majority"}}))
    (streamed,) = [call for part in parts for call in part.choices[0].delta.tool_calls or ()]
    assert (streamed.index, streamed.function.name) == (0, "look_up")


def test_equal_json_is_one_answer_and_images_are_forwarded(chat, stub):
    seen = stub.requests
    picture = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    answer = chat(
        messages=[{"role": "user", "content": picture}],
        response_format={"type": "json_object"},
        temperature=0.9,
    )
    assert (answer.caps["clusters"], answer.usage.caps["verifier"]["calls"]) == (1, 0)
    assert json.loads(answer.choices[0].message.content) == {"a": 1, "b": 2}
    sent = stub.bodies[seen]
    assert sent["messages"][0]["content"] == picture
    assert (sent["response_format"], sent["temperature"]) == ({"type": "json_object"}, 0.9)


def test_n_returns_the_best_in_order(chat):
    def boxed(answer):
        return [int(one.message.content.partition("{")[2].rstrip("}")) for one in answer.choices]

    assert len(set(boxed(chat(n=3)))) == 3
    found = boxed(chat(n=3, extra_body={"caps": {"strategy": "knockout"}}))
    assert found[0] == max(found)  # the others are in the order in which they went out
    answer = chat(n=3, extra_body={"caps": {"strategy": "round-robin"}})
    assert boxed(answer) == sorted(boxed(answer), reverse=True)
    assert [one.index for one in answer.choices] == [0, 1, 2]
    assert answer.caps["samples"] == 4
    assert len(chat(n=6).choices) == 6


def test_options_of_a_request(chat, stub):
    seen = stub.requests
    answer = chat(extra_body={"caps": {"n": 3, "strategy": "round-robin", "domain": "code", "seed": 7}})
    assert stub.requests - seen == 3 + 3
    facts = answer.caps
    assert (facts["strategy"], facts["domain"], facts["seed"], facts["samples"]) == (
        "round-robin",
        "code",
        7,
        3,
    )
    few = chat(extra_body={"caps": {"n": 8, "strategy": "caps-r", "set": {"finalists": 2}}})
    assert few.usage.caps["verifier"]["calls"] < 10


def test_other_models_are_forwarded_as_they_are(server, client, chat, stub):
    answer = chat(model="other", temperature=0.3)
    assert (answer.choices[0].message.content, answer.strange) == ("as it is", {"kept": True})
    assert stub.bodies[-1] == {"model": "other", "messages": VARY, "temperature": 0.3}
    BEGUN.clear()
    with client.chat.completions.with_streaming_response.create(
        model="other", messages=VARY, stream=True
    ) as response:
        parts = response.iter_bytes()
        first = next(parts)
        BEGUN.set()  # what follows is sent only now: nothing was kept back until all was there
        rest = b"".join(parts)
    assert first + rest == b'data: {"choices": []}\n\ndata: [DONE]\n\n'


def test_a_forwarded_reply_that_is_cut_off_is_not_completed(chat):
    with pytest.raises(openai.APIConnectionError):
        chat(model="broken")


def test_errors_are_the_client_s_own_exceptions(server, client, chat):
    with pytest.raises(openai.BadRequestError, match=r"caps.n: must be a whole number from 1 to 32"):
        chat(extra_body={"caps": {"n": 1000}})
    with pytest.raises(
        openai.BadRequestError,
        match=r"caps.strategie: no such field; did you mean 'strategy'\? there are .*set,.* n,",
    ):
        chat(extra_body={"caps": {"strategie": "caps"}})
    with pytest.raises(openai.BadRequestError, match=r"caps.base_url: no such field; there are .*domain"):
        chat(extra_body={"caps": {"base_url": "http://elsewhere"}})
    with pytest.raises(openai.BadRequestError, match="temperature must be 1") as caught:
        chat(messages=[{"role": "user", "content": "refuse"}])
    assert str(client.base_url).split("/")[2] not in str(caught.value)
    assert caught.value.response.headers["x-caps-run-id"]
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("caps/none")
    with pytest.raises(openai.NotFoundError):
        client.images.generate(prompt="a cat")


def test_models_are_listed_twice(client):
    assert [model.id for model in client.models.list()] == ["caps/m", "caps/other", "m", "other"]
    assert client.models.retrieve("caps/m").owned_by == "caps"


def curl(server, path, *words):
    assert shutil.which("curl"), "the tests need curl"
    command = ["curl", "-sS", "-H", "Content-Type: application/json", *words, server.url + path]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout


def test_a_case_through_curl(server, stub):
    case = {"id": "sum", "domain": "math", "problem": "?", "model": "caps/m", "caps": {"strategy": "caps"}}
    case["candidates"] = [f"quality=0.{i} \\boxed{{{i}}}" for i in (3, 9, 5)]
    line = json.loads(curl(server, "/select", "-d", json.dumps(case)))
    assert (line["id"], line["winner"], line["order"][0], line["strategy"]) == ("sum", 1, 1, "caps")
    assert line["usage"]["prompt_tokens"] == line["tokens"]["asked"] > 0
