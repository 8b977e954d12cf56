"""Where requests are worked on: the model server behind, the judge, and how many at once.

Nothing is kept: neither samples nor verdicts go into a journal, since they are the clients'.
"""

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aiohttp

from caps.config import RunConfig
from caps.core.errors import InputError, ModelError
from caps.core.types import DEFAULT_ID, Case
from caps.models.fleet import FleetModel
from caps.models.http import Upstream
from caps.runner import Runner
from caps.runs.result_lines import selection_line, server_lines
from caps.server.admission import Admission, Limits
from caps.server.errors import ApiError, invalid_value
from caps.server.openai_format import Completion, chat_completion, usage_object
from caps.server.requests import (
    PREFIX,
    ChatRequest,
    field_error,
    is_large,
    parse_case_body,
    parse_chat_request,
    parse_large_case,
    parse_large_problem,
    request_config,
    upstream_model,
)
from caps.server.selection import Samples, Selector, generate_samples
from caps.text_workers import TextWorkers

PROBE_SECONDS = 3.0
PROBE_AGE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionService:
    """Answers requests; `model` is what plain `caps` stands for."""

    upstream: Upstream
    selector: Selector
    config: RunConfig
    model: str | None = None
    limits: Limits = field(default_factory=Limits)
    admission: Admission
    texts: TextWorkers
    _probed: list[tuple[float, str]] = field(default_factory=list, init=False)

    async def read(self, body: dict[str, Any], payload: bytes) -> ChatRequest:
        """Read a chat request; the problem of a large one in another process."""
        problem = None
        if is_large(body):
            try:
                problem = await self.texts.run(
                    partial(parse_large_problem, payload), size=len(payload), limit=0
                )
            except InputError as error:
                raise field_error(error) from None
        return parse_chat_request(body, self.config, self.limits, self.model, problem)

    async def chat(self, request: ChatRequest, run: str) -> Completion:
        """Draw and choose."""
        start = asyncio.get_running_loop().time()
        until = start + (request.config.budget_seconds or 0.0)
        async with self.admission.admit(until):
            samples = await generate_samples(self.upstream, request, self.texts, start=start, until=until)
            if not samples.candidates:
                raise _no_candidates_error(samples)
            domain, guessed = request.domain(samples.candidates)
            case = Case(DEFAULT_ID, request.problem, samples.candidates, domain, guessed)
            choice = await self.selector.choose(case, request.config, generator=request.model, until=until)
        return chat_completion(request, samples, choice, run=run, created=int(time.time()))

    async def select(self, body: dict[str, Any], payload: bytes, run: str) -> dict[str, Any]:
        """A case with its own candidates in, a result line out."""
        config = request_config(body.get("caps"), self.config, self.limits)
        until = asyncio.get_running_loop().time() + (config.budget_seconds or 0.0)
        try:
            if is_large(body):
                work = partial(parse_large_case, payload)
                case = await self.texts.run(work, size=len(payload), limit=0, until=until)
            else:
                case = parse_case_body(body)
        except InputError as error:
            raise invalid_value("body", str(error)) from None
        if len(case.candidates) > self.limits.max_samples:
            raise invalid_value("candidates", f"may be {self.limits.max_samples} at most")
        judge = self.selector.judge or self._judge_for(body, config)
        async with self.admission.admit(until):
            choice = await self.selector.choose(case, config, generator=judge, until=until)
        choice.outcome.failure = None if choice.selection.provisional else choice.outcome.failure
        line = selection_line(choice.outcome, config, price=None)
        return {**line, "run_id": run, "usage": usage_object(None, choice.outcome.ledger)}

    def _judge_for(self, body: dict[str, Any], config: RunConfig) -> str:
        """The judge that a request names; a strategy that asks none needs none."""
        if not Runner(config, offline=True).asks_judge and not body.get("model"):
            return self.model or ""
        return upstream_model(body, self.model)

    async def models(self) -> dict[str, Any]:
        """The upstream's models, each once more as `caps/…`."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                _, listed = await self.upstream.listing()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            listed = None
        rows = listed.get("data") if isinstance(listed, dict) else None
        if not isinstance(rows, list):
            raise ApiError(502, "the model server does not list its models", code="upstream_unreachable")
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
            "working": self.admission.working,
            "waiting": self.admission.waiting,
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


def _no_candidates_error(samples: Samples) -> ModelError | ApiError:
    """The error of the first sample that failed; time, or an empty reply, is none of the upstream's."""
    first = next((one.error for one in samples.choices if one.error is not None), None)
    if first is not None:
        return first
    causes = {one.sample.cause for one in samples.choices}
    if "empty" in causes:
        return ApiError(502, "every sample came back empty", code="upstream_empty")
    return ApiError(504, "no sample came in within the time of the request", code="timeout")
