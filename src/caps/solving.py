"""From a question to an answer: draw candidates, then let a strategy choose among them."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from caps.assemble import Endpoint, Setup, find, make_strategy, sampler, session
from caps.core.play import Strategy
from caps.core.types import Case, Problem
from caps.costs.ledger import Ledger
from caps.datasets.jsonl import guess_domain
from caps.engines.base import Outcome
from caps.sampling.base import Aids, Grading, Method, Ranking, Sample, Sampled
from caps.sampling.presets import Preset
from caps.sampling.stream import sample_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Solving:
    """Everything that makes an answer out of a question."""

    writing: Setup
    judging: Setup
    preset: Preset
    method: Method
    strategy: Strategy
    n: int
    seed: int

    async def run(
        self, case: Case, *, watch: Callable[[Sample], object] | None = None
    ) -> tuple[Sampled, Outcome | None]:
        """Draw, then choose; without a candidate there is nothing to choose from."""
        async with (
            sampler(self.writing, self.preset, probe=False) as desk,
            aids_for(self.method, self.judging, seed=self.seed) as aids,
        ):
            desk.watch = watch or desk.watch
            stream = sample_all([case], self.method, desk, n=self.n, aids=aids, grace=self.writing.grace)
            (sampled,) = [one async for one in stream]
        if sampled.case is None:
            return sampled, None
        sampled.case = with_domain(sampled.case)
        async with session(self.judging, probe=self.judging.confidence != "verbal") as ready:
            (outcome,) = [
                one async for one in ready.engine.run([sampled.case], self.strategy, seed=self.seed)
            ]
        return sampled, outcome


@asynccontextmanager
async def aids_for(
    method: Method,
    judging: Setup | None,
    *,
    seed: int,
    grade: Grading | None = None,
    paid: Ledger | None = None,
) -> AsyncIterator[Aids]:
    """What a method needs beside the model: a judge, where it goes by a fitness."""
    fitness = getattr(method, "fitness", "")
    if not fitness or judging is None:
        yield Aids(grade=grade)
        return
    strategy = make_strategy(fitness)
    async with session(judging, probe=judging.confidence != "verbal") as ready:
        yield Aids(_ranking(ready.engine.run, strategy, seed, paid or Ledger()), grade)


def _ranking(
    run: Callable[..., AsyncIterator[Outcome]], strategy: Strategy, seed: int, paid: Ledger
) -> Ranking:
    async def rank(case: Case) -> Sequence[int]:
        (outcome,) = [one async for one in run([case], strategy, seed=seed)]
        paid.add(outcome.ledger)
        return () if outcome.selection is None else outcome.selection.order

    return rank


def question_case(text: str, domain: str | None = None) -> Case:
    """A question as a problem without candidates."""
    return Case("question", Problem.of(text), (), domain or "general", guessed=domain is None)


def with_domain(case: Case) -> Case:
    """Guess again what nobody said, now that there are answers to see."""
    if not case.guessed:
        return case
    return replace(case, domain=guess_domain(dict(case.extra), case.candidates))


def judge_endpoint(
    writer: Endpoint, model: str | None, base_url: str | None, api_key: str | None, *, cache: Path
) -> Endpoint:
    """The judge: the model that writes, unless another is named; a key is not carried to another address."""
    if not model and not base_url and not api_key:
        return writer
    beside = None if writer.base_url.startswith("file:") else writer.base_url
    key = api_key or (None if base_url and base_url != writer.base_url else writer.api_key)
    return find(model or writer.model, base_url or beside, key, cache=cache)
