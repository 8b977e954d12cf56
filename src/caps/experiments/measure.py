"""From a finished contest to its `Result`, whoever judged."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from caps.core.play import Strategy
from caps.core.types import Answer, Ask, Entrant, Level, Pairing, Selection, Unanswered, Verdict
from caps.experiments.results import Result, digest

LEVELS = (Level.PARTIAL, Level.FULL)


@dataclass(frozen=True, slots=True)
class Turn:
    """A method that plays with a seed, and the digest of all that its results are made of but the case."""

    method: str
    strategy: Strategy
    seed: int
    made_of: str

    def made_of_case(self, case: str | None) -> str:
        """The digest a result is kept under, given that of its case; made-up cases need none."""
        return self.made_of if case is None else digest(self.made_of, case)


class Heard(NamedTuple):
    """An ask, its answer, what reading it took in all, and on the first try."""

    ask: Ask
    answer: Answer
    tokens: int
    first: int


@dataclass(frozen=True, slots=True)
class Pool:
    """What is true of a case's candidates."""

    case: str
    entrants: Sequence[Entrant]
    correct: Sequence[bool]
    difficulty: str | None = None


def measure(
    turn: Turn,
    made_of: str,
    pool: Pool,
    selection: Selection,
    heard: Iterable[Heard],
    *,
    depth: int,
    malformed: int = 0,
) -> Result:
    """Measure everything the tables need."""
    heard, label = list(heard), {e.id: right for e, right in zip(pool.entrants, pool.correct, strict=True)}
    by_level = [[one for one in heard if one.ask.level == level] for level in LEVELS]
    games = [[one for one in some if isinstance(one.ask, Pairing)] for some in by_level]
    told = [_told_apart(some, label) for some in games]
    return Result(
        method=turn.method,
        seed=turn.seed,
        case=pool.case,
        made_of=made_of,
        n=len(pool.entrants),
        rights=sum(pool.correct),
        first=pool.correct[0],
        clusters=len({e.id if e.signature is None else e.signature for e in pool.entrants}),
        winner=selection.winner,
        right=label[selection.winner],
        rescued=len(selection.rescued),
        depth=depth,
        calls=(len(by_level[0]), len(by_level[1])),
        tokens=_sums(by_level, "tokens"),
        pairs=(sum(one.first > 0 for one in games[0]), sum(one.first > 0 for one in games[1])),
        pair_tokens=_sums(games, "first"),
        apart=(len(told[0]), len(told[1])),
        told=(sum(told[0]), sum(told[1])),
        malformed=malformed,
        unanswered=sum(isinstance(one.answer, Unanswered) for one in heard),
        difficulty=pool.difficulty,
        sure=selection.facts.get("probability"),
    )


def _sums(by_level: Sequence[Sequence[Heard]], name: str) -> tuple[int, int]:
    partial, full = (sum(getattr(one, name) for one in some) for some in by_level)
    return partial, full


def _told_apart(games: Iterable[Heard], label: Mapping[int, bool]) -> list[float]:
    """How right each verdict on one right and one wrong candidate was; a tie is half right."""
    found = []
    for ask, answer, *_ in games:
        if isinstance(ask, Pairing) and isinstance(answer, Verdict) and label[ask.a] != label[ask.b]:
            found.append(answer.outcome if label[ask.a] else 1 - answer.outcome)
    return found
