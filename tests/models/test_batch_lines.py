"""Lines of Batch files: what goes out is what a live call sends; what comes in never breaks the reader."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caps.core.types import Message
from caps.journal.records import request_key
from caps.models.base import Request
from caps.models.batch import (
    Failures,
    PendingRequest,
    encode_line,
    parse_key,
    read_batch,
    read_item,
    read_result,
)
from caps.models.wire import encode_body
from caps.testing import Reply

ASKED = PendingRequest("m", "t", "d", 7)
REPLY = Reply("A wins").body({"model": "m", "messages": [{"content": "who?"}]})


def result(**fields):
    return read_result(read_item(json.dumps({"id": "r1", "custom_id": "k", **fields}).encode()), ASKED)


@settings(max_examples=30)
@given(text=st.text(st.characters(), max_size=40), draw=st.integers(0, 3))
def test_a_line_holds_the_bytes_of_a_live_call_under_the_key_of_the_journal(text, draw):
    request = Request((Message("user", text),), "m", draw=draw, seed=draw or None, extra={"top_k": 3})
    line = encode_line(request_key(request), request)
    assert line.count(b"\n") == 1
    assert line.endswith(b',"body":' + encode_body(request) + b"}\n")
    assert parse_key(line) == json.loads(line)["custom_id"] == request_key(request)


def test_replies_of_openai_and_of_vllm_are_read_alike():
    body = {"response": {"status_code": 200, "request_id": "x", "body": REPLY}, "error": None}
    assert result(**body).text == "A wins"
    assert result(response={"body": REPLY}, error=None).usage.prompt == 1
    without = {name: value for name, value in REPLY.items() if name != "usage"}
    counted = result(response={"body": without}, error=None).usage
    assert (counted.prompt, counted.estimated) == (7, True)


@pytest.mark.parametrize(
    ("fields", "cause", "again"),
    [
        ({"response": {"status_code": 400, "body": {"error": {"message": "exceeds the context length"}}}}, "too-long", False),
        ({"response": {"status_code": 400, "body": None}, "error": "the prompt is too long for the context length"}, "too-long", False),
        ({"response": {"status_code": 500, "body": None}, "error": {"message": "engine died"}}, "server", True),
        ({"response": None, "error": {"code": "batch_expired", "message": "late"}}, "timeout", True),
        ({"response": {"status_code": 200, "body": {"choices": []}}}, "garbled", True),
        ({"response": {"status_code": 0, "body": None}}, "server", True),
        ({"response": {"status_code": 429, "body": {"error": {"message": "slow down"}}}}, "busy", True),
    ],
)  # fmt: skip
def test_failures_are_named_by_cause_and_only_what_may_help_is_tried_again(fields, cause, again):
    fault = result(**fields)
    assert (fault.error.cause, fault.retry) == (cause, again)
    failures = Failures(2)
    expired = cause == "timeout"
    for number in (1, 2):
        assert failures.add("k", f"batch {number}", fault)
        assert not failures.add("k", f"batch {number}", result(**fields)), "once per batch"
        given_up = failures.given_up("k")
        assert (given_up is None) == (expired or (again and number == 1))
    assert expired or given_up.cause == cause


def test_a_request_taken_for_a_result_and_other_strangers_are_called_what_they_are():
    for line, words in (
        (b'{"custom_id": "k", "method": "POST", "body": {}}', "body: a request, not a result"),
        (b'{"custom_id": "k"}', "response, error: both missing"),
        (b"[1]", "custom_id: missing"),
        (b'{"custom_id": "half', "not JSON"),
    ):
        with pytest.raises(ValueError, match=words):
            read_item(line)


def test_a_batch_is_read_as_servers_write_it():
    batch = read_batch({"id": "b", "status": "COMPLETED", "errors": {"data": [{"message": "one"}, "two"]}, "request_counts": {"completed": 3, "failed": 1}})  # fmt: skip
    assert (batch.ended, batch.done, batch.error, batch.output) == (True, 4, "one; two", None)
    with pytest.raises(ValueError, match="no id"):
        read_batch({"status": "completed"})
