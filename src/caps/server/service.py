"""The selection service: answers chat requests and cases, lists models, and reports health.

Samples and verdicts belong to the clients and go into no journal; runs are kept only if the operator asks.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from caps.config import RunConfig
from caps.core.errors import InputError, ModelError, SlowTextError
from caps.core.types import DEFAULT_ID, Case
from caps.costs.prices import Price
from caps.engines.adaptive import Step
from caps.evidence.domains import registered_fields
from caps.models.endpoints import Endpoint
from caps.models.http import NO_LIST
from caps.models.servers import ServersModel, Upstream
from caps.models.wire import model_rows
from caps.runs.adaptive_lines import adaptive_line
from caps.runs.result_lines import selection_line, server_lines
from caps.sampling.generators import GeneratorSource
from caps.sampling.methods import make_preset, resolve_preset
from caps.server.admission import Admission, Limits
from caps.server.errors import ApiError, invalid_value
from caps.server.kept_runs import KeptRuns
from caps.server.openai_format import chat_completion, usage_object
from caps.server.requests import (
    LARGE_BODY,
    PREFIX,
    Body,
    ChatRequest,
    field_error,
    is_large,
    parse_case_body,
    parse_chat_request,
    parse_large_case,
    read_chat,
    refuse_local_fields,
    request_config,
    split_body,
    upstream_model,
)
from caps.server.selection import (
    ContestResult,
    Samples,
    Selector,
    budget_left,
    generate_samples,
    sampling_budget,
)
from caps.server.spending import Meter
from caps.server.virtual_models import ServedGenerator, VirtualModel
from caps.workers.texts import TextWorkers, name_of

PROBE_SECONDS = 3.0
PROBE_AGE = 2.0


@dataclass(slots=True, kw_only=True)
class SelectionService:
    """Answers requests by sampling from `upstream` and selecting; `model` is the default model."""

    upstream: Upstream
    selector: Selector
    config: RunConfig
    model: str | None = None
    limits: Limits = field(default_factory=Limits)
    admission: Admission
    texts: TextWorkers
    meter: Meter
    kept: KeptRuns | None = None
    virtual: Mapping[str, VirtualModel] = field(default_factory=dict)
    _state: str = field(default="unknown", init=False)  # of the upstream, when it was probed last
    _probed: float = field(default=-PROBE_AGE, init=False)

    async def parse_chat(
        self, body: Body, payload: bytes, to_chat: Callable[[Body], Body] | None = None
    ) -> ChatRequest:
        """Parse a chat request, or one of another API; a large one is read in a worker process."""
        work = partial(read_chat, "" if to_chat is None else name_of(to_chat), payload)
        try:
            chat, problem = await self.texts.run(work, size=len(payload), limit=LARGE_BODY)
        except InputError as error:
            raise field_error(error) from None
        body = split_body(chat) if chat else body
        return parse_chat_request(
            body,
            self.config,
            self.limits,
            self.model,
            problem,
            virtual={name: model.config for name, model in self.virtual.items()},
            translated=to_chat is not None,
        )

    async def chat(
        self, request: ChatRequest, run: str, progress: Callable[[Step], object] = lambda _: None
    ) -> Body:
        """Generate samples, select among them, and return the best as a completion."""
        start = asyncio.get_running_loop().time()
        deadline = start + (request.config.budget_seconds or 0.0)
        async with self.admission.admit(deadline):
            if request.config.samples == "auto" or request.virtual:
                generators = self._generators(request)
                samples, selected = await self.selector.solve(
                    request, generators, deadline=deadline, progress=progress
                )
                if selected is None:
                    raise _no_candidates_error(samples)
                return await self._completion(request, samples, selected, run)
            samples = await generate_samples(
                self.upstream, request, start=start, deadline=deadline, budget=sampling_budget(request),
            )  # fmt: skip
            if not samples.candidates:
                raise _no_candidates_error(samples)
            domain, guessed = request.domain(samples.candidates)
            case = Case(DEFAULT_ID, request.problem, samples.candidates, domain, guessed)
            config = budget_left(request.config, samples.choices)
            result = await self.selector.select(case, config, generator=request.model, deadline=deadline)
        return await self._completion(request, samples, result, run)

    async def _completion(
        self, request: ChatRequest, samples: Samples, result: ContestResult, run: str
    ) -> Body:
        """The completion of a request; its run is kept, if runs are."""
        completion = chat_completion(request, samples, result, run=run, created=int(time.time()))
        adaptive = {} if samples.adapted is None else adaptive_line(samples.adapted, result.outcome)
        await self._keep(run, result, request.config, completion["usage"], adaptive)
        return completion

    async def _keep(
        self,
        run: str,
        result: ContestResult,
        config: RunConfig,
        usage: Mapping[str, Any],
        more: Mapping[str, Any] | None = None,
    ) -> None:
        if self.kept is not None:
            line = selection_line(result.outcome, config, price=None)
            await self.kept.write(run, result, {**line, **(more or {})}, {"request": run, "usage": usage})

    def _generators(self, request: ChatRequest) -> Sequence[ServedGenerator]:
        """The models that write the answers to a request."""
        if request.virtual:
            return self.virtual[request.model].generators
        config, where = request.config, Endpoint(self.upstream.address, request.model)
        preset = make_preset(resolve_preset(config.preset, request.model), {"seed": str(config.seed)})
        return [ServedGenerator(GeneratorSource(where, preset, Price.stated(config)), self.upstream)]

    async def select(self, body: Body, payload: bytes, run: str) -> Body:
        """A case with its own candidates in, a result line out."""
        case, config, judge, deadline = await self._parse_selection(body, payload)
        async with self.admission.admit(deadline):
            result = await self.selector.select(case, config, generator=judge, deadline=deadline)
        result.outcome.failure = None if result.selection.provisional else result.outcome.failure
        line = selection_line(result.outcome, config, price=None)
        usage = usage_object(None, result.outcome.ledger)
        await self._keep(run, result, config, usage)
        return {**line, "run_id": run, "usage": usage}

    async def forecast(self, body: Body, payload: bytes) -> Body:
        """A case with its own candidates in, what it is expected to cost out."""
        case, config, judge, deadline = await self._parse_selection(body, payload)
        async with self.admission.admit(deadline):
            return await self.selector.forecast(case, config, generator=judge, deadline=deadline)

    async def _parse_selection(self, body: Body, payload: bytes) -> tuple[Case, RunConfig, str, float]:
        """The case, the config, the judge model and the deadline of a request to select."""
        config = request_config(body.get("caps"), self.config, self.limits)
        deadline = asyncio.get_running_loop().time() + (config.budget_seconds or 0.0)
        case = await self._parse_case(body, payload, deadline)
        return case, config, self.selector.judge or self._judge_for(body, config), deadline

    async def _parse_case(self, body: Body, payload: bytes, deadline: float) -> Case:
        """The case in a body; a large one is read in a worker process."""
        try:
            if is_large(body):
                work = partial(parse_large_case, payload, registered_fields())
                case = await self.texts.run(work, size=len(payload), limit=0, until=deadline)
            else:
                case = parse_case_body(body)
            refuse_local_fields(case)
        except InputError as error:
            if isinstance(error, SlowTextError) and asyncio.get_running_loop().time() >= deadline:
                words = "the body could not be read within the time limit of the request"
                raise ApiError(504, words, code="timeout") from None
            raise invalid_value("body", str(error)) from None
        if len(case.candidates) > self.limits.max_samples:
            raise invalid_value(
                "candidates", f"{len(case.candidates):,} candidates: send at most {self.limits.max_samples}"
            )
        return case

    def _judge_for(self, body: Body, config: RunConfig) -> str:
        """The judge model that a request names; not required for a strategy without a judge."""
        if not self.selector.asks_model(config) and not body.get("model"):
            return self.model or ""
        return upstream_model(body, self.model)

    async def models(self) -> Body:
        """The models of the upstream, each also as `caps/…`."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                _, listed = await self.upstream.listing()
        except NO_LIST:
            listed = None
        named = model_rows(listed)
        if named is None:
            raise ApiError(
                502,
                "the model server did not list its models: it is down, or has no /models",
                code="upstream_unreachable",
            )
        names = [(name, 0) for name in self.virtual] + [(row["id"], row.get("created", 0)) for row in named]
        selected = [
            {"id": PREFIX + name, "object": "model", "created": created, "owned_by": "caps"}
            for name, created in names
        ]
        return {"object": "list", "data": [*selected, *named]}

    async def health(self) -> Body:
        """The state of the upstream, probed at most every two seconds, and the load of this server."""
        now = time.monotonic()
        if now - self._probed > PROBE_AGE:
            self._probed = now  # requests that come meanwhile get the state before
            self._state = await self._probe()
        return {
            "status": "ok" if self._state == "serving" else "degraded",
            "upstream": {"state": self._state, "address": self.upstream.address},
            "working": self.admission.working,
            "waiting": self.admission.waiting,
            "connections": self.upstream.connections,
            **(
                {"servers": server_lines(self.upstream.records())}
                if isinstance(self.upstream, ServersModel)
                else {}
            ),
        }

    async def _probe(self) -> str:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                status, _ = await self.upstream.listing()
        except NO_LIST as error:
            return "strange" if isinstance(error, ValueError) else "silent"
        return "serving" if status == 200 else "refusing" if status in (401, 403) else "strange"


def _no_candidates_error(samples: Samples) -> ModelError | ApiError:
    """Why there is no answer: the first error of the upstream, else empty replies, else the time limit."""
    first = next((sample.error for sample in samples.choices if sample.error is not None), None)
    if first is not None:
        return first
    causes = {sample.cause for sample in samples.choices}
    if "empty" in causes:
        return ApiError(502, "every sample of the model server is empty", code="upstream_empty")
    return ApiError(504, "no sample arrived within the time limit of the request", code="timeout")
