"""The contract of a strategy: a generator that yields rounds, is sent answers, returns a selection.

Rules that must not be broken:

* `play` is a pure function of its settings, the entrants, the `Random` and the answers: no I/O, no clock.
* A round holds at least one ask, and only asks that can be answered independently of each other.
* A round's ranking is a permutation of all entrants' ids, best first.
* Any ask may come back `Unanswered`; the strategy goes on with what it has.
"""

from collections.abc import Generator, Iterable, Sequence
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
    """What a strategy declares of itself, as the class attribute `capabilities`; as it stands, the usual."""

    counts_votes: bool = True
    """All members of a cluster speak for it, so candidates found to be equal are merged before the contest.

    A cascade keeps one candidate of each cluster; there, merging more than equal texts saves most of the
    tokens and costs right answers (docs/design/0005)."""

    asks_judge: bool = True
    """It asks at all; one that does not needs no endpoint."""

    asks: tuple[AskKind, ...] = ("pair",)
    """What it asks for, so that a judge that cannot answer is refused before anything runs."""

    can_skip_failing: bool = False
    """It has the setting `shortlist`: programs that fail a public example can be left out."""

    uses_judge_profile: bool = False
    """It is a `JudgeProfile` too: measured properties of the judge change what it does."""


class Strategy(Protocol):
    """A way of choosing: a frozen settings object that plays.

    It may declare `capabilities: ClassVar[Capabilities]`.
    """

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Yield rounds of asks, be sent their answers, return the selection."""
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


def capabilities_of(strategy: object) -> Capabilities:
    """What a strategy declares, or the usual where it declares nothing."""
    declared = getattr(strategy, "capabilities", None)
    return declared if isinstance(declared, Capabilities) else Capabilities()


class Game(NamedTuple):
    """One comparison as it went, from `a`'s side; no verdict means nobody answered."""

    a: int
    b: int
    verdict: Verdict | None

    @property
    def winner(self) -> int | None:
        """Who was judged better; nobody after a tie or without a verdict."""
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
    """Ask pairings as one round; no asks, no round."""
    if not asks:
        return []
    answers = yield Round(stage, tuple(asks), tuple(ranking), tuple(byes), kind=kind)
    return [
        Game(ask.a, ask.b, answer if isinstance(answer, Verdict) else None)
        for ask, answer in zip(asks, answers, strict=True)
    ]


def rate(stage: str, asks: Sequence[Solo], *, ranking: Sequence[int]) -> Play[dict[int, float | None]]:
    """Ask for a rating of each; who was not answered has none."""
    if not asks:
        return {}
    answers = yield Round(stage, tuple(asks), tuple(ranking), kind="rating")
    return {
        ask.entrant: answer.value if isinstance(answer, Rating) else None
        for ask, answer in zip(asks, answers, strict=True)
    }


def pick(stage: str, asks: Sequence[Group], *, ranking: Sequence[int]) -> Play[list[int | None]]:
    """Ask for the best of each group; an unanswered group has none."""
    if not asks:
        return []
    answers = yield Round(stage, tuple(asks), tuple(ranking), kind="pick")
    return [answer.winner if isinstance(answer, Pick) else None for answer in answers]
