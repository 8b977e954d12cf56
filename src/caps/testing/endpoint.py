"""A real chat-completions server on a thread of its own, which replies and fails as it is told.

Give it a list of behaviours (one for each request, then the last again and again) or a function, plain or
async, of the request's body and number, from 0. What must not come before something else has happened waits
for it: `Reply("late", until=event.is_set)`. `endpoint_process` runs it in a process of its own.
"""

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Self, TypeAlias

from aiohttp import web

from caps.prompts.reply_forms import probe_fields

Body: TypeAlias = dict[str, Any]
Condition: TypeAlias = Callable[[], object]
PATIENCE = 240.0  # seconds after which a condition that never holds is given up
_CHUNK = 16  # characters of a piece of a stream
_ACCEPTING = 8  # turns of the event loop until an accepted connection is known to the server


def count_tokens(text: str) -> int:
    """Tokens of a text, as the endpoint counts them: four characters each."""
    return -(-len(text) // 4)


@dataclass(frozen=True)
class Reply:
    """A chat completion, or its stream if the request asks for one.

    `usage` of None leaves the usage out. `thoughts` is the reasoning of the model, `logprobs` the list of
    tokens with log-probabilities. `message` and `more` are merged into the message and into the whole.
    """

    text: str | list[Any] | None = "OK"
    finish: str | None = "stop"
    delay: float = 0.0
    usage: Body | str | None = "counted"
    thoughts: str = ""
    message: Body = field(default_factory=dict)
    more: Body = field(default_factory=dict)
    logprobs: list[Any] | None = None
    until: Condition | None = None

    def body(self, request: Body) -> Body:
        """The reply to a request, as JSON."""
        message = {"role": "assistant", "content": self.text, **self.message}
        if self.thoughts:
            message["reasoning_content"] = self.thoughts
        choice: Body = {"index": 0, "message": message, "finish_reason": self.finish}
        if self.logprobs is not None:
            choice["logprobs"] = {"content": self.logprobs}
        body: Body = {
            "object": "chat.completion",
            "model": request["model"],
            "choices": [choice],
            **self.more,
        }
        if self.usage is not None:
            body["usage"] = self._counted(request) if self.usage == "counted" else self.usage
        return body

    def _counted(self, request: Body) -> Body:
        prompt = sum(count_tokens(str(message.get("content"))) for message in request["messages"])
        written = count_tokens(self.thoughts) + count_tokens(str(self.text or ""))
        return {"prompt_tokens": prompt, "completion_tokens": written}

    def events(self, request: Body) -> list[bytes]:
        """The reply to a request, as the events of a stream."""
        body = self.body(request)
        shared = {"object": "chat.completion.chunk", "model": body["model"]}
        text = str(self.text or "")
        pieces: list[Body] = [{"role": "assistant", "content": ""}]
        if self.thoughts:
            pieces.append({"reasoning_content": self.thoughts})
        pieces += [{"content": text[at : at + _CHUNK]} for at in range(0, len(text), _CHUNK)]
        chunks = [
            {**shared, "choices": [{"index": 0, "delta": piece, "finish_reason": None}]} for piece in pieces
        ]
        chunks.append({**shared, "choices": [{"index": 0, "delta": {}, "finish_reason": self.finish}]})
        if (request.get("stream_options") or {}).get("include_usage") and "usage" in body:
            chunks.append({**shared, "choices": [], "usage": body["usage"]})
        return [b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks] + [b"data: [DONE]\n\n"]


@dataclass(frozen=True)
class Status:
    """An error status with a body: a dict is sent as JSON, a text as it is."""

    status: int
    body: Body | str = ""
    headers: dict[str, str] = field(default_factory=dict)
    until: Condition | None = None


@dataclass(frozen=True)
class Raw:
    """Status 200 with these bytes: garbage, half a JSON, an error object."""

    payload: bytes


@dataclass(frozen=True)
class Pieces:
    """Status 200 with a stream of events, all but the first of which wait for a condition."""

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


Behaviour: TypeAlias = Reply | Status | Raw | Pieces | Half | Reset | Hang
Script: TypeAlias = Sequence[Behaviour] | Callable[[Body, int], Behaviour | Awaitable[Behaviour]]


class ScriptedEndpoint:
    """The server; a context manager.

    It keeps what it was asked and answered: `requests`, `bodies`, `headers`, `tokens` (as its replies
    reported them), `busy` and `peak` (requests under way, now and at most); `GET /v1/spent` returns the sums.
    Without `keep` it has the figures only, for hours of load. `models` are listed; with `check_model`, others
    are refused. `holds` are the forms of replies ("tags", "json") that it supports.
    """

    def __init__(
        self,
        script: Script = (Reply(),),
        *,
        models: Sequence[str] | None = ("stub",),
        check_model: bool = False,
        api_key: str | None = None,
        port: int = 0,
        holds: Sequence[str] = (),
        context: int | None = None,
        keep: bool = True,
    ) -> None:
        self.script = script
        self._holds = holds
        self._listed = {} if context is None else {"max_model_len": context}
        self._models = models
        self._check_model = check_model
        self._api_key = api_key
        self._keep = keep
        self._forgotten = 0
        self.bodies: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self.tokens = {"prompt": 0, "output": 0}
        self.busy = 0
        self.peak = 0
        self.port = port
        self._ready = threading.Event()

    @property
    def requests(self) -> int:
        """How many requests there were."""
        return len(self.bodies) + self._forgotten

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        if not self._ready.wait(60):
            raise RuntimeError("the scripted endpoint did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self.die()
        self._thread.join(60)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *details: object) -> None:
        self.__exit__(*details)

    def die(self) -> None:
        """End in the middle of whatever is under way; idempotent."""
        with suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(self._stop.set)

    def add_routes(self, app: web.Application) -> None:
        """Further routes of a subclass."""

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/v1/models", self._list)
        app.router.add_get("/v1/spent", self._spent)
        self.add_routes(app)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, backlog=1024)
        await site.start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await self._stop.wait()
        await site.stop()
        for _ in range(_ACCEPTING):  # a connection that is just being accepted is closed like the others
            await asyncio.sleep(0)
        await runner.cleanup()

    async def _list(self, _: web.Request) -> web.StreamResponse:
        if self._models is None:
            return web.Response(status=404)
        rows = [{"id": name, **self._listed} for name in self._models]
        return web.json_response({"object": "list", "data": rows})

    async def _spent(self, _: web.Request) -> web.StreamResponse:
        spent = {"prompt_tokens": self.tokens["prompt"], "completion_tokens": self.tokens["output"]}
        return web.json_response({"calls": self.requests, **spent})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        number = self.requests
        if self._keep:
            self.bodies.append(body)
            self.headers.append(dict(request.headers))
        else:
            self._forgotten += 1
        self.busy += 1
        self.peak = max(self.peak, self.busy)
        try:
            return await self.respond(request, body, number)
        finally:
            self.busy -= 1

    async def respond(self, request: web.Request, body: Body, number: int) -> web.StreamResponse:
        """Answer one request; a subclass may do something before and after."""
        if self._api_key and request.headers.get("Authorization") != f"Bearer {self._api_key}":
            message = f"Incorrect API key provided: {request.headers.get('Authorization')}"
            return web.json_response({"error": {"message": message, "code": "invalid_api_key"}}, status=401)
        if self._check_model and body["model"] not in (self._models or ()):
            message = f"The model `{body['model']}` does not exist."
            return web.json_response(
                {"object": "error", "message": message, "type": "NotFoundError"}, status=404
            )
        behaviour = self._held(body) or await self._pick(body, number)
        match behaviour:
            case Reply():
                return await self._reply(request, behaviour, body)
            case Status(status, said, headers, condition):
                await _wait_for(condition)
                text = json.dumps(said) if isinstance(said, dict) else said
                return web.Response(status=status, text=text, headers=headers)
            case Raw(payload):
                return web.Response(body=payload, content_type="application/json")
            case Pieces(parts, condition):
                return await self._stream(request, parts, condition)
            case Half():
                return await self._half(request, body)
            case Reset():
                _reset(request)
                return web.Response()
            case Hang():
                await asyncio.sleep(3600)
        raise TypeError(f"{behaviour!r} is no behaviour of an endpoint")

    def _held(self, body: Body) -> Behaviour | None:
        """The answer to a test of a form of replies that this server supports."""
        for form in self._holds:
            if all(body.get(name) == value for name, value in probe_fields(form).items()):
                return Reply('{"word": "held"}' if form == "json" else "held")
        return None

    async def _pick(self, body: Body, number: int) -> Behaviour:
        if not callable(self.script):
            return self.script[min(number, len(self.script) - 1)]
        behaviour = self.script(body, number)
        return await behaviour if isinstance(behaviour, Awaitable) else behaviour

    async def _reply(self, request: web.Request, reply: Reply, body: Body) -> web.StreamResponse:
        await _wait_for(reply.until)
        if reply.delay:
            await asyncio.sleep(reply.delay)
        answer = reply.body(body)
        usage = answer.get("usage") or {}
        self.tokens["prompt"] += usage.get("prompt_tokens", 0)
        self.tokens["output"] += usage.get("completion_tokens", 0)
        if body.get("stream"):
            return await self._stream(request, reply.events(body))
        return web.Response(body=json.dumps(answer).encode(), content_type="application/json")

    async def _stream(
        self, request: web.Request, parts: Sequence[bytes], condition: Condition | None = None
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number, part in enumerate(parts):
            await _wait_for(condition if number else None)
            await response.write(part)
        return response

    async def _half(self, request: web.Request, body: Body) -> web.StreamResponse:
        payload = json.dumps(Reply().body(body)).encode()
        response = web.StreamResponse(headers={"Content-Length": str(len(payload))})
        await response.prepare(request)
        await response.write(payload[: len(payload) // 2])
        if request.transport is not None:
            request.transport.close()
        return response


def _reset(request: web.Request) -> None:
    if request.transport is not None:
        connection = request.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()


async def _wait_for(condition: Condition | None) -> None:
    """Wait until a condition holds; go on if it never does."""
    end = time.monotonic() + PATIENCE
    while condition is not None and not condition() and time.monotonic() < end:
        await asyncio.sleep(0.002)


@contextmanager
def endpoint_process(factory: str, *arguments: object) -> Iterator[str]:
    """Run an endpoint where it shares no interpreter with what is measured; yields its base URL.

    `factory` names what makes the endpoint from the arguments, which JSON must be able to carry:
    "package.module:function". It is imported from wherever this process imports from.
    """
    command = [sys.executable, "-P", "-m", "caps.testing", factory, json.dumps(arguments)]
    places = os.pathsep.join(place or str(Path.cwd()) for place in sys.path)
    environment = {**os.environ, "PYTHONPATH": places}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: S603
    try:
        port = "" if process.stdout is None else process.stdout.readline().strip()
        if not port:
            raise RuntimeError(f"the endpoint of {factory} did not start")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.communicate()


def run_forever(factory: str, arguments: str) -> None:
    """Run the endpoint that `endpoint_process` asks for, and print its port."""
    module, _, name = factory.partition(":")
    endpoint: ScriptedEndpoint = getattr(import_module(module), name)(*json.loads(arguments))
    with endpoint:
        sys.stdout.write(f"{endpoint.port}\n")
        sys.stdout.flush()
        threading.Event().wait()
