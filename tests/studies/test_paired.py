"""Paired statistics over problems."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps.statistics.estimates import discordant, exact_mcnemar, mean_interval, ratio_interval


@pytest.mark.parametrize(
    ("only_first", "only_second", "p"),
    [(0, 0, 1.0), (1, 0, 1.0), (5, 0, 0.0625), (8, 2, 0.109375), (2, 8, 0.109375), (3, 3, 1.0)],
)
def test_mcnemar_is_the_binomial_tail_doubled(only_first, only_second, p):
    assert exact_mcnemar(only_first, only_second) == pytest.approx(p)


def test_only_problems_on_which_two_part_count():
    assert discordant([(True, True), (True, False), (True, False), (False, True), (False, False)]) == (2, 1)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_a_bootstrap_interval_lies_inside_its_values_and_comes_out_the_same_again(values):
    low, high = mean_interval(values, resamples=50)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9
    assert (low, high) == mean_interval(values, resamples=50)


def test_a_bootstrap_interval_narrows_with_more_problems():
    few, many = mean_interval([0.0, 1.0] * 10), mean_interval([0.0, 1.0] * 500)
    assert few[0] < 0.35
    assert 0.46 < many[0] < 0.5 < many[1] < 0.54


def test_proportional_sums_have_no_spread_and_a_ratio_over_zero_no_interval():
    assert ratio_interval([1, 2, 3], [4, 8, 12]) == (0.25, 0.25)
    assert ratio_interval([1.0], [0.0]) is None
    with pytest.raises(ValueError, match="2 numerators for 1"):
        ratio_interval([1, 2], [1])
