"""The service of `examples/fastapi_app.py`, behind a real server, with the real package."""

import asyncio
import importlib.util
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import uvicorn

from caps.testing import Hang, ScriptedEndpoint, Status, better_quality_wins
from support.waiting import until

EXAMPLE = Path(__file__).parents[2] / "examples" / "fastapi_app.py"
QUESTION = {"problem": "Which?", "candidates": ["quality=0.1", "quality=0.9", "quality=0.5"]}


@pytest.fixture(scope="module")
def service():
    spec = importlib.util.spec_from_file_location("fastapi_app", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def upstream(monkeypatch):
    """The judge's server; `upstream.script` may be changed while it runs."""

    class Upstream:
        script = staticmethod(better_quality_wins)

    def answer(body, number):
        return Upstream.script(body, number)

    with ScriptedEndpoint(answer) as server:
        monkeypatch.setenv("CAPS_MODEL", "stub")
        monkeypatch.setenv("CAPS_BASE_URL", server.url)
        Upstream.server = server
        yield Upstream


@asynccontextmanager
async def running(service):
    server = uvicorn.Server(uvicorn.Config(service.app, port=0, log_level="error"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        yield session
    server.should_exit = True
    await serving


async def counted(session, line):
    async with session.get("/metrics/") as response:
        lines = (await response.text()).splitlines()
    return float(next((one.split()[-1] for one in lines if one.startswith(line)), 0))


async def asked(session):
    async with session.post("/best", json=QUESTION) as response:
        return response.status, await response.json()


def test_handlers_share_one_client_and_count_what_it_costs(service, upstream):
    async def main():
        async with running(service) as session:
            answers = await asyncio.gather(*(asked(session) for _ in range(20)))
            return answers, await counted(session, 'best_tokens_total{kind="read"}')

    answers, tokens = asyncio.run(main())
    assert {status for status, _ in answers} == {200}
    assert {answer["winner"] for _, answer in answers} == {1}
    assert tokens == upstream.server.tokens["prompt"]


def test_a_client_that_leaves_ends_its_judge_calls_and_no_other(service, upstream):
    async def main():
        async with running(service) as session:
            upstream.script = lambda *_: Hang()
            before = await counted(session, 'best_selections_total{result="left"}')
            leaving = asyncio.create_task(asked(session))
            await until(lambda: upstream.server.requests)
            leaving.cancel()
            while await counted(session, 'best_selections_total{result="left"}') == before:
                await asyncio.sleep(0.01)
            upstream.script = better_quality_wins
            return await asked(session)

    status, answer = asyncio.run(main())
    assert (status, answer["winner"]) == (200, 1)


def test_a_judge_that_fails_is_no_fault_of_the_client_and_its_address_is_not_told(service, upstream):
    upstream.script = lambda *_: Status(401, "who are you?")

    async def main():
        async with running(service) as session:
            return await asked(session)

    assert asyncio.run(main()) == (502, {"detail": "the judge failed: try again later"})


def test_more_selections_than_there_are_places_are_refused(service, upstream, monkeypatch):
    monkeypatch.setattr(service, "MOST_SELECTIONS", 1)
    upstream.script = lambda *_: Hang()

    async def main():
        async with running(service) as session:
            first = asyncio.create_task(asked(session))
            await until(lambda: upstream.server.requests)
            refused = await asked(session)
            first.cancel()
            return refused

    assert asyncio.run(main())[0] == 503


def test_without_an_endpoint_the_service_does_not_start(service, monkeypatch):
    for name in ("CAPS_MODEL", "CAPS_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    async def main():
        server = uvicorn.Server(uvicorn.Config(service.app, port=0, log_level="critical"))
        with pytest.raises(SystemExit):
            await server.serve()

    asyncio.run(main())
