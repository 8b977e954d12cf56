"""Places that serve models, places that do not: all are asked, nothing is raised."""

import asyncio
from time import perf_counter

import pytest
from aiohttp import web

from caps.models.discovery import ServedModel, ServerAddress, discover, local_endpoints

VLLM = {"data": [{"id": "qwen3-14b", "max_model_len": 40960}, {"id": "qwen3-4b", "max_model_len": None}]}
LLAMA = {"data": [{"id": "any.gguf", "meta": {"n_ctx_train": 8192, "n_ctx": 2048}}]}
OLLAMA = {"data": [{"id": "gemma3:4b", "owned_by": "library"}]}
STUDIO = {"data": [{"id": "phi-4"}]}


def answering(routes):
    """An app that answers paths with JSON, text, a status, or never."""
    app = web.Application()
    for path, answer in routes.items():

        async def handle(request, answer=answer):
            if answer is None:
                await asyncio.sleep(60)
            if callable(answer):
                return answer(request)
            return web.json_response(answer) if isinstance(answer, dict) else web.Response(text=answer)

        app.router.add_route("*", path, handle)
    return app


def found(*places, seconds=2.0):
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
        started = perf_counter()
        got = await discover(local_endpoints(ports), seconds=seconds)
        took = perf_counter() - started
        for runner in runners:
            await runner.cleanup()
        return got, took

    return asyncio.run(look())


def test_servers_are_found_beside_garbage_and_silence_in_the_time_of_one():
    got, took = found(
        ("vLLM", {"/v1/models": VLLM}),
        ("llama.cpp", {"/v1/models": LLAMA}),
        ("garbage", {"/v1/models": "<html>a wiki</html>"}),
        ("hangs", {"/v1/models": None}),
        ("hangs too", {"/v1/models": None}),
        ("elsewhere", {"/": "hello"}),
        ("JSON of another kind", {"/v1/models": {"data": "none"}}),
        seconds=1.5,
    )
    assert [one.state for one in got] == [
        "serving",
        "serving",
        "strange",
        "silent",
        "silent",
        "strange",
        "strange",
    ]
    assert got[0].models == (ServedModel("qwen3-14b", 40960), ServedModel("qwen3-4b", None))
    assert got[1].models == (ServedModel("any.gguf", 2048),)
    assert all(one.problem for one in got[2:])
    assert took < 2 * 1.5


def test_servers_that_tell_the_context_elsewhere_are_asked_there():
    got, _ = found(
        ("Ollama", {"/v1/models": OLLAMA, "/api/show": {"model_info": {"gemma3.context_length": 131072}}}),
        (
            "LM Studio",
            {
                "/v1/models": STUDIO,
                "/api/v0/models": {"data": [{"id": "phi-4", "max_context_length": 16384}]},
            },
        ),
        ("llama.cpp", {"/v1/models": STUDIO, "/props": {"default_generation_settings": {"n_ctx": 4096}}}),
        ("Ollama", {"/v1/models": OLLAMA, "/api/show": "not here"}),
    )
    assert [one.models[0].context for one in got] == [131072, 16384, 4096, None]


async def test_a_key_goes_to_its_own_address_and_is_shown_nowhere():
    seen = []

    def picky(request):
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
