"""A `caps serve` in a process of its own, and a script for the server behind it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from caps.testing.cases import better_quality_wins
from caps.testing.endpoint import PATIENCE, Body, Reply, ScriptedEndpoint

CAPS = Path(sys.executable).with_name("caps")


def asked(text: str = "vary", model: str = "caps/m", **more: object) -> Body:
    """The body of a request for a chat completion."""
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


def is_judge(body: Body) -> bool:
    """Whether a request asks a judge."""
    return "BEGIN CANDIDATE" in str(body["messages"][0]["content"])


def upstream(body: Body, number: int) -> Reply:
    """Judge by quality, or write: the word `vary` brings answers of rising quality, any other one answer."""
    if is_judge(body):
        return better_quality_wins(body)
    if body["messages"][-1]["content"] == "vary":
        return Reply(f"With quality=0.{10 + number % 80} it is \\boxed{{{number}}}")
    return Reply("It is 4.")


class ManyApis(ScriptedEndpoint):
    """An endpoint that has the Responses API and the Messages API too, among others."""

    def add_routes(self, app: web.Application) -> None:
        """Answer all of them by the script."""
        for path in ("responses", "messages", "messages/count_tokens", "embeddings", "completions"):
            app.router.add_post(f"/v1/{path}", self._complete)


class RunningServer:
    """A server in a process of its own; `lines` are what it logged, once it has ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        line = "" if process.stderr is None else process.stderr.readline()
        self.url: str = json.loads(line)["url"]
        self.port = int(self.url.rpartition(":")[2].partition("/")[0])
        self.lines: list[dict[str, Any]] = []

    def end(self, sign: int = signal.SIGTERM) -> int:
        """End it by a signal; returns its exit code."""
        self.process.send_signal(sign)
        _, logged = self.process.communicate(timeout=PATIENCE)
        self.lines += [json.loads(line) for line in logged.splitlines()]
        return self.process.returncode


@contextmanager
def running(base_url: str, *words: object, **environment: str) -> Iterator[RunningServer]:
    """Run `caps serve` in front of an endpoint, without the settings of this process's environment."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CAPS_", "OPENAI_"))}
    command = [str(CAPS), "serve", "--base-url", base_url, "--port", "0", *map(str, words)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**clean, **environment})  # noqa: S603
    try:
        yield RunningServer(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
