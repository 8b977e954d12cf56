"""Streams, per-request settings and time limits of selected answers."""

import asyncio
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caps.config import RunConfig
from caps.server.admission import Limits
from caps.server.anthropic_format import MESSAGES
from caps.server.errors import ApiError
from caps.server.formats import MOST_PIECES, PIECE_CHARACTERS
from caps.server.openai_format import CHAT
from caps.server.requests import chat_problem, parse_chat_request, request_config
from caps.server.responses_format import RESPONSES
from caps.testing import Hang, Reply, ScriptedEndpoint, asked, is_judge, upstream
from support.serving import served
from support.waiting import skip, until

HOSTILE = st.text() | st.sampled_from(
    ["data: [DONE]\n\ndata: {}\n\n", "\r\n\r\nSet-Cookie: a=b", "event: x\ndata: y\n\n", ": c\n\n", "\u2028\u0085\x00", "x" * (PIECE_CHARACTERS * MOST_PIECES + 1)]
)  # fmt: skip


def completion(*messages):
    choices = [
        {"index": i, "message": {"role": "assistant", **one}, "finish_reason": "stop"}
        for i, one in enumerate(messages)
    ]
    return {
        "id": "1",
        "created": 1,
        "model": "caps/m",
        "choices": choices,
        "usage": {"total_tokens": 3},
        "caps": {},
    }


def events_of(api, **options):
    body = {"model": "caps/m", "messages": [{"role": "user", "content": "?"}], "stream_options": options}
    return api.events(parse_chat_request(body, RunConfig(), Limits(), None, chat_problem(body)), body, "r")


@settings(max_examples=30)
@given(st.lists(st.tuples(HOSTILE, HOSTILE), min_size=1, max_size=3), st.booleans())
def test_a_stream_contains_the_winner_and_no_event_that_the_winner_makes_up(said, tell):
    whole = completion(*({"content": text, "reasoning_content": thought} for text, thought in said))
    sent = b"".join(events_of(CHAT, include_usage=tell).answer(whole))
    lines = sent.split(b"\n\n")
    assert lines.pop() == b""
    assert lines.pop() == b"data: [DONE]"
    assert all(line.startswith(b"data: {") and not set(line) & set(b"\r\n") for line in lines)
    events = [json.loads(line[6:]) for line in lines]
    streamed = {}
    for event in events:
        for choice in event["choices"]:
            old = streamed.setdefault(choice["index"], ["", ""])
            old[0] += choice["delta"].get("content") or ""
            old[1] += choice["delta"].get("reasoning_content") or ""
    assert [tuple(streamed[i]) for i in range(len(said))] == said
    assert (events[-1].get("usage") == {"total_tokens": 3}) == tell


@settings(max_examples=30)
@given(HOSTILE, HOSTILE.filter(bool), HOSTILE)
def test_streams_of_the_other_apis_contain_the_answer_and_no_event_that_it_makes_up(text, thought, given):
    function = {"name": "look_up", "arguments": json.dumps({"city": given})}
    said = {"content": text, "reasoning_content": thought, "tool_calls": [{"id": "a", "function": function}]}
    spent = {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3, "caps": {}}
    details = {
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    whole = {**completion(said), "usage": spent | details, "caps": {"run_id": "r"}}
    for api in (MESSAGES, RESPONSES):
        pieces = {"text": "", "thinking": "", "json": ""}
        *parts, end = b"".join(events_of(api).answer(whole)).split(b"\n\n")
        assert end == b""
        for part in parts:
            name, data = part.split(b"\n")
            event = json.loads(data.removeprefix(b"data: "))
            assert name == b"event: " + event["type"].encode()
            delta = event.get("delta")
            if isinstance(delta, dict):
                pieces["text"] += delta.get("text", "")
                pieces["thinking"] += delta.get("thinking", "")
                pieces["json"] += delta.get("partial_json", "")
            elif delta is not None:
                kinds = {"response.output_text.delta": "text", "response.reasoning_text.delta": "thinking"}
                pieces[kinds.get(event["type"], "json")] += delta
        assert (pieces["text"], pieces["thinking"]) == (text, thought)
        assert json.loads(pieces["json"]) == {"city": given}


@pytest.mark.parametrize(
    "given",
    [{"strategy": "os:system"}, {"strategy": "caps.strategies.caps:Caps"}, {"strategy": "../caps"}, {"strategy": 1},
     {"set": {"finalists": 10**9}}, {"set": {"budget": "1e9"}}, {"set": {"finalists": [4]}}, {"set": []},
     {"set": {"none": 1}}, {"n": True}, {"n": 1.5}, {"domain": "law"}, {"seconds": 1e9}, [], 3],
)  # fmt: skip
def test_settings_that_a_client_may_not_send_are_rejected(given):
    with pytest.raises(ApiError) as caught:
        request_config(given, RunConfig(), Limits())
    assert (caught.value.status, caught.value.param.split(".")[0]) == (400, "caps")


def test_the_defaults_of_the_server_apply_unless_a_client_changes_them():
    base = RunConfig(samples=64, strategy="caps", settings={"finalists": 2})
    plain = request_config(None, base, Limits(max_samples=16))
    assert (plain.samples, plain.settings, plain.budget_seconds) == (16, {"finalists": 2}, 600.0)
    other = request_config({"strategy": "caps-r", "budget_tokens": 100}, base, Limits())
    assert (other.settings, other.budget_tokens) == ({}, 100)


def test_the_judge_reads_every_message_and_the_names_of_other_content():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    parts = [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": "data:AAAA"}}, 7]
    body = {
        "messages": [
            {"role": "user", "content": parts},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "42"},
            {"content": {"odd": 1}},
        ],
        "tools": [{"type": "function"}],
    }
    text = chat_problem(body).text
    assert "Look:\n[image_url: not shown here]\n[a part: not shown here]" in text
    assert '"tool_calls":[{"id":"c"' in text
    assert "[tools]" in text
    assert "AAAA" not in text


async def samples_come(call):
    page = (await call("GET", "/metrics")).body.decode()
    found = re.search(r'^caps_calls_total\{part="generation"\} (.*)$', page, re.MULTILINE)
    return float(found[1]) if found else 0


async def test_at_the_time_limit_the_best_answer_so_far_is_returned():
    def slow(body, number):
        if is_judge(body):
            return Hang()
        return Hang() if number == 3 else Reply(f"number {number}")

    async def cut_short(call, n, in_time):
        """The answer to a request whose time is up when so many samples have come, and when a judge is asked."""
        asked_before, come_before = stub.requests, await samples_come(call)
        request = asyncio.ensure_future(call(body=asked("any", caps={"n": n, "seconds": 100})))
        while await samples_come(call) < come_before + in_time:
            await asyncio.sleep(0)
        if in_time < n:
            skip(80)  # three quarters of the time are for samples
        await until(lambda: any(map(is_judge, stub.bodies[asked_before:])))
        skip(100)
        return await request

    async with ScriptedEndpoint(slow) as stub, served(stub.url) as call:
        first, second = await cut_short(call, 4, 3), await cut_short(call, 2, 2)
    for answer in (first, second):
        assert answer.status == 200, answer.body
        assert answer.json["caps"]["provisional"]
        assert answer.json["caps"]["causes"]["time"] >= 1
        assert answer.json["usage"]["caps"]["estimated"] is True  # calls that were cancelled
        assert answer.json["usage"]["caps"]["verifier"]["prompt_tokens"] > 0
    assert first.json["caps"]["failed"] == 1
    assert first.json["usage"]["caps"]["generation"]["calls"] == 4


async def test_a_judge_that_never_answers_leaves_a_provisional_answer():
    async with (
        ScriptedEndpoint(upstream) as stub,
        served(stub.url, limits=Limits(max_judge_tokens=10)) as call,
    ):
        answer = await call(body=asked("vary", caps={"n": 3}))
    assert (answer.status, answer.json["caps"]["provisional"]) == (200, True)
    assert answer.json["caps"]["causes"].keys() == {"budget"}
    assert answer.json["usage"]["caps"]["verifier"]["prompt_tokens"] == 0


async def test_the_same_request_has_the_same_pairings():
    def same(body, number):
        return (
            upstream(body, number)
            if is_judge(body)
            else Reply(f"quality=0.{body['seed']} \\boxed{{{body['seed']}}}")
        )

    async with ScriptedEndpoint(same) as stub, served(stub.url) as call:
        first, second = [
            (await call(body=asked(seed=1, caps={"n": 6}))).json["caps"]["order"] for _ in range(2)
        ]
    assert first == second
    assert first[0] == 5
