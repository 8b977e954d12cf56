"""A calibration from its questions to the strategy that knows the answers."""

import pytest

from caps.core.contest import Contest
from caps.core.errors import SettingError
from caps.core.types import Entrant, Level
from caps.judging.simulated import JudgeModel, SimulatedJudge
from caps.session.parts import make_strategy
from caps.strategies.posterior import Posterior
from caps.studies.calibration import Probe, ProbedCase, ballot_of, believer_of, conclude, observations_of
from caps.studies.simulation import PoolModel, generated_pools
from support.playing import asks_of, lower_id_wins, played

GOOD = JudgeModel(accuracy=0.9, accuracy_partial=0.78, position_bias=0.2)
WEAK = JudgeModel(accuracy=0.55, accuracy_partial=0.53, position_bias=0.2)


def field(*sizes):
    names = [f"answer {place}" for place, size in enumerate(sizes) for _ in range(size)]
    return [Entrant(i, name, (0, 250, 1000 + 7 * i)) for i, name in enumerate(names)]


def probe_of(entrants, labels=None):
    return Probe(Posterior(), tuple(labels or [None] * len(entrants)))


def probed(pool, model, *, labels):
    known = pool.correct if labels else (None,) * len(pool.correct)
    probe = Probe(Posterior(), known)
    judge = SimulatedJudge(model, pool.entrants, pool.correct, seed=3, case=pool.number)
    asked = [(ask, judge.answer(ask)) for ask in asks_of(played(probe, pool.entrants, judge.answer))]
    return ProbedCase(probe, pool.entrants, asked, pool.number)


def concluded(model, *, labels, count=40):
    pools = generated_pools(PoolModel(kind="math", solve_rate=0.5), count, seed=5)
    return conclude([probed(pool, model, labels=labels) for pool in pools], Posterior())


def test_a_right_and_a_wrong_answer_meet_in_both_orders_at_both_levels():
    entrants, labels = field(5, 3, 1), [True] * 5 + [False] * 4
    asks = asks_of(played(probe_of(entrants, labels), entrants))
    assert len(asks) == len(set(asks)) == 8
    (a, b), *_ = [(ask.a, ask.b) for ask in asks]
    assert a < 5 <= b < 8
    assert [(ask.a, ask.b, ask.level) for ask in asks[:4]] == [
        (a, b, Level.PARTIAL), (a, b, Level.FULL), (b, a, Level.PARTIAL), (b, a, Level.FULL),
    ]  # fmt: skip
    assert not {asks[4].a, asks[4].b} & {a, b}
    assert 8 in asks[6].entrants


def test_the_first_question_of_posterior_is_among_them():
    for seed in range(5):
        entrants = field(5, 4, 1)
        first = Contest(Posterior(), entrants, seed=seed).pending.asks[0]
        probe = probe_of(entrants, [True] * 5 + [False] * 5)
        assert first in asks_of(played(probe, entrants, seed=seed))


def test_nothing_is_asked_without_labels_of_a_right_and_a_wrong_answer():
    for labels in (None, [True] * 5 + [None] * 4, [False] * 9, [True] * 9):
        assert asks_of(played(probe_of(field(5, 3, 1), labels), field(5, 3, 1))) == []


def test_nothing_is_asked_where_all_agree():
    assert asks_of(played(probe_of(field(6), [True] * 6), field(6))) == []


def test_with_labels_the_right_one_meets_a_wrong_one_however_few_say_so():
    labels = [False] * 5 + [False] * 3 + [True]
    asks = asks_of(played(probe_of(field(5, 3, 1), labels), field(5, 3, 1)))
    assert asks[0].a == 8
    assert asks[0].b < 5
    observations = observations_of(
        probe_of(field(5, 3, 1), labels), field(5, 3, 1), [(a, lower_id_wins(a)) for a in asks], 0
    )
    assert {(one.one, one.outcome) for one in observations} == {(8, 0.0)}, (
        "seen from the right one, which loses"
    )


def test_a_ballot_needs_every_label():
    entrants = field(2, 1)
    assert ballot_of(probe_of(entrants, [True, True, None]), entrants) is None
    assert ballot_of(probe_of(entrants, [True, True, False]), entrants).right == (True, False)


def test_a_good_judge_is_told_from_a_weak_one():
    good, weak = (concluded(model, labels=True).learned.profile for model in (GOOD, WEAK))
    assert good.e2_high > 0.86
    assert weak.e2_high < 0.78
    assert min(good.first_slot, weak.first_slot) > 0.52


def test_votes_are_weighed_anew_only_where_labels_tell_and_nobody_has_set_them():
    without = concluded(GOOD, labels=False)
    assert without.strengths == {}
    assert "only 0 cases have labels" in without.learned.silent
    found = concluded(GOOD, labels=True)
    assert set(found.strengths) == {"votes", "nobody", "calibrated"}
    pools = generated_pools(PoolModel(kind="math", solve_rate=0.5), 12, seed=5)
    fixed = conclude([probed(pool, GOOD, labels=True) for pool in pools], Posterior(), fixed=["nobody"])
    assert set(fixed.strengths) <= {"votes", "calibrated"}


def test_a_result_says_whether_its_probability_was_fitted_to_such_cases():
    told = concluded(GOOD, labels=True).inform(Posterior(), "posterior", {})
    guessed = concluded(GOOD, labels=False).inform(Posterior(), "posterior", {})
    for strategy, fitted in ((Posterior(), 0.0), (guessed, 0.0), (told, 1.0)):
        assert played(strategy, field(5, 3, 1)).selection.facts["calibrated"] == fitted


def test_where_several_may_be_right_labels_move_the_odds_of_all():
    usual = Posterior().nobody
    hopeless, easy = (
        conclude(
            [
                probed(pool, GOOD, labels=True)
                for pool in generated_pools(PoolModel(solve_rate=rate), 30, seed=5)
            ],
            Posterior(),
        )
        .inform(Posterior(), "posterior", {})
        .nobody
        for rate in (0.05, 0.9)
    )
    assert hopeless > 2 * usual > usual > 2 * easy


def test_what_was_learnt_enters_the_strategy_and_what_a_user_set_stays():
    found = concluded(GOOD, labels=True)
    told = found.inform(Posterior(effort="high"), "posterior", {"e2_high": "0.7", "effort": "high"})
    assert (told.e2_high, told.effort) == (0.7, "high")
    assert (told.e2_low, told.votes) == (found.learned.profile.e2_low, found.strengths["votes"])


def test_a_strategy_that_reckons_with_no_judge_is_refused():
    with pytest.raises(SettingError, match="'caps-r' does not use .* choose --strategy posterior"):
        believer_of(make_strategy("caps-r"), "caps-r")
