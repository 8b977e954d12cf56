"""A contest: a strategy, its entrants and a seed; read the pending round, give it the answers.

    contest = Contest(Caps(), entrants, seed=7)
    while round_ := contest.pending:
        contest.answer([verdict_for(ask) for ask in round_.asks])  # or contest.play(verdict_for)
    contest.selection.winner

It is the only caller of `send`, so it checks both sides of the contract.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
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

ROUNDING = 1e-9  # strategies that compare sums round them to this
_WANTED = {
    Pairing: "a Verdict with ratings from 1 to 10",
    Group: "a Pick of one of those shown",
    Solo: "a Rating from 1 to 10",
}


@dataclass(frozen=True, slots=True)
class Turn:
    """A round and its answers."""

    round: Round
    answers: tuple[Answer, ...]


class Contest:
    """A selection in progress; it depends only on the strategy, the entrants, the seed and the answers."""

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
        """All answered rounds so far."""
        return tuple(self._turns)

    @property
    def selection(self) -> Selection:
        """The outcome; `AnswerError` while a round is pending."""
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
        """Answer the pending round, in order; an invalid answer raises `AnswerError` and changes nothing."""
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
        """Answer all rounds with a function and return the finished contest."""
        while round_ := self.pending:
            self.answer([answer(ask) for ask in round_.asks])
        return self

    def stop(self, reason: str) -> None:
        """End now with the ranking of the pending round; no effect on a finished contest."""
        if self.pending is not None:
            self._play.close()
            ranking, facts = self.pending.ranking, self.pending.facts
            self._selection = provisional_selection(ranking, facts, self.entrants)
            self.stopped, self.pending = reason, None

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
                raise StrategyError(f"{ask!r} shows no candidate, an unknown one, or one twice")
        self._check_order(round_.ranking, f"the ranking of stage {round_.stage!r}")

    def _checked_selection(self, selection: object) -> Selection:
        if not isinstance(selection, Selection):
            raise StrategyError(f"a strategy returned {selection!r} instead of a Selection")
        self._check_order(selection.order, "the order of the selection")
        if selection.order[0] != selection.winner:
            raise StrategyError(f"the winner {selection.winner} does not stand first in the order")
        complete = with_all_scores(selection, self.entrants)
        return complete if self._complete else replace(complete, provisional=True)

    def _check_order(self, order: Sequence[int], what: str) -> None:
        if len(order) != len(self._ids) or self._ids.difference(order):
            raise StrategyError(f"{what} is not a permutation of the entrants")


def provisional_selection(
    ranking: tuple[int, ...], facts: Mapping[str, float], entrants: Sequence[Entrant]
) -> Selection:
    """The selection of a play that is cut short, from the ranking and the facts of its last step."""
    return with_all_scores(Selection(ranking[0], ranking, facts=facts, provisional=True), entrants)


def with_all_scores(selection: Selection, entrants: Sequence[Entrant]) -> Selection:
    """The selection with a score for every candidate, none larger than the one before it.

    A candidate without a score of its own has that of the one before it. If there are none at all, the score
    is the rank, which neighbours with the same signature share.
    """
    if not selection.scores:
        signature = {entrant.id: entrant.signature or entrant.id for entrant in entrants}
        groups = [list(group) for _, group in groupby(selection.order, key=signature.__getitem__)]
        return replace(selection, scores=rank_scores(groups), score_kind="rank")
    scores: dict[int, float] = {}
    lowest = selection.scores.get(selection.winner, max(selection.scores.values()))
    for player in selection.order:
        score = selection.scores.get(player, lowest)
        if score > lowest + ROUNDING:
            raise StrategyError(f"the scores increase along the order, at candidate {player}")
        scores[player] = lowest = min(score, lowest)
    return replace(selection, scores=scores)


def rank_scores(groups: Sequence[Sequence[int]]) -> dict[int, float]:
    """Scores by rank: from 1 for the first group to 0 for the last, by equal steps."""
    step = 1 / max(1, len(groups) - 1)
    return {player: 1 - step * place for place, group in enumerate(groups) for player in group}


def _check_answer(ask: Ask, answer: Answer) -> bool:
    """Raise `AnswerError` unless an answer fits its ask; False for `Unanswered`."""
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
