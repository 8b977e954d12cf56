"""`RunConfig`: one object behind every option, file, variable, request and keyword; and the files it is kept in."""

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps.config import Keys, RunConfig, find_option, options, per_request_options, read_values
from caps.config.sources import read_config_file
from caps.core.errors import InputError, SettingError
from caps.registry import METHODS, PRESETS, STRATEGIES
from caps.runs.run_file import RunFile, read_run_file
from caps.sampling.methods import make_method, make_preset
from caps.session.parts import make_strategy
from caps.session.resolve import Objects, resolve
from caps.session.session import stated_config
from caps.testing import ScriptedEndpoint, better_quality_wins, write_cases
from support.shell import caps, json_lines

WORDS = st.text("abcdefgh", min_size=1, max_size=8)
TABLES = st.fixed_dictionaries(
    {"model": WORDS, "weight": st.floats(0.1, 9)},
    optional={
        "base_url": WORDS,
        "api_key_env": WORDS,
        "extra": st.dictionaries(WORDS, st.integers(), max_size=2),
        "max_tokens": st.integers(1, 99),
    },
)


def values(one):
    """Any value that a setting takes."""
    if one.choices:
        return st.sampled_from(one.choices)
    low, high = one.least, one.most
    kinds = {
        "text": WORDS,
        "flag": st.booleans(),
        "integer": st.integers(int(low if low is not None else 0), int(high if high is not None else 10**6)),
        "number": st.floats(low or 0, high or 1e6),
        "list": st.lists(WORDS, max_size=2).map(tuple),
        "mapping": st.dictionaries(WORDS, st.integers() | WORDS | st.booleans(), max_size=3),
        "tables": st.lists(st.dictionaries(WORDS, WORDS, max_size=2), max_size=2).map(tuple),
        "integer or auto": st.just("auto") | st.integers(1, 99),
        "judges": st.lists(TABLES, max_size=3, unique_by=lambda one: one["model"]),
    }
    return kinds[one.kind] | st.none() if one.optional else kinds[one.kind]


PRICES = ("price_input", "price_output", "price_cached")
CONFIGS = st.fixed_dictionaries(
    {one.name: values(one) for one in options().values() if one.name not in PRICES}
)


@given(settings=CONFIGS, cases=WORDS, limit=st.none() | st.integers(1, 9))
def test_a_run_file_gives_its_config_back_and_the_config_the_file(settings, cases, limit):
    row = RunFile(config=RunConfig(**settings), cases=cases, limit=limit).to_row()
    kept = json.loads(json.dumps(row))
    assert json.loads(json.dumps(RunFile.from_row(kept, where="run.json").to_row())) == kept


@given(key=st.text("abcdefghijklmnop0123456789", min_size=12, max_size=30))
def test_no_key_however_it_is_given_is_in_a_run_file(key):
    config = RunConfig(model="m", base_url=("http://localhost:1/v1",), api_key_env="MY_KEY")
    for keys in (
        Keys(api_key=key, judge_api_key=key),
        Keys.find(config, environment={"MY_KEY": key, "CAPS_API_KEY": key, "CAPS_JUDGE_API_KEY": key}),
    ):
        resolved = resolve(config, keys)
        assert resolved.judges[0].where.api_key == key, "it is used"
        assert key not in json.dumps(RunFile(config=stated_config(resolved), cases="c").to_row()), (
            "and not kept"
        )
        assert key not in repr(keys) + repr(resolved)


def test_every_setting_has_help_a_group_and_one_name():
    seen = [flag for one in options().values() for flag in one.flags]
    assert len(set(seen)) == len(seen)
    assert {spec.name for spec in fields(RunConfig)} == set(options())
    assert all(one.help.endswith((".", "]")) or "[" in one.help for one in options().values())


@pytest.mark.parametrize(
    "wrong",
    [{"confidence": "maybe"}, {"seed": True}, {"seed": 1.5}, {"max_connections": 0}, {"timeout": "long"},
     {"base_url": [1]}, {"settings": ["a"]}, {"price_input": 1.0}, {"samples": 0}, {"durable": "yes"}],
)  # fmt: skip
def test_a_value_that_cannot_be_is_named_with_what_may_be(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong)).replace("_", "[_-]")):
        RunConfig(**wrong)


def test_a_misspelt_setting_gets_its_nearest_match_and_where_it_was_given(tmp_path):
    with pytest.raises(
        SettingError, match=r"caps.toml: strateggy: no such setting; did you mean 'strategy'\?"
    ):
        read_values({"strateggy": 1}, where="caps.toml")
    with pytest.raises(SettingError, match="base_url: may not be set here"):
        find_option("base_url", among=per_request_options())
    cases = write_cases(tmp_path / "cases.jsonl", 1)
    (tmp_path / "my.toml").write_text('strateggy = "caps"\n')
    done = caps("select", cases, "--config", tmp_path / "my.toml")
    assert done.returncode == 2
    assert "my.toml: strateggy: no such option; did you mean 'strategy'?" in " ".join(done.stderr.split())
    done = caps("select", cases, "--model", "m", "--base-url", "http://127.0.0.1:9/v1", CAPS_STRATEGGY="caps")
    assert done.returncode == 2
    assert "CAPS_STRATEGGY: no such setting; did you mean 'CAPS_STRATEGY'?" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[select]\nstrategy = "caps"\nmax-tokens = 5\n', r"\[select\]: no such table; move strategy, max-tokens to the top of the file, without \[select\];"),
        ('[strategy]\nname = "caps"\n', r"\[strategy\]: no such table; strategy is not a table: write strategy = ..., a text;"),
        ("[setings]\nfinalists = 4\n", r"\[setings\]: no such table; did you mean 'settings'\?"),
        ("[[runs]]\nnumber = 1\n", r"\[runs\]: no such table; settings are at the top level"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("found", [True, False])
def test_a_table_that_is_no_setting_is_refused_with_where_its_keys_belong(text, words, found, tmp_path):
    path = tmp_path / "caps.toml"
    path.write_text(text)
    with pytest.raises(SettingError, match=words) as refused:
        read_config_file(path, auto_loaded=found)
    only = "the only tables are batch, extra, models, set, settings, view, views, [[judge]] and [[generator]]"
    assert only in str(refused.value)


def test_tables_that_are_settings_are_read(tmp_path):
    path = tmp_path / "caps.toml"
    path.write_text('strategy = "caps"\n[settings]\nfinalists = 4\n')
    assert read_config_file(path, auto_loaded=True) == {"strategy": "caps", "settings": {"finalists": 4}}


GUARDED = [
    '[[judge]]\nmodel = "m"\nbase_url = "http://evil"', 'base_url = "http://evil"', 'model = "evil"', 'judge-base-url = "http://evil"', 'prompts = "here"',
    'sandbox = "unsafe-local"', 'strategy = "evil:Strategy"', 'journal = "x"', 'api_key_env = "HOME"',
    "extra = {user = 1}",  'view = {partial = "evil:view"}', 'ray-address = "evil:1"', 'judge_profile = "/etc/x"',
    'judge = "py:mine:Judge"', 'domain = "py:mine:POEMS"', 'strategy = "py:mine:Alphabet"', 'set = {fitness = "py:mine:F"}', 'engine = "ray"',
    'engine = "batch"', "otel = true",
]  # fmt: skip


@pytest.mark.parametrize("line", GUARDED)
def test_a_file_that_lies_in_the_working_directory_may_not_redirect_a_run_or_name_code(line, tmp_path):
    path = tmp_path / "caps.toml"
    path.write_text(line + "\n")
    with pytest.raises(SettingError, match="an auto-loaded caps.toml cannot set this"):
        read_config_file(path, auto_loaded=True)
    assert read_config_file(path), "one that is named may"


def test_harmless_settings_of_the_working_directory_hold_and_are_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cases = write_cases(tmp_path / "cases.jsonl", 1, n=6)
    (tmp_path / "caps.toml").write_text('strategy = "caps"\nset = {finalists = 2}\nsamples = 3\n')
    with ScriptedEndpoint(better_quality_wins) as server:
        done = caps("select", cases, "--model", "m", "--base-url", server.url, "--no-journal", "--seed", 3)
    (line,) = json_lines(done)
    assert (line["strategy"], len(line["finalists"]), line["seed"]) == ("caps", 2, 3)
    assert "settings from caps.toml: settings, strategy" in done.stderr


@pytest.mark.parametrize("strategy", ["majority", "tests-first", "vanilla"])
def test_a_strategy_that_asks_nothing_needs_no_endpoint(strategy, tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 2, n=4)
    done = caps("select", cases, "--strategy", strategy, "--no-journal", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert [sum(line["calls"].values()) for line in json_lines(done)] == [0, 0]
    assert read_run_file(tmp_path / "run").config.model is None


def test_failing_programs_are_left_out_only_where_that_is_asked_for_and_the_result_says_so(tmp_path):
    row = {
        "domain": "code",
        "problem": "Print the sum of two numbers.",
        "tests": {"public": [{"input": "1 2\n", "output": "3\n"}]},
        "candidates": [
            "quality=0.1\n```python\nprint(sum(map(int, input().split())))\n```",
            "quality=0.9\n```python\nprint(7)\n```",
        ],
    }
    (tmp_path / "cases.jsonl").write_text(json.dumps(row) + "\n")
    with ScriptedEndpoint(better_quality_wins) as server:
        where = ("--model", "m", "--base-url", server.url, "--no-journal", "--strategy", "caps-r", "--quiet")
        (published,) = json_lines(caps("select", tmp_path / "cases.jsonl", *where))
        (skipping,) = json_lines(caps("select", tmp_path / "cases.jsonl", *where, "--skip-failing"))
        refused = caps("select", tmp_path / "cases.jsonl", *where[:-2], "posterior", "--skip-failing")
    assert (published["winner"], "skip_failing" in published) == (1, False)
    assert (skipping["winner"], skipping["skip_failing"]) == (0, True)
    assert (refused.returncode, "cannot skip failing programs" in refused.stderr) == (2, True)


def test_a_run_file_that_is_none_is_named(tmp_path):
    (tmp_path / "run.json").write_text('{"config": {"modell": "m"}, "cases": "c"}')
    with pytest.raises(InputError, match=r"run.json: config: modell: no such setting; did you mean 'model'"):
        read_run_file(tmp_path)
    (tmp_path / "run.json").write_text('{"strategy": {}}')
    with pytest.raises(InputError, match="was it written by this version"):
        read_run_file(tmp_path)


def test_an_object_in_place_of_a_name_is_recorded_by_its_name():
    from caps.strategies.caps import Caps  # noqa: PLC0415

    given = Objects(strategy=Caps(finalists=2))
    config = stated_config(resolve(RunConfig(model="m", base_url=("http://x",)), objects=given, offline=True))
    assert (config.strategy, config.settings["finalists"]) == ("caps.strategies.caps:Caps", 2)
    assert resolve(replace(config), offline=True).strategy == Caps(finalists=2), "a replay finds it again"


@pytest.mark.parametrize(
    "line", ['out = "elsewhere"', "force = true", 'api-key = "sk-of-somebody"', 'host = "0.0.0.0"']
)
def test_what_is_no_setting_of_a_run_is_not_for_a_found_file_to_set(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cases = write_cases(tmp_path / "cases.jsonl", 1)
    (tmp_path / "caps.toml").write_text(line + "\n")
    for command in (
        ("select", cases, "--strategy", "majority"),
        ("serve", "--base-url", "http://127.0.0.1:9/v1"),
    ):
        done = caps(*command)
        assert done.returncode == 2
        assert "no such setting" in done.stderr


def test_the_variable_that_is_named_holds_the_key_whatever_else_is_set(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 1, n=3)
    other = {"OPENAI_API_KEY": "sk-of-openai", "CAPS_API_KEY": "sk-usual", "MY_KEY": "sk-mine"}
    with ScriptedEndpoint(better_quality_wins) as server:
        where = ("--model", "m", "--base-url", server.url, "--no-journal", "--quiet")
        for words, key in (
            (("--set", "api_key_env=MY_KEY"), "sk-mine"),
            (("--set", "api_key_env=MY_KEY", "--api-key", "sk-typed"), "sk-typed"),
            ((), "sk-usual"),
            (("--api-key", ""), None),
        ):
            server.headers.clear()
            assert caps("select", cases, *where, *words, **other).returncode == 0
            sent = {head.get("Authorization") for head in server.headers}
            assert sent == {None if key is None else f"Bearer {key}"}
        missing = caps("select", cases, *where, "--set", "api_key_env=NOWHERE")
    assert missing.returncode == 2
    assert "'NOWHERE', which should hold a key, is not set" in missing.stderr


def test_a_run_that_left_out_failing_programs_is_replayed_with_a_strategy_that_cannot(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 2, n=4)
    with ScriptedEndpoint(better_quality_wins) as server:
        done = caps(
            "select", cases, "--model", "m", "--base-url", server.url, "--journal", tmp_path / "j", "--strategy",
            "caps-r", "--skip-failing", "--out", tmp_path / "run", "--quiet",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert caps("replay", tmp_path / "run").returncode == 0
    assert caps("replay", tmp_path / "run", "--strategy", "majority").returncode == 0


def test_an_advanced_setting_is_given_with_set_a_variable_or_a_file_in_this_order(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 1, n=3)
    (tmp_path / "mine.toml").write_text('judge_temperature = 0.1\nfurther_inputs = 7\ncache_hints = "off"\n')
    with ScriptedEndpoint(better_quality_wins) as server:
        where = (f"--model m --base-url {server.url} --no-journal --quiet --out", tmp_path / "run")
        changes = "--strategy caps --set finalists=2 --set judge_temperature=0.3"
        words = ("--config", tmp_path / "mine.toml", changes)
        done = caps("select", cases, *where, *words, CAPS_JUDGE_TEMPERATURE="0.2", CAPS_FURTHER_INPUTS="9")
        assert done.returncode == 0, done.stderr
        assert {body["temperature"] for body in server.bodies} == {0.3}
    config = json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    assert (config["judge_temperature"], config["further_inputs"], config["cache_hints"]) == (0.3, 9, "off")
    assert config["settings"]["finalists"] == 2
    wrong = caps("select", cases, "--set", "further_inputs=many", "--model m")
    assert "--set further_inputs = 'many': must be a whole number" in wrong.stderr


def test_a_benchmark_asks_the_judges_that_the_command_line_names(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 1, n=3)
    with ScriptedEndpoint(better_quality_wins, models=("a", "b")) as server:
        where = (f"--base-url {server.url} --no-journal --quiet --out", tmp_path / "out")
        done = caps("bench", cases, "--strategies caps,knockout --judge model=a --judge model=b", *where)
        assert done.returncode == 0, done.stderr
        assert {body["model"] for body in server.bodies} == {"a", "b"}


def test_an_auto_loaded_file_cannot_set_what_is_guarded_through_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cases = write_cases(tmp_path / "cases.jsonl", 1, n=3)
    (tmp_path / "caps.toml").write_text('[set]\napi_key_env = "HOME"\n')
    with ScriptedEndpoint(better_quality_wins) as server:
        done = caps("select", cases, "--model", "m", "--base-url", server.url, "--no-journal")
        assert done.returncode == 2
        assert "has no field 'api_key_env'" in done.stderr
        assert server.requests == 0


def test_set_never_means_two_fields_at_once():
    """No field of a strategy, a method or a preset has the name of another's, or of an advanced setting."""
    taken = {name for name, setting in options().items() if setting.advanced}
    for registry, make in ((STRATEGIES, make_strategy), (METHODS, make_method), (PRESETS, make_preset)):
        names = {spec.name for name in registry.table for spec in fields(make(name))}
        assert not names & taken, registry.kind
        taken |= names
