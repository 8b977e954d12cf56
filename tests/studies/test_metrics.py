"""What tables say, computed from results made by hand."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from caps.costs.closed_form import caps_calls
from caps.session.parts import make_strategy
from caps.studies.metrics import METRICS, Cascade, MethodResults
from caps.studies.results import Result, disagreements
from caps.studies.study import Method, Study, Suite, TableSpec
from caps.studies.tables import cannot_be, make_table


def result(case="1", seed=1, **facts):
    given = {"n": 4, "rights": 2, "first": True, "clusters": 4, "winner": 0, "right": True, "made_of": "x"}
    return Result(method="m", seed=seed, case=case, **{**given, **facts})


def value(name, *results, **more):
    found = METRICS[name].compute(MethodResults(results, **more))
    return None if found is None else found.value


def test_repeats_are_averaged_and_the_interval_counts_problems_not_repeats():
    repeats = [result(case, seed, right=case == "a") for case in "ab" for seed in (1, 2, 3)]
    once = [one for one in repeats if one.seed == 1]
    assert METRICS["pass_at_1"].compute(MethodResults(repeats)) == METRICS["pass_at_1"].compute(
        MethodResults(once)
    )
    assert value("pass_at_1", result(seed=1), result(seed=2, right=False)) == 0.5


def test_bounds_and_both_trivial_shares_are_of_the_pool():
    pools = [
        result("a", rights=4, clusters=1),
        result("b", rights=0, right=False),
        result("c", rights=1, right=False),
        result("d", rights=2),
    ]
    assert value("mean_sample", *pools) == pytest.approx(7 / 16)
    assert value("pass_at_n", *pools) == 0.75
    assert value("headroom", *pools) == 0.25
    assert (value("one_cluster", *pools), value("one_label", *pools)) == (0.25, 0.5)


def test_pair_accuracy_is_over_the_games_played_at_each_level():
    some = [
        result("a", apart=(2, 4), apart_right=(1.5, 4.0)),
        result("b", apart=(2, 0), apart_right=(0.5, 0.0)),
    ]
    assert [value(f"accuracy_{level}", *some) for level in ("e1", "e2")] == [0.5, 1.0]
    assert value("accuracy", *some) == 0.75
    assert value("accuracy_change", *some, reference=[result(apart=(0, 4), apart_right=(0.0, 2.0))]) == 0.25
    assert value("accuracy_e1", result()) is None


def test_the_token_share_is_over_the_same_problems_and_none_without_a_reference():
    own = [result("a", tokens=(10, 40)), result("b", tokens=(0, 50))]
    other = [result("a", tokens=(0, 200)), result("b", tokens=(0, 200)), result("z", tokens=(0, 999))]
    assert value("token_share", *own, reference=other) == 0.25
    assert value("token_share", *own) is None


@pytest.mark.parametrize(("n", "percent"), [(8, 27.0), (16, 22.8), (32, 20.8)])
def test_the_closed_form_is_the_papers_prediction(n, percent):
    one = result(n=n, clusters=n, pairs=(8, 10), pair_tokens=(8 * 12, 10 * 100))
    share = value("closed_share", one, cascade=Cascade(4, dedup=True))
    assert share == pytest.approx(caps_calls(n, 4).tokens(0.12) / (3 * n))
    assert 100 * share == pytest.approx(percent, abs=0.06)


def test_a_rescue_adds_the_newcomers_games_to_the_closed_form():
    plain = {"n": 16, "clusters": 16, "pairs": (8, 10), "pair_tokens": (8, 100)}
    cost = [
        48 * value("closed_share", result(**plain, rescued=k), cascade=Cascade(4, dedup=True))
        for k in (0, 1, 2)
    ]
    assert [round(more - cost[0], 9) for more in cost] == [0, 4, 9]


def test_a_gain_is_paired_and_its_test_counts_a_problem_once():
    own = [result(case, seed) for case in "abcdef" for seed in (1, 2)]
    base = [result(case, seed, right=case == "a") for case in "abcdef" for seed in (1, 2)]
    assert value("gain", *own, baseline=base) == pytest.approx(5 / 6)
    assert value("mcnemar", *own, baseline=base) == 0.0625
    assert value("gain", *own) is None


def study_of(*metrics):
    methods = [Method(name=name, use="caps", strategy=make_strategy("caps")) for name in ("new", "old")]
    spec = TableSpec(name="t", title="t", metrics=metrics, methods=("new",), baseline="old")
    suites = (Suite(name="suite"),)
    return Study(path=Path("s"), title="s", seeds=(1,), suites=suites, methods=tuple(methods), tables=(spec,))


@pytest.mark.parametrize(("gained", "explained"), [(5, True), (12, False), (0, False)])
def test_a_difference_whose_interval_and_test_disagree_is_explained(gained, explained):
    """Five problems gained and none lost: the bootstrap leaves out 0, and McNemar's exact p is 0.0625."""
    study = study_of("gain", "mcnemar")
    names = [str(number) for number in range(30)]
    book = {
        "suite": {
            "new": [result(name) for name in names],
            "old": [result(name, right=place >= gained) for place, name in enumerate(names)],
        }
    }
    table = make_table(study, study.tables[0], book)
    assert any("although p = 0.062" in note for note in table.notes) == explained


def test_disagreements_are_those_in_which_exactly_one_is_right():
    first = [result("a"), result("b", right=False), result("c"), result("only here")]
    second = [result("a"), result("b"), result("c", right=False)]
    found = disagreements("suite", first, second)
    assert [(one.case, one.first.right) for one in found] == [("b", False), ("c", True)]


@pytest.mark.parametrize(
    ("percent", "problems", "impossible"),
    [
        (80.0, 30, False),
        (46.5, 30, True),
        (70.4, 30, True),
        (59.5, 131, False),
        (59.4, 131, True),
        (50.0, None, False),
    ],
)
def test_a_published_figure_that_no_count_gives_is_known(percent, problems, impossible):
    assert cannot_be(percent, problems, repeats=3) is impossible


def test_how_sure_a_method_was_is_held_against_how_often_it_was_right():
    some = [result(str(k), sure=0.75, right=k < 2) for k in range(4)] + [result("5", sure=0.05, right=False)]
    assert value("calibration_error", *some) == pytest.approx((4 * 0.25 + 0.05) / 5)
    assert value("brier", *some) == pytest.approx((2 * 0.0625 + 2 * 0.5625 + 0.0025) / 5)
    assert value("calibration_error", result()) is None
    assert value("brier", result()) is None


def test_rescues_are_told_by_their_condition_and_by_who_was_chosen():
    rescues = [
        result("a", rescued=1, narrow=True, rescued_wins=True),
        result("b", rescued=1, narrow=False),
        result("c"),
    ]
    assert value("rescue_rate", *rescues) == pytest.approx(2 / 3)
    assert value("rescued_by_margin", *rescues) == value("rescued_by_rarity", *rescues) == 0.5
    assert value("rescued_wins", *rescues) == 0.5
    assert value("rescued_wins", result()) is None


def test_the_same_choice_is_the_same_candidate_with_the_same_seed():
    own = [result("a", 1, winner=3), result("a", 2, winner=1), result("b", 1, winner=0)]
    other = [result("a", 1, winner=3), result("a", 2, winner=2), result("b", 2, winner=0)]
    assert value("same_choice", *own, baseline=other) == 0.5
    assert value("same_choice", *own) is None


def test_mixed_pools_are_those_in_which_a_choice_matters():
    pools = [(True, 4), (True, 2), (False, 1), (False, 0)]
    results = [result(str(i), right=right, rights=rights) for i, (right, rights) in enumerate(pools)]
    assert METRICS["mixed"].compute(MethodResults(results)).value == 0.5
    others = [replace(one, right=True) for one in results]
    assert METRICS["mixed_gain"].compute(MethodResults(results, baseline=others)).value == -0.5


def test_grades_are_averaged_over_seeds_and_compared_on_the_same_problems():
    ours = [result(case="a", seed=seed, grade=grade) for seed, grade in enumerate([1.0, 2.0])]
    theirs = [result(case="a", grade=1.0), result(case="b", grade=9.0)]
    assert METRICS["grade"].compute(MethodResults(ours)).value == 1.5
    assert METRICS["grade_gain"].compute(MethodResults(ours, baseline=theirs)).value == 0.5
    assert METRICS["grade"].compute(MethodResults([result(case="a")])) is None
