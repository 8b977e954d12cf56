"""A diagnosis from the choice of pairs to the advice, against judges that are known."""

import json
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from caps.core.judge_profile import JudgeProfile
from caps.core.types import Level
from caps.datasets.case_files import parse_case
from caps.judging.simulated import PRESETS, JudgeModel
from caps.session.parts import make_prepare
from caps.strategies.v1_infer import V1Infer
from caps.strategies.vanilla import Vanilla
from caps.studies.advice import Expected, Uncertainty, advise, conclude, expectations, forecast, has_tests
from caps.studies.diagnosis import (
    ALL_PAIRS,
    Plan,
    ProbePair,
    asks_of,
    distinguished,
    explain_no_pairs,
    of_pools,
    schedule,
    simulate,
    subjects,
)
from caps.studies.simulation import PoolModel, generated_pools

GOOD = PRESETS["90"]
COIN = JudgeModel(accuracy=0.5, accuracy_partial=0.5)


def pools(count=60, **shape):
    return list(of_pools(generated_pools(PoolModel(n=8, solve_rate=0.5, **shape), count, seed=1)))


def case_of(labels, domain="math", **more):
    candidates = [{"text": f"\\\\boxed{{{i}}}", "correct": label} for i, label in enumerate(labels)]
    for one in candidates:
        if one["correct"] is None:
            one.pop("correct")
    row = {"id": "c", "domain": domain, "problem": "?", "candidates": candidates, **more}
    return parse_case(json.dumps(row), default_id="c")


def subjects_of(*cases):
    return list(subjects(cases, make_prepare()))


def test_neighbours_on_the_ladder_share_one_candidate_and_the_next_but_one_none():
    probe_pairs = distinguished(dict(enumerate([True, True, True, False, False, False])), 4, Random(1))
    for one, two in pairwise(probe_pairs):
        assert (one.one == two.one) != (one.other == two.other)
    for one, two in zip(probe_pairs, probe_pairs[2:], strict=False):
        assert one.one != two.one
        assert one.other != two.other


def test_no_pair_is_asked_twice_and_unlabelled_candidates_stay_out():
    probe_pairs = distinguished({0: True, 1: False, 2: None, 3: False}, 99, Random(1))
    assert sorted(probe_pairs, key=lambda duel: duel.other) == [ProbePair(0, 1), ProbePair(0, 3)]
    assert distinguished({0: True, 1: True}, 9, Random(1)) == ()


def test_each_pair_is_asked_at_both_levels_in_both_orders():
    asks = asks_of([ProbePair(0, 5), ProbePair(1, 6)])
    assert len(set(asks)) == 8
    assert [(ask.a, ask.b) for ask in asks[::2]] == [(0, 5), (5, 0), (6, 1), (1, 6)]
    assert {ask.level for ask in asks} == {Level.PARTIAL, Level.FULL}


def test_pairs_are_spread_over_cases_and_as_many_as_allowed():
    chosen = schedule(pools(), Plan(pairs=31))
    counts = [len(subject.probe_pairs) for subject in chosen]
    assert sum(counts) == 31
    assert max(counts) == 2
    few = schedule(pools(4), Plan(pairs=20))
    assert sum(len(subject.probe_pairs) for subject in few) == 20
    assert schedule(pools(), Plan(pairs=31)) == schedule(pools(), Plan(pairs=31))


def test_a_good_judge_needs_few_pairs_and_a_coin_all_of_them():
    found, plan = pools(200), Plan(pairs=180)
    good, coin = (simulate(schedule(found, plan), plan, judge) for judge in (GOOD, COIN))
    asked = len(coin.observations)
    assert 30 * 4 <= len(good.observations) < asked
    for precision in (ALL_PAIRS, 0.02):
        finer = replace(plan, precision=precision)
        assert len(simulate(schedule(found, finer), finer, GOOD).observations) == asked


@pytest.mark.slow
def test_a_coin_is_not_to_choose_and_a_good_judge_is():
    found, plan = pools(), Plan(pairs=90)
    coin, good = (
        conclude(simulate(schedule(found, plan), plan, judge), found, seed=1, contests=60)
        for judge in (COIN, GOOD)
    )
    assert coin.measured.levels["E2"].accuracy.contains(0.5)
    assert coin.chosen.strategy in ("majority", "vanilla")
    assert good.chosen.judged
    assert good.chosen.pass_at_1 > coin.chosen.pass_at_1
    best = max(one.pass_at_1 for one in good.options)
    assert good.chosen.tokens == min(one.tokens for one in good.options if one.pass_at_1 >= best - 0.02)


def test_the_fitted_judge_errs_like_the_one_that_was_measured():
    judge = JudgeModel(accuracy=0.8, accuracy_partial=0.62, position_bias=0.4, tie_band=0.3, high_band=1.2)
    found, plan = pools(300), Plan(pairs=900, precision=ALL_PAIRS)
    model = conclude(simulate(schedule(found, plan), plan, judge), found, seed=1, contests=1).model
    assert model.accuracy == pytest.approx(0.8, abs=0.03)
    assert model.accuracy_partial == pytest.approx(0.62, abs=0.03)
    assert model.position_bias == pytest.approx(0.4, abs=0.08)
    assert model.tie_band == pytest.approx(0.3, abs=0.05)
    assert model.high_band == pytest.approx(1.2, abs=0.4)
    assert model.confidence_noise == pytest.approx(judge.confidence_noise, abs=0.6)
    assert model.carried == pytest.approx(judge.carried, abs=0.15)
    assert model.lasting == pytest.approx(judge.lasting, abs=0.2)


def test_six_calls_are_not_forecast_to_beat_a_judge_that_repeats_itself():
    judge = JudgeModel(accuracy=0.76, accuracy_partial=0.76, order_noise=0.05, carried=1.0)
    pairs = list(of_pools(generated_pools(PoolModel(n=2, solve_rate=0.5, spread=9.0), 500, seed=2)))
    found = [one for one in pairs if sum(one.pool.correct) == 1]
    plan = Plan(pairs=150, precision=ALL_PAIRS)
    options = conclude(simulate(schedule(found, plan), plan, judge), found, seed=1, contests=300).options
    by_name = {one.strategy: one for one in options if not one.settings or one.strategy == "v1-infer"}
    low, high = by_name["v1-infer"].interval
    assert low < 0.76 < high
    assert by_name["v1-infer"].pass_at_1 < 0.83


def test_right_candidates_that_came_first_do_not_speak_for_taking_the_first():
    made = [one.pool for one in pools()]
    first = [
        replace(pool, correct=tuple(sorted(pool.correct, reverse=True)), entrants=pool.entrants)
        for pool in made
    ]
    options = forecast(first, {"vanilla": Vanilla()}, GOOD, seed=1, contests=200)
    ((results, _),) = options.values()
    mean = sum(sum(pool.correct) / len(pool.correct) for pool in first) / len(first)
    assert sum(result.right for result in results) / len(results) == pytest.approx(mean, abs=0.1)
    assert sum(pool.correct[0] for pool in first) / len(first) > mean + 0.2


def test_as_many_contests_are_simulated_as_were_asked_for():
    made, heard = [one.pool for one in pools()], []
    contests = len(made) + 1  # more than there are pools, and no multiple of them
    forecast(made, {"vanilla": Vanilla()}, GOOD, seed=1, contests=contests, report=heard.append)
    assert sum(heard) == contests


def test_an_interval_is_wider_the_less_is_known_and_the_fewer_cases_it_is_about():
    many = [one.pool for one in pools()]

    def width(made, **known):
        options = forecast(
            made, {"v1-infer": V1Infer()}, GOOD, seed=1, contests=100, uncertainty=Uncertainty(**known)
        )
        ((_, (low, high)),) = options.values()
        return high - low

    assert width(many, accuracy=0.01, cases=200) < width(many, accuracy=0.08, cases=200)
    assert width(many, accuracy=0.01, cases=200) < width(many[:15], accuracy=0.01, cases=200)


@pytest.mark.slow
def test_where_partial_views_tell_nothing_full_ones_are_advised():
    judge = JudgeModel(accuracy=0.9, accuracy_partial=0.5)
    options = expectations([one.pool for one in pools()], judge, JudgeProfile(), seed=1, contests=120)
    by_name = {(one.strategy, *one.settings.values()): one for one in options}
    assert by_name["all-e2",].pass_at_1 > by_name["caps-r",].pass_at_1
    assert advise(options, usable=True, tested=False).calls["E1"] == 0


def test_programs_with_tests_need_no_judge_at_chance():
    options = [Expected(strategy=name, pass_at_1=0.5, tokens=0, calls={}, pair_accuracy=None) for name in ("vanilla", "majority")]  # fmt: skip
    assert advise(options, usable=False, tested=False).strategy == "majority"
    assert advise(options, usable=False, tested=True).strategy == "tests-first"
    assert has_tests([case_of([True], domain="code", tests={"public": [{"input": "", "output": ""}]})])
    assert not has_tests([case_of([True])])


def test_what_cannot_be_told_apart_is_explained():
    for labels, words in (
        ([None, None], "no candidate carries a label"),
        ([True, True], "all labelled candidates are right"),
        ([False, None], "all labelled candidates are wrong"),
    ):
        found = subjects_of(case_of(labels))
        assert schedule(found, Plan()) == []
        assert words in explain_no_pairs(found)
    both = subjects_of(case_of([True, True]), case_of([False]))
    assert "within each case" in explain_no_pairs(both)
