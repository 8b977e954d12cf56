"""From a question to an answer: generate candidates, then let a strategy choose among them."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from caps.core.types import DEFAULT_ID, Case, Problem
from caps.costs.ledger import Ledger
from caps.engines.base import Outcome
from caps.evidence.domains import guess_domain
from caps.registry import DEFAULT_DOMAIN
from caps.runner import Runner, Session
from caps.sampling.base import Aids, Grading, Ranking, Sample, Sampled
from caps.sampling.sampler import sample_all


async def solve_case(
    runner: Runner, case: Case, *, watch: Callable[[Sample], object] | None = None
) -> tuple[Sampled, Outcome | None]:
    """Generate, then choose; without a candidate there is nothing to choose from."""
    async with runner.sampler(probe=False) as sampler, aids_for(runner) as aids:
        sampler.watch = watch or sampler.watch
        stream = sample_all(
            [case], runner.method, sampler, n=runner.config.samples, aids=aids, grace=runner.grace
        )
        (sampled,) = [one async for one in stream]
    if sampled.case is None:
        return sampled, None
    sampled.case = with_domain(sampled.case)
    async with runner.session(probe=runner.config.confidence != "verbal") as session:
        (outcome,) = [one async for one in session.run([sampled.case])]
    return sampled, outcome


@asynccontextmanager
async def aids_for(
    runner: Runner, *, grade: Grading | None = None, paid: Ledger | None = None
) -> AsyncIterator[Aids]:
    """What a method needs beside the model: a judge, where it selects between its loops."""
    fitness = getattr(runner.method, "fitness", "")
    if not fitness:
        yield Aids(grade=grade)
        return
    judging = runner.with_config(replace(runner.config, strategy=fitness, settings={}))
    async with judging.session(probe=runner.config.confidence != "verbal") as session:
        yield Aids(_ranking(session, paid or Ledger()), grade)


def _ranking(session: Session, paid: Ledger) -> Ranking:
    async def rank(case: Case) -> Sequence[int]:
        (outcome,) = [one async for one in session.run([case])]
        paid.add(outcome.ledger)
        return () if outcome.selection is None else outcome.selection.order

    return rank


def question_case(text: str, domain: str | None = None) -> Case:
    """A question as a problem without candidates."""
    return Case(DEFAULT_ID, Problem.of(text), (), domain or DEFAULT_DOMAIN, guessed=domain is None)


def with_domain(case: Case) -> Case:
    """Guess the domain again where it was not given, now that there are answers to see."""
    if not case.guessed:
        return case
    return replace(case, domain=guess_domain(dict(case.extra), case.candidates))
