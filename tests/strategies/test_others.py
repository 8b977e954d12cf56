from collections import Counter

import pytest

from caps import Contest, Entrant, Level, Rating, Unanswered, Verdict
from caps.core.errors import InputError
from caps.core.play import Game
from caps.session.parts import make_strategy
from caps.strategies.knockout import Knockout
from caps.strategies.listwise import Listwise
from caps.strategies.pivot import Pivot
from caps.strategies.pointwise import Pointwise
from caps.strategies.random_pairs import RandomPairs
from caps.strategies.reward import Reward
from caps.strategies.round_robin import RoundRobin, bradley_terry
from caps.strategies.tests_first import TestsFirst
from caps.strategies.v1_infer import V1Infer
from caps.strategies.voting import Majority
from support.playing import asks_of, erratic, everything_ties, field_of, lower_id_wins, played


def test_vanilla_takes_the_first():
    assert played("vanilla", 5).selection.order == (0, 1, 2, 3, 4)


def test_majority_takes_the_largest_cluster_and_breaks_ties_by_chance():
    contest = played(Majority(), field_of(6, ["x", "y", "y", None, "z", "y"]))
    assert contest.selection.winner == 1
    assert contest.selection.scores[1] == pytest.approx(0.5)
    winners = {
        played(Majority(), field_of(4, ["x", "y", "x", "y"]), seed=seed).selection.winner
        for seed in range(30)
    }
    assert winners == {0, 1}


def test_candidates_without_a_signature_do_not_agree_with_each_other():
    assert played(Majority(), field_of(5, [None, None, None, "x", "x"])).selection.winner == 3


def test_reward_takes_the_highest_score_and_puts_the_unscored_last():
    field = [Entrant(0), Entrant(1, features={"score": 0.2}), Entrant(2, features={"score": 0.9})]
    assert played(Reward(), field).selection.order == (2, 1, 0)


def test_reward_without_any_score_says_what_is_missing():
    with pytest.raises(InputError, match="no candidate has the number 'score'"):
        played(Reward(), [Entrant(0), Entrant(1)])


def test_pointwise_averages_its_repeats_and_breaks_ties_by_chance():
    def judge(ask):
        return Rating(10 if (ask.entrant, ask.draw) == (1, 0) else 6)

    contest = played(Pointwise(repeats=2), 3, judge)
    assert contest.selection.scores == {1: 8, 0: 6, 2: 6}
    winners = {played(Pointwise(), 4, everything_ties, seed).selection.winner for seed in range(40)}
    assert winners == {0, 1, 2, 3}


def test_random_pairs_matches_the_count_of_v1_infer_and_repeats_no_pair_early():
    contest = played(RandomPairs(), 16, erratic(1))
    met = Counter(frozenset(ask.entrants) for ask in asks_of(contest))
    assert (sum(met.values()), max(met.values())) == (48, 1)
    assert len(asks_of(played(RandomPairs(), 3, erratic(1)))) == 9


@pytest.mark.parametrize("rank_by", ["win-rate", "bradley-terry"])
def test_round_robin_asks_every_pair_once(rank_by):
    contest = played(RoundRobin(rank_by=rank_by), 9)
    assert len({frozenset(ask.entrants) for ask in asks_of(contest)}) == len(asks_of(contest)) == 36
    assert contest.selection.order == tuple(range(9))


def test_round_robin_may_merge_equal_answers():
    assert len(asks_of(played(RoundRobin(dedup="one"), field_of(6, list("xxyyzz"))))) == 3


def test_bradley_terry_credits_a_win_against_a_strong_player_more():
    """0 and 1 both won one of two games: 0 against the strong 2, 1 against the weak 3."""
    strong, weak = Verdict(9, 3), Verdict(3, 9)
    games = [Game(0, 2, strong), Game(0, 3, weak), Game(1, 3, strong), Game(1, 2, weak)]
    games += [Game(2, 3, strong)] * 4
    strength = bradley_terry([0, 1, 2, 3], games, floor=0.05)
    assert strength[2] > strength[3]
    assert strength[0] == pytest.approx(strength[1], rel=0.35)
    assert all(value > 0 for value in strength.values())


def test_knockout_spares_games_between_equal_answers():
    alone = played(Knockout(groups="off"), field_of(16, ["x"] * 14 + ["y", "z"]))
    grouped = played(Knockout(), field_of(16, ["x"] * 14 + ["y", "z"]))
    assert len(asks_of(alone)) == 15
    assert len(asks_of(grouped)) < 6


def test_knockout_ends_as_soon_as_all_who_are_left_agree():
    def x_wins(ask):
        return Verdict(9, 3) if ask.a < 4 else Verdict(3, 9)

    contest = played(Knockout(), field_of(8, ["x"] * 4 + list("abcd")), x_wins)
    assert contest.selection.winner < 4
    assert len(contest.transcript) == 1


def test_pivot_asks_45_at_16_and_every_candidate_meets_both_leaders():
    contest = played(Pivot(), 16)
    assert [len(turn.round.asks) for turn in contest.transcript] == [16, 29]


def test_listwise_reads_windows_of_eight_until_one_is_left():
    contest = played(Listwise(), 20)
    assert [[len(ask.entrants) for ask in turn.round.asks] for turn in contest.transcript] == [[8, 8, 4], [3]]
    assert contest.selection.winner == 0
    assert len(asks_of(played(Listwise(window=32), 20))) == 1


def test_listwise_sends_on_the_first_of_an_unanswered_window():
    contest = played(Listwise(), 3, lambda _: Unanswered())
    assert contest.selection.winner == contest.transcript[0].round.asks[0].entrants[0]


def test_partial_evidence_can_be_asked_for():
    for strategy in (RoundRobin(level="E1"), Knockout(level="E1")):
        assert {ask.level for ask in asks_of(played(strategy, 6, lower_id_wins))} == {Level.PARTIAL}


def entrant(id_, passed, signature=None, parses=1.0):
    return Entrant(id_, signature or f"s{id_}", features={"tests_passed": passed, "parses": parses})


def test_tests_first_goes_by_examples_passed_then_by_the_size_of_the_cluster():
    field = [
        entrant(0, 0.5, "x"),
        entrant(1, 0.5, "x"),
        entrant(2, 1, "a"),
        entrant(3, 1, "b"),
        entrant(4, 1, "b"),
    ]
    chosen = Contest(TestsFirst(), field, seed=1).selection
    assert chosen.winner in (3, 4)
    assert [field[one].features["tests_passed"] for one in chosen.order] == [1, 1, 1, 0.5, 0.5]


def test_tests_first_is_a_majority_without_findings_and_ranks_invalid_code_last():
    field = [entrant(0, 0, "x", parses=0.0), entrant(1, 0, "x", parses=0.0), entrant(2, 0, "y")]
    assert Contest(TestsFirst(), field, seed=1).selection.winner == 2
    plain = [Entrant(i, "big" if i < 3 else f"s{i}") for i in range(5)]
    assert Contest(TestsFirst(), plain, seed=1).selection.winner in (0, 1, 2)


def test_the_papers_names_are_its_settings_and_v1_infer_keeps_those_of_its_authors():
    assert (
        make_strategy("min_degree") == make_strategy("v1-infer-caps") == V1Infer(window=3, weight_floor=0.05)
    )
    assert make_strategy("random") == RandomPairs(weight_floor=0.05)
    assert make_strategy("caps_r") == make_strategy("caps-r")
    assert (make_strategy("v1-infer").window, make_strategy("v1-infer").weight_floor) == (8, 0.1)


@pytest.mark.parametrize("name", ["v1-infer-caps", "random-pairs-caps"])
@pytest.mark.parametrize(
    ("budget", "least", "games"), [("0.75", "budget", 12), ("0.75", "n", 16), ("3", "budget", 48)]
)
def test_a_budget_below_one_game_a_candidate_is_played_as_it_is_or_raised_to_n(name, budget, least, games):
    strategy = make_strategy(name, {"budget": budget, "least_games": least})
    contest = played(strategy, field_of(16), erratic(3), seed=1)
    assert sum(len(turn.round.asks) for turn in contest.transcript) == games


def test_tests_first_puts_a_popular_constant_after_what_reads_its_input():
    constant = [Entrant(n, "constant", features={"tests_passed": 1, "varied": 0}) for n in range(5)]
    right = [Entrant(n, "sum", features={"tests_passed": 1, "varied": 1}) for n in (5, 6)]
    assert Contest(TestsFirst(), [*constant, *right], seed=1).selection.winner == 5


def test_tests_first_breaks_ties_by_agreement_on_separating_inputs():
    pool = [
        Entrant(n, str(n), features={"tests_passed": 1, "agreement": share})
        for n, share in enumerate((0.2, 0.9, 0.5))
    ]
    assert all(Contest(TestsFirst(), pool, seed=seed).selection.winner == 1 for seed in range(5))
