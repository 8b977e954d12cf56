"""Data types: cases and candidates, asks and answers, rounds and selections.

A strategy sees only `Entrant`s, never texts or labels.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Literal, TypeAlias

#: The id of a single case without one, equal to that of the first line of a file. Pairings depend on the id,
#: so it is the same at every entry point.
DEFAULT_ID = "1"
IMAGE_TOKENS = 1100  # of an image of a megapixel, as common servers count it
BYTES_PER_TOKEN = 100  # of a document: a page of 50 kB has some 500 tokens


class Level(IntEnum):
    """How much of a candidate is shown: the paper's E0, E1 and E2."""

    SIGNATURE = 0
    PARTIAL = 1
    FULL = 2

    def __str__(self) -> str:
        return f"E{self.value}"


@dataclass(frozen=True, slots=True)
class Media:
    """An image or a document in a text: a `data:` or `https:` address, which is sent to the judge.

    The text has its `label` in its place, ending at `at`, so what is made from the text tells media apart.
    """

    kind: str  # image or file
    url: str = field(repr=False)
    name: str
    digest: str
    detail: str = ""
    at: int = 0

    @property
    def label(self) -> str:
        """What stands for it in a text."""
        return f"[{self.kind} {self.digest[:12]}{f': {self.name}' if self.name else ''}]"

    @property
    def tokens(self) -> int:
        """An estimate of what it costs to read: a large image, or the pages of a document."""
        return IMAGE_TOKENS if self.kind == "image" else max(IMAGE_TOKENS, len(self.url) // BYTES_PER_TOKEN)

    def moved(self, at: int) -> "Media":
        """The same at another place."""
        return replace(self, at=at)

    def part(self) -> dict[str, object]:
        """The content part of the OpenAI chat format."""
        if self.kind == "image":
            more = {"detail": self.detail} if self.detail else {}
            return {"type": "image_url", "image_url": {"url": self.url, **more}}
        return {"type": "file", "file": {"filename": self.name or "document.pdf", "file_data": self.url}}


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat, and the images and documents in its text."""

    role: str
    content: str
    media: tuple[Media, ...] = ()


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

    @property
    def media(self) -> tuple[Media, ...]:
        """The images and documents of all messages."""
        return tuple(one for message in self.messages for one in message.media)


@dataclass(frozen=True, slots=True)
class Run:
    """What a program did with an input on which programs of its case differ: a separating input.

    `input` is the whole standard input, or a call as text. `output` is what the program printed or returned,
    else its error, shortened; it is hostile text. Results are equal if status and `digest` are. Two statuses
    say nothing: `skipped`, where the program was not run because others pass more of the examples, and
    `unreadable`.
    """

    input: str
    kind: Literal["stdin", "call"]
    status: str
    output: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Survived:
    """What a program did with all valid inputs on which the programs of its case differ, in numbers.

    `agreed`: the result was that of most programs. `varied`: its output was not the same on all of many
    inputs.
    """

    inputs: int
    agreed: int
    crashes: int = 0
    timeouts: int = 0
    varied: bool = True


@dataclass(frozen=True, slots=True)
class Found:
    """Findings about a candidate from running or comparing it before the contest; None is unknown.

    Candidates of a case with the same `cluster` behave alike or give equal answers. `passed` counts the
    public examples or tests that passed, out of `examples`, in `seconds`. `parses` is whether a program
    parses, or a patch applies and parses. `runs` have the same inputs in the same order for all candidates of
    a case, the shortest first. `note` says in words what was found, or why something could not be found;
    `context` is the candidate as a judge should read it, such as a patch with the lines around it; both are
    untrusted text.
    """

    cluster: str | None = None
    passed: int | None = None
    examples: int = 0
    parses: bool | None = None
    runs: tuple[Run, ...] = ()
    survived: Survived | None = None
    note: str = ""
    context: str = ""
    seconds: float | None = None


BY_CLOCK = "ended by the clock: it waits for something, or the machine is very busy"
"""The note of a finding that is unknown for that reason. It would be another on another machine."""


def differing_runs(one: Found, other: Found) -> list[tuple[Run, Run]]:
    """The runs of two candidates on the inputs that separate them, the shortest input first."""
    pairs = zip(one.runs, other.runs, strict=False)
    known = [(a, b) for a, b in pairs if not {"skipped", "unreadable"} & {a.status, b.status}]
    return [(a, b) for a, b in known if (a.status, a.digest) != (b.status, b.digest)]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One sampled answer and what is known about it.

    `correct` is a label from hidden tests or a reference answer. Public tests give no label, since a
    candidate may have been written for them; `passed_public_tests` has their result, which counts when
    choosing.
    `grade` is a label on a scale, such as a human score; higher is better. `numbers` holds its other numeric
    fields, such as the score of a reward model; None stands for a field that is not a number. `media` are the
    images and documents in its text.
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
    numbers: Mapping[str, float | None] = field(default_factory=dict, hash=False)
    media: tuple[Media, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A problem with its candidates; a candidate's id is its index.

    `guessed`: the domain was inferred; `reason` says from what. `where` is the file and line it was read
    from, for messages. `criteria` say what makes an answer better, for domains whose prompts ask by them.
    """

    id: str
    problem: Problem
    candidates: tuple[Candidate, ...]
    domain: str = "general"
    guessed: bool = False
    extra: Mapping[str, object] = field(default_factory=dict, hash=False)
    where: str = field(default="", compare=False)
    criteria: tuple[str, ...] = ()
    reason: str = field(default="", compare=False)

    @classmethod
    def of(
        cls, problem: str, candidates: Iterable[str], *, domain: str = "general", name: str = DEFAULT_ID
    ) -> "Case":
        """Make a case of plain texts."""
        return cls(name, Problem.of(problem), tuple(Candidate(text) for text in candidates), domain)


#: What a signature stands for. `value`: an answer that is compared by value, so at most one is right. `open`:
#: an answer or a behaviour beside which others may be right too, as with programs. `text`: no answer was
#: found, so equal signatures only mean that a text came several times, which does not make it right.
AnswerKind: TypeAlias = Literal["value", "open", "text"]


@dataclass(frozen=True, slots=True)
class Entrant:
    """What a strategy may know about a candidate: its signature, its size at each level, named numbers.

    `differences` maps each candidate that a known difference separates from this one to the size of what a
    judge reads at E1 of this one beside it. Candidates with the same `text` read the same to a judge, so
    asking about both would be asking the same question twice; None: unlike all others.
    """

    id: int
    signature: str | None = None
    sizes: tuple[int, int, int] = (0, 0, 0)
    features: Mapping[str, float] = field(default_factory=dict, hash=False)
    differences: Mapping[int, int] = field(default_factory=dict, hash=False)
    signature_kind: AnswerKind = "value"
    text: int | None = None

    @property
    def answer(self) -> AnswerKind:
        """What its signature stands for; `text` without one."""
        return "text" if self.signature is None else self.signature_kind


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


HARDLY_SHORTER = 0.7  # a partial view of this part of the full one is not worth its own asks


def partial_views_pay(entrants: Sequence[Entrant]) -> bool:
    """Whether the partial views of candidates are so much shorter than the full ones that asking pays."""
    partial, full = (sum(one.sizes[level] for one in entrants) for level in (Level.PARTIAL, Level.FULL))
    return not full or partial <= HARDLY_SHORTER * full


def shown_size(entrants: Mapping[int, Entrant] | Sequence[Entrant], ask: Ask) -> int:
    """Tokens of what a judge reads of the candidates of an ask, by their sizes; entrants by id."""
    if shows_difference(entrants, ask):
        a, b = ask.entrants
        return entrants[a].differences[b] + entrants[b].differences[a]
    return sum(entrants[one].sizes[ask.level] for one in ask.entrants)


def shows_difference(entrants: Mapping[int, Entrant] | Sequence[Entrant], ask: Ask) -> bool:
    """Whether an ask about two candidates shows where they differ, in place of their partial views."""
    if not isinstance(ask, Pairing) or ask.level is not Level.PARTIAL or ask.dialect != "verdicts":
        return False
    return ask.b in entrants[ask.a].differences


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


RATINGS = {
    ("A", "HIGH"): Verdict(9, 3),
    ("A", "LOW"): Verdict(7, 5),
    ("B", "HIGH"): Verdict(3, 9),
    ("B", "LOW"): Verdict(5, 7),
    ("TIE", "HIGH"): Verdict(5, 5),
    ("TIE", "LOW"): Verdict(5, 5),
}


def verdict_of(winner: str, confidence: str) -> Verdict:
    """The paper's table: `A`, `B` or `TIE` with `HIGH` or `LOW` as two ratings from 1 to 10."""
    return RATINGS[winner, confidence]


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
    """Tokens of a call; cached ones are part of the prompt, reasoning ones part of the output.

    `usd` is its cost where judges have different prices; otherwise the price of the run applies.
    """

    prompt: int
    output: int
    cached: int = 0
    reasoning: int = 0
    estimated: bool = False
    usd: float | None = None

    @property
    def counts(self) -> tuple[int, int, int, int, bool]:
        """Its fields without the cost, as the journal stores them."""
        return self.prompt, self.output, self.cached, self.reasoning, self.estimated

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt + other.prompt,
            self.output + other.output,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
            self.estimated or other.estimated,
            other.usd if self.usd is None else self.usd + (other.usd or 0.0),
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

#: The meaning of a selection's scores. `wins` are rounds survived, byes included; `rank` is the place in the
#: order, from 1 for the first to 0 for the last.
ScoreKind: TypeAlias = Literal[
    "win rate", "probability", "rating", "share of votes", "score", "wins", "rank", ""
]


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
    """The outcome of a contest: the winner, the ranking best first, and the strategy's scores and facts.

    A contest completes the scores: every candidate has one, and they never increase along `order`.
    `score_kind` says what they mean.
    """

    winner: int
    order: tuple[int, ...]
    finalists: tuple[int, ...] = ()
    rescued: tuple[int, ...] = ()
    scores: Mapping[int, float] = field(default_factory=dict, hash=False)
    facts: Mapping[str, float] = field(default_factory=dict, hash=False)
    provisional: bool = False
    score_kind: ScoreKind = ""
