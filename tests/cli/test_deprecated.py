"""Former names of settings keep working, and print one line that names the new one."""

import warnings

import pytest

from caps import best_sync
from caps.config import RunConfig, options, renamed
from caps.config_sources import read_environment
from judging import write_cases
from shell import caps

NOTICE = "deprecated: {} is now {}; the old name will stop working in a later version"
FORMER = [(old, one) for one in options().values() for old in one.formerly]


@pytest.fixture
def dry(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 1)
    return lambda *words, **environment: caps("select", cases, "--dry-run", *words, **environment)


@pytest.mark.parametrize("words", [("--context", "512"), ("--context=512",)])
def test_a_former_option_works_with_a_notice(dry, words):
    done = dry(*words)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [NOTICE.format("--context", "--context-tokens")]
    assert (
        dry("--context", "1").stderr.splitlines()[-1]
        == "caps: --context-tokens 1: must be a whole number of at least 256"
    )


def test_a_former_variable_works_with_a_notice(dry):
    done = dry(CAPS_CONTEXT="512")
    assert done.stderr.splitlines() == [
        NOTICE.format("environment variable CAPS_CONTEXT", "CAPS_CONTEXT_TOKENS")
    ]
    assert "--context-tokens 1: must be" in dry(CAPS_CONTEXT="1").stderr
    assert dry(CAPS_CONTEXT="1", CAPS_CONTEXT_TOKENS="512").returncode == 0, "the new name comes first"


def test_a_former_key_of_a_settings_file_works_with_a_notice(dry, tmp_path):
    (tmp_path / "my.toml").write_text("context = 512\n")
    lines = dry("--config", tmp_path / "my.toml").stderr.splitlines()
    assert NOTICE.format(f"{tmp_path / 'my.toml'}: context", "context_tokens") in lines


def test_the_help_names_only_the_new_option():
    said = caps("select", "--help").stdout
    assert "--context-tokens" in said
    assert "--context " not in said


@pytest.mark.parametrize(("old", "one"), FORMER)
def test_a_run_file_with_a_former_name_is_read(old, one):
    value = one.choices[0] if one.choices else 512
    config = RunConfig.from_dict({old: value}, where="run.json")
    assert getattr(config, one.name) == value
    assert old not in config.to_dict()
    assert renamed(old) == one.name
    assert read_environment([one.name], {one.old_env[0]: str(value)}) == {one.name: value}


def test_a_former_keyword_works_with_a_warning():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert best_sync("?", ["a", "b"], judge=lambda *_: "A", context=512, journal=None)
    assert [str(one.message) for one in caught if one.category is DeprecationWarning] == [
        "the keyword 'context' is now 'context_tokens'"
    ]
