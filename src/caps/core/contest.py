"""A contest: one strategy, its entrants and a seed; ask it what is pending, tell it the answers.

    contest = Contest(Caps(), entrants, seed=7)
    while round_ := contest.pending:
        contest.answer([verdict_for(ask) for ask in round_.asks])  # or contest.play(verdict_for)
    contest.selection.winner

It is the only caller of `send`, so it is where both sides of the contract are checked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from caps.core.errors import AnswerError, InputError, StrategyError
from caps.core.play import Explaining, Play, Strategy
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
    Selection,
    Solo,
    Unanswered,
    Verdict,
)

_WANTED = {
    Pairing: "a Verdict with ratings from 1 to 10",
    Group: "a Pick of one of those shown",
    Solo: "a Rating from 1 to 10",
}


@dataclass(frozen=True, slots=True)
class Turn:
    """A round and how it was answered."""

    round: Round
    answers: tuple[Answer, ...]


class Contest:
    """A selection under way: a function of (strategy, entrants, seed, answers) and of nothing else."""

    def __init__(self, strategy: Strategy, entrants: Sequence[Entrant], *, seed: int | str = 0) -> None:
        self.strategy, self.entrants = strategy, tuple(entrants)
        self._ids = frozenset(entrant.id for entrant in self.entrants)
        if not self._ids:
            raise InputError("a contest needs at least one entrant")
        if len(self._ids) != len(self.entrants):
            raise InputError("two entrants of a contest have the same id")
        self.pending: Round | None = None
        self.stopped: str | None = None
        self._selection: Selection | None = None
        self._turns: list[Turn] = []
        self._complete = True
        self._play: Play[Selection] = strategy.play(self.entrants, Random(seed))
        self._advance(None)

    @property
    def transcript(self) -> tuple[Turn, ...]:
        """Every answered round so far."""
        return tuple(self._turns)

    @property
    def selection(self) -> Selection:
        """The outcome, once nothing is pending."""
        if self._selection is None:
            raise AnswerError("the contest is not over: answer what is pending, or stop it")
        return self._selection

    def explain(self) -> tuple[Influence, ...]:
        """What moved the probability of the chosen candidate, where the strategy can say so."""
        if not isinstance(self.strategy, Explaining):
            return ()
        rounds = ((turn.round.asks, turn.answers) for turn in self._turns)
        return self.strategy.explain(self.entrants, rounds, self.selection.winner)

    def answer(self, answers: Sequence[Answer]) -> None:
        """Answer the pending round, in its order; a wrong answer raises and changes nothing."""
        if self.pending is None:
            raise AnswerError("the contest is over: nothing is pending")
        asks = self.pending.asks
        if len(answers) != len(asks):
            raise AnswerError(f"{len(answers)} answers to the {len(asks)} asks of the pending round")
        checked = [_check_answer(ask, answer) for ask, answer in zip(asks, answers, strict=True)]
        self._complete = self._complete and all(checked)
        turn = Turn(self.pending, tuple(answers))
        self._turns.append(turn)
        self._advance(turn.answers)

    def play(self, answer: Callable[[Ask], Answer]) -> "Contest":
        """Answer all that is asked with a function, to the end; the contest itself."""
        while round_ := self.pending:
            self.answer([answer(ask) for ask in round_.asks])
        return self

    def stop(self, reason: str) -> None:
        """End now with the ranking the pending round carries; a finished contest stays as it is."""
        if self.pending is None:
            return
        order, facts = self.pending.ranking, self.pending.facts
        self._play.close()
        self.stopped, self.pending = reason, None
        self._selection = Selection(order[0], order, facts=facts, provisional=True)

    def _advance(self, answers: tuple[Answer, ...] | None) -> None:
        self.pending = None
        try:
            round_ = next(self._play) if answers is None else self._play.send(answers)
        except StopIteration as end:
            self._selection = self._checked_selection(end.value)
        else:
            self._check_round(round_)
            self.pending = round_

    def _check_round(self, round_: Round) -> None:
        if not round_.asks:
            raise StrategyError(f"stage {round_.stage!r} yielded a round without asks")
        ids = self._ids
        for ask in round_.asks:
            if isinstance(ask, Pairing):
                legal = ask.a != ask.b and ask.a in ids and ask.b in ids
            else:
                legal = 0 < len(ask.entrants) == len(ids.intersection(ask.entrants))
            if not legal:
                raise StrategyError(f"{ask!r} shows nobody, a stranger, or a candidate beside itself")
        self._check_order(round_.ranking, f"the ranking of stage {round_.stage!r}")

    def _checked_selection(self, selection: object) -> Selection:
        if not isinstance(selection, Selection):
            raise StrategyError(f"a strategy returned {selection!r} instead of a Selection")
        self._check_order(selection.order, "the order of the selection")
        if selection.order[0] != selection.winner:
            raise StrategyError(f"the winner {selection.winner} does not stand first in the order")
        return selection if self._complete else replace(selection, provisional=True)

    def _check_order(self, order: Sequence[int], what: str) -> None:
        if len(order) != len(self._ids) or self._ids.difference(order):
            raise StrategyError(f"{what} is not a permutation of the entrants")


def _check_answer(ask: Ask, answer: Answer) -> bool:
    """Raise `AnswerError` unless this answer fits this ask; tell whether it is one at all."""
    if isinstance(answer, Verdict):
        if isinstance(ask, Pairing) and 1 <= answer.a <= 10 and 1 <= answer.b <= 10:
            return True
        fits = False
    elif isinstance(answer, Pick):
        fits = isinstance(ask, Group) and answer.winner in ask.entrants
    elif isinstance(answer, Rating):
        fits = isinstance(ask, Solo) and 1 <= answer.value <= 10
    else:
        fits = isinstance(answer, Unanswered)
    if not fits:
        raise AnswerError(f"{answer!r} does not answer {ask!r}: wanted {_WANTED[type(ask)]}, or Unanswered")
    return not isinstance(answer, Unanswered)
