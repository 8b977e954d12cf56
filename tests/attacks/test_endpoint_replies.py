"""Hostile endpoints: bodies without end, bombs, drips, and replies of every wrong shape."""

import asyncio
import base64
import json
import resource
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caps.core.errors import (
    BrokenServerError,
    CapsError,
    GarbledError,
    ModelError,
    TimedOutError,
    UnreachableError,
)
from caps.core.types import Message
from caps.journal.store import Journal
from caps.models import faults
from caps.models.base import Request
from caps.models.batch import BatchApi, PendingRequest, read_batch, read_id, read_item, read_page, read_result
from caps.models.endpoints import ServerAddress, discover
from caps.models.faults import Retries, retry_after
from caps.models.http import HttpModel, Timeouts
from caps.models.journaled import JournaledModel, to_reply
from caps.models.probing import missing_logprobs
from caps.models.servers import ServersModel
from caps.models.wire import (
    ERROR_BYTES,
    REPLY_BYTES,
    TEXT_CHARS,
    decode,
    embedded_status,
    parse_completion,
    sanitize,
)
from caps.testing import Raw, Reply, Reset, ScriptedEndpoint, Status, asked, running, write_cases
from support.closing import closing
from support.raw_endpoint import (
    OK,
    RawEndpoint,
    always,
    answer,
    chat,
    chunk,
    deflate_bomb,
    drip,
    endless,
    gzip_bomb,
    zstd_bomb,
)
from support.serving import inside, served
from support.shell import caps
from support.waiting import PATIENCE

ONCE = Retries(most=0, loading=0.0, most_unknown=0)
BROTLI_BOMB = base64.b64decode(  # 64 MiB of blanks
    "y///P/glQOKxQCD3/o///3/wSwDEYRGA7v0f////4JcAiMMCAN37P/7//8EvARCHBQC693/8//+DXwIgDgsAdO//+P//B78EQBwWAOje//H//w9+"
    "CYA4LADQvf/j//8f/BIAcVgAoHv/Nw=="
)
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
JUNK = b"x" * (256 << 10)


def ask(**fields):
    return Request((Message("user", "Which?"),), "m", **fields)


def one(url, request=None, **settings):
    """Send one request, once."""

    async def run():
        async with closing(HttpModel(url, **{"retries": ONCE, **settings})) as model:
            return await model.complete(request or ask())

    return asyncio.run(run())


def deflate_error():
    parts = deflate_bomb(b"gzip")
    yield next(parts).replace(b"200 OK", b"400 No")
    yield from parts


#: What is sent, by the name that stands in the path.
BODIES = {
    "endless body": lambda: endless(JUNK),
    "endless chunks": lambda: endless(chunk(JUNK), head=CHUNKED),
    "endless small chunks": lambda: endless(chunk(b"x") * 20_000, head=CHUNKED),
    "endless events": lambda: endless(b'data: {"choices": []}\n\n' * 5000),
    "a length of a terabyte": lambda: endless(JUNK, head=OK + b"Content-Length: 1099511627776\r\n\r\n"),
    "a verdict of 20 MB": lambda: answer(chat("A" * 20_000_000)),
    "gzip bomb": gzip_bomb,
    "gzip bomb of one member": lambda: deflate_bomb(b"gzip"),
    "deflate bomb": deflate_bomb,
    "brotli bomb": lambda: answer(BROTLI_BOMB, head=OK + b"Content-Encoding: br\r\n"),
    "zstd bomb": zstd_bomb,
    "gzip that is none": lambda: endless(JUNK, head=OK + b"Content-Encoding: gzip\r\n\r\n"),
    "many objects": lambda: answer(b'{"choices":[' + b"{}," * 5_000_000 + b"{}]}"),
    "endless headers": lambda: endless(b"X-More: x\r\n" * 5000, head=OK),
    "a header without end": lambda: endless(JUNK, head=OK + b"X-More: "),
    "a status line without end": lambda: endless(JUNK, head=b"HTTP/1.1 200 "),
    "a chunk's size without end": lambda: endless(b"0" * 65536, head=CHUNKED),
    "a chunk's extension without end": lambda: endless(b"y" * 65536, head=CHUNKED + b"5;x="),
    "trailers without end": lambda: endless(b"X-More: x\r\n" * 5000, head=CHUNKED + b"0\r\n"),
    "an endless refusal": lambda: endless(JUNK, head=b"HTTP/1.1 401 No\r\n\r\n"),
    "an endless error": lambda: endless(JUNK, head=b"HTTP/1.1 500 No\r\n\r\n"),
    "a bomb for an error": deflate_error,
}


ATTACK = """
import asyncio, json, sys
from caps.core.errors import ModelError
from caps.core.types import Message
from caps.models.base import Request
from caps.models.http import HttpModel, Timeouts
from caps.models.faults import Retries

async def attack(url):
    seconds = 1.5 if "small" in url else 60  # aiohttp takes a minute for so many
    model = HttpModel(url, retries=Retries(most=0, loading=0.0, most_unknown=0), timeouts=Timeouts(read=seconds))
    try:
        got = await model.complete(Request((Message("user", "Which?"),), "m"))
        return ["reply", str(len(got.text))]
    except ModelError as error:
        return [type(error).__name__, str(error)]
    finally:
        await model.close()

def peak():  # of this program alone: what getrusage counts begins with the process it was forked from
    return int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) >> 10

asyncio.run(attack(sys.argv[1] + "/fine"))
before = peak()
for name in sys.argv[2:]:
    kind, words = asyncio.run(attack(sys.argv[1] + "/" + name.replace(" ", "%20")))
    print(json.dumps([name, kind, words, peak() - before]), flush=True)
"""


def attacked(names):
    """What becomes of a client in a process of its own at each attack, with the megabytes it took at most by then."""

    def answers(path, body):
        name = path.split("/")[1].replace("%20", " ")
        return BODIES[name]() if name in BODIES else answer(chat())

    with RawEndpoint(answers) as endpoint:
        root = endpoint.url.removesuffix("/v1")
        done = subprocess.run(
            [sys.executable, "-c", ATTACK, root, *names],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
        )
    assert "Traceback" not in done.stderr, done.stderr
    return {
        name: (kind, words, taken) for name, kind, words, taken in map(json.loads, done.stdout.splitlines())
    }


@pytest.fixture(scope="module")
def attacks():
    return attacked(BODIES)


@pytest.mark.parametrize("name", BODIES)
def test_a_body_without_end_or_a_bomb_is_an_error_and_takes_little_memory(attacks, name):
    kind, words, taken = attacks[name]
    assert kind in {"GarbledError", "BrokenServerError", "AccessError", "RefusedError", "TimedOutError"}, (
        words
    )
    assert kind != "TimedOutError" or "small chunks" in name
    assert "127.0.0.1" in words
    assert len(words) < 1000
    assert taken < 200  # MB; a client without limits takes all of `MOST`, and more to decode it


def test_the_error_names_the_limit(attacks):
    for name in ("endless body", "gzip bomb", "deflate bomb", "a verdict of 20 MB", "a length of a terabyte"):
        kind, words, _ = attacks[name]
        assert (kind, f"more than {REPLY_BYTES:,} bytes" in words) == ("GarbledError", True), words


@pytest.mark.parametrize(
    "part",
    [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", b"\r\n"],
    ids=["100", "103", "empty lines"],
)
def test_a_flood_of_what_comes_before_a_reply_ends_with_the_time_of_the_reply(part):
    with RawEndpoint(always(lambda: endless(part * 2000, head=b""))) as endpoint, pytest.raises(ModelError):
        one(endpoint.url, timeouts=Timeouts(read=0.5))


def test_a_second_reply_behind_the_first_does_not_answer_the_next_request():
    async def run(url):
        async with closing(HttpModel(url, retries=ONCE, connections=1)) as model:
            return [(await model.complete(ask(draw=draw))).text for draw in range(3)]

    def replies():
        yield answer(chat("right")) + answer(chat("smuggled"))
        time.sleep(0.2)  # while it holds the connection open

    with RawEndpoint(always(replies)) as endpoint:
        assert asyncio.run(run(endpoint.url)) == ["right"] * 3


def test_a_reply_beyond_the_limit_is_not_asked_for_again():
    with RawEndpoint(always(lambda: endless(JUNK))) as endpoint:
        with pytest.raises(GarbledError) as caught:
            one(endpoint.url, retries=Retries(first=0.001, longest=0.002))
        assert caught.value.attempts == len(endpoint.requests) == 1


def test_a_text_that_is_too_long_to_be_kept_is_cut_and_says_so():
    with RawEndpoint(always(lambda: answer(chat("ab" * TEXT_CHARS)))) as endpoint:
        got = one(endpoint.url)
    assert (len(got.text), got.finish) == (TEXT_CHARS, "length")


@pytest.mark.parametrize(
    "parts",
    [
        [OK + b"Content-Length: 1000\r\n\r\n"] + [b"x"] * 1000,
        [OK + b"\r\n"] + [b" "] * 1000,
        [CHUNKED] + [chunk(b"x")] * 1000,
        [b"HTTP/1.1 200 OK\r\n"] + [b"X: y\r\n"] * 1000,
        [b"H"] * 1000,
        [b"HTTP/1.1 100 Continue\r\n\r\n"] * 1000,
        [OK.replace(b"json", b"event-stream") + b"\r\n"] + [b": still here\n\n"] * 1000,
    ],
    ids=["body", "blanks", "chunks", "headers", "status line", "informational", "events"],
)
def test_a_drip_is_given_up_when_the_time_of_the_reply_is_over(parts):
    with RawEndpoint(always(lambda: drip(parts, 0.02))) as endpoint, pytest.raises(ModelError) as caught:
        one(endpoint.url, timeouts=Timeouts(read=0.3))
    assert isinstance(caught.value, TimedOutError | BrokenServerError)


@pytest.mark.parametrize(
    "name", ["endless body", "gzip bomb", "endless headers", "many objects", "an endless error"]
)
def test_whatever_lists_its_models_without_end_is_named_strange_or_silent(name):
    with RawEndpoint(always(BODIES[name])) as endpoint:
        (found,) = asyncio.run(discover([ServerAddress("vLLM", endpoint.url)], seconds=60))
    assert found.state in {"strange", "silent"}
    assert found.models == ()


def test_a_place_that_answers_its_own_questions_without_end_is_still_listed():
    def answers(path, body):
        return answer(b'{"data": [{"id": "m\\u001b[2J"}]}') if path.endswith("/models") else endless(JUNK)

    with RawEndpoint(answers) as endpoint:
        places = [ServerAddress(kind, endpoint.url) for kind in ("Ollama", "LM Studio", "llama.cpp")]
        found = asyncio.run(discover(places, seconds=60))
    assert [[model.name for model in one.models] for one in found] == [["m\ufffd[2J"]] * 3


def test_a_test_call_names_an_endpoint_without_an_end():
    async def run(url):
        async with closing(HttpModel(url, retries=ONCE)) as model:
            await missing_logprobs(model, "m", {}, repr)

    with RawEndpoint(always(lambda: endless(JUNK))) as endpoint, pytest.raises(GarbledError, match="bytes"):
        asyncio.run(run(endpoint.url))


def test_of_several_servers_one_that_sends_without_end_is_left_for_the_others():
    async def run(bad, good):
        async with closing(ServersModel([bad, good], retries=Retries(first=0.001, longest=0.002))) as model:
            replies = [await model.complete(ask(draw=draw, group=str(draw))) for draw in range(40)]
            return replies, model.records()

    with RawEndpoint(always(lambda: endless(JUNK))) as bad, ScriptedEndpoint([Reply("fine")]) as good:
        got, records = asyncio.run(run(bad.url, good.url))
    assert [one.text for one in got] == ["fine"] * 40
    assert records[0].failed > 0


def batches(url, work):
    async def run():
        async with closing(HttpModel(url, retries=ONCE)) as model:
            return await work(BatchApi(model, "m", retries=ONCE))

    return asyncio.run(run())


@pytest.mark.parametrize(
    "name", ["endless body", "gzip bomb", "deflate bomb", "endless headers", "an endless error"]
)
def test_a_batch_api_without_an_end_is_an_error(name, tmp_path):
    with RawEndpoint(always(BODIES[name])) as endpoint:
        for work in (
            lambda desk: desk.retrieve("batch_1"),
            lambda desk: desk.create("file_1"),
            lambda desk: desk.find("f"),
        ):
            with pytest.raises(ModelError, match="127.0.0.1"):
                batches(endpoint.url, work)


def test_a_file_of_results_may_not_be_larger_than_its_replies_can_be(tmp_path):
    path = tmp_path / "results.jsonl"
    with (
        RawEndpoint(always(lambda: endless(JUNK))) as endpoint,
        pytest.raises(GarbledError, match="67,108,864 bytes"),
    ):
        batches(endpoint.url, lambda desk: desk.download("file_1", path, requests=1))
    assert path.stat().st_size <= 64 << 20


@pytest.mark.parametrize(
    "name", ["../../admin", "a?b", "a#b", "a b", "/etc", "\ud800", "x" * 5000, "", 5, None, [], {}]
)
def test_an_id_that_would_lead_elsewhere_is_none(name):
    with pytest.raises(ValueError, match="no id"):
        read_id({"id": name})


# --- forwarding -------------------------------------------------------------------------------------------


def test_a_stream_without_end_is_passed_on_within_its_time_and_is_not_held():
    plain = json.dumps({"model": "m", "messages": [], "stream": True}).encode()
    with (
        RawEndpoint(always(lambda: endless(b"data: {}\n\n" * 3000))) as endpoint,
        running(endpoint.url, "--timeout", "1") as server,
    ):
        taken = swallowed(server.port, plain)
        peak = peak_of(server.process.pid)
        assert server.end() == 0
    assert taken > 1 << 20
    assert peak < 250 << 10  # KB


def swallowed(port, body):
    """How many bytes come back from a server that is asked to forward, until it hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body
        )
        taken = 0
        while part := connection.recv(1 << 20):
            taken += len(part)
    return taken


def peak_of(pid):
    told = Path(f"/proc/{pid}/status").read_text()
    return int(told.partition("VmHWM:")[2].split()[0])


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (lambda: endless(JUNK, head=OK + b"Content-Length: 1099511627776\r\n\r\n"), {200}),
        (lambda: answer(b"?", head=b"HTTP/1.1 999 Odd\r\n"), {502}),
        (lambda: answer(b"?", head=b"HTTP/1.1 000 Odd\r\n"), {502}),
        (lambda: answer(b"?", head=b"HTTP/1.1 099 Odd\r\n"), {502}),
        (lambda: answer(b"?", head=b"HTTP/1.1 600 Odd\r\n"), {502}),
        (lambda: answer(b"", head=b"HTTP/1.1 204 None\r\n"), {204}),
        (lambda: answer(b"{}", head=b"HTTP/1.1 200 OK\r\nX-Request-Id: \xff\xfe\x80\r\n"), {200}),
        (lambda: answer(b"{}", head=b"HTTP/1.1 200 OK\r\nX-Request-Id: a\x01b\r\n"), {200, 502}),
        (lambda: endless(b"X-More: x\r\n" * 5000, head=OK), {502}),
        (lambda: answer(b"no gzip", head=OK + b"Content-Encoding: gzip\r\n"), {200, 502}),
        (lambda: b"", {502}),
        (lambda: b"\x00\xff garbage\r\n\r\n", {502}),
        (lambda: b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", {502}),
        (lambda: OK + b"Content-Length: 5\r\nContent-Length: 7\r\n\r\n1234567", {200, 502}),
        (lambda: CHUNKED + b"zz\r\nxx\r\n", {200, 502}),
    ],
)
async def test_what_an_endpoint_sends_against_http_never_becomes_an_error_of_ours(sent, statuses):
    async with RawEndpoint(always(sent)) as endpoint, served(endpoint.url) as server:
        answered = await server(body=asked(model="plain"))
        status, log = answered.status, server.log.getvalue()
    assert status in statuses
    assert "fault" not in log


def test_a_status_that_http_does_not_have_is_a_fault_of_the_endpoint():
    statuses = ["000", "099", "600", "999"]
    left = iter(statuses * 2)
    with RawEndpoint(
        always(lambda: answer(b"?", head=b"HTTP/1.1 %s Odd\r\n" % next(left).encode()))
    ) as endpoint:
        for status in statuses:
            with pytest.raises(BrokenServerError, match=f"status {int(status)}"):
                one(endpoint.url)
        with running(endpoint.url) as server:
            connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
            for _ in statuses:
                body = json.dumps(asked(model="plain"))
                connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
                forwarded = connection.getresponse()
                assert (forwarded.status, forwarded.read()) == (502, b"?")
            connection.close()
            assert server.end() == 0
    assert not any(line["event"] == "fault" or line.get("fault") for line in server.lines)


# --- faults that come and go --------------------------------------------------------------------------------


def limits_at(url, calls):
    """The limit of concurrent calls after each answer, while 100 clients ask and each call has many tries."""

    async def run():
        model = HttpModel(url, retries=Retries(most=100, first=0.001, longest=0.02))
        left, limits = iter(range(calls)), []

        async def client():
            for _ in left:
                await model.complete(ask())
                limits.append(model.connections)

        try:
            await asyncio.gather(*(client() for _ in range(100)))
            return limits
        finally:
            await model.close()

    return asyncio.run(run())


@pytest.mark.parametrize("seed", range(3))
def test_an_upstream_that_fails_now_and_then_is_not_taken_for_an_overloaded_one(seed, caplog):
    chance = Random(seed)
    faulty = [Status(500), Status(502), Reset()]
    with ScriptedEndpoint(
        lambda *_: chance.choice(faulty) if chance.random() < 0.1 else Reply("fine")
    ) as stub:
        with caplog.at_level("INFO", logger="caps.models.limits"):
            limits_at(stub.url, 3000)
        assert stub.requests > 3200, "about 300 calls failed"
    assert caplog.messages
    assert not any("overloaded" in message for message in caplog.messages)


@pytest.mark.parametrize("wait", ["0", "0.01"])
def test_an_upstream_that_refuses_all_beyond_16_calls_is_held_near_them(wait):
    def saturated(*_):
        refusal = Status(429, headers={"Retry-After": wait})
        return refusal if stub.busy > 16 else Reply("fine", delay=0.01)

    with ScriptedEndpoint(saturated) as stub:
        limits = limits_at(stub.url, 2000)
    assert 8 <= median(limits[500:]) <= 32


def test_an_upstream_that_takes_one_call_at_a_time_answers_all():
    def alone(*_):
        return Status(429, headers={"Retry-After": "0"}) if stub.busy > 1 else Reply("fine")

    async def run():
        async with closing(HttpModel(stub.url, retries=Retries(first=0.01, longest=0.2))) as model:
            return await asyncio.gather(*(model.complete(ask()) for _ in range(60)))

    with ScriptedEndpoint(alone) as stub:
        assert [answered.text for answered in asyncio.run(run())] == ["fine"] * 60


# --- ill-typed replies ------------------------------------------------------------------------------------

DEEP = json.loads("[" * 300 + "]" * 300)
WRONG = [
    5, -1, 1.5, True, None, "word", "", [], {}, [5], [[]], {"a": 1}, 10**30, 1e308, "\ud800", [None], [{"a": []}], DEEP,
]  # fmt: skip
# A chat completion with every field that is looked at anywhere.
WHOLE = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "m", "error": None,
    "choices": [{
        "index": 0, "finish_reason": "stop", "delta": None, "error": None,
        "message": {
            "role": "assistant", "refusal": None, "reasoning": "", "reasoning_content": "", "function_call": None,
            "content": [{"type": "text", "text": "OK"}, {"type": "thinking", "thinking": [{"text": "hm"}]}],
            "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}],
        },
        "logprobs": {"content": [{
            "token": "A", "logprob": -1, "bytes": [65],
            "top_logprobs": [{"token": "B", "logprob": -2, "bytes": [66]}],
        }]},
    }],
    "usage": {
        "prompt_tokens": 1, "completion_tokens": 1, "prompt_cache_hit_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 1}, "completion_tokens_details": {"reasoning_tokens": 1},
    },
}  # fmt: skip


def spoilt(value):
    """A value with every part of it, itself included, replaced by every wrong one."""
    yield from WRONG
    if isinstance(value, dict | list):
        for place, part in value.items() if isinstance(value, dict) else enumerate(value):
            for wrong in spoilt(part):
                copy = value.copy()
                copy[place] = wrong
                yield copy


PLAIN = {**WHOLE, "choices": [{**WHOLE["choices"][0], "message": {"role": "assistant", "content": "OK"}}]}
REPLIES = list(spoilt(WHOLE))


def kept(payload):
    """Read a reply as a live call does, and return all that is stored, printed and handed on of it."""
    reply = decode(payload)
    failed = embedded_status(reply)
    if failed is not None:
        return str(faults.refused(failed, reply, {}, address="here", model="m", now=0.0).error)
    completion = parse_completion(reply, lambda: 1)
    row = to_reply("key", "digest", ask(), completion)
    for count in (row.prompt_tokens, row.output_tokens, row.cached_tokens, row.reasoning_tokens):
        assert 0 <= count < 2**62
    return msgspec.json.encode([row, sanitize(reply["choices"][0])]).decode()


def test_every_field_of_every_wrong_type_is_read_or_refused():
    read = 0
    for reply in [*REPLIES, *spoilt(PLAIN)]:
        try:
            read += bool(kept(json.dumps(reply).encode()))
        except ValueError as error:
            assert str(error).isprintable()
    assert read > len(REPLIES) / 2


def test_a_reply_of_every_wrong_type_is_journaled_or_an_error_of_the_endpoint(tmp_path):
    """The same through a socket and into a journal: nothing but our own errors."""

    async def run(url):
        outcomes = []
        with Journal.open(tmp_path / "journal.sqlite") as journal:
            model = JournaledModel(HttpModel(url, retries=ONCE), journal)
            for draw in range(len(REPLIES)):
                try:
                    outcomes.append((await model.complete(ask(draw=draw, top_logprobs=1))).finish)
                except CapsError as error:
                    outcomes.append(str(error))
            await model.close()
        return outcomes

    with ScriptedEndpoint([Raw(json.dumps(one).encode()) for one in REPLIES]) as server:
        outcomes = asyncio.run(run(server.url))
    assert len(outcomes) == len(REPLIES)
    assert all(word.isprintable() for word in outcomes)


NAMES = [
    "choices", "message", "content", "usage", "logprobs", "top_logprobs", "token", "logprob", "text", "error",
    "code", "thinking", "type", "model", "prompt_tokens", "completion_tokens", "prompt_tokens_details",
    "cached_tokens", "finish_reason", "param", "data", "id", "status", "errors", "request_counts", "total",
    "has_more", "custom_id", "response", "body", "status_code", "tool_calls", "function_call", "x",
]  # fmt: skip
TEXTS = [
    "",
    "word",
    "stop",
    "length",
    "\ud800",
    "\x00",
    "\x1b[2J",
    "\u202e",
    "9" * 400,
    "batch_expired",
    "e\u0301" * 9,
]
NUMBERS = [
    0,
    1,
    -1,
    200,
    404,
    2**63,
    10**30,
    -(10**300),
    0.5,
    -0.0,
    1e308,
    *map(float, ("inf", "-inf", "nan")),
]
EXAMPLES, EACH = 120, 30  # shapes in all: their product; hypothesis alone needs 20 times as long for as many


def shape(chance: Random, room: int = 5) -> Any:
    """Any JSON value, with the names and values that a reader looks for."""
    kind = chance.randrange(8 if room else 4)
    if kind == 0:
        return chance.choice([None, True, False])
    if kind in (1, 2, 3):
        return chance.choice(TEXTS if kind == 1 else NUMBERS if kind == 2 else WRONG)
    if kind == 4:
        return [shape(chance, room - 1) for _ in range(chance.randrange(4))]
    return {chance.choice(NAMES): shape(chance, room - 1) for _ in range(chance.randrange(6))}


def shapes(number: int) -> list[Any]:
    """Shapes of every kind, those of a chat completion among them."""
    chance, found = Random(number), []
    for _ in range(EACH // 6):
        one, two = shape(chance), shape(chance)
        message, logprobs = {"content": one, "tool_calls": two}, {"content": [two, {"top_logprobs": one}]}
        choice = {"message": message, "logprobs": logprobs}
        response = {"status_code": two, "body": {"choices": [choice]}}
        found += [one, {"error": one, "errors": two}]
        found += [{"choices": [{"message": one}]}, {"choices": [choice], "usage": two}]
        found += [{"id": "b1", "status": one, "errors": two, "request_counts": one, "data": [two]}]
        found += [{"custom_id": "k", "id": one, "response": response, "error": two}]
    return found


seeds = st.integers(0, 2**32)


@settings(max_examples=EXAMPLES)
@given(seeds)
def test_no_shape_of_a_reply_raises_anything_but_what_a_reader_may_raise(seed):
    for reply in shapes(seed):
        try:
            assert isinstance(kept(json.dumps(reply).encode()), str)
        except ValueError as error:
            assert str(error)


@settings(max_examples=1000)
@given(st.binary(max_size=60) | st.text(max_size=40).map(lambda text: text.encode("utf-16")))
def test_no_bytes_raise_anything_but_what_a_reader_may_raise(payload):
    for body in (payload, b'{"choices": [{"message": {"content": "' + payload + b'"}}]}'):
        for read in (kept, read_item):
            try:
                assert read(body)
            except ValueError as error:
                assert str(error)


@settings(max_examples=EXAMPLES)
@given(seeds, st.sampled_from([200, 400, 401, 404, 413, 429, 500, 503]))
def test_no_shape_of_an_error_raises_and_its_words_can_be_printed(seed, status):
    for said in shapes(seed):
        try:
            reply = decode(json.dumps(said).encode())
        except ValueError:
            continue
        fault = faults.refused(status, reply, {}, address="here", model="m", now=0.0)
        assert str(fault.error).isprintable()
        assert len(str(fault.error)) < 2000


@settings(max_examples=300)
@given(
    st.text(max_size=40)
    | st.sampled_from(["Mon, 01 Jan 2024 00:00:00 +99999999999999999", "9" * 400, "1e999", "nan"])
)
def test_no_wish_to_wait_raises(word):
    wait = retry_after({"Retry-After": word, "retry-after-ms": word[::-1]}, 0.0)
    assert wait is None or wait >= 0


@settings(max_examples=EXAMPLES)
@given(seeds)
def test_no_shape_of_a_batch_raises_anything_but_a_value_error(seed):
    for reply in shapes(seed):
        for read in (read_batch, read_page, read_id):
            try:
                assert read(reply) is not None
            except ValueError as error:
                assert str(error)


@settings(max_examples=EXAMPLES)
@given(seeds)
def test_no_line_of_results_raises_anything_but_a_value_error(seed):
    for row in shapes(seed):
        try:
            item = read_item(json.dumps(row).encode())
        except ValueError as error:
            assert str(error)
        else:
            assert item.key.encode()
            assert read_result(item, PendingRequest("m", "t", "d", 1)) is not None


# --- the server, and the command --------------------------------------------------------------------------

SERVED = [
    {
        "choices": [
            {
                "message": {"content": "It is 4."},
                "logprobs": {"content": [{"token": "4", "logprob": -1, "top_logprobs": 5}]},
            }
        ]
    },
    {"choices": [{"message": {"content": "It is \ud800 4."}}]},
    {"choices": [{"message": {"content": "It is 4.", "\udfff": "\ud800"}}]},
    {"choices": [{"message": {"content": "It is 4."}, "index": 10**30, "x": 1e400}]},
    {"choices": [{"message": {"content": "It is 4.", "deep": DEEP}}]},
    {"choices": [{"message": {"content": None, "tool_calls": [{"function": "\ud800"}, 5, None]}}]},
    {"choices": [{"message": {"content": ["It ", 5, {"text": "is 4."}]}}]},
    {
        "choices": [{"message": {"content": "It is 4."}}],
        "usage": {"prompt_tokens": 10**40, "completion_tokens": 1e300},
    },
    {"choices": [{"message": {"content": "It is 4.", "role": 5}, "finish_reason": {"a": 1}}], "model": ["m"]},
    {"choices": [{"message": {"content": "A" * 3_000_000}}]},
    {"choices": 5},
    {"error": {"message": DEEP, "code": "\ud800"}},
    [[[[]]]],
]


def test_no_answer_of_an_upstream_becomes_an_error_of_the_server_after_it_was_paid():
    settings = {"n": 2, "strategy": "majority", "seconds": 2}

    def reply(body, _):
        return Raw(json.dumps(SERVED[int(body["messages"][-1]["content"])]).encode())

    async def work(server):
        bodies = [
            asked(str(number), stream=stream, caps=settings)
            for number in range(len(SERVED))
            for stream in (False, True)
        ]
        answers = await asyncio.gather(*(server(body=body) for body in bodies))
        return zip(bodies, answers, strict=True), server.log.getvalue()

    with ScriptedEndpoint(reply) as upstream:
        answers, log = inside(upstream.url, work, config_={"timeout": 20})
    for body, got in answers:
        assert got.status in {200, 502, 504}, body
        assert got.body.decode(), body
    assert "fault" not in log


def test_a_run_over_replies_of_the_wrong_types_has_no_traceback(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 2, n=3)
    odd = [one for one in SERVED if isinstance(one, dict) and isinstance(one.get("choices"), list)]

    def reply(body, number):
        return Reply() if number == 0 else Raw(json.dumps(odd[number % len(odd)]).encode())

    with ScriptedEndpoint(reply) as server:
        done = caps(
            "select", cases, "--model", "stub", "--base-url", server.url, "--journal", tmp_path / "j.sqlite",
            "--out", tmp_path / "run", "--confidence", "verbal",
        )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert done.returncode in {0, 1, 5}
    assert (tmp_path / "run" / "selections.jsonl").exists()


def test_a_batch_whose_status_is_garbage_ends_in_a_sentence(tmp_path):
    def answers(path, body):
        return answer(json.dumps({"id": "b", "status": DEEP, "errors": 5, "request_counts": [1]}).encode())

    with RawEndpoint(answers) as endpoint:
        found = batches(endpoint.url, lambda desk: desk.retrieve("b"))
        assert (found.id, found.status, found.done) == ("b", "", 0)
        with pytest.raises(GarbledError, match="no list of batches"):
            batches(endpoint.url, lambda desk: desk.find("f"))


def test_an_upload_that_is_answered_without_end_is_an_error(tmp_path):
    path = tmp_path / "step.jsonl"
    path.write_text("{}\n")
    with (
        RawEndpoint(always(lambda: endless(JUNK))) as endpoint,
        pytest.raises((GarbledError, UnreachableError, BrokenServerError)),
    ):
        batches(endpoint.url, lambda desk: desk.upload(path))


def test_an_error_is_read_no_further_than_it_is_quoted():
    with RawEndpoint(always(lambda: endless(JUNK, head=b"HTTP/1.1 404 No\r\n\r\n"))) as endpoint:
        with pytest.raises(UnreachableError, match="status 404"):
            one(endpoint.url)
        assert endpoint.sent < 100 * ERROR_BYTES
