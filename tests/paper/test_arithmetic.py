"""The paper's own numbers, computed from the code."""

import math

import pytest

from caps import Caps, Level, Verdict
from caps.core.errors import SettingError
from caps.core.play import Game
from caps.core.standings import Tally
from caps.core.types import Group, Pairing, Solo, verdict_of
from caps.costs.closed_form import (
    ViewSizes,
    caps_calls,
    v1_infer_calls,
)
from caps.strategies.caps import ALL_E2
from support.playing import calls, field_of, played


@pytest.mark.parametrize("n", range(1, 65))
def test_the_closed_form_counts_what_the_generator_asks(n):
    for finalists in range(1, 9):
        contest = played(Caps(finalists=finalists), n)
        counted = calls(contest, Level.PARTIAL), calls(contest, Level.FULL), len(contest.transcript)
        expected = caps_calls(n, finalists)
        assert counted == (expected.partial, expected.full, expected.depth)


def test_standard_configuration_is_8_partial_and_10_full_calls():
    assert caps_calls(16, 4).partial == 8
    assert caps_calls(16, 4).full == 10
    assert caps_calls(16, 4).tokens(rho=0.12) == pytest.approx(10.96)


@pytest.mark.parametrize(("n", "share"), [(8, 0.270), (16, 0.228), (32, 0.208)])
def test_predicted_token_share_of_the_scaling_table(n, share):
    predicted = caps_calls(n, 4).tokens(rho=0.12) / v1_infer_calls(n).tokens(rho=0.12)
    assert predicted == pytest.approx(share, abs=6e-4)
    pool, finalists = n // 2, 4
    reductions = (pool - finalists) if pool > finalists else 0  # Eq. 6: the sum of the halved rounds
    as_printed = n // 2 * 0.12 + reductions + math.comb(finalists, 2)
    assert caps_calls(n, 4).tokens(0.12) == pytest.approx(as_printed)


def test_the_share_tends_to_1_plus_rho_over_2k():
    far = 1 << 20
    limit = (1 + 0.12) / (2 * 3)
    assert limit == pytest.approx(0.19, abs=4e-3)
    assert caps_calls(far, 4).tokens(0.12) / v1_infer_calls(far).full == pytest.approx(limit, rel=1e-4)


@pytest.mark.parametrize("n", [64, 100, 1000, 4096])
def test_the_asymptotic_form_of_equation_7_is_within_the_logarithm(n):
    asymptotic = n / 2 * (1 + 0.12) - 4 + math.comb(4, 2)
    assert abs(caps_calls(n, 4).tokens(0.12) - asymptotic) <= 2 * math.log2(n)


def test_a_call_costs_1000_tokens_at_e1_and_8500_at_e2():
    sizes = ViewSizes(partial=250, full=4000, overhead=500)
    assert (sizes.per_partial, sizes.per_full) == (1000, 8500)
    assert sizes.rho == pytest.approx(0.12, abs=3e-3)


def test_asks_of_one_or_many_have_their_own_price():
    sizes = ViewSizes()
    assert sizes.tokens(Pairing(0, 1, Level.PARTIAL)) == 1000
    assert sizes.tokens(Pairing(0, 1, Level.FULL)) == 8500
    assert sizes.tokens(Solo(0, Level.FULL)) == 4500
    assert sizes.tokens(Group(tuple(range(8)), Level.FULL)) == 32_500


def test_rho_sets_the_partial_view_and_cannot_undercut_the_prompt():
    assert ViewSizes.with_rho(0.12).per_partial == pytest.approx(1020)
    for impossible in (0.05, 1.2, -1):
        with pytest.raises(SettingError, match=r"it must be from 0\.059 to 1"):
            ViewSizes.with_rho(impossible)


def test_all_e2_costs_1_64_times_the_cascade():
    cascade, full = played(Caps(), 16), played(ALL_E2, 16)
    tokens = calls(cascade, Level.FULL) + 0.12 * calls(cascade, Level.PARTIAL)
    assert calls(full, Level.FULL) / tokens == pytest.approx(1.64, abs=5e-3)


@pytest.mark.parametrize(
    ("winner", "confidence", "ratings", "weight"),
    [
        ("A", "HIGH", (9, 3), 0.67),
        ("A", "LOW", (7, 5), 0.22),
        ("B", "HIGH", (3, 9), 0.67),
        ("B", "LOW", (5, 7), 0.22),
        ("TIE", "HIGH", (5, 5), 0.05),
        ("TIE", "LOW", (5, 5), 0.05),
    ],
)
def test_verdict_weights(winner, confidence, ratings, weight):
    verdict = verdict_of(winner, confidence)
    assert verdict == Verdict(*ratings)
    assert Tally([], floor=0.05).weigh(verdict) == pytest.approx(weight, abs=4e-3)


def test_v1_infer_asks_48_in_6_rounds():
    assert (v1_infer_calls(16).full, v1_infer_calls(16).depth) == (48, 6)


def test_the_closed_form_of_v1_infer_is_what_it_asks_for_even_pools():
    for n in range(2, 40, 2):
        contest = played("v1-infer", n)
        assert calls(contest, Level.FULL) == v1_infer_calls(n).full


def test_the_papers_first_case_study_costs_3_and_3_not_9_and_6():
    contest = played(Caps(), field_of(16, ["popular"] * 11 + list("abcde")))
    assert (calls(contest, Level.PARTIAL), calls(contest, Level.FULL)) == (3, 3)


def test_score_updates_follow_equation_3():
    tally = Tally([0, 1], floor=0.05)
    tally.record(Game(0, 1, verdict_of("A", "HIGH")))
    tally.record(Game(1, 0, verdict_of("A", "LOW")))
    assert tally.score == pytest.approx({0: 6 / 9, 1: 2 / 9})
