"""A real chat-completions server for tests, on its own thread, that misbehaves as it is told.

    with StubServer([Reset(), Reply("fine")]) as server:
        model = HttpModel(server.url)

Give it a list of behaviours (one a request, then the last again and again) or a function of the request's body and
number (from 0). It counts what it saw: `requests`, `bodies`, `headers`, `tokens` (as its replies reported them),
`peak` (most requests under way at once). Its address lives on while it runs, so subprocesses may use it too.
What must not come before something else has happened waits for it: `Reply("late", until=event.is_set)`.
"""

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from caps.prompts.reply_forms import probe_fields
from waiting import Condition, until


def count_tokens(text: str) -> int:
    return -(-len(text) // 4)


@dataclass(frozen=True)
class Reply:
    """A chat completion; `usage` of None leaves it out, `message` and `more` are merged into the JSON."""

    text: str | list | None = "OK"
    finish: str | None = "stop"
    delay: float = 0.0
    usage: dict | str | None = "counted"
    message: dict = field(default_factory=dict)
    more: dict = field(default_factory=dict)
    logprobs: list | None = None
    until: Condition | None = None

    def body(self, request: dict) -> dict:
        prompt = sum(count_tokens(str(m.get("content"))) for m in request["messages"])
        usage = {"prompt_tokens": prompt, "completion_tokens": count_tokens(str(self.text or ""))}
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": self.text, **self.message},
            "finish_reason": self.finish,
        }
        if self.logprobs is not None:
            choice["logprobs"] = {"content": self.logprobs}
        body = {"object": "chat.completion", "model": request["model"], "choices": [choice], **self.more}
        if self.usage is not None:
            body["usage"] = usage if self.usage == "counted" else self.usage
        return body


@dataclass(frozen=True)
class Status:
    """An error status with a body: a dict goes out as JSON, a text as it is."""

    status: int
    body: dict | str = ""
    headers: dict = field(default_factory=dict)
    until: Condition | None = None


@dataclass(frozen=True)
class Raw:
    """Status 200 with these bytes: garbage, half a JSON, an error object."""

    payload: bytes


@dataclass(frozen=True)
class Pieces:
    """Status 200 with a stream of events, all but the first of them held back."""

    parts: tuple[bytes, ...]
    until: Condition


@dataclass(frozen=True)
class Half:
    """The first half of a good reply, then the connection is closed."""


@dataclass(frozen=True)
class Reset:
    """The connection is reset before any reply."""


@dataclass(frozen=True)
class Hang:
    """No reply, ever."""


Behaviour = Reply | Status | Raw | Pieces | Half | Reset | Hang
FINE = (Reply(),)


class StubServer:
    def __init__(
        self,
        behaviours: Sequence[Behaviour] | Callable[[dict, int], Behaviour] = FINE,
        *,
        models: Sequence[str] | None = ("stub",),
        check_model: bool = False,
        api_key: str | None = None,
        port: int = 0,
        holds: Sequence[str] = (),
        context: int | None = None,
    ) -> None:
        self._behaviours = behaviours
        self._holds = holds
        self._listed = {} if context is None else {"max_model_len": context}
        self._models = models
        self._check_model = check_model
        self._api_key = api_key
        self.bodies: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.tokens = {"prompt": 0, "output": 0}
        self.busy = 0
        self.peak = 0
        self.port = port
        self._ready = threading.Event()

    @property
    def requests(self) -> int:
        return len(self.bodies)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> "StubServer":
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.die()
        self._thread.join(60)

    def die(self) -> None:
        """End in the middle of whatever is under way; again does nothing."""
        with suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(self._stop.set)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/v1/models", self._list)
        self.add_routes(app)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, backlog=1024)
        await site.start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    def add_routes(self, app: web.Application) -> None:
        """More than chat completions, for those who stand on this."""

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if self._models is None:
            return web.Response(status=404)
        return web.json_response(
            {"object": "list", "data": [{"id": name, **self._listed} for name in self._models]}
        )

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        number = len(self.bodies)
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        self.busy += 1
        self.peak = max(self.peak, self.busy)
        try:
            return await self._behave(request, body, number)
        finally:
            self.busy -= 1

    def _held(self, body: dict) -> Behaviour | None:
        """The answer to a test of a form of replies that this server holds to."""
        for form in self._holds:
            if all(body.get(name) == value for name, value in probe_fields(form).items()):
                return Reply('{"word": "held"}' if form == "json" else "held")
        return None

    async def _behave(self, request: web.Request, body: dict, number: int) -> web.StreamResponse:
        if self._api_key and request.headers.get("Authorization") != f"Bearer {self._api_key}":
            said = f"Incorrect API key provided: {request.headers.get('Authorization')}"
            return web.json_response({"error": {"message": said, "code": "invalid_api_key"}}, status=401)
        if self._check_model and body["model"] not in (self._models or ()):
            said = f"The model `{body['model']}` does not exist."
            return web.json_response(
                {"object": "error", "message": said, "type": "NotFoundError"}, status=404
            )
        behaviour = self._held(body) or self._pick(body, number)
        match behaviour:
            case Reply():
                return await self._reply(behaviour, body)
            case Status(status, said, headers, held):
                await self._hold(held)
                text = json.dumps(said) if isinstance(said, dict) else said
                return web.Response(status=status, text=text, headers=headers)
            case Raw(payload):
                return web.Response(body=payload, content_type="application/json")
            case Pieces(parts, held):
                return await self._stream(request, parts, held)
            case Half():
                return await self._half(request, body)
            case Reset():
                sock = request.transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                request.transport.abort()
                return web.Response()
            case Hang():
                await asyncio.sleep(3600)
        raise AssertionError(behaviour)

    def _pick(self, body: dict, number: int) -> Behaviour:
        if callable(self._behaviours):
            return self._behaviours(body, number)
        return self._behaviours[min(number, len(self._behaviours) - 1)]

    async def _hold(self, condition: Condition | None) -> None:
        if condition is not None:
            with suppress(AssertionError):  # it never came about: the test will tell
                await until(condition)

    async def _reply(self, reply: Reply, body: dict) -> web.Response:
        await self._hold(reply.until)
        if reply.delay:
            await asyncio.sleep(reply.delay)
        answer = reply.body(body)
        usage = answer.get("usage") or {}
        self.tokens["prompt"] += usage.get("prompt_tokens", 0)
        self.tokens["output"] += usage.get("completion_tokens", 0)
        return web.Response(body=json.dumps(answer).encode(), content_type="application/json")

    async def _stream(
        self, request: web.Request, parts: Sequence[bytes], held: Condition
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number, part in enumerate(parts):
            await self._hold(held if number else None)
            await response.write(part)
        return response

    async def _half(self, request: web.Request, body: dict) -> web.StreamResponse:
        payload = json.dumps(Reply().body(body)).encode()
        response = web.StreamResponse(headers={"Content-Length": str(len(payload))})
        await response.prepare(request)
        await response.write(payload[: len(payload) // 2])
        request.transport.close()
        return response
