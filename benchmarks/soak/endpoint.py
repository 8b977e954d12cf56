"""An endpoint that fails in every way, a bounded number of times a request, and writes down all it is asked.

A body is refused at most `MOST` times in its life, fewer than a client tries: in the end everybody gets
through, and the verdict depends on the prompt alone. One line a request goes into the log: digest of the
prompt, digest of the body, who asked, when it came, when it was over, and how.
"""

import asyncio
import json
import os
import random
import signal
import socket
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import IO

from aiohttp import web
from verdicts import verdict

from caps.core.types import Message
from caps.journal.keys import prompt_digest

MOST = 3
NEVER = 70.0  # longer than a client waits
PAID, UNHEARD = "paid", "unheard"  # a reply that arrived, and one whose asker was gone
UNREADABLE = (
    "I would rather not choose between these two.",
    "",
    "<winner>C</winner>\n<confidence>MAYBE</confidence>",
    "A < B? \\boxed{A} \ud83e",  # half a surrogate pair, as some servers cut it
)

Fault = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]


def status(code: int, headers: Callable[[], dict[str, str]] = dict) -> Fault:
    async def fail(_: web.Request, __: bytes) -> web.StreamResponse:
        words = json.dumps({"error": {"message": f"on purpose, {code}", "type": "unruly"}})
        return web.Response(status=code, text=words, headers=headers())

    return fail


async def reset(request: web.Request, _: bytes) -> web.StreamResponse:
    if request.transport is not None:
        sock = request.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
    return web.Response()


async def broken_off(request: web.Request, body: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": str(len(body))})
    with suppress(ConnectionError):  # a client that was killed meanwhile
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


async def cut_json(_: web.Request, body: bytes) -> web.StreamResponse:
    return web.Response(body=body[: len(body) // 2], content_type="application/json")


async def garbage(_: web.Request, __: bytes) -> web.StreamResponse:
    return web.Response(body=b"<html>\x00\xff 502 behind a proxy</html>", content_type="text/html")


async def silence(_: web.Request, __: bytes) -> web.StreamResponse:
    await asyncio.sleep(NEVER)
    return web.Response()


def soon() -> dict[str, str]:
    return {"Retry-After": str(random.choice((0, 1, 0.3)))}


FAULTS: dict[str, tuple[int, Fault]] = {
    "429": (30, status(429, soon)),
    "429 ms": (10, status(429, lambda: {"retry-after-ms": "250"})),
    "500": (15, status(500)),
    "503": (10, status(503)),
    "529": (5, status(529)),
    "reset": (15, reset),
    "broken off": (15, broken_off),
    "cut JSON": (10, cut_json),
    "garbage": (10, garbage),
    "silence": (1, silence),
}


class Endpoint:
    def __init__(self, log: IO[str], seed: int, share: float) -> None:
        self._log, self._seed, self._share = log, seed, share
        self._refused: dict[str, int] = {}

    async def complete(self, request: web.Request) -> web.StreamResponse:
        came, sent = time.time(), await request.read()
        body = json.loads(sent)
        prompt = "".join(message["content"] for message in body["messages"])
        if "BEGIN CANDIDATE" not in prompt:
            return web.json_response(self._reply(body, "OK"))
        key = sha256(sent).hexdigest()[:24]
        digest = prompt_digest(Message(one["role"], one["content"]) for one in body["messages"])
        who = request.headers.get("Authorization", "? nobody").split()[1]
        chance = random.Random(f"{self._seed}/{key}")
        kind, payload = PAID, json.dumps(self._reply(body, self._words(body, prompt, chance))).encode()
        done = self._refused.get(key, 0)
        if done < self._troubles(chance):
            self._refused[key] = done + 1
            kind = chance.choices([*FAULTS], [weight for weight, _ in FAULTS.values()], k=MOST)[done]
        await asyncio.sleep(_latency())
        try:
            if kind != PAID:
                return await FAULTS[kind][1](request, payload)
            if request.transport is None or request.transport.is_closing():
                kind = UNHEARD
            return web.Response(body=payload, content_type="application/json")
        finally:
            self._log.write(f"{digest[:24]} {key} {who} {came:.4f} {time.time():.4f} {kind}\n")

    def _troubles(self, chance: random.Random) -> int:
        return 0 if chance.random() >= self._share else chance.choice((1, 1, 1, 2, 2, MOST))

    def _words(self, body: dict[str, object], prompt: str, chance: random.Random) -> str:
        """The verdict; of some prompts only a further draw, at a temperature, can be read."""
        spoiled = (
            random.Random(f"{self._seed}/{prompt}").random() < self._share / 4 and not body["temperature"]
        )
        return chance.choice(UNREADABLE) if spoiled else verdict(prompt)

    def _reply(self, body: dict[str, object], text: str) -> dict[str, object]:
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": 900, "completion_tokens": len(text) // 4}
        return {
            "model": body["model"],
            "choices": [{"message": message, "finish_reason": "stop"}],
            "usage": usage,
        }


def _latency() -> float:
    """Mostly tens of milliseconds, now and then seconds."""
    return random.uniform(1, 4) if random.random() < 0.001 else random.uniform(0.005, 0.06)


async def serve(log: Path, seed: int, share: float) -> None:
    with log.open("w") as file:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", Endpoint(file, seed, share).complete)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
        print(runner.addresses[0][1], flush=True)
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        await stopped.wait()
    os._exit(0)  # those who are met with silence would be waited for


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
