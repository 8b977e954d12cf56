"""A served page is updated while the run continues, and only this machine may read it."""

import asyncio
import json
import re

import aiohttp
from aiohttp import web

from caps.cli.report import open_run
from caps.core.types import Case, Problem
from caps.costs.prices import Price
from caps.reports.live import HOST, LiveReport
from caps.runs.progress_file import ProgressFile
from caps.testing import write_cases
from reports.test_html import read
from support.running import run_cases


async def serving(path, visit):
    runner = web.AppRunner(LiveReport(path, open_run, poll_seconds=0.05).app(), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0).start()
        async with aiohttp.ClientSession(f"http://{HOST}:{runner.addresses[0][1]}") as session:
            return await visit(session)
    finally:
        await runner.cleanup()


async def next_update(stream, kind=b""):
    """The next event of a kind; None at the end of the stream."""
    event = b""
    async for line in stream.content:
        if line.startswith(b"event: "):
            event = line[7:].strip()
        elif line.startswith(b"data: "):
            if event == kind:
                return json.loads(line[6:])
            event = b""
    return None


def test_the_page_grows_with_the_run_and_ends_with_it(tmp_path):
    out = run_cases(write_cases(tmp_path / "cases.jsonl", 3, 4), tmp_path / "run")
    whole = {name: (out / name).read_text() for name in ("run.json", "selections.jsonl", "rulings.jsonl")}
    (out / "run.json").write_text(json.dumps(json.loads(whole["run.json"]) | {"summary": {}}))
    (out / "selections.jsonl").write_text(whole["selections.jsonl"].splitlines()[0] + "\n")

    async def visit(session):
        async with session.get("/") as response:
            page = await response.text()
        async with session.get("/receipts/0.js") as response:
            receipt = await response.read()
        async with session.get("/", headers={"Host": "elsewhere.example"}) as response:
            refused = response.status
        async with session.get("/events?rows=1") as stream:
            first = await next_update(stream)
            for name, text in whole.items():
                (out / name).write_text(text)
            updates = [await next_update(stream)]
            while not updates[-1]["finished"]:
                updates.append(await next_update(stream))
            assert await next_update(stream) is None
        return page, receipt, refused, first, updates

    page, receipt, refused, first, updates = asyncio.run(serving(out, visit))
    assert "not finished: 1 case so far" in page
    assert re.search(r"script-src [^;]*'self'; .*connect-src 'self'", page.replace("&#x27;", "'"))
    assert receipt.startswith(b'capsPart(0,"')
    assert refused == 403
    assert (first["rows"], first["finished"]) == ([], False)
    assert [row["name"] for update in updates for row in update["rows"]] == ["case 1", "case 2"]
    assert updates[-1]["status"] == "finished"


def test_the_page_waits_for_the_run_and_shows_how_far_it_is(tmp_path):
    out, price = tmp_path / "run", Price(1.0, 2.0)

    async def visit(session):
        async with session.get("/") as response:
            page = await response.text()
        async with session.get("/events?kind=waiting") as stream:
            assert await next_update(stream, b"progress") == ""
            out.mkdir()
            times = iter((0.0, 60.0, 61.5))
            with ProgressFile(out, 30, price=price, clock=lambda: next(times)) as progress:
                assert len(list(progress.watch(Case(name, Problem.of("?"), ()) for name in "abc<"))) == 4
                progress.finish("a", more=10)
                while not (news := await next_update(stream, b"progress")):
                    pass
            await asyncio.to_thread(run_cases, write_cases(tmp_path / "cases.jsonl", 1, 4), out)
            reload = await next_update(stream)
        return page, news, reload

    page, news, reload = asyncio.run(asyncio.wait_for(serving(out, visit), 60))
    assert "Waiting for the run in run" in page
    assert "Start it with --out and this folder" in page
    assert '<progress value="10" max="30"' in news
    shown = read(news).text
    assert "10 of 30 cases" in shown
    assert "rate 10 a minuteelapsed 1 minremaining 2 minspent $0" in shown
    assert "In play: b, c, <" in shown
    assert "no news for" in shown
    assert reload == {"reload": True}
    assert not (out / "progress.json").exists()
