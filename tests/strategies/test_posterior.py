"""Posterior: what it believes, what it asks, when it stops, and how sure it says it is."""

from dataclasses import replace
from random import Random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caps import Contest, Entrant, Level, Pairing, Unanswered, Verdict
from caps.core.errors import SettingError
from caps.judging.simulated import JudgeModel, SimulatedJudge
from caps.session.parts import make_strategy
from caps.strategies.belief import DOUBT, RIGHT_RECORDS, Evidence
from caps.strategies.dedup import clusters
from caps.strategies.posterior import EFFORTS, MOST_MEETINGS, UNFITTED, Posterior, beliefs
from caps.studies.simulation import PoolModel, generated_pools
from support.playing import asks_of, erratic, everything_ties, field_of, lower_id_wins, play, played

SPLIT = [*["x"] * 5, *["y"] * 4, *["z"] * 3, "u", "v", "w", "s"]
HIGH_A, LOW_A, HIGH_B, TIE = Verdict(9, 3), Verdict(7, 5), Verdict(3, 9), Verdict(5, 5)
COIN = dict.fromkeys(("e1_high", "e1_low", "e2_high", "e2_low"), "0.5")


def probability(contest):
    return contest.selection.facts["probability"]


def believed(strategy, field, *games):
    """Chances of candidates after some games, each (a, b, verdict), all at E2."""
    groups = clusters(field)
    answer_of = {one.id: number for number, group in enumerate(groups) for one in group}
    beliefs_now = strategy.beliefs(groups)
    for a, b, verdict in games:
        beliefs_now.add(Pairing(a, b, Level.FULL), verdict, answer_of)
    chances = beliefs_now.chances()
    return {entrant: chances[number] for entrant, number in answer_of.items()}


def open_field(count, names=None):
    """Programs: any number of them may be right."""
    return [replace(one, signature_kind="open") for one in field_of(count, names)]


def test_one_answer_needs_no_judge_however_many_give_it():
    for count in (1, 2, 16):
        contest = played("posterior", field_of(count, ["same"] * count))
        assert asks_of(contest) == []
        assert 0 < probability(contest) <= UNFITTED


def test_an_overwhelming_vote_is_not_put_to_the_judge():
    assert asks_of(played("posterior", field_of(16, ["same"] * 15 + ["other"]))) == []
    assert asks_of(played("posterior", field_of(16, SPLIT))) != []


@pytest.mark.parametrize("names", ["xxyz", "xxxy", "wxyz"])
def test_of_four_candidates_a_judge_that_is_always_right_finds_the_right_one(names):
    field = [replace(one, features={}) for one in field_of(4, list(names))]
    for right in dict.fromkeys(names):

        def knows(ask, right=right):
            a, b = (names[one] == right for one in ask.entrants)
            return TIE if a == b else HIGH_A if a else HIGH_B

        contest = played(Posterior(), field, knows)
        assert names[contest.selection.winner] == right
        assert 1 <= len(asks_of(contest)) <= 6


def test_a_judge_at_chance_is_not_asked():
    for names in (SPLIT, None):
        assert asks_of(played(make_strategy("posterior", COIN), field_of(16, names))) == []


def test_a_field_of_the_judges_profile_can_be_set_and_is_checked():
    assert make_strategy("posterior", {"e2_high": "0.9"}).e2_high == 0.9
    with pytest.raises(SettingError, match="e2_high"):
        make_strategy("posterior", {"e2_high": "1.9"})
    with pytest.raises(SettingError, match="low, medium, high"):
        make_strategy("posterior", {"effort": "more"})


def test_one_verdict_multiplies_the_odds_by_what_it_is_worth():
    strategy, field = Posterior(e2_high=0.9), field_of(4, list("xxyy"))
    before, after = believed(strategy, field), believed(strategy, field, (0, 2, HIGH_A))
    assert after[0] / after[2] == pytest.approx(9 * before[0] / before[2])


def test_a_surer_win_raises_a_belief_further_and_the_losers_falls():
    for field in (field_of(16, SPLIT), open_field(16, SPLIT)):
        rows = [believed(Posterior(), field, (5, 0, verdict)) for verdict in (HIGH_B, TIE, LOW_A, HIGH_A)]
        assert [row[5] for row in rows] == sorted(row[5] for row in rows)
        assert [row[0] for row in rows] == sorted((row[0] for row in rows), reverse=True)
        assert len({row[5] for row in rows}) == 4


def test_repeated_verdicts_about_an_answer_count_less_and_less():
    field = field_of(4, list("xxyy"))
    strategy = Posterior(e2_high=0.9)

    def odds(count):
        row = believed(strategy, field, *[(0, 2, HIGH_A)] * count)
        return row[0] / row[2]

    steps = [odds(count + 1) / odds(count) for count in range(4)]
    assert steps == sorted(steps, reverse=True)
    assert min(steps) > 1
    again = (RIGHT_RECORDS * 0.9 + 1) / (RIGHT_RECORDS * 0.1 + 1)  # beta-binomial: a win after a win
    assert steps[:2] == pytest.approx([9, again])


def test_whatever_an_unmeasured_judge_says_it_may_be_at_chance():
    field = field_of(16, SPLIT)
    lost = [(5, 0, HIGH_A), (0, 5, HIGH_B)] * 10
    before, doubted = believed(Posterior(), field), believed(Posterior(), field, *lost)
    assert doubted[0] / (1 - doubted[5]) > DOUBT * before[0]
    measured = believed(Posterior(e2_high=0.97), field, *lost)
    assert measured[0] < doubted[0] / 5


def test_orders_that_contradict_each_other_leave_two_answers_as_they_stand_to_each_other():
    for bias in (0.5, 0.7):
        strategy, field = Posterior(first_slot=bias), field_of(16, SPLIT)
        before, after = believed(strategy, field), believed(strategy, field, (0, 5, HIGH_A), (5, 0, HIGH_A))
        assert after[0] / after[5] == pytest.approx(before[0] / before[5])
        assert after[0] < before[0]  # a judge that knew which of them is right would not contradict itself


def test_a_win_in_the_favoured_slot_counts_less():
    def odds(strategy, *game):
        chances = believed(strategy, field_of(16, SPLIT), game)
        return chances[0] / chances[5]

    usual, biased = Posterior(e2_high=0.9), Posterior(e2_high=0.9, first_slot=0.7)
    assert odds(biased, 0, 5, LOW_A) < odds(usual, 0, 5, LOW_A)
    assert odds(biased, 5, 0, HIGH_B) > odds(biased, 0, 5, HIGH_A)


@settings(max_examples=40)
@given(seed=st.integers(0, 999), names=st.lists(st.sampled_from("xyz"), min_size=3, max_size=9))
def test_beliefs_do_not_depend_on_how_candidates_are_numbered(seed, names):
    rng = Random(seed)
    field = field_of(len(names), names)
    if len(set(names)) < 2:
        return
    pairs = [(a, b) for a in range(len(names)) for b in range(a) if names[a] != names[b]]
    games = [(*rng.choice(pairs), rng.choice([HIGH_A, LOW_A, HIGH_B, TIE])) for _ in range(4)]
    shift = {one: (one * 5 + 3) % 31 + 40 for one in range(len(names))}
    moved = [replace(one, id=shift[one.id]) for one in rng.sample(field, len(field))]
    plain = believed(Posterior(), field, *games)
    other = believed(Posterior(), moved, *((shift[a], shift[b], verdict) for a, b, verdict in games))
    assert all(other[shift[one]] == pytest.approx(chance) for one, chance in plain.items())


def test_a_question_asked_again_shows_other_members_of_the_same_answers():
    asks = asks_of(played(Posterior(), field_of(8, ["x"] * 4 + ["y"] * 4), everything_ties))
    assert len(asks) >= 2
    assert not set(asks[0].entrants) & set(asks[1].entrants)


def test_two_who_stand_alone_meet_again_with_the_slots_exchanged_and_never_in_the_same_order():
    asks = asks_of(played(Posterior(), field_of(2), everything_ties))
    assert (asks[0].a, asks[0].b) == (asks[1].b, asks[1].a)
    assert len(set(asks)) == len(asks)


def test_two_answers_do_not_meet_for_ever():
    asks = asks_of(played(Posterior(effort="high"), field_of(40, ["x"] * 20 + ["y"] * 20), everything_ties))
    assert len(asks) == MOST_MEETINGS


def test_who_expects_nobody_to_be_right_is_less_sure_whether_one_or_several_may_be():
    for field in (field_of(16, SPLIT), open_field(16)):
        sure = [probability(played(Posterior(nobody=n), field, erratic(1))) for n in (1, 16, 400)]
        assert sure == sorted(sure, reverse=True)
        assert sure[-1] < 0.2


@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_effort_limits_questions_and_small_pools_are_not_starved(count):
    for name, effort in EFFORTS.items():
        allowed = max(effort.share * 3 * count, effort.least)
        full = [replace(one, sizes=(0, 900, 900)) for one in field_of(count)]
        asked = len(asks_of(played(Posterior(effort=name), full, everything_ties)))
        assert asked <= allowed + 1
        assert asked >= min(allowed - 1, count * (count - 1), 2)
    totals = [
        len(asks_of(played(Posterior(effort=name), field_of(16, SPLIT), erratic(2)))) for name in EFFORTS
    ]
    assert totals == sorted(totals)


def test_few_rounds_hold_more_questions_each():
    for limit in (1, 2, 4):
        contest = played(Posterior(max_rounds=limit), field_of(16, SPLIT), erratic(3))
        assert len(contest.transcript) <= limit
        assert len(set(asks_of(contest))) == len(asks_of(contest))
    usual = played(Posterior(), field_of(16, SPLIT), erratic(3))
    hurried = played(Posterior(max_rounds=1), field_of(16, SPLIT), erratic(3))
    assert len(hurried.transcript[0].round.asks) > len(usual.transcript[0].round.asks)


def test_lost_answers_change_no_belief_and_are_not_asked_for_again():
    field = field_of(16, SPLIT)
    silent = Contest(Posterior(), field)
    play(silent, lambda _: Unanswered("lost"))
    assert silent.selection.provisional
    assert silent.selection.scores == beliefs(Posterior(), field, [])[0]
    pairs = [frozenset(SPLIT[one] for one in ask.entrants) for ask in asks_of(silent)]
    assert len(set(pairs)) == len(pairs)


def test_a_stopped_contest_still_says_how_sure_it_is():
    contest = Contest(Posterior(), field_of(16, SPLIT))
    contest.answer([HIGH_A] * len(contest.pending.asks))
    expected = beliefs(Posterior(), contest.entrants, contest.transcript)[-1]
    contest.stop("budget")
    assert probability(contest) == pytest.approx(expected[contest.selection.winner])


def test_beliefs_round_by_round_end_with_the_selections_own():
    for names in (SPLIT, None):
        contest = played(Posterior(), field_of(16, names), erratic(3))
        rounds = beliefs(Posterior(), contest.entrants, contest.transcript)
        assert len(rounds) == len(contest.transcript) + 1 > 1
        assert rounds[-1] == pytest.approx(contest.selection.scores)


def test_where_all_differ_the_best_wins():
    for count in (2, 5, 16):
        contest = played("posterior", field_of(count), lower_id_wins)
        assert contest.selection.winner == 0
        assert len(asks_of(contest)) <= 2 * count


def test_partial_views_are_shown_where_tokens_are_scarce_if_they_are_far_shorter():
    for effort, partial, shown in (("low", 250, True), ("low", 3000, False), ("high", 250, False)):
        field = [replace(one, sizes=(0, partial, 4000), features={}) for one in field_of(16)]
        first = played(Posterior(effort=effort), field, lower_id_wins).transcript[0].round.asks
        assert {ask.level for ask in first} == {Level.PARTIAL if shown else Level.FULL}


def test_two_candidates_may_be_believed_more_than_half():
    contest = played("posterior", open_field(2, [None, None]), lower_id_wins)
    assert probability(contest) > 0.6


def test_failed_examples_outweigh_a_few_votes():
    votes = [Entrant(i, "popular", (0, 250, 900), {"tests_passed": 0.0}) for i in range(3)]
    field = [*votes, *(Entrant(i, "rare", (0, 250, 900), {"tests_passed": 1.0}) for i in (3, 4))]
    before = beliefs(Posterior(), field, [])[0]
    assert before[3] > 2 * before[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["math", "code"])
def test_it_is_as_sure_as_it_is_right_on_made_up_pools(kind):
    model, sure, right = JudgeModel(accuracy=0.75, accuracy_partial=0.68), [], []
    for pool in generated_pools(PoolModel(kind=kind, n=10, full_tokens=1200), 400, 5):
        judge = SimulatedJudge(model, pool.entrants, pool.correct, seed=1, case=pool.number)
        contest = played(Posterior(), pool.entrants, judge.answer)
        assert 0 <= probability(contest) <= 1
        sure.append(probability(contest))
        right.append(pool.correct[contest.selection.winner])
    assert fmean(sure) == pytest.approx(fmean(right), abs=0.12)
    if kind == "math":  # where all differ, a few games hardly tell one pool from another
        ranked = [label for _, label in sorted(zip(sure, right, strict=True))]
        assert fmean(ranked[-50:]) > fmean(ranked[:50]) + 0.3


def test_an_explanation_adds_up_to_the_probability_and_names_every_verdict_that_counted():
    field = [
        replace(one, features={**one.features, "tests_passed": float(one.id != 3)})
        for one in field_of(8, list("xxxyyzuv"))
    ]
    contest = played(Posterior(), field, erratic(3))
    found = contest.explain()
    assert found[-1].probability == pytest.approx(probability(contest))
    assert sum(one.change for one in found) == pytest.approx(probability(contest))
    assert [one.what for one in found][:2] == ["nothing known", "votes"]
    assert any(">" in one.what or "<" in one.what for one in found)
    assert played("majority", field).explain() == ()


def test_what_no_labels_support_is_stated_with_a_cap_and_decides_without_it():
    agreed = played(Posterior(), field_of(16, ["same"] * 16))
    assert probability(agreed) == UNFITTED
    assert agreed.explain()[-1].what == "not fitted to labels"
    assert agreed.explain()[-1].probability == UNFITTED
    facts = agreed.selection.facts
    assert (facts["agree"], facts["verdicts"], facts["tested"]) == (16, 0, 0)
    fitted = played(Posterior(calibrated=True), field_of(16, ["same"] * 16))
    assert probability(fitted) > UNFITTED
    assert played(Posterior(), field_of(16, SPLIT), lower_id_wins).selection.facts["verdicts"] > 0


def test_a_choice_it_does_not_trust_is_flagged():
    field = field_of(16, SPLIT)
    wary = played(Posterior(abstain_below=0.999), field, everything_ties).selection
    assert wary.facts["abstain"] == 1
    assert "abstain" not in played(Posterior(), field, everything_ties).selection.facts


def test_naive_starts_from_the_same_beliefs_and_asks_both_orders():
    field = field_of(16, SPLIT)
    naive = played("naive", field, erratic(1))
    asks = asks_of(naive)
    assert [(a.a, a.b) for a in asks[::2]] == [(b.b, b.a) for b in asks[1::2]]
    assert len(asks) <= 16
    agreed = played("naive", field_of(4, ["x"] * 4))
    assert asks_of(agreed) == []
    groups = clusters(agreed.entrants)
    assert probability(agreed) == pytest.approx(Evidence().beliefs(groups).chances()[0])


def test_sprint_looks_twice_at_what_was_doubtful_and_only_there():
    sure = played("sprint", 16, lower_id_wins)
    assert not [turn for turn in sure.transcript if turn.round.stage == "second look"]
    tied = played("sprint", 16, everything_ties)
    stages = [turn.round.stage for turn in tied.transcript]
    assert stages == ["halve", *["knockout", "second look"] * 3]
    for first, second in zip(tied.transcript[1::2], tied.transcript[2::2], strict=True):
        assert [(ask.b, ask.a) for ask in first.round.asks] == [(ask.a, ask.b) for ask in second.round.asks]


def test_sprint_looks_twice_at_low_games_only_among_the_last():
    hardly = played("sprint", 16, lambda ask: Verdict(6, 4) if ask.a < ask.b else Verdict(4, 6))
    stages = [turn.round.stage for turn in hardly.transcript]
    assert stages == ["halve", "knockout", *["knockout", "second look"] * 2]
    assert [len(turn.round.asks) for turn in hardly.transcript] == [8, 4, 2, 2, 1, 1]
    assert hardly.selection.winner == 0


def test_sprint_skips_partial_views_that_are_hardly_shorter():
    short = [Entrant(i, f"#{i}", (0, 90, 100)) for i in range(16)]
    assert {ask.level for ask in asks_of(played("sprint", short))} == {Level.FULL}
