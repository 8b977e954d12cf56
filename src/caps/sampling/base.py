"""What samplers share: one draw, all draws of a problem, and the seam between methods and the model."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from caps.core.types import Candidate, Case, Usage
from caps.graders.base import Grade

Grading: TypeAlias = Callable[[Case, Candidate], Awaitable[Grade]]
Ranking: TypeAlias = Callable[[Case], Awaitable[Sequence[int]]]

NOTHING = Usage(0, 0)


@dataclass(frozen=True, slots=True)
class Sample:
    """One draw and what it took: a candidate, or why there is none."""

    number: int
    candidate: Candidate | None
    usage: Usage = NOTHING
    finish: str = ""
    replayed: bool = False
    failure: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """A population on its way: how many there are, how many are right and how many could be told."""

    number: int
    size: int
    right: int
    graded: int


@dataclass(slots=True)
class Sampled:
    """What became of a problem: a case with its candidates, or the reason why there is none."""

    name: str
    case: Case | None = None
    samples: list[Sample] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    failure: str | None = None
    unranked: int = 0

    def add(self, samples: Sequence[Sample]) -> list[Candidate]:
        """Keep draws in their order; the candidates among them."""
        self.samples += samples
        return [sample.candidate for sample in samples if sample.candidate is not None]


class Generator(Protocol):
    """Where answers are written."""

    @property
    def seed(self) -> int:
        """What every draw depends on."""
        ...

    async def fresh(self, case: Case, numbers: Sequence[int]) -> list[Sample]:
        """Draw answers to a problem, all at once."""
        ...

    async def combined(
        self, case: Case, groups: Sequence[Sequence[str]], numbers: Sequence[int]
    ) -> list[Sample]:
        """Draw a new answer from each group of texts, all at once."""
        ...


@dataclass(frozen=True, slots=True)
class Aids:
    """What a method may be handed: who orders the candidates of a case, and who tells right from wrong.

    An empty order means that nobody could tell.
    """

    rank: Ranking | None = None
    grade: Grading | None = None


class Method(Protocol):
    """A way of coming by candidates: a frozen settings object."""

    async def sample(self, case: Case, n: int, desk: Generator, aids: Aids) -> Sampled:
        """Make the candidates of a case; a draw may fail, and the others go on."""
        ...


async def take_step(sampled: Sampled, case: Case, population: Sequence[Candidate], aids: Aids) -> None:
    """Note how good a population is, as far as anyone can tell."""
    if aids.grade is None:
        return
    grades = [(await aids.grade(case, one)).correct for one in population]
    told = [grade for grade in grades if grade is not None]
    sampled.steps.append(Step(len(sampled.steps), len(population), sum(told), len(told)))
