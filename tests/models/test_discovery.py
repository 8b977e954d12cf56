"""Places that serve models, places that do not: all are asked, nothing is raised."""

import asyncio

import pytest
from aiohttp import web

from caps.models.endpoints import ServedModel, ServerAddress, discover, local_endpoints
from support.waiting import PATIENCE, skip

VLLM = {"data": [{"id": "qwen3-14b", "max_model_len": 40960}, {"id": "qwen3-4b", "max_model_len": None}]}
LLAMA = {"data": [{"id": "any.gguf", "meta": {"n_ctx_train": 8192, "n_ctx": 2048}}]}


def answering(routes):
    """An app that answers paths with JSON, text, or what a function makes of the request."""
    app = web.Application()
    for path, answer in routes.items():

        async def handle(request, answer=answer):
            if callable(answer):
                return await answer(request)
            return web.json_response(answer) if isinstance(answer, dict) else web.Response(text=answer)

        app.router.add_route("*", path, handle)
    return app


def found(*places):
    """Serve `(kind, routes)` pairs on free ports and look there."""

    async def look():
        runners, ports = [], []
        for kind, routes in places:
            runner = web.AppRunner(
                answering(routes), access_log=None, shutdown_timeout=0.1, handler_cancellation=True
            )
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            runners.append(runner)
            ports.append((kind, runner.addresses[0][1]))
        got = await discover(local_endpoints(ports), seconds=PATIENCE)
        for runner in runners:
            await runner.cleanup()
        return got

    return asyncio.run(look())


def test_servers_are_found_beside_garbage_and_silence_in_the_time_of_one():
    silent = []

    async def say_nothing(request):
        silent.append(request)
        if len(silent) == 2:  # both are asked at the same time; it is over when the others have answered
            for _ in range(500):
                await asyncio.sleep(0)
            skip(PATIENCE)
        await asyncio.Event().wait()

    got = found(
        ("vLLM", {"/v1/models": VLLM}),
        ("llama.cpp", {"/v1/models": LLAMA}),
        ("garbage", {"/v1/models": "<html>a wiki</html>"}),
        ("hangs", {"/v1/models": say_nothing}),
        ("hangs too", {"/v1/models": say_nothing}),
        ("elsewhere", {"/": "hello"}),
        ("JSON of another kind", {"/v1/models": {"data": "none"}}),
    )
    states = ["serving", "serving", "strange", "silent", "silent", "strange", "strange"]
    assert [one.state for one in got] == states
    assert got[0].models == (ServedModel("qwen3-14b", 40960), ServedModel("qwen3-4b", None))
    assert got[1].models == (ServedModel("any.gguf", 2048),)
    assert all(one.problem for one in got[2:])


async def test_a_key_goes_to_its_own_address_and_is_shown_nowhere():
    seen = []

    async def picky(request):
        seen.append(request.headers.get("Authorization"))
        return web.Response(status=401, text="no")

    runner = web.AppRunner(answering({"/v1/models": picky}), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    mine = ServerAddress("CAPS_BASE_URL", f"http://127.0.0.1:{port}/v1?token=hidden", "sk-very-secret")
    try:
        got = await discover([mine, *local_endpoints([("vLLM", port)])])
    finally:
        await runner.cleanup()
    assert [one.state for one in got] == ["refusing", "refusing"]
    assert sorted(map(str, seen)) == ["Bearer sk-very-secret", "None"]
    assert "secret" not in repr(got) + repr(ServerAddress("x", "y", "sk-very-secret"))
    assert "hidden" not in repr(got)


@pytest.mark.parametrize(
    "base_url", ["nonsense", "http://", "http://127.0.0.1:1/v1", "http://no.such.host.invalid"]
)
def test_an_address_that_is_none_is_an_answer_too(base_url):
    (one,) = asyncio.run(discover([ServerAddress("CAPS_BASE_URL", base_url)]))
    assert one.state in ("silent", "strange")
    assert one.problem
