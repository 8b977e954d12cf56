from itertools import permutations
from statistics import fmean

import pytest

from caps import Entrant, Level, Pairing, Pick, Rating, Verdict
from caps.core.errors import SettingError
from caps.core.types import Group, Solo
from caps.judging.simulated import PRESETS, JudgeModel, SimulatedJudge

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


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_calibrated_to_the_accuracy_they_are_named_after(name):
    assert measured_accuracy(PRESETS[name], Level.FULL) == pytest.approx(int(name) / 100, abs=0.02)
    assert measured_accuracy(PRESETS[name], Level.PARTIAL) == pytest.approx(
        PRESETS[name].accuracy_partial, abs=0.02
    )


@pytest.mark.parametrize(
    "flaw",
    [{"shared_bias": 1.0}, {"position_bias": 0.8}, {"noise": 0.0}, {"noise": 1.0}, {"tie_band": 0.6}],
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
    assert flips(JudgeModel(noise=0.0)) == 0
    assert flips(JudgeModel(noise=0.0, position_bias=1.0)) > 0.3


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
    never_low = JudgeModel(tie_band=0.0, high_band=0.0)
    assert {j.answer(Pairing(0, 4, Level.FULL)) for j in judges(only_ties, 50)} == {Verdict(5, 5)}
    assert {j.answer(Pairing(0, 4, Level.FULL)).weight for j in judges(never_low, 50)} == {6 / 9}


def test_impossible_judges_are_refused():
    with pytest.raises(SettingError, match="accuracy = 1.5"):
        JudgeModel(accuracy=1.5)
