"""Which single verdict, turned around, would have changed the winner: played again, not guessed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from caps.core.contest import Contest
from caps.core.play import Strategy
from caps.core.types import Answer, Ask, Entrant, Pairing, Verdict
from caps.prompts.scale import verdict_of

MOST = 64  # games turned around in one contest


@dataclass(frozen=True, slots=True)
class Flip:
    """A game turned around: who would then have won; nobody knows where it leads to games never played."""

    game: int
    preferred: int
    winner: int | None


def flips(
    strategy: Strategy, entrants: Sequence[Entrant], *, seed: str, contest: Contest, most: int = MOST
) -> list[Flip]:
    """Every verdict turned around that changes the winner, or leaves it open; none of a contest cut short."""
    if contest.stopped is not None:
        return []
    turns = contest.transcript
    asks = [ask for turn in turns for ask in turn.round.asks]
    answers = [answer for turn in turns for answer in turn.answers]
    known = dict(zip(asks, answers, strict=True))
    found = []
    for number, (ask, answer) in enumerate(zip(asks[:most], answers, strict=False)):
        if not isinstance(ask, Pairing) or not isinstance(answer, Verdict):
            continue
        for other in _others(answer):
            winner = _winner(strategy, entrants, seed, {**known, ask: other})
            if winner != contest.selection.winner:
                found.append(Flip(number, ask.a if other.a > other.b else ask.b, winner))
    return found


def _others(verdict: Verdict) -> Iterator[Verdict]:
    """The verdict the other way round; a tie might have been decided either way."""
    if verdict.a != verdict.b:
        yield verdict.swapped()
    else:
        yield from (verdict_of("A", "LOW"), verdict_of("B", "LOW"))


def _winner(
    strategy: Strategy, entrants: Sequence[Entrant], seed: str, known: dict[Ask, Answer]
) -> int | None:
    contest = Contest(strategy, entrants, seed=seed)
    while round_ := contest.pending:
        answers = [known[ask] for ask in round_.asks if ask in known]
        if len(answers) < len(round_.asks):
            return None
        contest.answer(answers)
    return contest.selection.winner
