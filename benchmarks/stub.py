"""A bare endpoint in a process of its own: it prefers the higher `quality=N`, else slot A, after a delay.

Where it is to vary, whoever is no judge gets another answer every time. `GET /v1/spent` returns how many
calls and tokens it has counted.
"""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from aiohttp import web

QUALITY = re.compile(rb"quality=([0-9]+)")
REPLY = "Both were read with care.\n<winner>A</winner>\n<confidence>HIGH</confidence>"


def verdict(body: bytes) -> str:
    """A verdict that carries the code its prompt asks for, if it asks for one."""
    found = [int(one) for one in QUALITY.findall(body)] if b"quality=" in body else []
    winner = "B" if len(found) == 2 and found[1] > found[0] else "A"
    _, asked, rest = body[-4096:].partition(b"WINNER is A-")
    return REPLY.replace("A<", f"{winner}-{rest[: rest.index(b',')].decode()}<" if asked else f"{winner}<")


async def serve(delay: float, *, vary: bool) -> None:
    numbers, spent = count(), {"calls": 0, "prompt_tokens": 0, "completion_tokens": 0}

    async def complete(request: web.Request) -> web.Response:
        body = await request.read()
        if delay:
            await asyncio.sleep(delay)
        text = (
            f"It is \\boxed{{{next(numbers)}}}" if vary and b"BEGIN CANDIDATE" not in body else verdict(body)
        )
        reply: dict[str, object] = {
            "model": "stub",
            "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        }
        usage = {"prompt_tokens": len(body) // 4, "completion_tokens": len(text) // 4}
        for name, tokens in {"calls": 1, **usage}.items():
            spent[name] += tokens
        reply["usage"] = usage
        return web.Response(body=json.dumps(reply).encode(), content_type="application/json")

    async def total(_: web.Request) -> web.Response:
        return web.json_response(spent)

    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_get("/v1/spent", total)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


@contextmanager
def endpoint(delay: float = 0.0, *, vary: bool = False) -> Iterator[str]:
    """Run the stub; yields its base URL."""
    command = [sys.executable, __file__, str(delay), *["vary"] * vary]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        assert process.stdout is not None  # noqa: S101
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]), vary="vary" in sys.argv))
