"""Candidates that are nearly known to be right or wrong without labels, and the profile measured on them."""

import pytest

from caps.core.judge_profile import JudgeProfile
from caps.core.types import Entrant
from caps.studies.nearly_known import WRONG, corrected, presumed_labels


def labels(answers, kind="value", passed=None):
    entrants = [
        Entrant(
            place,
            answer,
            signature_kind=kind,
            features={} if passed is None or passed[place] is None else {"tests_passed": passed[place]},
        )
        for place, answer in enumerate(answers)
    ]
    return list(presumed_labels(entrants).values())


def test_half_of_the_candidates_are_presumed_right_against_answers_that_one_gives():
    unknown = [None] * 6
    assert labels("aaabbc") == [True, True, True, None, None, False]
    assert labels("aabbcd") == unknown, "no answer has half of the candidates"
    assert labels("aaabbc", kind="open") == unknown, "several programs or texts may be right"
    assert labels("aab") == [None] * 3, "two of three are no majority to rely on"


def test_public_tests_decide_where_they_were_run():
    assert labels("aaab", kind="open", passed=[1.0, 0.5, 0.0, None]) == [True, False, False, None]
    assert labels("aaab", passed=[0.0, 1.0, 1.0, 1.0]) == [False, True, True, True], "votes do not count then"


def test_pairs_without_a_right_candidate_are_corrected_for():
    measured = 0.8 * (1 - WRONG) + 0.5 * WRONG
    fixed = corrected(JudgeProfile(e2_high=measured, e1_low=0.5, e1_high=1.0))
    assert fixed.e2_high == pytest.approx(0.8, abs=1e-4)
    assert fixed.e1_low == 0.5
    assert fixed.e1_high < 1
