"""A running `caps serve`: as a process of its own, or as an application inside this one."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

from aiohttp import web

from caps.config import Keys, RunConfig
from caps.models.endpoints import Endpoint
from caps.runner import Runner
from caps.server.app import ServerConfig, open_app
from caps.server.telemetry import JsonLog
from judging import better_quality_wins
from models.server import Reply, StubServer
from shell import CAPS
from waiting import PATIENCE


def asked(text: str = "vary", model: str = "caps/m", **more: object) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


def is_judge(body: dict) -> bool:
    return "BEGIN CANDIDATE" in str(body["messages"][0]["content"])


def upstream(body: dict, number: int) -> Reply:
    """Judges by quality; as a writer, the word `vary` brings answers of rising quality, any other one answer."""
    if is_judge(body):
        return better_quality_wins(body)
    if body["messages"][-1]["content"] == "vary":
        return Reply(f"With quality=0.{10 + number % 80} it is \\boxed{{{number}}}")
    return Reply("It is 4.")


class OtherApis(StubServer):
    """A model server that has the Responses API and the Messages API too."""

    def add_routes(self, app: web.Application) -> None:
        for path in ("responses", "messages", "messages/count_tokens", "embeddings", "completions"):
            app.router.add_post(f"/v1/{path}", self._complete)


class Running:
    """A server in a process of its own; `lines` are what it logged, once it has ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.url = json.loads(process.stderr.readline())["url"]
        self.port = int(self.url.rpartition(":")[2].partition("/")[0])
        self.lines: list[dict] = []

    def end(self, sign: int = signal.SIGTERM) -> int:
        self.process.send_signal(sign)
        _, said = self.process.communicate(timeout=PATIENCE)
        self.lines += [json.loads(line) for line in said.splitlines()]
        return self.process.returncode


@contextmanager
def running(base_url: str, *words: object, **environment: str) -> Iterator[Running]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CAPS_", "OPENAI_"))}
    command = [str(CAPS), "serve", "--base-url", base_url, "--port", "0", *map(str, words)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**clean, **environment})
    try:
        yield Running(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


class Answer:
    def __init__(self) -> None:
        self.status, self.headers, self.body = 0, {}, b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Inside:
    """The app of a server, called without a socket; the client stays until it has its answer."""

    def __init__(self, app: Any, log: StringIO) -> None:
        self.app, self.log = app, log

    async def __call__(
        self,
        method: str = "POST",
        path: str = "/v1/chat/completions",
        body: object = None,
        *,
        leaves: asyncio.Event | None = None,
        on_body: Callable[[bytes], object] = len,
        **headers: str,
    ) -> Answer:
        payload = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent = {"host": "localhost", "content_type": "application/json", **headers}
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in sent.items()],
        }
        answer, parts = Answer(), [payload]

        async def receive() -> dict:
            if parts:
                return {"type": "http.request", "body": parts.pop(), "more_body": False}
            await (leaves or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(message: dict) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                answer.body += message.get("body", b"")
                on_body(answer.body)

        await self.app(scope, receive, send)
        return answer


def inside(
    base_url: str,
    work: Callable[[Inside], Any],
    *,
    config_: dict | None = None,
    model: str = "",
    key: str | None = None,
    judge: Endpoint | None = None,
    prompts: bool = False,
    **settings: Any,
) -> Any:
    """Run `work` with a server's app in this process."""

    async def run() -> Any:
        log, named = StringIO(), {}
        if judge is not None:
            named = {"judge_model": judge.model, "judge_base_url": (judge.base_url,)}
        server = {"model": model or None, "base_url": (base_url,), "samples": 8, "sandbox": "off"}
        config = RunConfig(**{**server, **named, **(config_ or {})})
        keys = Keys(api_key=key, judge_api_key=judge.api_key if judge else None)
        runner = Runner(config, keys=keys, any_model=True)
        serving = ServerConfig(runner=runner, log=JsonLog(prompts=prompts, file=log), **settings)
        async with open_app(serving) as app:
            return await work(Inside(app, log))

    return asyncio.run(run())
