"""The nouns: what is chosen among, what is asked, what is answered, what comes out.

A strategy sees `Entrant`s only: never text, never labels.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, TypeAlias

#: The id of a case that has none and stands alone: that of the first line of a file. Pairings depend on the
#: id, so it is the same at every entry point.
DEFAULT_ID = "1"


class Level(IntEnum):
    """How much of a candidate is shown: the paper's E0, E1 and E2."""

    SIGNATURE = 0
    PARTIAL = 1
    FULL = 2

    def __str__(self) -> str:
        return f"E{self.value}"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Problem:
    """What was asked: one text, or several chat messages."""

    messages: tuple[Message, ...]

    @classmethod
    def of(cls, text: str) -> "Problem":
        """Make a problem of one user message."""
        return cls((Message("user", text),))

    @property
    def text(self) -> str:
        """The problem as one text; roles are named only where there are several messages."""
        if len(self.messages) == 1:
            return self.messages[0].content
        return "\n\n".join(f"[{m.role}]\n{m.content}" for m in self.messages)


@dataclass(frozen=True, slots=True)
class Found:
    """What running or comparing a candidate brought to light before its contest; None is unknown.

    Candidates of a case with equal `cluster` behave alike, or give equal answers. `passed` counts public
    examples, out of `examples`.
    """

    cluster: str | None = None
    passed: int | None = None
    examples: int = 0
    parses: bool | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One sampled answer and what is known about it.

    `correct` is a label that hidden tests or a known answer decided. Public tests decide nothing: a candidate
    may have been written for them. Where there are no others, `passed_public_tests` tells how they went.
    `grade` is a label that is not right or wrong: what people or experts made of it, higher is better.
    """

    text: str
    code: str | None = None
    answer: str | None = None
    logprob: float | None = None
    score: float | None = None
    correct: bool | None = None
    found: Found | None = None
    passed_public_tests: bool | None = None
    grade: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A problem with its candidates; a candidate's id is its position. `guessed`: nobody said the domain."""

    id: str
    problem: Problem
    candidates: tuple[Candidate, ...]
    domain: str = "general"
    guessed: bool = False
    extra: Mapping[str, object] = field(default_factory=dict, hash=False)

    @classmethod
    def of(
        cls, problem: str, candidates: Iterable[str], *, domain: str = "general", name: str = DEFAULT_ID
    ) -> "Case":
        """Make a case of plain texts."""
        return cls(name, Problem.of(problem), tuple(Candidate(text) for text in candidates), domain)


@dataclass(frozen=True, slots=True)
class Entrant:
    """What a strategy may know of a candidate: a signature, its size at each level, named numbers."""

    id: int
    signature: str | None = None
    sizes: tuple[int, int, int] = (0, 0, 0)
    features: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Pairing:
    """Which of two is more correct? `a` sits in slot A; a draw above 0 is a further, sampled look."""

    a: int
    b: int
    level: Level
    draw: int = 0
    dialect: str = "verdicts"

    @property
    def entrants(self) -> tuple[int, ...]:
        """Whom the judge reads, in order."""
        return (self.a, self.b)


@dataclass(frozen=True, slots=True)
class Solo:
    """How correct is this one, from 1 to 10?"""

    entrant: int
    level: Level
    draw: int = 0

    @property
    def entrants(self) -> tuple[int, ...]:
        """Whom the judge reads."""
        return (self.entrant,)


@dataclass(frozen=True, slots=True)
class Group:
    """Which of these is best? Shown in the order given."""

    entrants: tuple[int, ...]
    level: Level
    draw: int = 0


Ask: TypeAlias = Pairing | Solo | Group


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a `Pairing`: a rating from 1 to 10 for each side, from which v and w follow (Eq. 2)."""

    a: float
    b: float

    @property
    def outcome(self) -> float:
        """The paper's v from A's side: 1 win, ½ tie, 0 loss."""
        return 0.5 if self.a == self.b else float(self.a > self.b)

    @property
    def weight(self) -> float:
        """The paper's w before its floor: the rating margin on a scale of 0 to 1."""
        return abs(self.a - self.b) / 9

    def swapped(self) -> "Verdict":
        """The same ruling with the slots exchanged."""
        return Verdict(self.b, self.a)


@dataclass(frozen=True, slots=True)
class Rating:
    """The answer to a `Solo`, from 1 to 10."""

    value: float


@dataclass(frozen=True, slots=True)
class Pick:
    """The answer to a `Group`: the id of the best."""

    winner: int


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No answer will come: the budget ended, or the call failed for good."""

    reason: str = ""


Answer: TypeAlias = Verdict | Rating | Pick | Unanswered


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a call; cached ones are part of the prompt, reasoning ones part of the output."""

    prompt: int
    output: int
    cached: int = 0
    reasoning: int = 0
    estimated: bool = False

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt + other.prompt,
            self.output + other.output,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
            self.estimated or other.estimated,
        )


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token of a reply with its log-probability, and the likeliest tokens in its place."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


#: What the asks of a round are for, which decides how it is drawn: `elimination` halves a pool (a tree),
#: `round_robin` compares everyone with everyone (a table), `second_look` repeats doubtful comparisons of the
#: round before; the others are lists.
RoundKind: TypeAlias = Literal["elimination", "round_robin", "second_look", "comparison", "rating", "pick"]

#: What the scores of a selection mean; empty where there are none.
ScoreKind: TypeAlias = Literal["win rate", "probability", "rating", "share of votes", "score", "wins", ""]


@dataclass(frozen=True, slots=True)
class Round:
    """Asks that may be answered at once, and the order, with its facts, that stands if they never are."""

    stage: str
    asks: tuple[Ask, ...]
    ranking: tuple[int, ...]
    byes: tuple[int, ...] = ()
    facts: Mapping[str, float] = field(default_factory=dict, hash=False)
    kind: RoundKind = "comparison"


@dataclass(frozen=True, slots=True)
class Influence:
    """One thing that moved the probability of the chosen candidate: what, to what value, by how much."""

    what: str
    probability: float
    change: float


@dataclass(frozen=True, slots=True)
class Selection:
    """The outcome: the winner, everyone in order, and what the strategy has to say about it.

    `score_kind` says what the scores mean.
    """

    winner: int
    order: tuple[int, ...]
    finalists: tuple[int, ...] = ()
    rescued: tuple[int, ...] = ()
    scores: Mapping[int, float] = field(default_factory=dict, hash=False)
    facts: Mapping[str, float] = field(default_factory=dict, hash=False)
    provisional: bool = False
    score_kind: ScoreKind = ""
