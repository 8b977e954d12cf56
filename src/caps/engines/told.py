"""A case played in another process: what is sent, what is told of it, and its outcome made of that.

A contest is a function of its answers, so the rulings are enough: nothing that plays has to travel.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from caps.core.errors import CapsError
from caps.core.play import Strategy
from caps.core.types import Case, Found
from caps.engines.base import Outcome, Play, Prepare, prepared
from caps.judges.base import Ruling
from caps.text_workers import TextWorkers


@dataclass(frozen=True, slots=True)
class Job:
    """A case to be played; `ends` is a time of the clock on the wall, where the run's time is limited."""

    number: int
    case: Case
    strategy: Strategy
    seed: int
    ends: float | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What there is to say of a played case: the facts found first, the rulings in order, why it failed.

    `found` is None where the case did not come to a contest. `unusable` counts, since the last case that was
    told, why nothing was looked into.
    """

    found: tuple[Found | None, ...] | None = None
    rulings: tuple[Ruling, ...] = ()
    failure: str | None = None
    unusable: Mapping[str, int] = field(default_factory=Counter)

    @classmethod
    def of(cls, outcome: Outcome, unusable: Mapping[str, int]) -> "Told":
        """Tell of an outcome."""
        found = None
        if outcome.bout is not None:
            found = tuple(one.found for one in outcome.bout.case.candidates)
        rulings = tuple(one.ruling for one in outcome.judged)
        return cls(found, rulings, outcome.failure, unusable)


async def retell(job: Job, told: Told, prepare: Prepare, texts: TextWorkers | None = None) -> Outcome:
    """Make the outcome of a case anew from what was told of it."""
    case = job.case
    if told.found is None:
        return Outcome(job.number, case.id, failure=told.failure)
    pairs = zip(case.candidates, told.found, strict=True)
    known = replace(case, candidates=tuple(replace(one, found=found) for one, found in pairs))
    try:
        bout = await prepared(known, prepare, texts)
    except CapsError as error:
        return Outcome(job.number, case.id, failure=str(error))
    play = Play(job.number, bout, job.strategy, job.seed)
    left = iter(told.rulings)
    while (round_ := play.round) is not None:
        rulings = [ruling for _, ruling in zip(round_.asks, left, strict=False)]
        if len(rulings) < len(round_.asks):
            break  # the case failed in this round
        for place, ruling in enumerate(rulings):
            play.tell(place, ruling)
    play.outcome.failure = told.failure
    return play.outcome
