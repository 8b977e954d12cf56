"""The sampler: one request per sample, many problems side by side under one limit, results in order.

Rules that must not be broken:

* The i-th draw of a problem is a function of the preset, the problem and i alone, so it is paid for once.
* A draw that failed for good is a `Sample` that says why; only what would fail all others too is raised.
* Answers shown to a model are hostile: they are fenced and made inert like a judge's.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from caps.core.errors import AccessError, InputError, ModelError, SettingError, UnknownModelError
from caps.core.types import Candidate, Case, Message, Problem
from caps.evidence.domains import domain_named
from caps.judging.base import Budget, UnlimitedBudget
from caps.judging.llm import pay
from caps.models.base import Completion, Model, Request
from caps.models.http import Gate
from caps.prompts.fence import nonce_for
from caps.prompts.render import ask_for_answer, generation_name, render
from caps.prompts.tags import JOINER
from caps.sampling.base import Aids, Method, Sample, Sampled
from caps.sampling.presets import Preset


class Sampler:
    """Draws answers from one model; at most `capacity` draws are under way, the others wait in order.

    `watch` hears every draw as it ends; `news` is set then.
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
        self.news = asyncio.Event()
        self._model, self._name, self._templates = model, name, templates
        self._logprobs, self._extra = logprobs, {**preset.extra(), **(extra or {})}
        self._purse = budget or UnlimitedBudget()
        self._gate = Gate(capacity())
        self._draws: set[asyncio.Task[Sample]] = set()
        self._stopping = False

    @property
    def seed(self) -> int:
        """What every draw depends on."""
        return self.preset.seed

    @property
    def pending(self) -> int:
        """Draws that are under way or wait."""
        return len(self._draws)

    async def fresh(self, case: Case, numbers: Sequence[int]) -> list[Sample]:
        """Draw answers to a problem, all at once."""
        return await asyncio.gather(*(self._start(self.request(case, number)) for number in numbers))

    async def combined(
        self, case: Case, groups: Sequence[Sequence[str]], numbers: Sequence[int]
    ) -> list[Sample]:
        """Draw a new answer from each group of texts, all at once."""
        requests = [
            self.aggregation(case, texts, number) for texts, number in zip(groups, numbers, strict=True)
        ]
        samples = await asyncio.gather(*(self._start(request) for request in requests))
        return [_unjoined(sample) for sample in samples]

    async def stop(self, grace: float) -> None:
        """Begin no more draws, wait a while for those under way, since they are paid, and end the rest."""
        self._stopping = True
        try:
            if self._draws and grace:
                await asyncio.wait(set(self._draws), timeout=grace)
        finally:  # a second interrupt ends the grace; a call that went on would outlive its connection
            ending = set(self._draws)
            for draw in ending:
                draw.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    def request(self, case: Case, number: int) -> Request:
        """The request of a fresh draw."""
        function, domain = interface_of(case), domain_named(case.domain)
        called = bool(function) and domain.python_programs
        name = generation_name(self.preset.style, domain.prompts, function=called)
        messages = ask_for_answer(self._template(name), case.problem, interface=function)
        return self._request(messages, name, case, number)

    def aggregation(self, case: Case, texts: Sequence[str], number: int) -> Request:
        """The request for a new answer out of others."""
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
            raise SettingError(f"there is no generation template {name!r}: it belongs beside the others")
        return self._templates[name]

    def _start(self, request: Request) -> "asyncio.Task[Sample]":
        draw = asyncio.ensure_future(self._draw(request))
        self._draws.add(draw)
        draw.add_done_callback(self._end)
        return draw

    def _end(self, draw: "asyncio.Task[Sample]") -> None:
        self._draws.discard(draw)
        self.news.set()

    async def _draw(self, request: Request) -> Sample:
        self._gate.limit = self.capacity()
        async with self._gate:
            if self._stopping:
                raise asyncio.CancelledError
            try:
                completion = await pay(self._model, request, self._purse)
            except (AccessError, UnknownModelError):
                raise
            except ModelError as error:
                sample = Sample(request.draw, None, failure=str(error), cause=error.cause)
            else:
                sample = to_sample(request.draw, completion)
            self._gate.limit = self.capacity()
        self.watch(sample)
        return sample


def to_sample(number: int, completion: Completion | None) -> Sample:
    """A reply as a sample: reasoning goes before the text, between tags; log-probabilities are averaged.

    No reply means that the purse could not afford one.
    """
    if completion is None:
        return Sample(number, None, failure="the budget ended", cause="budget")
    paid = Sample(number, None, completion.usage, completion.finish, completion.replayed)
    text, reasoning = completion.text, completion.reasoning.strip()
    if reasoning:
        text = f"<think>\n{reasoning}\n</think>\n\n{text}"
    if not text.strip():
        return replace(paid, failure=f"an empty reply (finish: {completion.finish or 'none'})", cause="empty")
    logprob = fmean(token.logprob for token in completion.logprobs) if completion.logprobs else None
    return replace(paid, candidate=Candidate(text, logprob=logprob))


def _unjoined(sample: Sample) -> Sample:
    """Take the joiners out that made the answers it was shown inert: copied into a program, they break it."""
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


# Many problems under one limit: read as far as needed, sampled side by side, handed on in order.
#
# Rules that must not be broken:
#
# * While a draw may start and a problem is left, a draw starts; memory stays flat, however many there are.
# * One failed problem does not stop the others.


MOST_WAITING = 256  # problems that may wait for an earlier one; their candidates are in memory


async def sample_all(
    problems: Iterable[Case | InputError],
    method: Method,
    sampler: Sampler,
    *,
    n: int,
    aids: Aids | None = None,
    grace: float = 0.0,
) -> AsyncGenerator[Sampled, None]:
    """Sample all problems and yield what became of each, in the order of input."""
    source, aids = _told(iter(problems)), aids or Aids()
    under: deque[asyncio.Task[Sampled]] = deque()
    broken: list[BaseException] = []

    def end(task: "asyncio.Task[Sampled]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            broken.append(error)
        sampler.news.set()

    more = True
    try:
        while more or under:
            if broken:
                raise broken[0]
            while under and under[0].done():
                yield under.popleft().result()
            if more and len(under) < MOST_WAITING and sampler.pending < sampler.capacity():
                problem = next(source, None)
                more = problem is not None
                if problem is not None:
                    under.append(asyncio.ensure_future(_sample(problem, method, sampler, n, aids)))
                    under[-1].add_done_callback(end)
                    await asyncio.sleep(0)  # its draws are counted once it has begun
            elif under and not under[0].done():
                await sampler.news.wait()
                sampler.news.clear()
    finally:
        await sampler.stop(grace)
        for task in under:
            task.cancel()
        await asyncio.gather(*under, return_exceptions=True)


async def _sample(
    problem: Case | InputError, method: Method, sampler: Sampler, n: int, aids: Aids
) -> Sampled:
    if isinstance(problem, InputError):
        return Sampled("", failure=str(problem))
    try:
        sampled = await method.sample(problem, n, sampler, aids)
    except InputError as error:
        return Sampled(problem.id, failure=str(error))
    if sampled.case is None or not sampled.case.candidates:
        first = next((sample.failure for sample in sampled.samples if sample.failure), "nothing was drawn")
        sampled.case, sampled.failure = None, f"none of its {len(sampled.samples)} samples came in: {first}"
    return sampled


def _told(source: Iterator[Case | InputError]) -> Iterator[Case | InputError]:
    """The problems; a source that breaks off ends with the reason as its last."""
    try:
        yield from source
    except InputError as error:
        yield error
