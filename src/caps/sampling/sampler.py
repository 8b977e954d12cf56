"""The sampler: one request per sample, many problems at once under one limit, results in order.

Rules that must not be broken:

* The i-th request of a problem depends only on the preset, the problem and i, so it is paid for once.
* A failed call is a `Sample` with the reason; only errors that would fail all others too are raised.
* Answers shown to a model are hostile: they are fenced and made inert as for a judge.
* While a call may start and a problem is left, a call starts; memory does not grow with the problems.
* One failed problem does not stop the others.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import fmean

from caps.core.errors import InputError, MissingFeatureError, SettingError
from caps.core.types import Candidate, Case, Message, Problem
from caps.costs.budget import Budget, UnlimitedBudget
from caps.evidence.domains import domain_named
from caps.judging.payment import USUAL_OUTPUT, NoReply, ReplyHistory, pay
from caps.models.base import Completion, Model, Request
from caps.models.limits import Gate
from caps.prompts.fence import JOINER, nonce_for
from caps.prompts.render import ask_for_answer, generation_name, render
from caps.sampling.base import Method, Preset, Sample, Sampled, SamplingTools

LEAST_WINDOW = 32  # tokens


class Sampler:
    """Generates answers with one model, at most `capacity` at once; the others wait in order.

    `watch` is called with every sample; `changed` is set after it.
    """

    def __init__(
        self,
        model: Model,
        name: str,
        preset: Preset,
        templates: Mapping[str, str],
        *,
        capacity: Callable[[], int],
        logprobs: bool = False,
        extra: Mapping[str, object] | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.preset, self.capacity = preset, capacity
        self.watch: Callable[[Sample], object] = lambda _: None
        self.changed = asyncio.Event()
        self._model, self._name, self._templates = model, name, templates
        self._logprobs, self._extra = logprobs, {**preset.extra(), **(extra or {})}
        self._budget = budget or UnlimitedBudget()
        self._history = ReplyHistory(USUAL_OUTPUT)
        self._gate = Gate(capacity())
        self._tasks: set[asyncio.Task[Sample]] = set()
        self._stopping = False

    @property
    def seed(self) -> int:
        """The seed of the first sample."""
        return self.preset.seed

    @property
    def pending(self) -> int:
        """Number of samples that run or wait."""
        return len(self._tasks)

    async def generate(self, case: Case, numbers: Sequence[int]) -> list[Sample]:
        """Generate answers to a problem, all at once."""
        return await asyncio.gather(*(self._start(self.request(case, number)) for number in numbers))

    async def aggregate(
        self, case: Case, groups: Sequence[Sequence[str]], numbers: Sequence[int]
    ) -> list[Sample]:
        """Generate a new answer from each group of texts, all at once."""
        requests = [
            self.aggregation_request(case, texts, number)
            for texts, number in zip(groups, numbers, strict=True)
        ]
        samples = await asyncio.gather(*(self._start(request) for request in requests))
        return [_without_joiners(sample) for sample in samples]

    async def generate_one(self, case: Case, number: int, budget: Budget | None = None) -> Sample:
        """Generate one answer to a problem; a `budget` of the problem replaces that of the sampler."""
        return await self._start(self.request(case, number), budget)

    async def aggregate_one(
        self, case: Case, texts: Sequence[str], number: int, budget: Budget | None = None
    ) -> Sample:
        """Generate one new answer from a group of texts."""
        return _without_joiners(await self._start(self.aggregation_request(case, texts, number), budget))

    async def stop(self, grace: float) -> None:
        """Start no more calls, give running ones a grace period, since they are paid, and cancel the rest."""
        self._stopping = True
        try:
            if self._tasks and grace:
                await asyncio.wait(set(self._tasks), timeout=grace)
        finally:  # a second interrupt ends the grace period; no call may outlive its connection
            tasks = set(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def request(self, case: Case, number: int) -> Request:
        """The request for a new answer to a problem."""
        function, domain = interface_of(case), domain_named(case.domain)
        called = bool(function) and domain.python_programs
        name = generation_name(self.preset.style, domain.prompts, function=called)
        messages = ask_for_answer(self._template(name), case.problem, interface=function)
        return self._request(messages, name, case, number)

    def aggregation_request(self, case: Case, texts: Sequence[str], number: int) -> Request:
        """The request for a new answer from others."""
        domain, problem, function = domain_named(case.domain), case.problem, interface_of(case)
        name = generation_name("aggregate", domain.prompts)
        if function and domain.python_programs:
            problem = Problem.of(f"{problem.text}\n\nProvide this interface:\n{function}")
        nonce = nonce_for(problem.text, texts)
        messages = render(self._template(name), problem=problem, views=texts, nonce=nonce)
        return self._request(messages, name, case, number)

    def _request(self, messages: tuple[Message, ...], template: str, case: Case, number: int) -> Request:
        temperature, extra = self.preset.temperature(domain_named(case.domain).prompts), self._extra
        if temperature is None:
            extra = {"temperature": None, **extra}
        return Request(
            messages,
            self._name,
            template=template,
            max_tokens=self.preset.max_tokens,
            temperature=1.0 if temperature is None else temperature,
            top_p=self.preset.top_p,
            seed=self.preset.seed + number,
            draw=number,
            top_logprobs=1 if self._logprobs else 0,
            extra=extra,
            group=case.problem.text,
        )

    def _template(self, name: str) -> str:
        if name not in self._templates:
            raise SettingError(f"no generation template {name!r}: add it to the folder of the others")
        return self._templates[name]

    def _start(self, request: Request, budget: Budget | None = None) -> "asyncio.Task[Sample]":
        task = asyncio.ensure_future(self._call(request, budget or self._budget))
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: "asyncio.Task[Sample]") -> None:
        self._tasks.discard(task)
        self.changed.set()

    async def _call(self, request: Request, budget: Budget) -> Sample:
        self._gate.limit = self.capacity()
        async with self._gate:
            if self._stopping:
                raise asyncio.CancelledError
            reply = await pay(self._model, request, budget, self._history)
            if isinstance(reply, NoReply):
                sample = Sample(request.draw, None, reply.usage, failure=reply.message, cause=reply.cause)
            elif self._logprobs and reply.text and not reply.logprobs:
                raise MissingFeatureError(
                    f"model {request.model!r} returns no log-probabilities: leave out --logprobs (logprobs)"
                )
            else:
                sample = to_sample(request.draw, reply)
            self._gate.limit = self.capacity()
        self.watch(sample)
        return sample


def to_sample(number: int, completion: Completion) -> Sample:
    """Turn a reply into a sample: reasoning goes before the text, in tags; logprobs are summarized."""
    paid = Sample(number, None, completion.usage, completion.finish, completion.replayed)
    text, reasoning = completion.text, completion.reasoning.strip()
    if reasoning:
        text = f"<think>\n{reasoning}\n</think>\n\n{text}"
    if not text.strip():
        return replace(paid, failure=f"an empty reply (finish: {completion.finish or 'none'})", cause="empty")
    if not completion.logprobs:
        return replace(paid, candidate=Candidate(text))
    mean, windows = summarize_logprobs([token.logprob for token in completion.logprobs])
    return replace(paid, candidate=Candidate(text, logprob=mean, numbers=windows))


def summarize_logprobs(logprobs: Sequence[float]) -> tuple[float, dict[str, float | None]]:
    """The mean log-probability of the tokens; and of the last ones, and of the lowest window of them.

    A window is a tenth of the tokens, at least `LEAST_WINDOW`. An answer that went wrong in one place has a
    low window even if its mean is high (Fu et al. 2025, DeepConf).
    """
    size = min(len(logprobs), max(LEAST_WINDOW, len(logprobs) // 10))
    sums = list(accumulate(logprobs, initial=0.0))
    lowest = min(end - start for start, end in zip(sums, sums[size:], strict=False)) / size
    return fmean(logprobs), {"logprob_tail": fmean(logprobs[-size:]), "logprob_lowest": lowest}


def _without_joiners(sample: Sample) -> Sample:
    """Remove the joiners that make shown answers inert: copied into a program, they would break it."""
    if sample.candidate is None or JOINER not in sample.candidate.text:
        return sample
    return replace(
        sample, candidate=replace(sample.candidate, text=sample.candidate.text.replace(JOINER, ""))
    )


def interface_of(case: Case) -> str:
    """What a program must provide to be called: the starter code, or the name of the entry point."""
    starter, entry = case.extra.get("starter_code"), case.extra.get("entry_point")
    if isinstance(starter, str) and starter.strip():
        return starter.rstrip()
    return f"def {entry}(...):" if isinstance(entry, str) and entry.strip() else ""


MAX_WAITING = 256  # problems that may wait for an earlier one; their candidates are in memory


async def sample_all(
    problems: Iterable[Case | InputError],
    method: Method,
    sampler: Sampler,
    *,
    n: int,
    tools: SamplingTools | None = None,
    grace: float = 0.0,
) -> AsyncGenerator[Sampled, None]:
    """Sample all problems and yield the result of each, in input order."""
    source, tools = _until_error(problems), tools or SamplingTools()
    tasks: deque[asyncio.Task[Sampled]] = deque()
    errors: list[BaseException] = []

    def end(task: "asyncio.Task[Sampled]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            errors.append(error)
        sampler.changed.set()

    more = True
    try:
        while more or tasks:
            if errors:
                raise errors[0]
            while tasks and tasks[0].done():
                yield tasks.popleft().result()
            if more and len(tasks) < MAX_WAITING and sampler.pending < sampler.capacity():
                problem = next(source, None)
                more = problem is not None
                if problem is not None:
                    tasks.append(asyncio.ensure_future(sample_one(problem, method, sampler, n, tools)))
                    tasks[-1].add_done_callback(end)
                    await asyncio.sleep(0)  # its calls are counted once it has started
            elif tasks and not tasks[0].done():
                await sampler.changed.wait()
                sampler.changed.clear()
    finally:
        await sampler.stop(grace)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def sample_one(
    problem: Case | InputError, method: Method, sampler: Sampler, n: int, tools: SamplingTools
) -> Sampled:
    """Sample one problem; a failure is part of the result."""
    if isinstance(problem, InputError):
        return Sampled("", failure=str(problem))
    try:
        sampled = await method.sample(problem, n, sampler, tools)
    except InputError as error:
        return Sampled(problem.id, failure=str(error))
    if sampled.case is None or not sampled.case.candidates:
        sampled.case, sampled.failure = None, none_succeeded(sampled.samples)
    return sampled


def none_succeeded(samples: Sequence[Sample], stopped: str | None = None) -> str:
    """Why a problem has no candidate."""
    ended = "nothing was generated" if stopped is None else f"its {stopped} ended first"
    first = next((sample.failure for sample in samples if sample.failure), ended)
    return f"none of its {len(samples)} samples succeeded: {first}"


def _until_error(source: Iterable[Case | InputError]) -> Iterator[Case | InputError]:
    """The problems of a source; one that breaks off ends with the reason as its last item."""
    try:
        yield from source
    except InputError as error:
        yield error
