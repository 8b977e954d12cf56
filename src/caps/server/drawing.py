"""Samples of a chat request: the client's body goes upstream whole, and the whole choice comes back.

Rules that must not be broken:

* Nothing of the client's is changed but the model's name, and a seed, which counts up.
* What would fail every draw is raised at once; another failure costs one sample.
* Whoever is cancelled, or out of time, leaves no call running upstream.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import comb
from typing import Any

import msgspec

from caps.core.errors import (
    AccessError,
    ModelError,
    RefusedError,
    SlowTextError,
    TooLongError,
    UnknownModelError,
)
from caps.core.types import Candidate
from caps.evidence.profiles import profile_for, signature_named
from caps.judging.preparation import LONG_CODE
from caps.models.base import Completion, Request
from caps.models.http import Upstream
from caps.models.wire import read_completion, tidy
from caps.sampling.base import Sample
from caps.sampling.sampler import to_sample
from caps.server.asked import Asked
from caps.server.problems import as_json, calls_of
from caps.text_workers import TextWorkers

FIRST_WAVE = 4
SURE = 0.95
SAMPLING_SHARE = 0.75  # of the time: what is left belongs to the judge
FATAL = (AccessError, UnknownModelError, RefusedError, TooLongError)


@dataclass(frozen=True, slots=True)
class Draw:
    """One sample, with the choice it came as; without one, why there is none."""

    sample: Sample
    choice: dict[str, Any] = field(default_factory=dict)
    error: ModelError | None = None


@dataclass(slots=True)
class Drawn:
    """All samples of a request; `planned` would have been drawn without an early exit."""

    planned: int
    draws: list[Draw] = field(default_factory=list)

    @property
    def good(self) -> list[Draw]:
        """Those that brought an answer."""
        return [draw for draw in self.draws if draw.sample.candidate is not None]

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Their answers."""
        return tuple(one.sample.candidate for one in self.draws if one.sample.candidate is not None)


async def draw_all(model: Upstream, asked: Asked, texts: TextWorkers, *, start: float, until: float) -> Drawn:
    """Draw all samples at once, or with `early_exit` in doubling waves until the answers have settled."""
    drawn, loop = Drawn(asked.config.samples), asyncio.get_running_loop()
    while len(drawn.draws) < drawn.planned and loop.time() < until:
        done = len(drawn.draws)
        total = max(FIRST_WAVE, 2 * done) if asked.config.early_exit else drawn.planned
        numbers = range(done, min(max(total, asked.wanted), drawn.planned))
        soon = start + SAMPLING_SHARE * (until - start)
        drawn.draws += await _wave(model, asked, numbers, soon=soon, until=until, any_yet=bool(drawn.good))
        if asked.config.early_exit and settled(await _signatures(asked, drawn.candidates, texts, until)):
            break
    return drawn


def settled(signatures: Sequence[str | None]) -> bool:
    """Whether the commonest answer is surely (0.95) the commoner one of the first two.

    The rule of adaptive consistency (Aggarwal et al. 2023): the share of the leader has a Beta distribution.
    """
    counts: dict[object, int] = {}
    for place, signature in enumerate(signatures):
        key = place if signature is None else signature
        counts[key] = counts.get(key, 0) + 1
    first, second = [*sorted(counts.values(), reverse=True), 0, 0][:2]
    throws = first + second + 1
    return sum(comb(throws, heads) for heads in range(first + 1)) >= SURE * (1 << throws)


async def _wave(
    model: Upstream, asked: Asked, numbers: range, *, soon: float, until: float, any_yet: bool
) -> list[Draw]:
    """Draw some at once; whoever is late is given up, unless nothing at all has come in yet."""
    loop = asyncio.get_running_loop()
    tasks = [asyncio.ensure_future(_draw(model, asked, number)) for number in numbers]
    try:
        done, late = await asyncio.wait(
            tasks, timeout=max(0.0, soon - loop.time()), return_when=asyncio.FIRST_EXCEPTION
        )
        while late and not any_yet and not any(_good(task) for task in done) and not _fatal(done):
            more, late = await asyncio.wait(
                late, timeout=max(0.0, until - loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
            done |= more
            if not more:
                break
        fatal = _fatal(done)
        if fatal is not None and not any_yet and not any(map(_good, done)):
            raise fatal
        return [_outcome(number, task) for number, task in zip(numbers, tasks, strict=True)]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _draw(model: Upstream, asked: Asked, number: int) -> Draw:
    request = Request(asked.problem.messages, asked.upstream)  # for the reckoning, if upstream gives none

    def read(reply: Any) -> tuple[Completion, dict[str, Any]]:
        return read_completion(reply, request), tidy(reply["choices"][0])

    try:
        done = await model.exchange(lambda _: asked.body(number), read, model=asked.upstream)
    except FATAL:
        raise
    except ModelError as error:
        return Draw(Sample(number, None, failure=str(error), cause=error.cause), error=error)
    return to_draw(number, *done.value)


def to_draw(number: int, completion: Completion, choice: dict[str, Any]) -> Draw:
    """A choice as a sample: tool calls stand behind the text, and are the answer that counts."""
    calls = calls_of(choice["message"])
    if not calls:
        return Draw(to_sample(number, completion), choice)
    called = as_json({"tool_calls": calls})
    text = f"{completion.text}\n\n{called}" if completion.text.strip() else called
    sample = to_sample(number, msgspec.structs.replace(completion, text=text))
    if sample.candidate is None:
        return Draw(sample, choice)
    return Draw(replace(sample, candidate=replace(sample.candidate, answer=called)), choice)


async def _signatures(
    asked: Asked, candidates: tuple[Candidate, ...], texts: TextWorkers, until: float
) -> Sequence[str | None]:
    """The signatures of the samples so far; unknown where finding out takes too long."""
    work = partial(signatures_of, asked.domain(candidates)[0], candidates)
    size = sum(len(one.text) for one in candidates)
    try:
        return await texts.run(work, size=size, limit=LONG_CODE, until=until)
    except SlowTextError:
        return [None] * len(candidates)


def signatures_of(domain: str, candidates: tuple[Candidate, ...]) -> list[str | None]:
    """The signature of each candidate."""
    signature = signature_named(profile_for(domain).signature)
    return [signature(one) for one in candidates]


def _good(task: "asyncio.Task[Draw]") -> bool:
    return task.exception() is None and task.result().sample.candidate is not None


def _fatal(done: "set[asyncio.Task[Draw]]") -> BaseException | None:
    return next((error for task in done if (error := task.exception()) is not None), None)


def _outcome(number: int, task: "asyncio.Task[Draw]") -> Draw:
    if not task.done():
        return Draw(Sample(number, None, failure="no reply in time", cause="time"))
    error = task.exception()
    if isinstance(error, ModelError):
        return Draw(Sample(number, None, failure=str(error), cause=error.cause), error=error)
    return task.result()
