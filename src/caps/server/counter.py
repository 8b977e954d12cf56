"""Where requests are taken: one method a route, each an ASGI app of its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from caps.server.answers import Completion, chunks
from caps.server.asgi import App, Receive, Scope, Send
from caps.server.asked import Asked, decode_body, is_ours
from caps.server.bodies import Bodies
from caps.server.desk import Desk
from caps.server.door import Visit, refused
from caps.server.forwarding import Forwarded
from caps.server.logs import Log
from caps.server.metrics import Metrics
from caps.server.openapi import description
from caps.server.options import wrong
from caps.server.refusals import Refusal
from caps.server.replies import Events, Reply, attended

PLAIN = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """Answers routes from a desk, and counts what answers took."""

    desk: Desk
    bodies: Bodies
    log: Log
    metrics: Metrics
    heartbeat: float

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A chat completion: selected for `caps/…`, else the upstream's own."""
        async with self.bodies.read(receive) as payload:
            body = decode_body(payload)
            if not is_ours(body):
                await self._forwarded("chat/completions", payload)(scope, receive, send)
                return
            asked, visit = await self.desk.read(body, payload), _visit(scope)
            visit.facts |= {"model": asked.upstream, "n": asked.config.samples, "stream": asked.stream}
            if asked.stream:
                await self._streamed(asked, visit)(scope, receive, send)
                return
            done = await attended(self.desk.chat(asked, visit.run), receive)
            self._answered(visit, done, asked=asked)
            await Reply(done)(scope, receive, send)

    async def select(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A case in, a result out."""
        async with self.bodies.read(receive) as payload:
            visit = _visit(scope)
            line = await attended(self.desk.select(decode_body(payload), payload, visit.run), receive)
            self._count(visit, line["usage"], line)
            await Reply(line)(scope, receive, send)

    def forward(self, path: str) -> App:
        """The app that sends requests on to a path."""

        async def forward(scope: Scope, receive: Receive, send: Send) -> None:
            async with self.bodies.read(receive) as payload:
                if is_ours(decode_body(payload)):
                    raise wrong("model", "caps/… answers chat completions only: POST /v1/chat/completions")
                await self._forwarded(path, payload)(scope, receive, send)

        return forward

    async def models(self, scope: Scope, receive: Receive, send: Send) -> None:
        """All models, or the one that the path names."""
        listed, name = await self.desk.models(), scope["path_params"].get("name")
        if name is not None:
            listed = next((row for row in listed["data"] if row["id"] == name), {})
            if not listed:
                raise Refusal(404, "there is no such model", code="model_not_found", param="model")
        await Reply(listed)(scope, receive, send)

    async def health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whether answers can be had; who has no key learns no more than that."""
        told = await self.desk.health()
        shown = told if _visit(scope).allowed else {"status": told["status"]}
        await Reply(shown, 200 if told["status"] == "ok" else 503)(scope, receive, send)

    async def figures(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The page Prometheus reads."""
        await Reply(self.metrics.page(), kind=PLAIN)(scope, receive, send)

    async def openapi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The description of all this."""
        await Reply(description(self.desk.config, self.desk.limits))(scope, receive, send)

    def _streamed(self, asked: Asked, visit: Visit) -> Events[Completion]:
        def write(done: Completion) -> Iterator[bytes]:
            self._answered(visit, done, asked=asked)
            return chunks(done, tell_usage=asked.tell_usage)

        def fail(error: BaseException) -> Refusal:
            refusal = refused(error, self.desk.upstream.address)
            visit.facts["error"] = refusal.code
            return refusal

        return Events(self.desk.chat(asked, visit.run), write, fail, self.heartbeat)

    def _forwarded(self, path: str, payload: bytes) -> Forwarded:
        return Forwarded(self.desk.upstream, self.desk.crowd, path, payload, self.desk.limits.seconds)

    def _answered(self, visit: Visit, done: Completion, *, asked: Asked) -> None:
        self._count(visit, done["usage"], done["caps"])
        choices = [choice["message"] for choice in done["choices"]]
        self.log.say_words(visit.run, messages=asked.rest["messages"], choices=choices)

    def _count(self, visit: Visit, usage: dict[str, Any], facts: dict[str, Any]) -> None:
        self.metrics.answered(usage, facts)
        kept = ("strategy", "domain", "samples", "failed", "clusters", "provisional", "causes")
        visit.facts |= {name: facts[name] for name in kept if name in facts}
        visit.facts |= {name: usage[name] for name in ("prompt_tokens", "completion_tokens")}
        visit.facts["judge_calls"] = usage["caps"]["verifier"]["calls"]


def _visit(scope: Scope) -> Visit:
    visit = scope["caps.visit"]
    assert isinstance(visit, Visit)  # noqa: S101
    return visit
