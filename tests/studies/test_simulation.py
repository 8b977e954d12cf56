import pytest

from caps.core.errors import InputError, SettingError
from caps.costs.closed_form import caps_calls
from caps.datasets.case_files import parse_case
from caps.judging.simulated import PRESETS
from caps.session.parts import make_strategy
from caps.studies.metrics import MethodResults, summary
from caps.studies.play import simulate
from caps.studies.simulation import PoolModel, generated_pools, labelled


def run(names, pools, *, processes=1, judge="80", seed=1):
    strategies = {name: make_strategy(name) for name in names}
    return simulate(pools, strategies, PRESETS[judge], seed=seed, processes=processes)


def rights(results):
    return sum(result.right for result in results)


def test_figures_are_the_same_on_any_number_of_processes():
    pools = generated_pools(PoolModel(), 130, seed=5)
    assert run(["caps-r", "v1-infer"], pools) == run(["caps-r", "v1-infer"], pools, processes=2)


def test_calls_and_tokens_follow_the_closed_form_where_all_candidates_differ():
    pools = generated_pools(PoolModel(duplicates=0), 20, seed=1)
    results = run(["caps", "v1-infer"], pools)
    figures = summary(MethodResults(results["caps"], results["v1-infer"]))
    assert figures["calls"] == {"E1": 8, "E2": 10}
    assert figures["tokens"] == {"E1": 8 * 1000, "E2": 10 * 8500}
    assert figures["token_share"] == pytest.approx(caps_calls(16, 4).tokens(1000 / 8500) / 48)
    assert figures["depth"] == 3


def test_a_better_judge_chooses_better_and_judging_beats_not_judging():
    pools = generated_pools(PoolModel(), 300, seed=2)
    right = {judge: run(["caps", "vanilla"], pools, judge=judge) for judge in ("60", "90")}
    assert rights(right["90"]["caps"]) > rights(right["60"]["caps"]) > rights(right["60"]["vanilla"])


def test_per_pair_accuracy_on_random_pairs_is_what_the_judge_was_given():
    pools = generated_pools(PoolModel(), 300, seed=3)
    figures = summary(MethodResults(run(["random-pairs"], pools)["random-pairs"]))
    assert figures["pair_accuracy"]["E2"] == pytest.approx(0.8, abs=0.025)
    assert figures["pair_accuracy"]["E1"] is None


def test_mixed_pools_are_those_in_which_choosing_matters():
    pools = generated_pools(PoolModel(solve_rate=0.5), 200, seed=4)
    results = run(["caps"], pools)["caps"]
    figures = summary(MethodResults(results))
    mixed = [pool for pool in pools if 0 < sum(pool.correct) < 16]
    hopeful = sum(all(pool.correct) for pool in pools)
    assert figures["mixed_problems"] == len(mixed) < figures["problems"]
    assert rights(results) == pytest.approx(figures["mixed_pass_at_1"] * len(mixed) + hopeful)


def test_math_pools_cluster_and_code_pools_hardly_do():
    def clusters(kind):
        return [
            len({e.signature for e in pool.entrants})
            for pool in generated_pools(PoolModel(kind=kind), 100, seed=1)
        ]

    assert sum(clusters("math")) / 100 < 8
    assert sum(clusters("code")) / 100 > 14


def test_in_made_up_pools_equal_answers_are_equally_right():
    for kind in ("math", "code"):
        for pool in generated_pools(PoolModel(kind=kind), 100, seed=1):
            labels = {}
            for entrant, right in zip(pool.entrants, pool.correct, strict=True):
                assert labels.setdefault(entrant.signature, right) == right


def test_labelled_cases_become_pools_with_their_real_clusters():
    line = (
        '{"id": "a", "domain": "math", "problem": "1+1?", "candidates": ['
        '{"text": "\\\\boxed{2}", "correct": true}, {"text": "so \\\\boxed{ 2 }", "correct": true}, '
        '{"text": "\\\\boxed{3}", "correct": false}]}'
    )
    (pool,) = labelled([parse_case(line, default_id="1")], n=None)
    assert [entrant.signature for entrant in pool.entrants] == ["2", "2", "3"]
    assert pool.correct == (True, True, False)


def test_a_case_without_labels_is_named():
    case = parse_case('{"id": "a", "problem": "?", "candidates": ["x"]}', default_id="1")
    with pytest.raises(InputError, match=r"case 'a': candidates\[0\]\.correct"):
        list(labelled([case], n=None))


def test_impossible_pools_are_refused():
    with pytest.raises(SettingError, match="kind = 'prose'"):
        PoolModel(kind="prose")
