"""Requests whose end can be seen in two places: refused before the app, and nothing behind them is answered."""

import json
import re
import socket

import pytest

from caps.testing import Reply, ScriptedEndpoint, running
from support.waiting import PATIENCE

BODY = json.dumps({"model": "plain", "messages": [{"role": "user", "content": "hi"}]}).encode()
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMUGGLED = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
ENOUGH = b"Connection: close\r\n"

REFUSED = {
    "both lengths": HEAD + LENGTH + CHUNKED + b"\r\n" + CHUNKS,
    "both lengths, the other way round": HEAD + CHUNKED + LENGTH + b"\r\n" + CHUNKS,
    "a length of nothing and chunks": HEAD + CHUNKED + b"Content-Length: 0\r\n\r\n" + CHUNKS,
    "both lengths of a GET": b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
    "both lengths, chunks folded": HEAD + LENGTH + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS,
    "both lengths in capitals": HEAD + LENGTH.upper() + b"TRANSFER-ENCODING: CHUNKED\r\n\r\n" + CHUNKS,
    "a request behind chunks of nothing": HEAD + b"Content-Length: 60\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": HEAD.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n" + CHUNKS,
    "two lengths": HEAD + LENGTH + b"Content-Length: 5\r\n\r\n" + BODY,
    "a list of two lengths": HEAD + b"Content-Length: %d, 5\r\n\r\n" % len(BODY) + BODY,
    "a length with a sign": HEAD + b"Content-Length: +%d\r\n\r\n" % len(BODY) + BODY,
    "a length below nothing": HEAD + b"Content-Length: -1\r\n\r\n" + BODY,
    "a length in hexadecimal": HEAD + b"Content-Length: 0x10\r\n\r\n" + BODY,
    "a length with an underscore": HEAD + b"Content-Length: 1_0\r\n\r\n" + BODY,
    "a length of 23 digits": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n" + BODY,
    "an unknown encoding": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS,
    "gzip and chunks": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
    "chunks and identity": HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNKS,
    "identity": HEAD + b"Transfer-Encoding: identity\r\n" + LENGTH + b"\r\n" + BODY,
    "chunks twice": HEAD + CHUNKED + CHUNKED + b"\r\n" + CHUNKS,
    "a blank before the colon": HEAD + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS,
    "a control character before chunked": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNKS,
    "a bare carriage return": HEAD + b"X: a\r" + CHUNKED + LENGTH + b"\r\n" + BODY,
    "a NUL in a header": HEAD + b"X: a\0b\r\n" + LENGTH + b"\r\n" + BODY,
    "two hosts": HEAD + b"Host: evil\r\n" + LENGTH + b"\r\n" + BODY,
    "a chunk of no size": HEAD + CHUNKED + b"\r\nzz\r\nabc\r\n0\r\n\r\n",
    "a chunk of a size below nothing": HEAD + CHUNKED + b"\r\n-5\r\nabc\r\n0\r\n\r\n",
    "a chunk of a size with 0x": HEAD + CHUNKED + b"\r\n0x5\r\nabcde\r\n0\r\n\r\n",
    "a chunk of a size of 200 digits": HEAD + CHUNKED + b"\r\n" + b"f" * 200 + b"\r\nabcde\r\n0\r\n\r\n",
    "a chunk longer than its size": HEAD + CHUNKED + b"\r\n2\r\n{}XX0\r\n\r\n",
    "HTTP/0.9": b"GET /v1/models\r\n\r\n",
}  # fmt: skip
ANSWERED = {
    "a length": HEAD + LENGTH + ENOUGH + b"\r\n" + BODY,
    "the same length twice": HEAD + LENGTH + LENGTH + ENOUGH + b"\r\n" + BODY,
    "chunks": HEAD + CHUNKED + ENOUGH + b"\r\n" + CHUNKS,
    "chunks with an extension": HEAD + CHUNKED + ENOUGH + b"\r\n" + CHUNKS.replace(b"\r\n", b";a=b\r\n", 1),
    "chunks and a trailer": HEAD + CHUNKED + ENOUGH + b"\r\n" + CHUNKS[:-2] + b"Content-Length: 5\r\n\r\n",
    "a header that looks like a length": HEAD + b"Content_Length: 3\r\n" + LENGTH + ENOUGH + b"\r\n" + BODY,
}


@pytest.fixture(scope="module")
def server():
    with ScriptedEndpoint([Reply("It is 4.")]) as upstream, running(upstream.url) as started:
        started.upstream = upstream
        yield started


def exchanged(port, raw):
    """Everything that comes back until the server hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(raw)
        got = b""
        try:
            while part := connection.recv(65536):
                got += part
        except ConnectionResetError:  # it hung up before it had read all of this
            pass
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", got)], got


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_whose_end_is_ambiguous_is_refused_with_all_behind_it(server, name):
    before = server.upstream.requests
    statuses, _ = exchanged(server.port, REFUSED[name] + SMUGGLED)
    assert statuses == [400]
    assert server.upstream.requests == before


@pytest.mark.parametrize("name", ANSWERED)
def test_a_request_with_one_end_is_answered_once(server, name):
    statuses, got = exchanged(server.port, ANSWERED[name] + SMUGGLED)
    assert statuses == [200]
    assert b"It is 4." in got


def test_the_refusal_is_an_error_object_and_says_why(server):
    _, got = exchanged(server.port, REFUSED["both lengths"])
    head, _, body = got.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    assert json.loads(body)["error"]["code"] == "ambiguous_length"
    assert "Transfer-Encoding" in json.loads(body)["error"]["message"]


def test_the_server_still_answers_after_all_that(server):
    statuses, got = exchanged(
        server.port, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    )
    assert statuses == [200]
    assert b'"ok"' in got
