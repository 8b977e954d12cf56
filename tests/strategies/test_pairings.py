from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps import Level
from caps.strategies.pairings import PairRounds, round_robin, slaughter


def test_slaughter_pairs_the_first_seed_with_the_last():
    assert slaughter([1, 2, 3, 4, 5, 6], 3) == ([(1, 6), (2, 5), (3, 4)], [])
    assert slaughter([1, 2, 3, 4, 5], 2) == ([(1, 5), (2, 4)], [3])
    assert slaughter([1, 2, 3, 4, 5, 6], 1) == ([(1, 6)], [2, 3, 4, 5])


def imbalance(asks):
    sat = Counter()
    for ask in asks:
        sat[ask.a] += 1
        sat[ask.b] -= 1
    return max(map(abs, sat.values()), default=0)


@given(
    pairs=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda p: p[0] != p[1]), max_size=60
    ),
    seed=st.integers(0, 20),
)
def test_balanced_seats_leave_nobody_off_by_more_than_one_in_a_round(pairs, seed):
    asks = PairRounds("balanced", Random(seed)).assign_slots(pairs, Level.FULL)
    assert [{ask.a, ask.b} for ask in asks] == [set(pair) for pair in pairs]
    assert imbalance(asks) <= 1


@pytest.mark.parametrize("n", range(2, 9))
def test_each_seat_of_a_round_robin_is_a_coin_flip(n):
    heads = Counter()
    for seed in range(400):
        for ask in PairRounds("balanced", Random(seed)).assign_slots(round_robin(range(n)), Level.FULL):
            heads[frozenset(ask.entrants)] += ask.a < ask.b
    assert all(120 < count < 280 for count in heads.values())


def test_over_rounds_whoever_sat_in_a_yields():
    table = PairRounds("balanced", Random(1))
    first = table.assign_slots([(0, 1), (2, 3)], Level.PARTIAL)
    in_a, in_b = [ask.a for ask in first], [ask.b for ask in first]
    second = table.assign_slots([(in_a[0], in_b[1]), (in_b[0], in_a[1])], Level.FULL)
    assert [ask.a for ask in second] == [in_b[1], in_b[0]]


def test_as_paired_keeps_the_order_given():
    asks = PairRounds("as-paired", Random(1)).assign_slots([(3, 1), (2, 0)], Level.FULL)
    assert [(ask.a, ask.b) for ask in asks] == [(3, 1), (2, 0)]


def test_a_pair_met_again_in_the_same_order_is_a_further_draw():
    table = PairRounds("as-paired", Random(1))
    draws = [table.assign_slots([pair], level)[0].draw for pair, level in [
        ((0, 1), Level.FULL), ((0, 1), Level.FULL), ((1, 0), Level.FULL), ((0, 1), Level.PARTIAL),
    ]]  # fmt: skip
    assert draws == [0, 1, 0, 0]
