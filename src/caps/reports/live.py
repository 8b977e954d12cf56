"""The page of a run, served on this machine and updated while the run continues."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from aiohttp import web

from caps.core.errors import InputError
from caps.core.text import duration, number
from caps.reports.elements import head
from caps.reports.html import Html, el, join, safe_json
from caps.reports.numbers import brief, dollars
from caps.reports.page import Page, StoredReceipts, pack_receipts, page_html, part_script
from caps.reports.receipt_page import receipt_view
from caps.reports.report import RunReport, footer, load_report
from caps.reports.run_page import one_receipt, run_columns, run_details, run_figures, run_page, run_rows
from caps.runs.folder import PROGRESS_FILE
from caps.runs.progress_file import read_progress
from caps.runs.rebuild import RebuiltRun

HOST = "127.0.0.1"
POLL_SECONDS = 1.0  # between checks of the folder
REST_FACTOR = 5  # the pause between two readings is at least this many times as long as the first
SILENT_SECONDS = 120.0  # after which the page says that there is no news
STUDY_PAGE = "page.html"
NOT_STORED = {"Cache-Control": "no-store"}

OpenRun = Callable[[Path], AbstractContextManager[RebuiltRun]]


class LiveReport:
    """Answers requests about the current state of a run folder, also before the run begins in it.

    The folder of a study has no page before it ends; until then its progress is shown.
    """

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
        return web.Response(text=text, content_type="text/html", headers=NOT_STORED)

    async def _receipt(self, request: web.Request) -> web.Response:
        script = await asyncio.to_thread(self._part, int(request.match_info["index"]))
        return web.Response(body=script, content_type="text/javascript", headers=NOT_STORED)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send progress, and figures and new rows whenever the run changes, as server-sent events."""
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", **NOT_STORED})
        with suppress(ConnectionError):  # the reader closed the page
            await stream.prepare(request)
            await self._send(stream, request)
        return stream

    async def _send(self, stream: web.StreamResponse, request: web.Request) -> None:
        first, kind = True, request.query.get("kind", "run")
        seen, sent, due, finished = None, int(request.query.get("rows", "0")), 0.0, False
        while not finished:
            started = time.perf_counter()
            progress = await asyncio.to_thread(self._progress)
            await stream.write(f"event: progress\ndata: {safe_json(str(progress))}\n\n".encode())
            if self._kind() != kind:
                await stream.write(b'data: {"reload":true}\n\n')
                return
            state = self._state() if kind == "run" else None
            if state != seen and (first or started >= due):
                seen, first = state, False
                update = await asyncio.to_thread(self._update, sent)
                sent, finished = update.pop("sent"), update["finished"]
                await stream.write(f"data: {safe_json(update)}\n\n".encode())
                now = time.perf_counter()
                due = now + REST_FACTOR * (now - started)  # a large run takes long to read
            await asyncio.sleep(self._poll_seconds)

    def _kind(self) -> str:
        """What the folder holds: a `run`, the page of a `study`, or nothing yet (`waiting`)."""
        if (self._path / STUDY_PAGE).is_file() and (self._path / "study.json").is_file():
            going_on = (self._path / PROGRESS_FILE).exists()
            return "waiting" if going_on else "study"
        return "run" if all(file.is_file() for file in self._files()) else "waiting"

    def _files(self) -> tuple[Path, ...]:
        return tuple(self._path / name for name in ("run.json", "selections.jsonl"))

    def _state(self) -> tuple[Any, ...]:
        return tuple((stat.st_mtime_ns, stat.st_size) for stat in (file.stat() for file in self._files()))

    def _progress(self) -> Html:
        """How far the run is, with its rate and the remaining time; empty if that is unknown."""
        row = read_progress(self._path)
        return Html("") if row is None else progress_view(row, time.time(), spent=self._kind() != "run")

    def _html(self) -> str:
        kind = self._kind()
        if kind == "study":
            return (self._path / STUDY_PAGE).read_text("utf-8")
        if kind == "waiting":
            return page_html(self._waiting())
        with self._lock:
            return page_html(run_page(self._report(), live=True), StoredReceipts((), "receipts", None))

    def _waiting(self) -> Page:
        """The page before the first case is decided."""
        name = self._path.resolve().name
        title, words = (
            f"Waiting for the run in {name}",
            "It appears here as soon as its first case is decided.",
        )
        if not (self._path / "run.json").is_file():
            words = "It appears here as soon as it begins. Start it with --out and this folder."
        about = el("p", words, class_="lead")
        return Page(
            title=f"{name} · caps report",
            figures=head(title, about),
            footer=footer(live=True),
            status="waiting",
            live=True,
        )

    def _update(self, sent: int) -> dict[str, Any]:
        with self._lock:
            report = self._report()
            rows = run_rows(report, run_columns(report), start=sent)
            return {
                "reload": len(report.selections) < sent,
                "figures": str(join(run_figures(report))),
                "details": str(join(run_details(report))),
                "status": report.status,
                "rows": rows,
                "sent": len(report.selections),
                "finished": report.run.finished,
            }

    def _part(self, index: int) -> bytes:
        with self._lock:
            run = self._report().run
            names = list(run.selections)
            if index >= len(names):
                return part_script(index, pack_receipts([]))
            receipt, exchanges, case = one_receipt(run, names[index])
        return part_script(index, pack_receipts([receipt_view(receipt, exchanges, case)]))

    def _report(self) -> RunReport:
        """Return the current state of the run; it is read again only after a change."""
        state = self._state()
        if self._cached is None or self._cached[0] != state:
            self._stack.close()
            self._cached = (state, load_report(self._stack.enter_context(self._open_run(self._path))))
        return self._cached[1]

    async def _close(self, _: web.Application) -> None:
        self._stack.close()


PLAYING_SHOWN = 12


def progress_view(row: dict[str, Any], now: float, *, spent: bool) -> Html:
    """How far a run is; `spent` if nothing else on the page says what it cost."""
    elapsed = max(row["updated"] - row["started"], 1.0)
    rate = (row["done"] - row["done_before"]) / elapsed
    left = None if row["total"] is None else row["total"] - row["done"]
    words = {
        "rate": f"{number(rate * 60, 1)} a minute" if rate else None,
        "elapsed": duration(elapsed),
        "remaining": duration(left / rate) if rate and left else None,
        "spent": dollars(row["usd"]) if spent and row["usd"] is not None else None,
        "calls": number(row["calls"], 0) if row["calls"] else None,
        "tokens read": brief(row["tokens"]) if row["tokens"] else None,
    }
    of = "" if row["total"] is None else f" of {number(row['total'], 0)}"
    count = el("b", f"{number(row['done'], 0)}{of} {row['what']}")
    facts = [el("span", f"{name} {text}") for name, text in words.items() if text is not None]
    value = None if row["total"] is None else row["done"]
    silent = now - row["updated"]
    playing = row["playing"][:PLAYING_SHOWN]
    rest = row["in_play"] - len(playing)
    more = f" and {number(rest, 0)} more" if rest > 0 else ""
    names = el("p", f"In play: {', '.join(playing)}{more}", class_="note") if row["in_play"] else None
    late = el("p", f"no news for {duration(silent)}", class_="note bad") if silent > SILENT_SECONDS else None
    bar = el("progress", value=value, max=row["total"] or 1, aria_label=f"{row['what']} done")
    return join([bar, el("p", count, *facts, class_="meter"), late, names])


@web.middleware
async def local_only(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse requests under another host name: other sites must not read this page."""
    if request.url.host not in (HOST, "localhost"):
        raise web.HTTPForbidden(text="this page is served to this machine only")
    return await handler(request)


def serve_page(path: Path, open_run: OpenRun, *, port: int, say: Callable[[str], object]) -> None:
    """Serve the page of a run until interrupted; waits for a run that has not begun."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: not a folder; name the folder that the run writes with --out")
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
