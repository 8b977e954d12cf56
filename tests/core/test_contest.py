from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import pytest

from caps import Caps, Contest, Entrant, Level, Pairing, Rating, Selection, Unanswered, Verdict
from caps.core.errors import AnswerError, InputError, StrategyError
from caps.core.play import Play
from caps.core.types import Group, Pick, Round, Solo
from support.playing import field_of, lower_id_wins, play, played


@dataclass(frozen=True)
class Yields:
    """A strategy that yields what it is told to."""

    rounds: Sequence[Round] = ()
    result: object = None

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        for round_ in self.rounds:  # not `yield from`: a list takes no answers
            yield round_
        return self.result if self.result is not None else Selection(0, tuple(e.id for e in entrants))


def one_round(*asks: object, ranking: tuple[int, ...] = (0, 1)) -> Yields:
    return Yields([Round("x", asks, ranking)])


def test_a_contest_asks_is_told_and_ends():
    contest = Contest(Caps(), field_of(16), seed=7)
    while round_ := contest.pending:
        contest.answer([lower_id_wins(ask) for ask in round_.asks])
    assert contest.selection.winner == 0
    assert [turn.round.stage for turn in contest.transcript] == ["A", "B", "C"]


def test_the_selection_cannot_be_read_while_something_is_pending():
    with pytest.raises(AnswerError, match="not over"):
        _ = Contest(Caps(), field_of(4)).selection


def test_a_finished_contest_takes_no_more_answers():
    contest = played(Caps(), 4)
    with pytest.raises(AnswerError, match="nothing is pending"):
        contest.answer([])


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (Pairing(0, 1, Level.FULL), Rating(5)),
        (Pairing(0, 1, Level.FULL), Verdict(0, 5)),
        (Pairing(0, 1, Level.FULL), Verdict(5, 11)),
        (Pairing(0, 1, Level.FULL), Verdict(float("nan"), 5)),
        (Solo(0, Level.FULL), Verdict(9, 3)),
        (Solo(0, Level.FULL), Rating(float("inf"))),
        (Group((0, 1), Level.FULL), Pick(2)),
        (Group((0, 1), Level.FULL), None),
    ],
)
def test_an_answer_that_does_not_fit_is_the_answerers_fault_and_changes_nothing(ask, answer):
    contest = Contest(one_round(ask), field_of(2))
    with pytest.raises(AnswerError, match="does not answer"):
        contest.answer([answer])
    assert contest.pending is not None
    contest.answer([Unanswered()])
    assert contest.selection.provisional


def test_too_few_answers_are_refused():
    contest = Contest(Caps(), field_of(16))
    with pytest.raises(AnswerError, match="7 answers to the 8 asks"):
        contest.answer([Verdict(9, 3)] * 7)


@pytest.mark.parametrize(
    "strategy",
    [
        one_round(),
        one_round(Pairing(0, 0, Level.FULL)),
        one_round(Pairing(0, 5, Level.FULL)),
        one_round(Group((), Level.FULL)),
        one_round(Group((0, 1, 0), Level.FULL)),
        one_round(Pairing(0, 1, Level.FULL), ranking=(0,)),
        one_round(Pairing(0, 1, Level.FULL), ranking=(0, 0)),
        Yields(result="the first"),
        Yields(result=Selection(1, (0, 1))),
        Yields(result=Selection(0, (0,))),
    ],
)
def test_a_strategy_that_breaks_the_contract_is_named_as_the_one_at_fault(strategy):
    with pytest.raises(StrategyError):
        Contest(strategy, field_of(2))


def test_entrants_must_exist_and_differ():
    with pytest.raises(InputError, match="at least one"):
        Contest(Caps(), [])
    with pytest.raises(InputError, match="same id"):
        Contest(Caps(), [Entrant(1), Entrant(1)])


def test_stopping_returns_the_ranking_the_pending_round_carried():
    contest = Contest(Caps(), field_of(16), seed=3)
    contest.answer([lower_id_wins(ask) for ask in contest.pending.asks])
    expected = contest.pending.ranking
    contest.stop("budget")
    assert (contest.selection.order, contest.stopped) == (expected, "budget")
    assert contest.selection.provisional
    assert contest.pending is None


def test_stopping_a_finished_contest_changes_nothing():
    contest = played(Caps(), 8)
    before = contest.selection
    contest.stop("too late")
    assert contest.selection is before
    assert contest.stopped is None


def test_a_contest_with_an_unanswered_ask_is_provisional():
    contest = Contest(Caps(), field_of(16))
    contest.answer([Unanswered("timeout")] + [lower_id_wins(ask) for ask in contest.pending.asks[1:]])
    assert play(contest).provisional
    assert not played(Caps(), 16).selection.provisional
