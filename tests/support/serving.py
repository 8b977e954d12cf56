"""The application of a server inside this process, called without a socket."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import StringIO
from typing import Any

from caps.config import Keys, RunConfig
from caps.models.endpoints import Endpoint
from caps.server.app import ServerConfig, open_app
from caps.server.telemetry import JsonLog
from caps.session.resolve import resolve


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


@asynccontextmanager
async def served(
    base_url: str,
    *,
    config_: dict | None = None,
    model: str = "",
    key: str | None = None,
    judge: Endpoint | None = None,
    prompts: bool = False,
    **settings: Any,
) -> AsyncIterator[Inside]:
    """The app of a server in front of an endpoint, in this process."""
    log, named = StringIO(), {}
    if judge is not None:
        named = {"judge_model": judge.model, "judge_base_url": (judge.base_url,)}
    server = {"model": model or None, "base_url": (base_url,), "samples": 8, "sandbox": "off"}
    config = RunConfig(**{**server, **named, **(config_ or {})})
    keys = Keys(api_key=key, judge_api_key=judge.api_key if judge else None)
    resolved = resolve(config, keys, any_model=True)
    serving = ServerConfig(resolved=resolved, log=JsonLog(prompts=prompts, file=log), **settings)
    async with open_app(serving) as app:
        yield Inside(app, log)


def inside(base_url: str, work: Callable[[Inside], Any], **settings: Any) -> Any:
    """Run `work` with such a server, for tests that are no coroutines."""

    async def run() -> Any:
        async with served(base_url, **settings) as call:
            return await work(call)

    return asyncio.run(run())
