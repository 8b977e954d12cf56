"""Data types: cases and candidates, asks and answers, rounds and selections.

A strategy sees only `Entrant`s, never texts or labels.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, TypeAlias

#: The id of a single case without one, equal to that of the first line of a file. Pairings depend on the id,
#: so it is the same at every entry point.
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
    """One message of a chat."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Problem:
    """The problem to solve: one text, or several chat messages."""

    messages: tuple[Message, ...]

    @classmethod
    def of(cls, text: str) -> "Problem":
        """Make a problem of one user message."""
        return cls((Message("user", text),))

    @property
    def text(self) -> str:
        """The problem as one text; roles are named only if there are several messages."""
        if len(self.messages) == 1:
            return self.messages[0].content
        return "\n\n".join(f"[{m.role}]\n{m.content}" for m in self.messages)


@dataclass(frozen=True, slots=True)
class Found:
    """Findings about a candidate from running or comparing it before the contest; None is unknown.

    Candidates of a case with the same `cluster` behave alike or give equal answers. `passed` counts the
    public examples or tests that passed, out of `examples`, in `seconds`. `parses` is whether a program
    parses, or a patch applies and parses. `note` says in words what was found, and `context` is the candidate
    as a judge should read it, such as a patch with the lines around it; both are untrusted text.
    """

    cluster: str | None = None
    passed: int | None = None
    examples: int = 0
    parses: bool | None = None
    note: str = ""
    context: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One sampled answer and what is known about it.

    `correct` is a label from hidden tests or a reference answer. Public tests give no label, since a
    candidate may have been written for them; if there are no others, `passed_public_tests` has their result.
    `grade` is a label on a scale, such as a human score; higher is better.
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
    """A problem with its candidates; a candidate's id is its index.

    `guessed`: the domain was inferred; `reason` says from what.
    """

    id: str
    problem: Problem
    candidates: tuple[Candidate, ...]
    domain: str = "general"
    guessed: bool = False
    extra: Mapping[str, object] = field(default_factory=dict, hash=False)
    reason: str = field(default="", compare=False)

    @classmethod
    def of(
        cls, problem: str, candidates: Iterable[str], *, domain: str = "general", name: str = DEFAULT_ID
    ) -> "Case":
        """Make a case of plain texts."""
        return cls(name, Problem.of(problem), tuple(Candidate(text) for text in candidates), domain)


@dataclass(frozen=True, slots=True)
class Entrant:
    """What a strategy may know about a candidate: its signature, its size at each level, named numbers."""

    id: int
    signature: str | None = None
    sizes: tuple[int, int, int] = (0, 0, 0)
    features: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Pairing:
    """Ask: which of two is more correct? `a` is in slot A; a draw above 0 is a further sample."""

    a: int
    b: int
    level: Level
    draw: int = 0
    dialect: str = "verdicts"

    @property
    def entrants(self) -> tuple[int, ...]:
        """The candidates that the judge reads, in order."""
        return (self.a, self.b)


@dataclass(frozen=True, slots=True)
class Solo:
    """Ask: how correct is this one, from 1 to 10?"""

    entrant: int
    level: Level
    draw: int = 0

    @property
    def entrants(self) -> tuple[int, ...]:
        """The candidate that the judge reads."""
        return (self.entrant,)


@dataclass(frozen=True, slots=True)
class Group:
    """Ask: which of these is best? They are shown in the order given."""

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
    """No answer: the budget ended, or the call failed for good."""

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
    """One token of a reply with its log-probability, and the most probable alternatives."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


#: The purpose of a round, which decides how it is displayed: `elimination` halves a pool (a tree),
#: `round_robin` compares all pairs (a table), `second_look` repeats doubtful comparisons of the previous
#: round; the others are lists.
RoundKind: TypeAlias = Literal["elimination", "round_robin", "second_look", "comparison", "rating", "pick"]

#: The meaning of a selection's scores; empty without scores.
ScoreKind: TypeAlias = Literal["win rate", "probability", "rating", "share of votes", "score", "wins", ""]


@dataclass(frozen=True, slots=True)
class Round:
    """Asks that may be answered in parallel, with the ranking and facts that hold if they never are."""

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
    """The outcome of a contest: the winner, the ranking, and the strategy's scores and facts.

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
