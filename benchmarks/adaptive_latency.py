"""Latency of the server with `n: auto` against a fixed number of samples, in front of a slow model server.

    python benchmarks/adaptive_latency.py --questions 150

The model server is a stub: its replies take a log-normal time, and one in twenty takes ten times the median.
Both ways answer the same questions in one run, so the ratios mean something and the seconds do not.
"""

import argparse
import asyncio
import json
from random import Random
from statistics import median, quantiles
from typing import Any

from aiohttp import web

from caps.config import Keys, RunConfig
from caps.runner import Runner
from caps.server.app import ServerConfig, open_app
from caps.server.telemetry import JsonLog

STRAGGLERS, FACTOR, SIGMA = 0.05, 10.0, 0.4
LONG = "and so on " * 160


class Stub:
    """A chat server with slow replies, which counts what was started, finished and cancelled."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.rng = seconds, Random(7)
        self.started = self.finished = self.cancelled = 0

    async def reply(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.started += 1
        wait = self.seconds * self.rng.lognormvariate(0, SIGMA)
        if self.rng.random() < STRAGGLERS:
            wait = self.seconds * FACTOR
        try:
            await asyncio.sleep(wait)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.finished += 1
        text = self.text(body)
        usage = {"prompt_tokens": 150, "completion_tokens": len(text) // 4}
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return web.json_response({"object": "chat.completion", "choices": [choice], "usage": usage})

    def text(self, body: dict[str, Any]) -> str:
        asked = body["messages"][-1]["content"]
        if "BEGIN CANDIDATE" in body["messages"][0]["content"]:
            return self.verdict(body["messages"][0]["content"])
        rate = Random(asked).betavariate(1.0, 0.7)
        answer = 1 if self.rng.random() < rate else 2 + int(self.rng.expovariate(0.35))
        return f"{LONG} \\boxed{{{answer}}}"

    def verdict(self, prompt: str) -> str:
        """The right one of two with a chance of 80 %."""
        first, second = ("\\boxed{1}" in view for view in prompt.split("BEGIN CANDIDATE")[1:3])
        better, other = ("A", "B") if first >= second else ("B", "A")
        winner = better if self.rng.random() < 0.8 else other
        return f"<winner>{winner}</winner>\n<confidence>HIGH</confidence>"


async def ask(app: Any, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """Send one chat request to the application; the seconds and the reply."""
    loop, parts, answer = asyncio.get_running_loop(), [json.dumps(body).encode()], b""
    scope = {
        "type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b"",
        "raw_path": b"/v1/chat/completions", "root_path": "",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": False}
        await asyncio.Event().wait()
        return {}

    async def send(message: dict[str, Any]) -> None:
        nonlocal answer
        answer += message.get("body", b"")

    begun = loop.time()
    await app(scope, receive, send)
    return loop.time() - begun, json.loads(answer)


async def measure(given: argparse.Namespace) -> None:
    """Answer all questions both ways and print the ratios."""
    stub = Stub(given.seconds)
    upstream = web.Application()
    upstream.router.add_post("/v1/chat/completions", stub.reply)
    runner = web.AppRunner(upstream, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    found: dict[str, list[float]] = {}
    for name, caps in (("fixed", {"n": given.fixed}), ("auto", {"n": "auto", "max_n": 16})):
        config = RunConfig(base_url=(url,), sandbox="off", max_connections=400)
        serving = ServerConfig(runner=Runner(config, keys=Keys(), any_model=True), log=JsonLog(quiet=True))
        before = (stub.started, stub.cancelled)
        async with open_app(serving) as app:
            gate = asyncio.Semaphore(given.at_once)

            async def one(number: int, caps: dict[str, Any] = caps, app: Any = app, gate: Any = gate) -> Any:
                body = {
                    "model": "caps/m", "caps": {**caps, "domain": "math"},
                    "messages": [{"role": "user", "content": f"Question {number}?"}],
                }  # fmt: skip
                async with gate:
                    return await ask(app, body)

            replies = await asyncio.gather(*(one(number) for number in range(given.questions)))
        await asyncio.sleep(0.5)  # the stub notices closed connections
        found[name] = [seconds for seconds, _ in replies]
        failed = sum("error" in reply for _, reply in replies)
        tokens = sum(reply["usage"]["total_tokens"] for _, reply in replies if "usage" in reply)
        print(
            f"{name:6s} median {median(found[name]):.3f} s, 95th percentile {_p95(found[name]):.3f} s; "
            f"upstream requests {stub.started - before[0]}, cancelled {stub.cancelled - before[1]}, "
            f"still running {stub.started - stub.finished - stub.cancelled}; tokens {tokens:,}; "
            f"failed {failed}",
            flush=True,
        )
    await runner.cleanup()
    fixed, auto = found["fixed"], found["auto"]
    print(f"auto / fixed: median {median(auto) / median(fixed):.2f}, 95th {_p95(auto) / _p95(fixed):.2f}")


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20)[-1]


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--at-once", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1.0, help="median time of a reply")
    parser.add_argument("--fixed", type=int, default=8)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
