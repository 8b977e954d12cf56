from collections import defaultdict

import pytest

from caps import Contest, Level, V1Infer, Verdict
from caps.strategies.v1_infer import V1_INFER_CAPS
from support.playing import asks_of, erratic, field_of, play, played


def opponents(contest):
    met = defaultdict(set)
    for ask in asks_of(contest):
        met[ask.a].add(ask.b)
        met[ask.b].add(ask.a)
    return met


@pytest.mark.parametrize("strategy", [V1Infer(), V1_INFER_CAPS])
def test_at_16_it_plays_48_games_in_6_rounds_of_8_and_everyone_meets_two(strategy):
    for seed in range(10):
        contest = played(strategy, 16, seed=seed)
        assert [len(turn.round.asks) for turn in contest.transcript] == [8] * 6
        assert min(len(met) for met in opponents(contest).values()) >= 2


@pytest.mark.parametrize("strategy", [V1Infer(), V1_INFER_CAPS])
def test_whatever_the_verdicts_it_plays_48_games_in_at_most_7_rounds(strategy):
    """A round of covering may leave two who have met already; they then play in a round of their own."""
    for seed in range(20):
        contest = played(strategy, 16, erratic(seed), seed)
        assert len(asks_of(contest)) == 48
        assert len(contest.transcript) in (6, 7)
        assert min(len(met) for met in opponents(contest).values()) >= 2
        assert all(ask.level == Level.FULL and ask.dialect == "ratings" for ask in asks_of(contest))


@pytest.mark.parametrize(
    ("n", "budget", "games"), [(16, 3.0, 48), (7, 3.0, 21), (7, 0.5, 7), (2, 3.0, 6), (5, 2.5, 12)]
)
def test_the_budget_is_at_least_one_game_a_candidate_and_is_spent_exactly(n, budget, games):
    assert len(asks_of(played(V1Infer(budget=budget), n, erratic(1)))) == games


def test_within_a_round_nobody_plays_twice():
    for turn in played(V1Infer(), 15, erratic(2)).transcript:
        seated = [player for ask in turn.round.asks for player in ask.entrants]
        assert len(seated) == len(set(seated))


def test_the_swiss_rounds_pair_neighbours_in_the_ranking():
    contest = Contest(V1Infer(window=1), field_of(16), seed=1)
    while contest.pending and contest.pending.stage == "cover":
        contest.answer([erratic(1)(ask) for ask in contest.pending.asks])
    place = {player: i for i, player in enumerate(contest.pending.ranking)}
    assert all(abs(place[ask.a] - place[ask.b]) == 1 for ask in contest.pending.asks)


def test_equal_win_rates_are_ordered_by_mean_rating():
    def generous(ask):
        """Everyone ties, but games that involve candidate 3 are rated higher."""
        return Verdict(8, 8) if 3 in ask.entrants else Verdict(4, 4)

    assert played(V1Infer(), 8, generous).selection.winner == 3


def test_an_unmet_neighbour_is_preferred_to_a_rematch():
    contest = Contest(V1Infer(), field_of(16), seed=3)
    play(contest, erratic(3))
    rematches = sum(ask.draw > 0 for ask in asks_of(contest))
    assert rematches == 0
