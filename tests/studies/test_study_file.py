"""Study files: read strictly, every mistake named with file and key; the paper's own all fit."""

from pathlib import Path

import pytest

import caps.studies as caps_studies
from caps.core.errors import InputError, SettingError
from caps.studies.bench import Bench
from caps.studies.study import load_study
from caps.studies.suites import narrowed, shards_of
from caps.studies.tables import AVERAGE, make_table

STUDIES = Path(__file__).parents[2] / "studies"
PAPER = Path(caps_studies.__file__).parent / "paper"
FILES = sorted(path for path in PAPER.glob("*.toml") if path.name != "suites.toml")

PLAIN = """
title = "t"
seeds = [1]
reference = "A"
suites = [{ name = "s", simulated = { problems = 2 } }]
strategies = [{ name = "A", use = "vanilla" }]
tables = [{ name = "t", title = "t" }]
"""


def written(tmp_path, text):
    path = tmp_path / "study.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("seeds = [1]", "seed = [1]"), r"study.toml:3: seed: no such key; did you mean 'seeds'\?"),
        (("seeds = [1]", "seeds = [true]"), r"study.toml:3: seeds\[0\]: must be a whole number, not True"),
        (
            ("problems = 2", "problem = 2"),
            r"suites\[0\].simulated.problem: no such key; did you mean 'problems'",
        ),
        (("problems = 2", "n = 0"), r"suites\[0\].simulated: PoolModel.n = 0: must be"),
        (("problems = 2", "seed = 2"), r"suites\[0\].cases: is missing: name a file"),
        (('use = "vanilla"', 'use = "vanila"'), r"strategies\[0\].use: no strategy is called 'vanila'"),
        (
            ('use = "vanilla"', 'use = "caps", set = { finalist = 3 }'),
            r"strategies\[0\].use: .*no field 'finalist'",
        ),
        (
            ('use = "vanilla"', 'use = "caps", views = { partial = "?" }'),
            r"strategies\[0\].views: no view is",
        ),
        (
            ('use = "vanilla"', 'use = "vanilla", stated = {}'),
            r"strategies\[0\].stated: strategy 'vanilla' does not use a judge profile",
        ),
        (
            ('use = "vanilla"', 'use = "posterior", stated = { acuracy = 0.9 }'),
            r"strategies\[0\].stated.acuracy: no such key",
        ),
        (
            ('use = "vanilla"', 'use = "caps", output = "f{finalist}"'),
            r"strategies\[0\].output: KeyError\('finalist'\) in 'f\{finalist\}': fields are seed, finalists",
        ),
        (
            ('use = "vanilla"', 'use = "caps", output = "../f"'),
            r"strategies\[0\].output: '../f': must be the name",
        ),
        (
            ("problems = 2 }", "problems = 2 }, judge = { max_token = 9 }"),
            r"suites\[0\].judge: max_token: no such setting; did you mean 'max_tokens'",
        ),
        (
            ("problems = 2 }", "problems = 2 }, judge = { seed = 9 }"),
            "suites.0..judge: seed: may not be set here",
        ),
        (('title = "t" }]', "title = 3 }]"), r"tables\[0\].title: must be a text, not 3"),
        (
            ('title = "t" }]', 'title = "t", metrics = ["pass"] }]'),
            r"tables\[0\].metrics: no 'pass'; did you",
        ),
        (
            ('title = "t" }]', 'title = "t", down = "up" }]'),
            r"study.toml:7: tables\[0\].down: must be one of suites, .*, not 'up'",
        ),
        (('title = "t" }]', 'title = "t", strategies = ["B"] }]'), r"tables\[0\].strategies: no 'B'"),
        (('reference = "A"', 'reference = "B"'), "study.toml:4: reference: no 'B'"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(tmp_path, change, complaint):
    with pytest.raises(SettingError, match=complaint):
        load_study(written(tmp_path, PLAIN.replace(*change)))


def test_a_file_that_is_not_there_or_not_toml_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere.toml: No such file"):
        load_study(tmp_path / "nowhere.toml")
    with pytest.raises(InputError, match="study.toml: not a TOML file: Invalid value"):
        load_study(written(tmp_path, "title ="))


def test_a_method_is_told_what_its_judge_is_worth_as_measured_or_as_of_another_judge(tmp_path):
    told = (
        '[{ name = "A", use = "posterior" }, { name = "B", use = "posterior", stated = {} },'
        ' { name = "C", use = "posterior", stated = { accuracy = 0.95 } }]'
    )
    study = load_study(written(tmp_path, PLAIN.replace('[{ name = "A", use = "vanilla" }]', told)))
    (shard,) = shards_of(study, limit=None, resolve_for=None, skipped=pytest.fail)
    assumed, measured, praised = (step.strategy for step in shard.steps)
    assert assumed == study.methods[0].strategy
    assert measured.e2_high == pytest.approx(0.87, abs=0.05)  # a judge of 80 %, HIGH where it is sure
    assert measured.e2_high < praised.e2_high
    assert len({step.made_of for step in shard.steps}) == 3


def test_one_table_needs_its_suites_and_methods_and_the_reference_only():
    study = narrowed(load_study(PAPER / "main.toml"), "tokens-math")
    assert {method.name for method in study.methods} == {"CAPS", "V1-Infer"}
    assert len(study.suites) == 8
    with pytest.raises(SettingError, match="--only 'token': did you mean 'tokens'"):
        narrowed(load_study(PAPER / "main.toml"), "token")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_published_figure_stands_in_a_cell_and_every_row_has_ours_beside_it(path, tmp_path):
    study = load_study(path)
    shards = shards_of(study, limit=1 if len(study.suites) > 3 else 3, resolve_for=None, skipped=pytest.fail)
    with Bench(shards, tmp_path) as bench:
        bench.play(limit=None, processes=1, hear=abs)
        book = bench.book()
    for spec in study.tables:
        table = make_table(study, spec, book)
        shown = {
            (label, head)
            for label, cells in table.rows
            for head, cell in zip(table.heads, cells, strict=True)
            if cell.published is not None
        }
        wanted = {(row, head) for row, heads in spec.published.items() for head in heads}
        later = {"medium", "hard"} if spec.across == "strata" else set()  # the first three problems are easy
        assert {cell for cell in wanted - shown if cell[1] not in later} == set()
        if "accuracy" not in spec.metrics:  # of a pool in which all are right nobody can be told apart
            assert all(any(cell.figure for cell in cells) for label, cells in table.rows if label != AVERAGE)


def test_the_papers_suites_have_room_to_think_and_its_own_views():
    study = load_study(PAPER / "main.toml")
    rooms = {suite.model: suite.judge.get("max_tokens") for suite in study.suites}
    assert rooms == {
        "Qwen/Qwen3-14B": 16_384,
        "Qwen/Qwen3-4B-Instruct-2507": None,
        "Qwen/Qwen3-4B-Thinking-2507": 32_768,
        "openai/gpt-oss-20b": 16_384,
    }
    assert {suite.profile for suite in study.suites} == {"code-paper", "math-paper"}


@pytest.mark.parametrize("path", sorted((STUDIES / "recorded").glob("*.toml")), ids=lambda path: path.stem)
def test_studies_of_recorded_verdicts_look_for_their_files_where_the_user_says(path, tmp_path):
    study = load_study(path, tmp_path)
    assert {suite.cases.parent for suite in study.suites} == {tmp_path}
    for suite in study.suites:
        assert suite.recorded.name == suite.cases.name.replace(".cases.", ".verdicts.")
        assert suite.recorded_judge
        assert suite.shuffle
    missing = []
    with pytest.raises(InputError, match="none of its suites has a file of cases"):
        shards_of(
            study,
            limit=None,
            resolve_for=lambda *_: pytest.fail("nothing can be run"),
            skipped=missing.append,
        )
    assert all(suite.get for suite in missing)
    assert len(missing) == len(study.suites)
