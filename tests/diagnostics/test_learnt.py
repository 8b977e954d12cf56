"""What is fitted to a judge from verdicts on pairs of a right and a wrong candidate, and to votes from labels."""

from dataclasses import fields
from random import Random
from statistics import fmean

import pytest

from caps.core.judge_profile import JudgeProfile
from caps.judging.simulated import NORMAL, JudgeModel
from caps.statistics.estimates import find_crossing, find_peak
from caps.statistics.judge_measures import learn
from caps.statistics.observations import Ballot, fit_loose_odds, fit_vote_strengths
from diagnostics.synthetic import observations_of

START = JudgeProfile()
GOOD = JudgeModel(accuracy=0.88, accuracy_partial=0.76, shared_bias=0.5, position_bias=0.3)
WEAK = JudgeModel(accuracy=0.56, accuracy_partial=0.54, shared_bias=0.5, position_bias=0.3)


def at_full(profile):
    return profile.e2_sure * profile.e2_high + (1 - profile.e2_sure) * profile.e2_low


@pytest.mark.parametrize(("model", "accuracy"), [(GOOD, 0.9), (WEAK, 0.57)])
def test_many_cases_show_what_the_judge_is(model, accuracy):
    found = learn(observations_of(model, 200, Random(1)), START)
    assert found.silent is None
    assert at_full(found.profile) == pytest.approx(accuracy, abs=0.04)
    assert found.profile.first_slot == pytest.approx(NORMAL.cdf(0.3), abs=0.04)
    assert found.assumed == ("order_errors", "rated", "rating_spread", "repeats", "shared")


def test_few_cases_leave_the_profile_near_what_was_assumed():
    few, many = (
        fmean(at_full(learn(observations_of(WEAK, cases, Random(seed)), START).profile) for seed in range(10))
        for cases in (12, 150)
    )
    assert many < few < at_full(START)


def test_too_few_cases_tell_nothing():
    found = learn(observations_of(GOOD, 9, Random(1)), START)
    assert found.profile == START
    assert "only 9 cases" in found.silent
    assert len(found.assumed) == len(fields(START))


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
