"""A served page is updated while the run continues, and only this machine may read it."""

import asyncio
import json
import re

import aiohttp
from aiohttp import web

from caps.cli.report import open_run
from caps.reports.live import HOST, LiveReport
from judging import write_cases
from running import run_cases


async def serving(path, visit):
    runner = web.AppRunner(LiveReport(path, open_run, poll_seconds=0.05).app(), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0).start()
        async with aiohttp.ClientSession(f"http://{HOST}:{runner.addresses[0][1]}") as session:
            return await visit(session)
    finally:
        await runner.cleanup()


async def next_update(stream):
    async for line in stream.content:
        if line.startswith(b"data: "):
            return json.loads(line[6:])
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
            receipt = await response.text()
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
    assert receipt.startswith('capsShard(0,"')
    assert refused == 403
    assert (first["rows"], first["finished"]) == ([], False)
    assert [row[2] for update in updates for row in update["rows"]] == ["case 1", "case 2"]
    assert updates[-1]["status"] == "finished"
