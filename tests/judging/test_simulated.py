import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from pathlib import Path
from statistics import NormalDist, fmean

import pytest

from caps import Entrant, Level, Pairing, Pick, Rating, Verdict
from caps.core.errors import SettingError
from caps.core.types import Group, Solo
from caps.judging.simulated import PRESETS, JudgeModel, SimulatedJudge, judge_of

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FIELD = [Entrant(i, f"answer {i // 2}") for i in range(8)]
TRUTH = [True, True, False, False, False, False, False, False]


def judges(model, count=400, field=FIELD, truth=TRUTH):
    return [SimulatedJudge(model, field, truth, seed=1, case=case) for case in range(count)]


def measured_accuracy(model, level, count=400):
    """Mean outcome for the right candidate over all right-wrong pairs in both orders."""
    won = []
    for judge in judges(model, count):
        for a, b in permutations(range(8), 2):
            if TRUTH[a] != TRUTH[b]:
                verdict = judge.answer(Pairing(a, b, level))
                won.append(verdict.outcome if TRUTH[a] else 1 - verdict.outcome)
    return fmean(won)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_calibrated_to_their_accuracy(name):
    preset = PRESETS[name]
    assert preset.accuracy == (int(name) / 100 if name.isdigit() else preset.accuracy)
    assert measured_accuracy(preset, Level.FULL, 1200) == pytest.approx(preset.accuracy, abs=0.025)
    assert measured_accuracy(preset, Level.PARTIAL, 1200) == pytest.approx(preset.accuracy_partial, abs=0.025)


@pytest.mark.slow
@pytest.mark.parametrize(
    "flaw", [{"shared_bias": 1.0}, {"position_bias": 0.8}, {"noise": 0.0}, {"noise": 1.0}, {"tie_band": 0.6}]
)
def test_accuracy_stays_what_was_asked_for_whatever_the_flaws(flaw):
    assert measured_accuracy(JudgeModel(accuracy=0.75, **flaw), Level.FULL, 1200) == pytest.approx(
        0.75, abs=0.025
    )


def test_answers_depend_on_what_is_asked_and_not_on_when():
    asks = [Pairing(a, b, Level.FULL) for a, b in permutations(range(8), 2)]
    one, other = judges(PRESETS["70"], 1)[0], judges(PRESETS["70"], 1)[0]
    assert [one.answer(ask) for ask in asks] == [other.answer(ask) for ask in reversed(asks)][::-1]


def test_another_seed_case_draw_or_order_is_another_look():
    ask = Pairing(0, 5, Level.FULL)
    model = JudgeModel(accuracy=0.6, noise=1.0)
    looks = [
        SimulatedJudge(model, FIELD, TRUTH, seed=s, case=c).answer(ask) for s in range(9) for c in range(9)
    ]
    assert len(set(looks)) > 2
    judge = judges(model, 1)[0]
    assert len({judge.answer(Pairing(0, 5, Level.FULL, draw)) for draw in range(40)}) > 2


def flips(model):
    """Share of pairs of equal worth whose winner changes when the slots are exchanged."""
    changed = []
    for judge in judges(model, 300):
        there, back = judge.answer(Pairing(2, 4, Level.FULL)), judge.answer(Pairing(4, 2, Level.FULL))
        changed.append(there.outcome != 1 - back.outcome)
    return fmean(changed)


def test_without_noise_and_bias_nothing_flips_and_position_bias_makes_it_flip():
    steady = {"noise": 0.0, "order_noise": 0.0, "pull_spread": 0.0}
    assert flips(JudgeModel(position_bias=0.0, **steady)) == 0
    assert flips(JudgeModel(position_bias=1.0, **steady)) > 0.3


def test_shared_errors_make_members_of_a_cluster_look_alike():
    apart = [
        abs(j.belief(2, Level.FULL) - j.belief(3, Level.FULL)) for j in judges(JudgeModel(shared_bias=1.0))
    ]
    alone = [
        abs(j.belief(2, Level.FULL) - j.belief(3, Level.FULL)) for j in judges(JudgeModel(shared_bias=0.0))
    ]
    assert max(apart) == 0
    assert fmean(alone) > 0.3


def test_candidates_without_a_signature_share_no_error():
    field = [Entrant(0), Entrant(1)]
    judge = SimulatedJudge(JudgeModel(shared_bias=1.0), field, [False, False], seed=1)
    assert judge.belief(0, Level.FULL) != judge.belief(1, Level.FULL)


def test_ratings_are_finer_than_verdicts_but_agree_on_the_winner():
    margins = set()
    for judge in judges(PRESETS["80"], 300):
        words = judge.answer(Pairing(0, 4, Level.FULL))
        ratings = judge.answer(Pairing(0, 4, Level.FULL, dialect="ratings"))
        assert words.outcome == ratings.outcome
        assert 1 <= min(ratings.a, ratings.b) <= max(ratings.a, ratings.b) <= 10
        margins.add(abs(ratings.a - ratings.b))
    assert len(margins) > 5


def test_single_looks_and_groups_prefer_the_right_candidate():
    solo, picked = [], []
    for judge in judges(PRESETS["90"], 300):
        solo.append(judge.answer(Solo(0, Level.FULL)).value - judge.answer(Solo(4, Level.FULL)).value)
        picked.append(TRUTH[judge.answer(Group(tuple(range(8)), Level.FULL)).winner])
    assert fmean(solo) > 1
    assert fmean(picked) > 0.7
    assert isinstance(judge.answer(Solo(0, Level.FULL)), Rating)
    assert isinstance(judge.answer(Group((1, 2), Level.FULL)), Pick)


def test_bands_decide_between_tie_low_and_high():
    only_ties = JudgeModel(tie_band=5.0, high_band=5.0, accuracy=0.5, accuracy_partial=0.5, noise=0.0)
    never_low = JudgeModel(tie_band=0.0, high_band=0.0, confidence_noise=0.0)
    assert {j.answer(Pairing(0, 4, Level.FULL)) for j in judges(only_ties, 50)} == {Verdict(5, 5)}
    assert {j.answer(Pairing(0, 4, Level.FULL)).weight for j in judges(never_low, 50)} == {6 / 9}


def test_impossible_judges_are_refused():
    with pytest.raises(SettingError, match="accuracy = 1.5"):
        JudgeModel(accuracy=1.5)
    with pytest.raises(SettingError, match="position_bias = 9: must be a number from -5 to 5, or unset"):
        JudgeModel(position_bias=9)
    with pytest.raises(SettingError, match="noise = None: must be a number from 0 to 1"):
        JudgeModel(noise=None)


@dataclass(frozen=True)
class Statistics:
    """What many cases of one right and one wrong candidate show of a judge."""

    redraw: float
    swap: float
    lasting: float
    pull: float
    high: float
    low: float
    across: float


def tetrachoric(first, second):
    spec = importlib.util.spec_from_file_location("judge_statistics", BENCHMARKS / "judge_statistics.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.tetrachoric(first, second)


@lru_cache
def statistics(model, cases=4000):
    """The figures that `benchmarks/judge_statistics.py` computes of real verdicts, of simulated ones."""
    there, back, again, other, confident = [], [], [], [], {True: [], False: []}
    pair, swapped = Pairing(0, 1, Level.FULL), Pairing(1, 0, Level.FULL)
    for case in range(cases):
        judge, second = judge_of_two(model, case, 0), judge_of_two(model, case, 1)
        looks = judge.answer(pair), judge.answer(swapped).swapped()
        there.append(looks[0].outcome)
        back.append(looks[1].outcome)
        again.append(judge.answer(Pairing(0, 1, Level.FULL, draw=1)).outcome)
        other.append(second.answer(pair).outcome)
        for verdict in looks:
            if verdict.outcome != 0.5:
                confident[verdict.weight > 0.5].append(verdict.outcome)
    quantiles = [NormalDist().inv_cdf(fmean(order)) for order in (there, back)]
    return Statistics(
        redraw=fmean(abs(x - y) for x, y in zip(there, again, strict=True)),
        swap=fmean(abs(x - y) for x, y in zip(there, back, strict=True)),
        lasting=tetrachoric(there, back),
        pull=(quantiles[0] - quantiles[1]) / 2,
        high=fmean(confident[True]),
        low=fmean(confident[False]),
        across=tetrachoric(there, other),
    )


def judge_of_two(model, case, which):
    entrants = [Entrant(0, "right"), Entrant(1, "wrong")]
    return SimulatedJudge(model, entrants, [True, False], seed=3, case=case, judge=which)


@pytest.mark.parametrize("accuracy", [0.6, 0.7, 0.76, 0.8, 0.9])
def test_the_usual_judge_changes_more_verdicts_when_swapped_than_when_redrawn(accuracy):
    found = statistics(judge_of(accuracy))
    assert 0.02 <= found.redraw <= 0.08
    assert found.swap > 2 * found.redraw
    assert 0.57 <= found.lasting <= 1


def test_high_and_low_verdicts_of_the_usual_judge_differ_by_nine_points():
    found = statistics(judge_of(0.76), 12_000)
    assert found.high == pytest.approx(0.81, abs=0.015)
    assert found.low == pytest.approx(0.72, abs=0.015)


def test_the_usual_pull_is_slight_for_a_good_judge_and_strong_for_a_weak_one():
    good, weak = judge_of(0.76), judge_of(0.56)
    assert abs(statistics(good).pull) == pytest.approx(good.pull(Level.FULL) / good.spread, abs=0.04)
    assert abs(statistics(weak).pull) == pytest.approx(weak.pull(Level.FULL) / weak.spread, abs=0.04)
    assert 0.05 <= abs(statistics(good).pull) <= 0.22
    assert 0.45 <= abs(statistics(weak).pull) <= 0.75


def test_the_seed_decides_the_preferred_slot_and_a_stated_pull_is_towards_a():
    def mean_pull(model, seed):
        found = [SimulatedJudge(model, FIELD, TRUTH, seed=seed, case=case) for case in range(200)]
        return fmean(judge.pull(Level.FULL) for judge in found)

    usual = [mean_pull(judge_of(0.8), seed) for seed in range(40)]
    assert 10 < sum(pull > 0 for pull in usual) < 30
    assert all(abs(pull) == pytest.approx(0.12, abs=0.07) for pull in usual)
    assert all(mean_pull(judge_of(0.8, position_bias=0.4), seed) > 0.3 for seed in range(10))


def test_a_pull_may_differ_between_the_levels():
    assert judge_of(0.8, position_bias=0.3).pull(Level.PARTIAL) == 0.3
    model = judge_of(0.8, position_bias=0.3, position_bias_partial=-0.5)
    assert (model.pull(Level.PARTIAL), model.pull(Level.FULL)) == (-0.5, 0.3)
    assert judge_of(0.65).pull(Level.PARTIAL) == 0.12
    assert judge_of(0.6).pull(Level.PARTIAL) == 0.6


@pytest.mark.parametrize(
    ("name", "swap", "lasting", "pull"),
    [
        ("strong", (0.06, 0.13), (0.8, 0.97), (0, 0.1)),
        ("reasoning", (0.09, 0.16), (0.7, 0.9), (-0.1, 0)),
        ("weak", (0.38, 0.51), (0.5, 0.75), (0.45, 0.75)),
        ("biased", (0.5, 0.65), (0.3, 0.55), (0.75, 1)),
    ],
)
def test_presets_swap_last_and_pull_like_the_judges_they_stand_for(name, swap, lasting, pull):
    found = statistics(PRESETS[name])
    for value, (low, high) in ((found.swap, swap), (found.lasting, lasting), (found.pull, pull)):
        assert low <= value <= high


def test_a_reasoning_judge_changes_more_verdicts_when_redrawn():
    assert 2 * statistics(PRESETS["strong"]).redraw < statistics(PRESETS["reasoning"]).redraw < 0.12


def test_errors_of_two_judges_correlate_and_those_of_strangers_do_not():
    assert 0.25 <= statistics(judge_of(0.76)).across <= 0.58
    assert abs(statistics(judge_of(0.76, common=0.0)).across) < 0.08


def test_ratings_are_coarse():
    same = [
        judge.answer(Solo(0, Level.FULL)) == judge.answer(Solo(4, Level.FULL))
        for judge in judges(PRESETS["70"], 600)
    ]
    assert 0.3 < fmean(same) < 0.5
