"""Where requests are worked on: the model server behind, the judge, and how many at once.

Nothing is kept: neither samples nor verdicts go into a journal, since they are the clients'.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import aiohttp
import msgspec

from caps.config import RunConfig
from caps.core.errors import InputError, ModelError
from caps.core.types import DEFAULT_ID, Case
from caps.datasets.case_files import parse_case
from caps.evidence.domains import domain_named, registered_fields
from caps.models.fleet import FleetModel
from caps.models.http import Upstream
from caps.runner import Runner
from caps.runs.result_lines import selection_line, server_lines
from caps.server.answers import Completion, completion_of
from caps.server.asked import (
    PREFIX,
    Asked,
    decode_object,
    is_large,
    read_asked,
    read_problem,
    refused_field,
    upstream_name,
)
from caps.server.choosing import Selector
from caps.server.crowd import Crowd
from caps.server.drawing import Drawn, draw_all
from caps.server.options import read_request, wrong
from caps.server.refusals import Refusal
from caps.server.rules import Limits
from caps.server.usage import usage_of
from caps.text_workers import TextWorkers

PROBE_SECONDS = 3.0
PROBE_AGE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Answers requests; `model` is what plain `caps` stands for."""

    upstream: Upstream
    selector: Selector
    config: RunConfig
    model: str | None = None
    limits: Limits = field(default_factory=Limits)
    crowd: Crowd
    texts: TextWorkers
    _probed: list[tuple[float, str]] = field(default_factory=list, init=False)

    async def read(self, body: dict[str, Any], payload: bytes) -> Asked:
        """Read a chat request; the problem of a large one in another process."""
        problem = None
        if is_large(body):
            try:
                problem = await self.texts.run(partial(read_problem, payload), size=len(payload), limit=0)
            except InputError as error:
                raise refused_field(error) from None
        return read_asked(body, self.config, self.limits, self.model, problem)

    async def chat(self, asked: Asked, run: str) -> Completion:
        """Draw and choose."""
        start = asyncio.get_running_loop().time()
        until = start + (asked.config.budget_seconds or 0.0)
        async with self.crowd.turn(until):
            drawn = await draw_all(self.upstream, asked, self.texts, start=start, until=until)
            if not drawn.candidates:
                raise _why_nothing(drawn)
            domain, guessed = asked.domain(drawn.candidates)
            case = Case(DEFAULT_ID, asked.problem, drawn.candidates, domain, guessed)
            choice = await self.selector.choose(case, asked.config, generator=asked.upstream, until=until)
        return completion_of(asked, drawn, choice, run=run, created=int(time.time()))

    async def select(self, body: dict[str, Any], payload: bytes, run: str) -> dict[str, Any]:
        """A case with its own candidates in, a result line out."""
        config = read_request(body.get("caps"), self.config, self.limits)
        until = asyncio.get_running_loop().time() + (config.budget_seconds or 0.0)
        try:
            if is_large(body):
                work = partial(read_case, payload, registered_fields())
                case = await self.texts.run(work, size=len(payload), limit=0, until=until)
            else:
                case = case_of(body)
        except InputError as error:
            raise wrong("body", str(error)) from None
        if len(case.candidates) > self.limits.n:
            raise wrong("candidates", f"may be {self.limits.n} at most")
        judge = self.selector.judge or self._judge_for(body, config)
        async with self.crowd.turn(until):
            choice = await self.selector.choose(case, config, generator=judge, until=until)
        choice.outcome.failure = None if choice.selection.provisional else choice.outcome.failure
        line = selection_line(choice.outcome, config, price=None)
        return {**line, "run_id": run, "usage": usage_of(None, choice.outcome.ledger)}

    def _judge_for(self, body: dict[str, Any], config: RunConfig) -> str:
        """The judge that a request names; a strategy that asks none needs none."""
        if not Runner(config, offline=True).asks_model and not body.get("model"):
            return self.model or ""
        return upstream_name(body, self.model)

    async def models(self) -> dict[str, Any]:
        """The upstream's models, each once more as `caps/…`."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                _, listed = await self.upstream.listing()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            listed = None
        rows = listed.get("data") if isinstance(listed, dict) else None
        if not isinstance(rows, list):
            raise Refusal(502, "the model server does not list its models", code="upstream_unreachable")
        named = [row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]
        ours = [
            {
                "id": PREFIX + row["id"],
                "object": "model",
                "created": row.get("created", 0),
                "owned_by": "caps",
            }
            for row in named
        ]
        return {"object": "list", "data": [*ours, *named]}

    async def health(self) -> dict[str, Any]:
        """How the upstream does; asked at most every two seconds, whoever asks."""
        now = time.monotonic()
        if not self._probed or now - self._probed[-1][0] > PROBE_AGE:
            self._probed[:] = [(now, "unknown" if not self._probed else self._probed[-1][1])]
            self._probed[:] = [(now, await self._probe())]
        state = self._probed[-1][1]
        return {
            "status": "ok" if state == "serving" else "degraded",
            "upstream": {"state": state, "address": self.upstream.address},
            "working": self.crowd.working,
            "waiting": self.crowd.waiting,
            "connections": self.upstream.connections,
            **(
                {"servers": server_lines(self.upstream.records())}
                if isinstance(self.upstream, FleetModel)
                else {}
            ),
        }

    async def _probe(self) -> str:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                status, _ = await self.upstream.listing()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return "silent"
        except ValueError:
            return "strange"
        return "serving" if status == 200 else "refusing" if status in (401, 403) else "strange"


def case_of(body: dict[str, Any], registered: Sequence[str] = ()) -> Case:
    """The case a body holds; `InputError` where it holds none."""
    row = {name: value for name, value in body.items() if name not in ("caps", "model")}
    try:
        return parse_case(msgspec.json.encode(row), default_id=DEFAULT_ID, registered=registered)
    except (OverflowError, UnicodeEncodeError) as error:
        raise InputError(f"cannot be read ({error})"[:200]) from None


def read_case(payload: bytes, registered: Mapping[str, tuple[str, ...]]) -> Case:
    """The case in a large body, without the fields that nothing looks at: those may be of any shape.

    `registered` are domains that the server knows and this process may not, with the fields they look at.
    """
    case = case_of(decode_object(payload), tuple(registered))
    fields = registered[case.domain] if case.domain in registered else domain_named(case.domain).fields
    return replace(case, extra={name: case.extra[name] for name in fields if name in case.extra})


def _why_nothing(drawn: Drawn) -> ModelError | Refusal:
    """The error of the first sample that failed; time, or an empty reply, is none of the upstream's."""
    first = next((draw.error for draw in drawn.draws if draw.error is not None), None)
    if first is not None:
        return first
    causes = {draw.sample.cause for draw in drawn.draws}
    if "empty" in causes:
        return Refusal(502, "every sample came back empty", code="upstream_empty")
    return Refusal(504, "no sample came in within the time of the request", code="timeout")
