"""The server as a process: slow clients, faults of the upstream, SIGTERM under load, settings in a file."""

import asyncio
import json
import random
import re
import signal
import socket
import threading
import time
from pathlib import Path

import aiohttp
import pytest
from typer.testing import CliRunner

from caps.cli.main import make_app
from caps.core.errors import SettingError
from caps.testing import Half, Raw, Reply, Reset, ScriptedEndpoint, Status, asked, is_judge, running, upstream
from support.waiting import PATIENCE, until

ROOT = Path(__file__).parents[2]
KEY = "sk-of-a-client"


def post(body):
    payload = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nAuthorization: Bearer {KEY}\r\n"
    return f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload


def talk(port, *parts, pause=0.0):
    """Send parts with pauses between them, and read until the server hangs up or says nothing for a while."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as line:
        said = b""
        try:
            for part in parts:
                line.sendall(part)
                time.sleep(pause)
            while piece := line.recv(65536):
                said += piece
        except (TimeoutError, ConnectionError):
            pass
        return said


async def ask_all(url, bodies):
    """Status and JSON of each, all at once; a connection that breaks is its exception."""

    async def one(session, body):
        headers = {"Authorization": f"Bearer {KEY}"}
        async with session.post(f"{url}/chat/completions", json=body, headers=headers) as response:
            return response.status, json.loads(await response.read())

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        return await asyncio.gather(*(one(session, body) for body in bodies), return_exceptions=True)


def test_a_server_rejects_slow_and_malformed_clients_and_finishes_running_requests(tmp_path):
    """One server for all of this: it takes a while to start."""
    config = tmp_path / "caps.toml"
    config.write_text(
        'samples = 2\nmax-samples = 4\nstrategy = "majority"\nbody-seconds = 2\nmax-body = 4000\nheartbeat = 0.1\nmax-connections = "64"\n'
    )

    stopped = threading.Event()

    def behave(body, number):
        if is_judge(body):
            return upstream(body, number)
        if body["messages"][-1]["content"] == "late":
            return Reply("late", until=stopped.is_set)
        return Reply("a\r\n\r\ndata: [DONE]\r\n\r\nHTTP/1.1 200 OK")

    with (
        ScriptedEndpoint(behave) as stub,
        running(stub.url, "--config", config, CAPS_SERVER_API_KEY=f"{KEY} other") as up,
    ):
        whole = post(asked())
        head, body = whole.split(b"\r\n\r\n")
        assert talk(up.port, whole[:40]) == b"", "half a head"
        assert b" 408 " in talk(up.port, head + b"\r\n\r\n" + body[:10]).partition(b"\r\n")[0]
        assert (
            b" 413 "
            in talk(up.port, head.replace(b"Length: ", b"Length: 99") + b"\r\n\r\n").partition(b"\r\n")[0]
        )
        chunked = head.rpartition(b"\r\nContent-Length")[0] + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
        flood = talk(up.port, chunked, *[b"3e8\r\n" + b" " * 1000 + b"\r\n"] * 5)
        assert b" 413 " in flood.partition(b"\r\n")[0]
        assert b" 400 " in talk(up.port, b"GET / HTTP/1.1\r\nbad header\r\n\r\n").partition(b"\r\n")[0]
        assert (
            b" 401 "
            in talk(up.port, whole.replace(KEY.encode(), b"sk-of-a-thief!"), b"").partition(b"\r\n")[0]
        )

        said = talk(up.port, post(asked(stream=True)))
        events = said.partition(b"\r\n\r\n")[2]
        assert said.count(b"HTTP/1.1 200 OK\r\n") == 1, "what a candidate says makes no header and no event"
        assert events.count(b"data: [DONE]\n\n") == 1
        ((status, answer),) = asyncio.run(ask_all(up.url, [asked()]))
        assert (status, answer["caps"]["strategy"], answer["caps"]["samples"]) == (200, "majority", 2)

        async def under_load():
            asking = asyncio.ensure_future(ask_all(up.url, [asked("late", stream=False)] * 20))
            await until(lambda: stub.busy == 40)
            up.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)  # a server that does not wait for requests would have ended by now
            stopped.set()
            return await asking

        answers = asyncio.run(under_load())
        assert [one[0] for one in answers] == [200] * 20
        assert up.end(0) == 0
    assert up.lines[-1]["event"] == "stopped"
    assert sum(line.get("status") == 200 for line in up.lines) == 22
    assert KEY not in json.dumps(up.lines)


def test_with_a_flaky_upstream_every_client_gets_an_answer_or_an_error():
    chance = random.Random(5)
    ways = [
        Status(500, "oops"), Status(429, "slow down", {"Retry-After": "0"}), Reset(), Half(), Raw(b"<html>"),
        Status(503, {"error": {"message": "overloaded"}}), Reply(None), Reply("no verdict at all"),
    ]  # fmt: skip

    def behave(body, number):
        return chance.choice(ways) if chance.random() < 0.3 else upstream(body, number)

    with (
        ScriptedEndpoint(behave) as stub,
        running(stub.url, "--max-seconds", 8, "--max-connections", 64) as up,
    ):
        streams = [asked(caps={"n": 4}) for _ in range(24)]
        answers = asyncio.run(ask_all(up.url, streams))
        assert up.end() == 0
    good = [body for status, body in answers if status == 200]
    assert len(good) >= 20
    assert all(body["choices"][0]["message"]["content"] for body in good)
    bad = [body["error"] for status, body in answers if status != 200]
    assert all(error["code"].startswith("upstream") or error["code"] == "timeout" for error in bad)
    assert not any(line.get("fault") for line in up.lines)


def test_the_settings_in_the_documentation_and_the_deployment_files_are_options(tmp_path):
    (shown,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/howto/serve.md").read_text(), re.DOTALL)
    (tmp_path / "serve.toml").write_text(shown)
    words = ["serve", "--config", str(tmp_path / "serve.toml"), "--host", "0.0.0.0"]
    done = CliRunner().invoke(make_app(), words)
    assert "give --api-key" in str(done.exception), "everything else was taken as it is"
    printed = CliRunner().invoke(make_app(), ["serve", "--help"]).output
    for name in ("caps.service", "Containerfile"):
        used = re.findall(r"--(?:config|host|port)\b", (ROOT / "deploy" / name).read_text())
        assert used
        assert all(option in printed for option in used)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no model server"),
        (("--base-url", "localhost:1"), "base URL must look like"),
        (("--base-url", "http://localhost:1/v1", "--host", "0.0.0.0"), "anyone who can reach this address"),
        (("--base-url", "http://localhost:1/v1", "--strategy", "capz"), "did you mean"),
    ],
)
def test_wrong_settings_are_reported_before_the_server_starts(words, said):
    done = CliRunner(env={"CAPS_BASE_URL": "", "OPENAI_BASE_URL": ""}).invoke(make_app(), ["serve", *words])
    assert isinstance(done.exception, SettingError)
    assert said in str(done.exception)
