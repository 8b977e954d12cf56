"""Solving a problem: generate candidates, then select one."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from caps.core.types import DEFAULT_ID, Case, Problem
from caps.costs.ledger import Ledger
from caps.engines.base import Outcome
from caps.evidence.domains import guess_domain
from caps.registry import DEFAULT_DOMAIN
from caps.runner import Runner, Session
from caps.sampling.base import Grading, Ranking, Sample, Sampled, SamplingTools
from caps.sampling.sampler import sample_all


async def solve_case(
    runner: Runner, case: Case, *, watch: Callable[[Sample], object] | None = None
) -> tuple[Sampled, Outcome | None]:
    """Generate candidates and select one; the outcome is None if there is no candidate."""
    async with runner.sampler(probe=False) as sampler, sampling_tools(runner) as tools:
        sampler.watch = watch or sampler.watch
        stream = sample_all(
            [case], runner.method, sampler, n=runner.config.samples, tools=tools, grace=runner.grace
        )
        (sampled,) = [one async for one in stream]
    if sampled.case is None:
        return sampled, None
    sampled.case = with_domain(sampled.case)
    async with runner.session(probe=runner.needs_probe) as session:
        (outcome,) = [one async for one in session.run([sampled.case])]
    return sampled, outcome


@asynccontextmanager
async def sampling_tools(
    runner: Runner, *, grade: Grading | None = None, paid: Ledger | None = None
) -> AsyncIterator[SamplingTools]:
    """Open what a method needs besides the model: a judge, if the method ranks its populations."""
    fitness = getattr(runner.method, "fitness", "")
    if not fitness:
        yield SamplingTools(grade=grade)
        return
    judging = runner.with_config(replace(runner.config, strategy=fitness, settings={}))
    async with judging.session(probe=runner.needs_probe) as session:
        yield SamplingTools(_ranking(session, paid or Ledger()), grade)


def _ranking(session: Session, paid: Ledger) -> Ranking:
    async def rank(case: Case) -> Sequence[int]:
        (outcome,) = [one async for one in session.run([case])]
        paid.add(outcome.ledger)
        return () if outcome.selection is None else outcome.selection.order

    return rank


def question_case(text: str, domain: str | None = None) -> Case:
    """Turn a question into a case without candidates."""
    return Case(DEFAULT_ID, Problem.of(text), (), domain or DEFAULT_DOMAIN, guessed=domain is None)


def with_domain(case: Case) -> Case:
    """Guess the domain again from the answers, unless it was given."""
    if not case.guessed:
        return case
    return replace(case, domain=guess_domain(dict(case.extra), case.candidates))
