"""The page of a run served on this machine, told anew whenever the run has moved on."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from threading import Lock
from typing import Any

from aiohttp import web

from caps.core.errors import InputError
from caps.reports.html import Texts, plain, safe_json
from caps.reports.page import StoredReceipts, page_html, receipt_json, shard
from caps.reports.receipt_page import receipt_view
from caps.reports.report import RunReport, load_report, one_receipt, run_figures, run_page, status
from caps.reports.run_page import run_rows
from caps.runs.rebuild import RebuiltRun

HOST = "127.0.0.1"
EVERY = 1.0  # seconds between looks at the folder
PATIENCE = 5  # a look that took a second is followed by this many of rest

Opened = Callable[[Path], AbstractContextManager[RebuiltRun]]


class Live:
    """Answers requests about one run, as its folder is then."""

    def __init__(self, path: Path, opened: Opened, *, every: float = EVERY) -> None:
        self._path, self._opened, self._every = path, opened, every
        self._stack, self._lock = ExitStack(), Lock()
        self._held: tuple[tuple[Any, ...], RunReport] | None = None

    def app(self) -> web.Application:
        """The application."""
        app = web.Application(middlewares=[only_here])
        app.router.add_get("/", self._page)
        app.router.add_get("/events", self._events)
        app.router.add_get(r"/receipts/{place:\d+}.js", self._receipt)
        app.on_cleanup.append(self._close)
        return app

    async def _page(self, _: web.Request) -> web.Response:
        text = await asyncio.to_thread(self._html)
        return web.Response(text=text, content_type="text/html", headers={"Cache-Control": "no-store"})

    async def _receipt(self, request: web.Request) -> web.Response:
        text = await asyncio.to_thread(self._shard, int(request.match_info["place"]))
        return web.Response(text=text, content_type="text/javascript", headers={"Cache-Control": "no-store"})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events: the figures and the new rows, whenever there are some."""
        stream = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await stream.prepare(request)
        seen, sent, finished = None, int(request.query.get("rows", "0")), False
        while not finished:
            began = time.perf_counter()
            now = self._state()
            if now != seen:
                seen = now
                news = await asyncio.to_thread(self._news, sent)
                sent, finished = news.pop("sent"), news["finished"]
                await stream.write(f"data: {safe_json(news)}\n\n".encode())
            else:
                await stream.write(b": still here\n\n")
            await asyncio.sleep(max(self._every, PATIENCE * (time.perf_counter() - began)))
        return stream

    def _state(self) -> tuple[Any, ...]:
        files = (self._path / name for name in ("run.json", "selections.jsonl"))
        return tuple((stat.st_mtime_ns, stat.st_size) for stat in (file.stat() for file in files))

    def _html(self) -> str:
        with self._lock:
            return page_html(run_page(self._told(), live=True), StoredReceipts([], "receipts", None))

    def _news(self, sent: int) -> dict[str, Any]:
        with self._lock:
            told = self._told()
            rows = run_rows(told.lines, told.run.calls, told.labels, start=sent)
            return {
                "again": len(told.lines) < sent,
                "figures": [plain(node) for node in run_figures(told)],
                "status": status(told),
                "rows": rows,
                "sent": len(told.lines),
                "finished": told.run.finished,
            }

    def _shard(self, place: int) -> str:
        with self._lock:
            run = self._told().run
            names = list(run.selections)
            if place >= len(names):
                return shard(place, [])
            receipt, heard, case = one_receipt(run, names[place])
        texts = Texts()
        return shard(place, [receipt_json(receipt_view(receipt, heard, case, texts), texts)])

    def _told(self) -> RunReport:
        """The run as it is now; read again only when it has moved on."""
        now = self._state()
        if self._held is None or self._held[0] != now:
            self._stack.close()
            self._held = (now, load_report(self._stack.enter_context(self._opened(self._path))))
        return self._held[1]

    async def _close(self, _: web.Application) -> None:
        self._stack.close()


@web.middleware
async def only_here(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse whoever comes by another name: a page elsewhere must not read this one."""
    if request.url.host not in (HOST, "localhost"):
        raise web.HTTPForbidden(text="only for this machine")
    return await handler(request)


def serve_page(path: Path, opened: Opened, *, port: int, say: Callable[[str], object]) -> None:
    """Serve the page of a run until interrupted."""
    with opened(path):  # a folder that is none is refused at once
        pass
    try:
        asyncio.run(_serve(Live(path, opened), port, say))
    except OSError as error:
        raise InputError(f"--port {port}: {error.strerror or error}; 0 takes a free one") from None


async def _serve(live: Live, port: int, say: Callable[[str], object]) -> None:
    runner = web.AppRunner(live.app(), shutdown_timeout=0.2)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port)
        await site.start()
        say(f"http://{HOST}:{runner.addresses[0][1]}/ (stop with Ctrl-C)")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
