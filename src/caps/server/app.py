"""The routes; Starlette is imported nowhere else."""

from dataclasses import dataclass

from caps.core.errors import MissingExtraError
from caps.server.asgi import App, Receive, Scope, Send
from caps.server.counter import Counter
from caps.server.door import HEALTH
from caps.server.forwarding import PATHS
from caps.server.refusals import Refusal


@dataclass(frozen=True, slots=True)
class Page:
    """One route: who answers it, and to which method."""

    route: str
    answer: App
    method: str = "GET"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, if the method is right."""
        scope["caps.visit"].route = self.route
        if scope["method"] != self.method:
            raise Refusal(405, f"{self.route} answers to {self.method}", code="method_not_allowed")
        await self.answer(scope, receive, send)


def pages(counter: Counter) -> list[Page]:
    """Everything that can be asked for."""
    return [
        Page("/v1/chat/completions", counter.chat, "POST"),
        Page("/v1/select", counter.select, "POST"),
        *(Page(f"/v1/{path}", counter.forward(path), "POST") for path in PATHS[1:]),
        Page("/v1/models", counter.models),
        Page("/v1/models/{name:path}", counter.models),
        Page(HEALTH, counter.health),
        Page("/metrics", counter.figures),
        Page("/openapi.json", counter.openapi),
    ]


def make_router(counter: Counter) -> App:
    """The routes as one app; a path that is spelled otherwise is none of them."""
    try:
        from starlette.routing import Route, Router  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("starlette", "server", "caps serve") from None
    routes = [Route(page.route, page) for page in pages(counter)]
    return Router(routes, redirect_slashes=False, default=_nowhere)


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
    raise Refusal(404, "there is nothing at this path; see /openapi.json", code="not_found")
