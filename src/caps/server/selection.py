"""Sampling and selection: n samples of a chat request, and the contest that ranks them.

The client's body is sent upstream as it is, and the whole choice comes back. Invariants:

* Only the model's name and the seed of the client's body change.
* An error that every sample would hit is raised at once; any other costs one sample.
* After a cancellation or the deadline no call to the upstream is left running.
* `budget_tokens` limits samples and verdicts together; the choices that a client asks for are generated in
  any case.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import msgspec

from caps.config import RunConfig
from caps.core.errors import (
    AccessError,
    InputError,
    ModelError,
    RefusedError,
    TooLongError,
    UnknownModelError,
)
from caps.core.types import DEFAULT_ID, Candidate, Case, Selection, Usage
from caps.costs.budget import Budget, at_price
from caps.engines.adaptive import Adapted, Generator, Step
from caps.engines.base import Outcome
from caps.engines.budget import BudgetLimits, CaseBudget, PoolOfCase, RunBudget
from caps.engines.local import LocalEngine
from caps.findings.base import Findings
from caps.judging.base import NOTHING
from caps.judging.payment import LOST_REPLIES
from caps.models.base import Completion, Model, Request
from caps.models.endpoints import Endpoint
from caps.models.http import CHAT, Call
from caps.models.servers import Upstream
from caps.models.wire import read_completion, sanitize
from caps.sampling.base import Sample
from caps.sampling.generators import Quality
from caps.sampling.sampler import to_sample
from caps.server.errors import ApiError, internal_error
from caps.server.requests import ChatRequest, as_json, field_error, tool_calls_of
from caps.server.spending import GENERATION, spending_for
from caps.server.virtual_models import ServedGenerator
from caps.session.engines import Shared, local_engine
from caps.session.judges import is_model
from caps.session.resolve import Resolved
from caps.session.session import Learned, capacity_of, journaled_judge
from caps.session.solving import adapt, make_policy
from caps.strategies.posterior import Posterior
from caps.studies.planning import Forecast, forecast_case
from caps.workers.texts import TextWorkers

NO_ROOM = "budget"  # the cause of a sample that was not sent
SAMPLING_SHARE = 0.75  # of the time limit; the rest is for the judge
FATAL_ERRORS = (AccessError, UnknownModelError, RefusedError, TooLongError)


@dataclass(frozen=True, slots=True)
class SampledChoice(Sample):
    """One sample with the choice object it came in, or the error that it failed with."""

    choice: dict[str, Any] = field(default_factory=dict)
    error: ModelError | None = None


def failed(number: int, error: ModelError, usage: Usage = NOTHING) -> SampledChoice:
    """A sample that failed with an error."""
    return SampledChoice(number, None, usage, failure=str(error), cause=error.cause, error=error)


@dataclass(slots=True)
class Samples:
    """The samples of a request; `planned` is how many were wanted.

    With adaptive sampling, `adapted` has the costs of each generator and the story.
    """

    planned: int
    choices: list[SampledChoice] = field(default_factory=list)
    adapted: Adapted[SampledChoice] | None = None

    @property
    def good(self) -> list[SampledChoice]:
        """The samples that did not fail."""
        return [sample for sample in self.choices if sample.candidate is not None]

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The answers of the samples that did not fail."""
        return tuple(sample.candidate for sample in self.choices if sample.candidate is not None)


def sampling_budget(request: ChatRequest) -> CaseBudget:
    """The budget of a request's samples; what they leave of it is for the judge."""
    limits = BudgetLimits(tokens=request.config.budget_tokens)
    return CaseBudget(limits, None, RunBudget(BudgetLimits(), None))


async def generate_samples(
    model: Upstream, request: ChatRequest, *, start: float, deadline: float, budget: CaseBudget
) -> Samples:
    """Generate all samples at once; those that the budget has no room for are left out."""
    samples = Samples(request.fixed_samples)
    batch = await _generate_batch(
        model,
        request,
        range(samples.planned),
        budget,
        soft_deadline=start + SAMPLING_SHARE * (deadline - start),
        deadline=deadline,
    )
    samples.choices += [one for one in batch if one.cause != NO_ROOM]
    return samples


async def _generate_batch(
    model: Upstream,
    request: ChatRequest,
    numbers: range,
    budget: CaseBudget,
    *,
    soft_deadline: float,
    deadline: float,
) -> list[SampledChoice]:
    """Generate samples at once. After `soft_deadline`, late ones are dropped if there is any answer."""
    loop = asyncio.get_running_loop()
    model.expect(len(numbers))
    tasks = [asyncio.ensure_future(_generate(model, request, number, budget)) for number in numbers]
    try:
        done, late = await asyncio.wait(
            tasks, timeout=max(0.0, soft_deadline - loop.time()), return_when=asyncio.FIRST_EXCEPTION
        )
        while late and not any(_has_answer(task) for task in done) and not _fatal(done):
            more, late = await asyncio.wait(
                late, timeout=max(0.0, deadline - loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
            done |= more
            if not more:
                break
        fatal = _fatal(done)
        if fatal is not None and not any(map(_has_answer, done)):
            raise fatal
        return [_outcome(request, number, task) for number, task in zip(numbers, tasks, strict=True)]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _generate(
    model: Upstream, request: ChatRequest, number: int, budget: Budget, name: str | None = None
) -> SampledChoice:
    """One sample of the request's model, or of another one, if the budget has room for the most it may cost.

    The choices that the client asked for are generated in any case.
    """
    most = request.most_usage if budget.limited else NOTHING
    if number < request.n:
        most = NOTHING
    elif await budget.reserve(most) is not None:
        return SampledChoice(number, None, failure="the budget has no room for it", cause=NO_ROOM)
    spent = most  # if it is cancelled or fails
    try:
        done = await _exchange(model, request, number, name or request.model)
        spent = done.usage
        return done
    finally:
        budget.settle(most, spent, replayed=False)


async def _exchange(model: Upstream, request: ChatRequest, number: int, name: str) -> SampledChoice:
    prompt = Request(request.problem.messages, name)  # to estimate the usage, if the upstream reports none

    def write(limit_name: str) -> bytes:
        return request.upstream_body(number, name, limit_name=limit_name)

    def read(reply: Any) -> tuple[Completion, dict[str, Any]]:
        return read_completion(reply, prompt), sanitize(reply["choices"][0])

    try:
        with spending_for(GENERATION):
            async with model.held_connection() as connection:
                done = await connection.send(Call(CHAT, write, read, name))
    except FATAL_ERRORS:
        raise
    except ModelError as error:
        spent = request.lost_usage(error.attempts) if isinstance(error, LOST_REPLIES) else NOTHING
        return failed(number, error, spent)
    return to_sampled_choice(number, *done.value)


def to_sampled_choice(number: int, completion: Completion, choice: dict[str, Any]) -> SampledChoice:
    """A choice as a sample. Tool calls are appended to the text, and are its final answer."""
    called = ""
    if calls := tool_calls_of(choice["message"]):
        called = as_json({"tool_calls": calls})
        text = f"{completion.text}\n\n{called}" if completion.text.strip() else called
        completion = msgspec.structs.replace(completion, text=text)
    sample = to_sample(number, completion)
    values = {item.name: getattr(sample, item.name) for item in fields(Sample)}
    if called and sample.candidate is not None:
        values["candidate"] = replace(sample.candidate, answer=called)
    return SampledChoice(**values, choice=choice)


def _has_answer(task: "asyncio.Task[SampledChoice]") -> bool:
    return task.exception() is None and task.result().candidate is not None


def _fatal(done: "set[asyncio.Task[SampledChoice]]") -> BaseException | None:
    return next((error for task in done if (error := task.exception()) is not None), None)


def _outcome(request: ChatRequest, number: int, task: "asyncio.Task[SampledChoice]") -> SampledChoice:
    if not task.done():
        spent = request.lost_usage(1)
        return SampledChoice(number, None, spent, failure="no reply in time", cause="time")
    error = task.exception()
    if isinstance(error, ModelError):
        return failed(number, error)
    return task.result()


@dataclass(frozen=True, slots=True)
class ContestResult:
    """The outcome of a contest, the selection to use, which may be provisional, and the price of tokens."""

    outcome: Outcome
    selection: Selection
    resolved: Resolved  # of the request


class Selector:
    """Runs contests with one judge or several, each with the limits of its own request.

    The judge model is the configured one, else the model that generated the candidates. `judges` holds the
    models of several judges, and `judge_tokens` limits the judges of each request.
    """

    def __init__(
        self,
        resolved: Resolved,
        model: Upstream,
        findings: Findings | None,
        texts: TextWorkers,
        judges: Mapping[Endpoint, Model],
        *,
        learned: Learned,
        judge_tokens: int | None = None,
    ) -> None:
        self._learned = learned
        self._resolved, self._model, self._findings, self._texts = resolved, model, findings, texts
        self._judges, self._judge_tokens = judges, judge_tokens
        self._qualities: dict[Endpoint, Quality] = {}  # of the generators of virtual models

    @property
    def judge(self) -> str | None:
        """The configured judge model or judges, if any."""
        config = self._resolved.config
        if config.judges:
            return self._resolved.judge_name
        (spec,), fixed = self._resolved.judges, config.judge_model or config.judge_base_url
        return None if not fixed or spec.where is None else spec.where.model or None

    def asks_model(self, config: RunConfig) -> bool:
        """Whether a model judges the requests with this config."""
        return self._resolved.with_config(replace(config, generator=())).asks_model

    async def select(
        self, case: Case, config: RunConfig, *, generator: str, deadline: float
    ) -> ContestResult:
        """Run the contest of a case; when time or tokens run out, the ranking so far is the result."""
        limits = [limit for limit in (config.budget_tokens, self._judge_tokens) if limit is not None]
        config = replace(config, budget_tokens=min(limits, default=None))
        resolved, engine, case = self._open_case(case, config, generator, deadline)
        (outcome,) = [one async for one in engine.run([case], resolved.strategy, seed=config.seed)]
        return ContestResult(outcome, _selection(outcome, deadline), resolved)

    async def forecast(
        self, case: Case, config: RunConfig, *, generator: str, deadline: float
    ) -> dict[str, Any]:
        """What the contest of a case is expected to ask, as `caps plan` states it; nothing is asked."""
        resolved, _, case = self._open_case(case, config, generator, deadline)

        def rehearsed() -> Forecast:
            prepared = resolved.preparation(findings=False)(case)
            return forecast_case(prepared, resolved.strategy, resolved.templates, seed=config.seed)

        forecast = await asyncio.to_thread(rehearsed)
        return {"id": case.id, "strategy": config.strategy, **forecast.as_line()}

    async def solve(
        self,
        request: ChatRequest,
        generators: Sequence[ServedGenerator],
        *,
        deadline: float,
        progress: Callable[[Step], object],
    ) -> tuple[Samples, ContestResult | None]:
        """Sample and judge as far as that is worth its price; the result is None without an answer.

        As soon as the choice is settled, samples under way are cancelled.
        """
        resolved, engine = self._open(request.config, request.judge_fallback, deadline)
        together, budget = isinstance(resolved.strategy, Posterior), engine.new_budget()
        qualities = [self._quality_of(one, alone=len(generators) == 1) for one in generators]
        sources = [
            Generator(
                generator.source.where.model,
                partial(_sample, generator, request, at_price(budget, generator.source.price)),
                generator.source.price,
                quality.mean,
            )
            for generator, quality in zip(generators, qualities, strict=True)
        ]
        adapted = await adapt(
            resolved,
            engine,
            Case(DEFAULT_ID, request.problem, ()),
            sources,
            qualities,
            policy=make_policy(resolved, least=request.n, eager=True),
            asks=together,
            budget=self._of_judge(budget, resolved),
            progress=progress,
            describe=partial(_described, request),
        )
        samples = Samples(len(adapted.samples), adapted.samples, adapted)
        if adapted.outcome is None:
            return samples, None
        if not together:
            config = budget_left(request.config, samples.choices)
            result = await self.select(
                adapted.case, config, generator=request.judge_fallback, deadline=deadline
            )
            return samples, result
        return samples, ContestResult(adapted.outcome, _selection(adapted.outcome, deadline), resolved)

    def _quality_of(self, generator: ServedGenerator, *, alone: bool) -> Quality:
        """What is known of a generator: learned for those of virtual models, which compete."""
        expected = Quality(generator.source.quality)
        return expected if alone else self._qualities.setdefault(generator.source.where, expected)

    def _of_judge(self, budget: CaseBudget, resolved: Resolved) -> CaseBudget:
        """The part of a request's budget that its judge may spend."""
        if self._judge_tokens is None:
            return budget
        limits = BudgetLimits(tokens=self._judge_tokens)
        return CaseBudget(limits, resolved.price, PoolOfCase(budget), deadline=budget.deadline)

    def _open_case(
        self, case: Case, config: RunConfig, generator: str, deadline: float
    ) -> tuple[Resolved, LocalEngine, Case]:
        """The run of one request, its engine, and its case as the config changes it."""
        resolved, engine = self._open(config, generator, deadline)
        changed = resolved.cases.apply(case)
        if isinstance(changed, InputError):
            raise field_error(changed)
        return resolved, engine, changed

    def _open(self, config: RunConfig, generator: str, deadline: float) -> tuple[Resolved, LocalEngine]:
        """The run of one request, and its engine."""
        base = self._resolved
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        named = replace(config, model=base.config.model, judge_model=base.config.judge_model)
        resolved = base.with_config(replace(named, budget_seconds=left, generator=()))
        models: Mapping[Endpoint, Model] = self._judges
        if not base.config.judges:
            (spec,) = resolved.judges
            name = config.judge_model or self.judge or generator
            where = replace(spec.where or Endpoint("", ""), model=name)
            models = {where: self._model}
            if is_model(spec):
                resolved = replace(resolved, judges=(replace(spec, where=where),))
        prepare = resolved.preparation(findings=resolved.merges_equal, context=self._learned.context)
        engine = local_engine(
            resolved,
            journaled_judge(resolved, models, None, self._learned),
            capacity_of(resolved, models.values()),
            Shared(prepare, self._findings, self._texts),
        )
        return resolved, engine


def budget_left(config: RunConfig, choices: Sequence[SampledChoice]) -> RunConfig:
    """The config with what samples have left of the budget of tokens."""
    if config.budget_tokens is None:
        return config
    spent = sum(one.usage.prompt + one.usage.output for one in choices)
    return replace(config, budget_tokens=max(0, config.budget_tokens - spent))


async def _sample(
    generator: ServedGenerator, request: ChatRequest, budget: Budget, number: int, pool: Sequence[Candidate]
) -> SampledChoice:
    """One sample of a generator; an error that every sample would hit is raised unless there is an answer."""
    try:
        return await _generate(generator.upstream, request, number, budget, generator.source.where.model)
    except FATAL_ERRORS as error:
        if not pool:
            raise
        return failed(number, error)


def _described(request: ChatRequest, case: Case) -> Case:
    domain, guessed = request.domain(case.candidates)
    return replace(case, domain=domain, guessed=guessed)


def _selection(outcome: Outcome, deadline: float) -> Selection:
    """The selection of an outcome, or its provisional one: without a judge there is still a best answer."""
    if outcome.selection is not None:
        return outcome.selection
    ranked = outcome.contest is not None and outcome.contest.selection is not None
    if not ranked and asyncio.get_running_loop().time() >= deadline:
        raise ApiError(
            504, "the samples could not be read within the time limit of the request", code="timeout"
        )
    if outcome.contest is None:
        raise ApiError(400, f"the selection failed: {outcome.failure}", code="invalid_value", param="caps")
    if outcome.contest.selection is None:
        raise internal_error()
    return outcome.contest.selection
