"""What is fitted to a judge from observations whose truth is known for sure, by its odds, or not at all."""

from dataclasses import fields, replace
from random import Random
from statistics import fmean

import pytest

from caps.core.judge_profile import JudgeProfile
from caps.core.types import Level
from caps.judging.simulated import NORMAL, JudgeModel
from caps.statistics.estimates import find_crossing, find_peak
from caps.statistics.judge_errors import WeightedObservation, gaps_of, information
from caps.statistics.judge_measures import learn
from caps.statistics.observations import Ballot, fit_loose_odds, fit_vote_strengths
from diagnostics.synthetic import observations_of

START = JudgeProfile()
GOOD = JudgeModel(accuracy=0.88, accuracy_partial=0.76, shared_bias=0.5, position_bias=0.3)
WEAK = JudgeModel(accuracy=0.56, accuracy_partial=0.54, shared_bias=0.5, position_bias=0.3)


def known(model, cases, seed=1):
    return [
        WeightedObservation(obs, 1.0, 0.0, known=True) for obs in observations_of(model, cases, Random(seed))
    ]


def guessed(model, cases, chance=0.85, seed=1):
    """Odds that are true: with the chance given the one is right, else the other, as seen by nobody."""
    rng, observations = Random(seed + 1), observations_of(model, cases, Random(seed))
    wrong = {case for case in range(cases) if rng.random() > chance}
    return [
        WeightedObservation(
            replace(obs, verdict=obs.verdict.swapped(), first=not obs.first) if obs.case in wrong else obs,
            chance,
            1 - chance,
        )
        for obs in observations
    ]


def accuracies(profile):
    return [NORMAL.cdf(gap) for gap in gaps_of(profile).values()]


@pytest.mark.parametrize(("model", "at_full"), [(GOOD, 0.9), (WEAK, 0.57)])
def test_with_labels_many_cases_show_what_the_judge_is(model, at_full):
    found = learn(known(model, 200), START)
    assert found.silent is None
    assert accuracies(found.profile)[1] == pytest.approx(at_full, abs=0.04)
    assert found.profile.first_slot == pytest.approx(NORMAL.cdf(0.3), abs=0.04)
    assert found.profile.repeats + found.profile.shared == pytest.approx(model.lasting, abs=0.22)


def test_true_odds_are_enough_and_few_of_them_leave_the_profile_near_what_was_assumed():
    many, few = (
        fmean(
            accuracies(learn(guessed(GOOD, cases, seed=seed), START).profile)[1] for seed in range(1, 20, 2)
        )
        for cases in (150, 12)
    )
    assert many > 0.8
    assert accuracies(START)[1] < few < many
    assert accuracies(learn(guessed(WEAK, 150), START).profile)[1] < 0.65


def test_a_label_tells_more_than_votes_and_votes_alone_never_tell_more_than_so_much():
    labelled, voted = (information(of(GOOD, 60), START) for of in (known, guessed))
    assert labelled > 2 * voted
    assert information(guessed(GOOD, 600), START) < 100


def test_even_votes_tell_nothing_and_the_profile_stays():
    found = learn(guessed(GOOD, 100, chance=0.5), START)
    assert found.profile == START
    assert "votes too even" in found.silent
    assert len(found.assumed) == len(fields(START))


def test_too_few_cases_tell_nothing():
    found = learn(known(GOOD, 9), START)
    assert found.profile == START
    assert "only 9 cases" in found.silent


def test_hopeless_cases_teach_that_often_nobody_is_right():
    right, wrong = Ballot((5, 3), (0.0, 0.0), (True, False)), Ballot((5, 3), (0.0, 0.0), (False, False))
    _, often = fit_vote_strengths([wrong] * 45 + [right] * 5, 2.1, 2.0)
    _, seldom = fit_vote_strengths([right] * 50, 2.1, 2.0)
    assert often > 4
    assert seldom < 2


def test_votes_lose_weight_where_small_clusters_win_and_never_gain_any():
    against = Ballot((8, 2), (0.0, 0.0), (False, True))
    assert fit_vote_strengths([against] * 30, 2.1, 2.0)[0] < 1.5
    assert fit_vote_strengths([Ballot((8, 2), (0.0, 0.0), (True, False))] * 30, 2.1, 2.0)[0] == pytest.approx(
        2.1, abs=0.01
    )


def test_odds_of_programs_move_only_where_labels_contradict_them_plainly():
    right, wrong = Ballot((1,), (0.0,), (True,)), Ballot((1,), (0.0,), (False,))
    near, far = [right] * 24 + [wrong] * 16, [right] * 2 + [wrong] * 38
    assert abs(fit_loose_odds(near, 1.5, [0.0] * 40)) < 0.25  # 24 of 40 say log-odds of 0.41
    assert fit_loose_odds(far, 1.5, [0.0] * 40) < -2.2  # 2 of 40 say -2.9


def test_peaks_and_crossings_are_found():
    assert find_peak(lambda x: -((x - 0.7) ** 2), -2, 2) == pytest.approx(0.7, abs=1e-3)
    assert find_crossing(lambda x: x**3, 0.125, -1, 1) == pytest.approx(0.5, abs=1e-3)


def test_each_level_has_its_own_gap():
    gaps = gaps_of(JudgeProfile(e1_high=0.6, e1_low=0.6, e2_high=0.9, e2_low=0.9))
    assert gaps[Level.PARTIAL] == pytest.approx(NORMAL.inv_cdf(0.6))
    assert gaps[Level.FULL] == pytest.approx(NORMAL.inv_cdf(0.9))
