from random import Random

import pytest

from caps import Verdict
from caps.core.play import Game
from caps.core.standings import Ratings, Standings, Tally, win_rates


def test_a_game_adds_its_weight_to_the_winner_and_half_of_it_to_each_after_a_tie():
    tally = Tally([0, 1], floor=0.05)
    tally.record(Game(0, 1, Verdict(9, 3)))
    assert tally.score == pytest.approx({0: 6 / 9, 1: 0})
    tally.record(Game(0, 1, Verdict(5, 5)))
    assert tally.score == pytest.approx({0: 6 / 9 + 0.025, 1: 0.025})


def test_without_weights_every_game_counts_one():
    tally = Tally([0, 1], floor=0.05, weighted=False)
    tally.record(Game(0, 1, Verdict(5, 7)))
    assert tally.score == {0: 0, 1: 1}


def test_an_unanswered_game_leaves_no_trace():
    tally = Ratings([0, 1], floor=0.05)
    tally.record(Game(0, 1, None))
    assert (tally.score, tally.rate(0), tally.mean_rating(0)) == ({0: 0, 1: 0}, 0.5, 0)


def test_the_win_rate_is_the_share_of_weight_won():
    games = [Game(0, 1, Verdict(9, 3)), Game(0, 2, Verdict(5, 7)), Game(1, 2, Verdict(5, 5))]
    rates = win_rates([0, 1, 2], games, floor=0.05)
    assert rates[0] == pytest.approx((6 / 9) / (8 / 9))
    assert rates[1] == pytest.approx(0.025 / (6 / 9 + 0.05))
    assert rates[2] == pytest.approx((2 / 9 + 0.025) / (2 / 9 + 0.05))


def test_equal_scores_go_to_the_larger_cluster_then_to_luck():
    standings = Standings({0: 1, 1: 3, 2: 1}, Random(1), floor=0.05)
    by_luck = sorted((0, 2), key=standings.luck.__getitem__, reverse=True)
    assert standings.ordered([0, 1, 2]) == [1, *by_luck]
    assert standings.better(0, 1) == 1


def test_scores_that_are_equal_but_for_rounding_tie():
    standings = Standings({0: 1, 1: 2}, Random(1), floor=0.05)
    for verdict in (Verdict(9, 3), Verdict(7, 5), Verdict(5, 5)):
        standings.record(Game(0, 1, verdict))
    for verdict in (Verdict(5, 7), Verdict(5, 5), Verdict(3, 9)):
        standings.record(Game(0, 1, verdict))
    assert standings.better(0, 1) == 1
