import json

import pytest

from caps.core.types import Message, Usage
from caps.models.base import Request
from caps.models.wire import decode, encode_body, read_completion

ASK = Request((Message("user", "x" * 40),), "m")


def read(message=None, *, finish="stop", usage=None, **choice):
    """Read a reply with this message in its only choice."""
    body = {"choices": [{"message": message or {}, "finish_reason": finish, **choice}], "usage": usage}
    return read_completion(body, ASK)


@pytest.mark.parametrize(
    ("message", "text", "reasoning"),
    [
        ({"content": "A"}, "A", ""),
        ({"content": None, "reasoning_content": "hm"}, "", "hm"),
        ({"content": "A", "reasoning": "hm"}, "A", "hm"),
        ({"content": "A", "reasoning": "", "reasoning_content": "hm"}, "A", "hm"),
        ({"content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]}, "AB", ""),
        (
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"text": "A"}]},
            "A",
            "hm",
        ),
        ({"content": ["A", 3, None]}, "A", ""),
        ({}, "", ""),
        ({"content": 7}, "", ""),
    ],
)
def test_a_message_is_read_in_any_of_its_shapes(message, text, reasoning):
    got = read(message)
    assert (got.text, got.reasoning) == (text, reasoning)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), (None, ""),
        ("max_tokens", "length"), ("end_turn", "stop"), ("MAX_TOKENS", "length"),
        ("tool_calls", "tool_calls"),
    ],
)  # fmt: skip
def test_why_a_reply_ended_is_said_in_one_vocabulary(said, meant):
    assert read({"content": "A"}, finish=said).finish == meant


def test_a_refusal_is_its_own_end():
    got = read({"content": None, "refusal": "I will not."})
    assert (got.text, got.finish) == ("I will not.", "refusal")


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, Usage(9, 2)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": None}, Usage(9, 2)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 8}, Usage(9, 2, cached=8)),
        (None, Usage(10, 2, estimated=True)),
        ({}, Usage(10, 2, estimated=True)),
        ({"completion_tokens": 5}, Usage(10, 5, estimated=True)),
        ({"prompt_tokens": -1, "completion_tokens": True}, Usage(10, 2, estimated=True)),
        ("many", Usage(10, 2, estimated=True)),
    ],
)
def test_missing_usage_is_estimated_and_said_to_be(usage, counted):
    assert read({"content": "abc", "reasoning": "defg"}, usage=usage).usage == counted


def test_usages_add_up():
    assert Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40, estimated=True) == Usage(11, 22, 33, 44, estimated=True)


def test_json_as_loose_as_servers_write_it_is_read():
    body = b'{"choices": [{"message": {"content": "half \\ud83d pair"}, "logprobs": {"content": [{"token": "A", "logprob": -Infinity}]}}]}'
    got = read_completion(decode(body), ASK)
    assert got.text == "half ? pair"
    assert got.logprobs[0].logprob == -9999.0


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_is_a_value_error(payload):
    with pytest.raises(ValueError, match="."):
        decode(payload)


def test_half_a_surrogate_pair_can_be_sent():
    body = json.loads(encode_body(Request((Message("user", "a\ud800b"),), "m")))
    assert body["messages"][0]["content"] == "a\ud800b"
