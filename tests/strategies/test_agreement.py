import math
from itertools import pairwise, product

import pytest

from caps.strategies.agreement import NEW_WRONG, Rate, Standing, diversity, gain, log_weights

RATE = Rate.of(0.6)


def chances(*counts):
    weights = [math.exp(one) for one in log_weights([[count] for count in counts], [RATE])]
    return [one / (1 + sum(weights)) for one in weights]


def standings(*counts):
    return [Standing(chance, count, count) for chance, count in zip(chances(*counts), counts, strict=True)]


def test_samples_that_agree_are_surer_than_one_and_a_rival_makes_doubt():
    assert chances(1)[0] == pytest.approx(0.6)
    assert chances(1)[0] < chances(2)[0] < chances(3)[0]
    assert chances(2, 1)[0] < chances(2)[0]
    assert chances(1, 1)[0] == chances(1, 1)[1]


def test_what_more_samples_are_expected_to_show_is_what_is_believed_now():
    """One more sample: the mean of each answer's chance after it is its chance before it."""
    before = chances(2, 1)
    total, drawn = 3, RATE.right + RATE.wrong + 3
    after = {0: chances(3, 1), 1: chances(2, 2), 2: chances(2, 1, 1)}

    def likely(outcome):
        none = 1 - sum(before)
        found = 0.0
        for right, chance in [*enumerate(before), (None, none)]:
            own = [2, 1][right] if right is not None else 0
            hit, miss = (RATE.right + own) / drawn, (RATE.wrong + total - own) / drawn
            masses = [2.0, 1.0, NEW_WRONG]
            if right is not None:
                masses[right] = 0.0
            wrong = miss * masses[outcome] / sum(masses)
            lands_here = outcome == right or (right is None and outcome == 2)
            found += chance * (wrong + hit * lands_here)
        return found

    for answer in (0, 1):
        mean = sum(likely(outcome) * after[outcome][answer] for outcome in after)
        assert mean == pytest.approx(before[answer], abs=1e-9)


def test_a_sample_that_can_change_nothing_is_worth_nothing():
    assert gain(standings(2), RATE, 2, 1) == pytest.approx(0, abs=1e-12)
    assert gain(standings(1, 1), RATE, 2, 1) > 0.1
    assert gain(standings(5), RATE, 5, 3) < gain(standings(2, 1), RATE, 3, 3)


def test_more_samples_are_never_expected_to_make_the_choice_worse():
    for counts in product((1, 2, 3), repeat=3):
        rising = [gain(standings(*counts), RATE, sum(counts), more) for more in (1, 2, 3, 5)]
        assert all(one >= 0 for one in rising)
        assert all(b >= a - 1e-9 for a, b in pairwise(rising))


def test_a_judge_changes_what_further_samples_are_worth():
    known = [one._replace(verdicts=4.0) for one in standings(1, 1, 1, 1)]
    judged = gain(known, RATE, 4, 2, verdicts=4.0)
    assert judged > gain(known, RATE, 4, 2) > 0
    assert judged > gain(known, RATE, 4, 2, verdicts=4.0, votes=False) > 0


def test_answers_that_all_differ_make_a_repeat_say_more():
    assert diversity([8]) < diversity([4, 2, 1, 1]) < diversity([1] * 8)
    assert diversity([1000]) < diversity([1] * 1000)


def test_a_vote_of_a_better_generator_counts_for_more():
    good, bad = Rate.of(0.9), Rate.of(0.3)
    first, second = log_weights([[1, 0], [0, 1]], [good, bad])
    assert first > second
