"""A bare endpoint in a process of its own: it always prefers slot A, after a given delay."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

REPLY = "Both were read with care.\n<winner>A</winner>\n<confidence>HIGH</confidence>"


async def serve(delay: float) -> None:
    async def complete(request: web.Request) -> web.Response:
        body = await request.read()
        if delay:
            await asyncio.sleep(delay)
        reply = {
            "model": "stub",
            "choices": [{"message": {"role": "assistant", "content": REPLY}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": len(body) // 4, "completion_tokens": len(REPLY) // 4},
        }
        return web.Response(body=json.dumps(reply).encode(), content_type="application/json")

    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


@contextmanager
def endpoint(delay: float = 0.0) -> Iterator[str]:
    """Run the stub; yields its base URL."""
    process = subprocess.Popen([sys.executable, __file__, str(delay)], stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        assert process.stdout is not None  # noqa: S101
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
