"""The paper's studies on the suites of other models, and its simulated judges."""

from pathlib import Path

import pytest

from caps.studies.metrics import MethodResults, accuracy
from caps.studies.play import Step, Task, play_task
from caps.studies.reproduction import STUDIES, load_paper, pools_of, preset_of, standing_of, with_models
from caps.studies.study import recipe

CASES = Path("cases")


@pytest.mark.parametrize(
    ("model", "preset"),
    [
        ("Qwen/Qwen3-14B", "qwen3-14b"),
        ("qwen3-4b-instruct-2507", "qwen3-4b-instruct"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("llama", "default"),
    ],
)
def test_models_of_the_paper_are_recognised_by_their_names(model, preset):
    assert preset_of(model) == preset


def test_a_model_of_the_paper_keeps_its_suites_settings_and_figures():
    (main,) = load_paper(["main"])
    study = with_models(main, ["my/qwen3-4b-thinking"], CASES)
    assert [suite.name for suite in study.suites] == [
        f"Qwen3-4B-Thinking {name}" for name in ("LCB-v5", "LCB-v6", "CodeContests", "AIME 2025", "HMMT 2025")
    ]
    assert {suite.judge["max_tokens"] for suite in study.suites} == {32_768}
    assert study.tables[0].published["Qwen3-4B-Thinking LCB-v5"]["CAPS"] == 51.6
    assert "Average" not in study.tables[0].published


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_takes_several_models_of_any_name(name):
    (paper,) = load_paper([name])
    study = with_models(paper, ["one", "Qwen/Qwen3-14B"], CASES)
    names = [suite.name for suite in study.suites]
    assert len(set(names)) == len(names)
    assert study.tables
    assert all(set(table.suites) <= set(names) for table in study.tables)
    assert {pool.model for pool in pools_of([study])} == {"one", "Qwen/Qwen3-14B"}


def test_one_pool_of_candidates_serves_all_sizes():
    studies = [with_models(study, ["qwen3-14b"], CASES) for study in load_paper(["main", "scaling"])]
    sizes = {pool.benchmark: pool.n for pool in pools_of(studies)}
    assert sizes["livecodebench-v6"] == 32
    assert sizes["livecodebench-v5"] == 16


def test_the_papers_own_standing_is_14_of_20_suites_at_a_quarter_of_the_tokens():
    (main,) = load_paper(["main"])
    standing = standing_of(main, {})
    assert (standing.paper_ahead, standing.paper_suites, standing.paper_token_share) == (14, 20, 25.4)


@pytest.mark.parametrize(
    "name", ["Qwen3-14B LCB-v6", "GPT-OSS-20B CodeContests", "Qwen3-4B-Instruct HMMT 2025"]
)
def test_simulated_games_of_v1_infer_are_as_accurate_as_the_papers(name):
    (main,) = load_paper(["main"])
    (suite,) = (suite for suite in main.suites if suite.name == name)
    (table,) = (table for table in main.tables if table.name == "pair-accuracy")
    (strategy,) = (method.strategy for method in main.methods if method.name == "V1-Infer")
    made = recipe(suite.simulated, suite.n)
    steps = tuple(Step("V1-Infer", strategy, seed) for seed in main.seeds)
    _, results = play_task(Task(tuple(made.make(range(made.count))), steps, made.judge, made.seed))
    measured = 100 * accuracy(MethodResults(results)).value
    assert measured == pytest.approx(table.published[name]["V1-Infer accuracy"], abs=0.5)
