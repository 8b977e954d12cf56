"""The page of a run, served on this machine and updated while the run continues."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from threading import Lock
from typing import Any

from aiohttp import web

from caps.core.errors import InputError
from caps.reports.html import TextTable, safe_json
from caps.reports.page import StoredReceipts, page_html, receipt_json, shard
from caps.reports.receipt_page import receipt_view
from caps.reports.report import RunReport, load_report, one_receipt, run_figures, run_page, status
from caps.reports.run_page import run_rows
from caps.runs.rebuild import RebuiltRun

HOST = "127.0.0.1"
POLL_SECONDS = 1.0  # between checks of the folder
REST_FACTOR = 5  # the pause is at least this many times as long as the check before it

OpenRun = Callable[[Path], AbstractContextManager[RebuiltRun]]


class LiveReport:
    """Answers requests about the current state of a run folder."""

    def __init__(self, path: Path, open_run: OpenRun, *, poll_seconds: float = POLL_SECONDS) -> None:
        self._path, self._open_run, self._poll_seconds = path, open_run, poll_seconds
        self._stack, self._lock = ExitStack(), Lock()
        self._cached: tuple[tuple[Any, ...], RunReport] | None = None

    def app(self) -> web.Application:
        """Create the web application."""
        app = web.Application(middlewares=[local_only])
        app.router.add_get("/", self._page)
        app.router.add_get("/events", self._events)
        app.router.add_get(r"/receipts/{index:\d+}.js", self._receipt)
        app.on_cleanup.append(self._close)
        return app

    async def _page(self, _: web.Request) -> web.Response:
        text = await asyncio.to_thread(self._html)
        return web.Response(text=text, content_type="text/html", headers={"Cache-Control": "no-store"})

    async def _receipt(self, request: web.Request) -> web.Response:
        text = await asyncio.to_thread(self._shard, int(request.match_info["index"]))
        return web.Response(text=text, content_type="text/javascript", headers={"Cache-Control": "no-store"})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send the figures and new rows as server-sent events whenever the run changes."""
        stream = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await stream.prepare(request)
        seen, sent, finished = None, int(request.query.get("rows", "0")), False
        while not finished:
            started = time.perf_counter()
            state = self._state()
            if state != seen:
                seen = state
                update = await asyncio.to_thread(self._update, sent)
                sent, finished = update.pop("sent"), update["finished"]
                await stream.write(f"data: {safe_json(update)}\n\n".encode())
            else:
                await stream.write(b": still here\n\n")
            await asyncio.sleep(max(self._poll_seconds, REST_FACTOR * (time.perf_counter() - started)))
        return stream

    def _state(self) -> tuple[Any, ...]:
        files = (self._path / name for name in ("run.json", "selections.jsonl"))
        return tuple((stat.st_mtime_ns, stat.st_size) for stat in (file.stat() for file in files))

    def _html(self) -> str:
        with self._lock:
            return page_html(run_page(self._report(), live=True), StoredReceipts([], "receipts", None))

    def _update(self, sent: int) -> dict[str, Any]:
        with self._lock:
            report = self._report()
            rows = run_rows(report.lines, report.run.calls, report.labels, start=sent)
            return {
                "reload": len(report.lines) < sent,
                "figures": run_figures(report),
                "status": status(report),
                "rows": rows,
                "sent": len(report.lines),
                "finished": report.run.finished,
            }

    def _shard(self, index: int) -> str:
        with self._lock:
            run = self._report().run
            names = list(run.selections)
            if index >= len(names):
                return shard(index, [])
            receipt, exchanges, case = one_receipt(run, names[index])
        texts = TextTable()
        return shard(index, [receipt_json(receipt_view(receipt, exchanges, case, texts), texts)])

    def _report(self) -> RunReport:
        """Return the current state of the run; it is read again only after a change."""
        state = self._state()
        if self._cached is None or self._cached[0] != state:
            self._stack.close()
            self._cached = (state, load_report(self._stack.enter_context(self._open_run(self._path))))
        return self._cached[1]

    async def _close(self, _: web.Application) -> None:
        self._stack.close()


@web.middleware
async def local_only(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse requests under another host name: other sites must not read this page."""
    if request.url.host not in (HOST, "localhost"):
        raise web.HTTPForbidden(text="this page is served to this machine only")
    return await handler(request)


def serve_page(path: Path, open_run: OpenRun, *, port: int, say: Callable[[str], object]) -> None:
    """Serve the page of a run until interrupted."""
    with open_run(path):  # refuses a folder without a run
        pass
    try:
        asyncio.run(_serve(LiveReport(path, open_run), port, say))
    except OSError as error:
        raise InputError(f"--port {port}: {error.strerror or error}; use 0 for any free port") from None


async def _serve(live: LiveReport, port: int, say: Callable[[str], object]) -> None:
    runner = web.AppRunner(live.app(), shutdown_timeout=0.2)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port)
        await site.start()
        say(f"http://{HOST}:{runner.addresses[0][1]}/ (stop with Ctrl-C)")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
