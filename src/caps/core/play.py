"""The contract of a strategy: a generator that yields rounds, is sent answers, returns a selection.

Invariants:

* `play` is a pure function of its settings, the entrants, the `Random` and the answers: no I/O, no clock.
* A round has at least one ask, and its asks can be answered independently of each other.
* A round's ranking is a permutation of all entrants' ids, best first.
* Any ask may come back `Unanswered`; the strategy continues without it.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from caps.core.types import (
    Answer,
    Ask,
    Entrant,
    Group,
    Influence,
    Pairing,
    Pick,
    Rating,
    Round,
    RoundKind,
    Selection,
    Solo,
    Verdict,
)

T = TypeVar("T")

#: What a strategy returns from `play`: a generator that yields rounds, is sent their answers, and returns T.
Play: TypeAlias = Generator[Round, Sequence[Answer], T]

#: What a judge may be asked for: to compare two candidates, to rate one, or to pick the best of several.
AskKind: TypeAlias = Literal["pair", "rating", "pick"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a strategy declares in its class attribute `capabilities`; the defaults fit most strategies."""

    counts_votes: bool = True
    """All members of a cluster count as votes, so equal candidates are merged before the contest.

    A cascade keeps one candidate of each cluster; there, merging more than equal texts saves most of the
    tokens but loses right answers (docs/design/0005)."""

    weighs_votes: bool = False
    """Whether an answer that more candidates give is likelier to be chosen, whatever the judge says."""

    asks_judge: bool = True
    """Whether it asks a judge; otherwise it needs no endpoint."""

    asks: tuple[AskKind, ...] = ("pair",)
    """The kinds of asks it makes; a judge that cannot answer them is refused before the run."""

    can_skip_failing: bool = False
    """Whether it has the setting `shortlist`, which leaves out programs that fail a public example."""

    uses_feature: bool = False
    """Whether it has the setting `feature`, which names a number that candidates carry."""

    uses_judge_profile: bool = False
    """Whether it is also a `JudgeProfile`, so that measured properties of the judge change its choices."""

    asks_about_differences: bool = False
    """Whether E1 shows what separates two candidates, such as an input, where a finding knows it."""


class Strategy(Protocol):
    """A way of choosing the best candidate: a frozen settings object with a method `play`.

    It may declare `capabilities: ClassVar[Capabilities]`.
    """

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Yield rounds of asks, receive their answers, return the selection."""
        ...


@runtime_checkable
class Explaining(Protocol):
    """A strategy that can say what moved the probability of a candidate."""

    def explain(
        self,
        entrants: Sequence[Entrant],
        rounds: Iterable[tuple[Sequence[Ask], Sequence[Answer]]],
        chosen: int,
    ) -> tuple[Influence, ...]:
        """Everything that counted, in the order in which it came in."""
        ...


@runtime_checkable
class Believing(Protocol):
    """A strategy that gives each candidate a probability, which every answer moves."""

    def follow(
        self, entrants: Sequence[Entrant], asks: Sequence[Ask], answers: Sequence[Answer]
    ) -> Iterator[Mapping[int, float]]:
        """The probability of each candidate before the first answer and after each."""
        ...


def capabilities_of(strategy: object) -> Capabilities:
    """The declared capabilities of a strategy, or the defaults."""
    declared = getattr(strategy, "capabilities", None)
    return declared if isinstance(declared, Capabilities) else Capabilities()


class Game(NamedTuple):
    """A comparison and its verdict from `a`'s side; None if it was not answered."""

    a: int
    b: int
    verdict: Verdict | None

    @property
    def winner(self) -> int | None:
        """The preferred candidate; None for a tie or without a verdict."""
        if self.verdict is None or self.verdict.a == self.verdict.b:
            return None
        return self.a if self.verdict.a > self.verdict.b else self.b


def compare(
    stage: str,
    asks: Sequence[Pairing],
    *,
    ranking: Sequence[int],
    byes: Sequence[int] = (),
    kind: RoundKind = "comparison",
) -> Play[list[Game]]:
    """Ask for comparisons in one round; no round if there are none."""
    if not asks:
        return []
    answers = yield Round(stage, tuple(asks), tuple(ranking), tuple(byes), kind=kind)
    return [
        Game(ask.a, ask.b, answer if isinstance(answer, Verdict) else None)
        for ask, answer in zip(asks, answers, strict=True)
    ]


def rate(stage: str, asks: Sequence[Solo], *, ranking: Sequence[int]) -> Play[dict[int, float | None]]:
    """Ask for ratings in one round; None for an unanswered one."""
    if not asks:
        return {}
    answers = yield Round(stage, tuple(asks), tuple(ranking), kind="rating")
    return {
        ask.entrant: answer.value if isinstance(answer, Rating) else None
        for ask, answer in zip(asks, answers, strict=True)
    }


def pick(stage: str, asks: Sequence[Group], *, ranking: Sequence[int]) -> Play[list[int | None]]:
    """Ask for the best of each group in one round; None for an unanswered group."""
    if not asks:
        return []
    answers = yield Round(stage, tuple(asks), tuple(ranking), kind="pick")
    return [answer.winner if isinstance(answer, Pick) else None for answer in answers]
