"""What is fitted to a judge from verdicts on pairs of a right and a wrong candidate, and to votes from labels."""

from dataclasses import fields
from random import Random
from statistics import fmean

import pytest

from caps.core.judge_profile import JudgeProfile
from caps.core.types import Level
from caps.judging.simulated import NORMAL, JudgeModel
from caps.statistics.estimates import find_crossing, find_peak
from caps.statistics.judge_measures import learn
from caps.statistics.observations import Ballot, Strengths, fit_strengths
from caps.strategies.belief import accuracy
from support.synthetic import observations_of

START = JudgeProfile()
GOOD = JudgeModel(accuracy=0.88, accuracy_partial=0.76, shared_bias=0.5, position_bias=0.3)
WEAK = JudgeModel(accuracy=0.56, accuracy_partial=0.54, shared_bias=0.5, position_bias=0.3)


def at_full(profile):
    return accuracy(profile, Level.FULL)


@pytest.mark.parametrize(("model", "accuracy"), [(GOOD, 0.9), (WEAK, 0.57)])
def test_many_cases_show_what_the_judge_is(model, accuracy):
    found = learn(observations_of(model, 200, Random(1)), START)
    assert found.silent is None
    assert at_full(found.profile) == pytest.approx(accuracy, abs=0.04)
    assert found.profile.first_slot == pytest.approx(NORMAL.cdf(0.3), abs=0.04)
    assert found.assumed == ()


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


USUAL = Strengths(votes=2.1, nobody=2.0, tests=5.0, feature_weight=0.5)


def ballot(votes, right, *, failed=None, exclusive=True):
    nothing = (0.0,) * len(votes)
    return Ballot(
        votes=votes,
        besides=nothing,
        right=right,
        failed=failed or nothing,
        feature=nothing,
        power=1.0 if exclusive else 0.7,
        surer=0.0,
        exclusive=exclusive,
    )


def test_hopeless_cases_teach_that_often_nobody_is_right():
    right, wrong = ballot((5, 3), (True, False)), ballot((5, 3), (False, False))
    often = fit_strengths([wrong] * 45 + [right] * 5, USUAL)["nobody"]
    seldom = fit_strengths([right] * 50, USUAL)["nobody"]
    assert often > 4
    assert seldom < 2


def test_votes_lose_weight_where_small_clusters_win_and_never_gain_any():
    against, with_them = ballot((8, 2), (False, True)), ballot((8, 2), (True, False))
    assert fit_strengths([against] * 30, USUAL)["votes"] < 1.5
    assert fit_strengths([with_them] * 30, USUAL)["votes"] == pytest.approx(2.1, abs=0.01)


def test_programs_that_are_seldom_right_teach_the_same_of_each_program():
    right, wrong = ballot((1,), (True,), exclusive=False), ballot((1,), (False,), exclusive=False)
    near = fit_strengths([right] * 16 + [wrong] * 24, USUAL)["nobody"]
    far = fit_strengths([right] * 2 + [wrong] * 38, USUAL)["nobody"]
    assert near < far
    assert far > 5


def test_tests_lose_weight_where_programs_that_fail_them_are_right():
    misled = ballot((1, 1), (False, True), failed=(0.0, 1.0), exclusive=False)
    telling = ballot((1, 1), (True, False), failed=(0.0, 1.0), exclusive=False)
    assert fit_strengths([misled] * 40, USUAL)["tests"] < 2
    assert fit_strengths([telling] * 40, USUAL)["tests"] >= 5
    assert "tests" not in fit_strengths([ballot((2, 1), (True, False))] * 40, USUAL)
    assert "tests" not in fit_strengths([misled] * 40, USUAL, fixed=("tests",))


def test_peaks_and_crossings_are_found():
    assert find_peak(lambda x: -((x - 0.7) ** 2), -2, 2) == pytest.approx(0.7, abs=1e-3)
    assert find_crossing(lambda x: x**3, 0.125, -1, 1) == pytest.approx(0.5, abs=1e-3)
