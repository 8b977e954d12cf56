"""The pages of the server: ask a question and follow it (`/`), the API (`/docs`), and recent requests.

The pages hold no data: their scripts ask the API, with a key where the server has keys. They run no script
but their own, and connect to this server only.
"""

from collections import deque
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

from caps.reports.page import asset, digest, fill
from caps.server.http import ASGIApp, JsonResponse, Request, Response
from caps.server.middleware import RequestContext
from caps.server.requests import ChatRequest

MOST_CHARACTERS = 4_000  # of a question or an answer that is remembered
STYLES = ("style.css", "chart.css")
PAGE_PATHS = ("/", "/docs")


class RecentRequests:
    """The last requests of this process, in memory; the oldest are forgotten."""

    def __init__(self, most: int) -> None:
        self._rows: deque[dict[str, Any]] = deque(maxlen=most)

    def add(
        self, context: RequestContext, chat: ChatRequest, completion: dict[str, Any], seconds: float
    ) -> None:
        """Remember an answered request."""
        facts = completion["caps"]
        text = completion["choices"][0]["message"].get("content") if completion["choices"] else None
        self._rows.appendleft(
            {
                "time": datetime.now(UTC).strftime("%H:%M:%S"),
                "run_id": context.run,
                "model": chat.model,
                "question": chat.problem.text[:MOST_CHARACTERS],
                "answer": (text if isinstance(text, str) else "")[:MOST_CHARACTERS],
                "samples": facts["samples"],
                "probability": facts.get("probability"),
                "sureness": facts.get("sureness", ""),
                "seconds": round(seconds, 1),
            }
        )

    def rows(self) -> list[dict[str, Any]]:
        """The requests, the last one first."""
        return list(self._rows)


async def home(request: Request) -> ASGIApp:  # noqa: ARG001
    """The page on which to ask."""
    return _page("home")


async def docs(request: Request) -> ASGIApp:  # noqa: ARG001
    """The page about the API."""
    return _page("docs")


def recent_response(recent: RecentRequests | None) -> ASGIApp:
    """The recent requests; null where they are not kept."""
    return JsonResponse({"requests": None if recent is None else recent.rows()})


def _page(name: str) -> Response:
    text, policy = _content(name)
    headers = {
        "content-security-policy": policy,
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "cache-control": "no-store",
    }
    return Response(text, media_type="text/html", headers=headers)


@cache
def _content(name: str) -> tuple[str, str]:
    """The text of a page, and the policy that lets nothing but its own script and style run."""
    web = files("caps.server") / "web"
    names = ("elements.js", f"{name}.js", f"{name}.html", "pages.css")
    elements, code, page, page_style = ((web / file).read_text("utf-8") for file in names)
    style = "".join(map(asset, STYLES)) + page_style
    script = f'"use strict";(() => {{\n{elements}{code}}})();\n'
    policy = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; "
        "connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    )
    return fill(page, {"style": style, "script": script}), policy
