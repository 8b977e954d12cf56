"""What holds for every strategy in the registry, whatever it chooses among and whatever it is told."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caps import Contest, Pairing, Unanswered
from caps.core.play import capabilities_of
from caps.core.settings import settings_of
from caps.session.parts import make_strategy
from support.playing import (
    ALL,
    JUDGED,
    asks_of,
    erratic,
    everything_ties,
    field_of,
    lower_id_wins,
    play,
    played,
    slot_a_wins,
)

AGREEING = ("knockout", "sprint", "posterior")
CASCADES = [name for name in ALL if name.startswith("caps")]
MERGING = {*AGREEING, *CASCADES, "majority", "tests-first", "no-rescue"}
names = st.sampled_from(ALL)
signatures = st.lists(st.sampled_from(["x", "y", "z", None]) | st.uuids().map(str), min_size=1, max_size=24)
judges = st.one_of(
    st.just(lower_id_wins), st.just(slot_a_wins), st.just(everything_ties), st.integers(0, 99).map(erratic)
)


@settings(max_examples=400)
@given(name=names, signatures=signatures, judge=judges, seed=st.integers(0, 5))
def test_every_contest_ends_with_a_legal_winner_and_replays_identically(name, signatures, judge, seed):
    field = field_of(len(signatures), signatures)
    first, second = (played(name, field, judge, seed) for _ in range(2))
    assert first.transcript == second.transcript
    assert first.selection == second.selection
    assert sorted(first.selection.order) == list(range(len(field)))
    assert not first.selection.provisional
    assert all(len(set(ask.entrants)) == len(ask.entrants) for ask in asks_of(first))


@settings(max_examples=600)
@given(name=names, signatures=signatures, judge=judges, seed=st.integers(0, 5), rounds=st.integers(0, 9))
def test_the_order_is_best_first_by_scores_that_every_candidate_has(name, signatures, judge, seed, rounds):
    contest = Contest(make_strategy(name), field_of(len(signatures), signatures), seed=seed)
    for _ in range(rounds):
        if contest.pending is not None:
            contest.answer([judge(ask) for ask in contest.pending.asks])
    contest.stop("enough")
    chosen = contest.selection
    scores = [chosen.scores[one] for one in chosen.order]
    assert chosen.winner == chosen.order[0]
    assert len(chosen.scores) == len(signatures)
    assert scores == sorted(scores, reverse=True)
    if name in MERGING:
        clusters = [signatures[one] or one for one in chosen.order]
        together = [cluster for k, cluster in enumerate(clusters) if k == 0 or clusters[k - 1] != cluster]
        assert len(together) == len(set(clusters))
        assert len(set(zip(clusters, scores, strict=True))) == len(together)


@settings(max_examples=300)
@given(name=names, signatures=signatures, judge=judges, rounds=st.integers(0, 8))
def test_a_contest_can_be_stopped_after_any_round(name, signatures, judge, rounds):
    contest = Contest(make_strategy(name), field_of(len(signatures), signatures))
    for _ in range(rounds):
        if contest.pending is None:
            break
        contest.answer([judge(ask) for ask in contest.pending.asks])
    unfinished = contest.pending is not None
    contest.stop("enough")
    assert contest.selection.provisional == unfinished
    assert sorted(contest.selection.order) == list(range(len(signatures)))


@settings(max_examples=400)
@given(name=names, signatures=signatures, judge=judges, lost=st.floats(0.05, 1), seed=st.integers(0, 99))
def test_any_ask_may_go_unanswered(name, signatures, judge, lost, seed):
    chance = Random(seed)

    def sometimes(ask):
        return Unanswered("lost") if chance.random() < lost else judge(ask)

    contest = played(name, field_of(len(signatures), signatures), sometimes)
    assert sorted(contest.selection.order) == list(range(len(signatures)))


@pytest.mark.parametrize("name", ALL)
def test_a_single_candidate_is_chosen_without_a_question_unless_it_is_rated(name):
    contest = played(name, 1)
    assert contest.selection.winner == 0
    assert len(asks_of(contest)) == (1 if name == "pointwise" else 0)


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("caps") or name in AGREEING])
def test_candidates_that_all_agree_need_no_judge(name):
    contest = played(name, field_of(16, ["same"] * 16))
    assert asks_of(contest) == []


def promises_the_best(name, n):
    """Ten ratings tell ten apart; by a few random or ring games a rival may share the best one's win rate."""
    return n <= 10 if name == "pointwise" else n <= 3 or name not in ("random-pairs", "pivot")


@pytest.mark.parametrize("name", [*JUDGED, "reward"])
def test_with_a_judge_that_is_always_right_and_sure_the_best_candidate_wins(name):
    for n in (2, 3, 5, 8, 16, 31):
        if promises_the_best(name, n):
            assert {played(name, n, seed=seed).selection.winner for seed in range(8)} == {0}, n


@pytest.mark.parametrize("name", JUDGED)
def test_slots_are_balanced_over_a_contest(name):
    for seed in range(20):
        sat = dict.fromkeys(range(16), 0)
        for ask in asks_of(played(name, 16, erratic(seed), seed)):
            if isinstance(ask, Pairing):
                sat[ask.a] += 1
                sat[ask.b] -= 1
        assert max(map(abs, sat.values())) <= 3


@pytest.mark.parametrize("name", [name for name in JUDGED if "order" in settings_of(make_strategy(name))])
def test_asked_in_both_orders_a_judge_that_only_sees_the_slot_decides_nothing(name):
    both = make_strategy(name, {"order": "both"})
    contest = Contest(both, field_of(8))
    while round_ := contest.pending:
        pairs = list(zip(round_.asks[::2], round_.asks[1::2], strict=True))
        assert all((there.a, there.b) == (back.b, back.a) for there, back in pairs)
        contest.answer([slot_a_wins(ask) for ask in round_.asks])
    chosen = contest.selection
    if name not in ("knockout", "sprint"):  # whose scores also tell who was asked how often
        judged = chosen.finalists or chosen.order  # whoever is eliminated is below the finalists
        assert len({round(chosen.scores[one], 9) for one in judged}) == 1


@pytest.mark.parametrize("name", ALL)
def test_the_winner_does_not_depend_on_the_name_of_a_signature(name):
    plain = played(name, field_of(12, [str(i % 5) for i in range(12)]), erratic(4), seed=9)
    other = played(name, field_of(12, [f"renamed {i % 5}" for i in range(12)]), erratic(4), seed=9)
    assert plain.selection == other.selection


def test_a_rejected_answer_does_not_disturb_the_contest():
    contest = Contest(make_strategy("caps"), field_of(16))
    with pytest.raises(Exception, match="answers"):
        contest.answer([])
    assert play(contest).winner == 0


@pytest.mark.parametrize("name", ALL)
def test_what_a_strategy_declares_about_asking_and_scores_is_true(name):
    contest = played(name, field_of(8), erratic(3), 1)
    if not capabilities_of(make_strategy(name)).asks_judge:
        assert not contest.transcript
    assert bool(contest.selection.scores) == bool(contest.selection.score_kind)
