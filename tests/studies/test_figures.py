"""Each figure of a diagnosis, on observations whose answer is plain to see."""

from dataclasses import replace
from random import Random

import pytest

from caps.core.judge_profile import JudgeProfile
from caps.core.types import Level, Verdict, verdict_of
from caps.judging.simulated import JudgeModel
from caps.statistics import calibration
from caps.statistics.estimates import Estimate, jackknife, mean_estimate, student, wilson
from caps.statistics.judge_errors import (
    accuracy,
    between_equals,
    difference,
    flips,
    in_first_slot,
    longer,
    preferred,
)
from caps.statistics.judge_measures import (
    StopRule,
    classify,
    fit_profile,
    measure,
    mixed,
    profile_warnings,
)
from caps.statistics.observations import Observation, complete
from support.synthetic import observations_of


def make_observation(
    case=0, pair=0, *, level=Level.FULL, first=True, right=True, verdict=None, sizes=(1, 2), **more
):
    """A sure verdict for the right one, or the wrong one."""
    given = verdict or verdict_of("A" if right else "B", "HIGH")
    return Observation(
        case=case, one=pair, other=10 + pair, level=level, first=first, verdict=given, sizes=sizes, **more
    )


def test_every_case_counts_the_same_however_many_pairs_it_has():
    observations = [make_observation(0, pair, right=True) for pair in range(9)] + [
        make_observation(1, right=False)
    ]
    assert accuracy(observations, Level.FULL).value == 0.5


def test_a_judge_that_always_names_slot_a_flips_every_time_and_knows_nothing():
    observations = [
        make_observation(case, first=first, right=first) for case in range(20) for first in (True, False)
    ]
    assert accuracy(observations, Level.FULL).value == 0.5
    assert flips(observations).value == 1
    assert preferred(observations, in_first_slot).value == 1
    assert between_equals(observations, in_first_slot).low > 0.8


def test_from_or_to_a_tie_is_half_a_flip():
    observations = [
        make_observation(first=True),
        make_observation(first=False, verdict=verdict_of("TIE", "LOW")),
    ]
    assert flips(observations).value == 0.5


def test_a_taste_for_length_shows_whichever_is_right():
    observations = [
        make_observation(case, right=sizes[0] > sizes[1], sizes=sizes)
        for case in range(10)
        for sizes in ((5, 9), (9, 5))
    ]
    assert preferred(observations, longer).value == 1
    assert preferred([make_observation(sizes=(4, 4))], longer) is None


def test_the_difference_is_taken_on_the_same_pairs():
    observations = [
        make_observation(case, level=level, right=level == Level.FULL or case % 2 == 0)
        for case in range(10)
        for level in (Level.PARTIAL, Level.FULL)
    ]
    found = difference(observations)
    assert (found.value, found.cases) == (-0.5, 10)
    assert found.high < 0


def test_pairs_that_lack_an_answer_count_nowhere():
    whole = [make_observation(0, 0, first=first) for first in (True, False)]
    assert complete([*whole, make_observation(0, 1)], 2) == whole


def test_the_papers_mixed_metric_dilutes_what_partial_views_lose():
    assert mixed(0.7, 0.8) == pytest.approx((8 * 0.7 + 10 * 0.8) / 18)


def test_a_mean_of_ones_and_zeros_has_wilsons_interval_with_students_quantile():
    found = mean_estimate([1.0] * 15 + [0.0] * 15, 30)
    low, high = wilson(14.5, 29, student(29))  # the sample's own variance has one degree less
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert student(10) == pytest.approx(2.228, abs=2e-3)
    assert [student(1), student(2), student(3)] == pytest.approx([12.706, 4.303, 3.182], rel=0.01)
    assert mean_estimate([], 0) is None


def test_one_case_alone_proves_nothing():
    assert mean_estimate([1.0], 6).low == 0
    assert jackknife([[1.0]], lambda some: sum(some) / len(some)).low == 0


def test_confidence_is_told_apart_and_few_looks_prove_little():
    observations = [make_observation(case, right=True) for case in range(8)]
    observations += [
        make_observation(case, 1, verdict=verdict_of("A" if case < 4 else "B", "LOW")) for case in range(8)
    ]
    found = calibration.by_confidence(observations)
    assert (found.sure.value, found.high.value, found.low.value) == (0.5, 1, 0.5)


def test_probabilities_are_scored():
    sure_and_right = make_observation(verdict=Verdict(10, 1))
    no_idea = make_observation(verdict=Verdict(5.5, 5.5))
    assert calibration.brier([sure_and_right, no_idea]) == 0.125
    wrong = make_observation(verdict=Verdict(1, 10))
    assert calibration.calibration_error([sure_and_right, wrong]) == 0.5
    assert calibration.calibration_error([no_idea]) is None


def test_the_curve_sets_stated_probabilities_against_how_often_they_hold():
    sure = [
        make_observation(case, verdict=Verdict(10, 1) if case % 4 else Verdict(1, 10)) for case in range(8)
    ]
    unsure = [
        make_observation(case, 1, verdict=Verdict(6, 5) if case % 2 else Verdict(5, 6)) for case in range(8)
    ]
    low, high = calibration.curve([*sure, *unsure, make_observation(verdict=Verdict(5, 5))])
    assert (low.stated, low.right.value) == (pytest.approx(5 / 9), 0.5)
    assert (high.stated, high.right.value) == (1, 0.75)
    assert high.right.low < 0.75 < high.right.high
    assert calibration.calibration_error([*sure, *unsure]) == pytest.approx((0.25 + 1 / 18) / 2)
    assert calibration.curve([]) == ()


def test_a_profile_holds_what_was_seen():
    judge = JudgeModel(accuracy=0.8, accuracy_partial=0.65, position_bias=0.4)
    observations = observations_of(judge, 150, Random(1))
    profile, assumed = fit_profile(observations, JudgeProfile())
    assert assumed == ()
    assert profile.e2_high > profile.e2_low > 0.5
    assert profile.e2_high > profile.e1_high
    assert profile.first_slot == pytest.approx(0.655, abs=0.04)


def test_a_verdict_is_settled_when_its_interval_leaves_the_coin():
    intervals = ((0.51, 0.9), (0.2, 0.49), (0.45, 0.58), (0.4, 0.7))
    assert [classify(Estimate(0.5, low, high, 30, 120)) for low, high in intervals] == [
        "above", "below", "chance", "undecided",
    ]  # fmt: skip


def test_the_stop_rule_waits_until_the_accuracy_at_full_views_is_known():
    rule = StopRule()
    for case in range(60):
        rule.add([replace(make_observation(case), level=Level.PARTIAL)])
    assert not rule.settled, "nothing is known of full views"
    for case in range(60):
        rule.add([make_observation(case)])
    assert rule.settled
    soon = StopRule()
    for case in range(20):
        soon.add([make_observation(case)])
    assert not soon.settled, "told from chance, but the accuracy is not known well enough to forecast"


def test_a_profile_that_rests_on_little_says_so():
    few = measure([make_observation(case) for case in range(8)], probabilities=False)
    assert any("only 8 cases" in words for words in profile_warnings(few))
    middling = [
        make_observation(case, verdict=Verdict(9, 3) if case % 4 else Verdict(3, 9)) for case in range(60)
    ]
    assert any(
        "±9 points" in words or "±10 points" in words
        for words in profile_warnings(measure(middling, probabilities=False))
    )
