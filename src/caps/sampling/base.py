"""What samplers share: samples, their results, and the protocols of methods and generators."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from caps.core.domains import Grade
from caps.core.types import Candidate, Case, Usage
from caps.judging.base import NOTHING

Grading: TypeAlias = Callable[[Case, Candidate], Awaitable[Grade]]
Ranking: TypeAlias = Callable[[Case], Awaitable[Sequence[int]]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample with its usage: a candidate, or the reason why there is none."""

    number: int
    candidate: Candidate | None
    usage: Usage = NOTHING
    finish: str = ""
    replayed: bool = False
    failure: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """The quality of a population at one step: its size, how many were graded, and how many are right."""

    number: int
    size: int
    right: int
    graded: int


@dataclass(slots=True)
class Sampled:
    """The result of a problem: a case with its candidates, or the reason why there is none."""

    name: str
    case: Case | None = None
    samples: list[Sample] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    failure: str | None = None
    unranked: int = 0

    def add(self, samples: Sequence[Sample]) -> list[Candidate]:
        """Add samples in order and return their candidates."""
        self.samples += samples
        return [sample.candidate for sample in samples if sample.candidate is not None]


class Generator(Protocol):
    """Generates answers with a model."""

    @property
    def seed(self) -> int:
        """The seed of the first sample."""
        ...

    async def generate(self, case: Case, numbers: Sequence[int]) -> list[Sample]:
        """Generate answers to a problem, all at once."""
        ...

    async def aggregate(
        self, case: Case, groups: Sequence[Sequence[str]], numbers: Sequence[int]
    ) -> list[Sample]:
        """Generate a new answer from each group of texts, all at once."""
        ...


@dataclass(frozen=True, slots=True)
class SamplingTools:
    """What a method may use besides the generator: a ranking of candidates and a grader.

    `rank` returns an empty order if the candidates cannot be ranked.
    """

    rank: Ranking | None = None
    grade: Grading | None = None


class Method(Protocol):
    """A way to generate candidates: a frozen settings object."""

    async def sample(self, case: Case, n: int, generator: Generator, tools: SamplingTools) -> Sampled:
        """Generate the candidates of a case; a failed sample does not stop the others."""
        ...


async def record_step(
    sampled: Sampled, case: Case, population: Sequence[Candidate], tools: SamplingTools
) -> None:
    """Record how many of a population are right, as far as they can be graded."""
    if tools.grade is None:
        return
    grades = [(await tools.grade(case, one)).correct for one in population]
    graded = [grade for grade in grades if grade is not None]
    sampled.steps.append(Step(len(sampled.steps), len(population), sum(graded), len(graded)))
