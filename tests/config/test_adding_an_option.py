"""A new setting is one field of `RunConfig` and its use in one place; everything else follows from it."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from caps.cli.options import parse_extra
from caps.config import JUDGING, RunConfig, command_words, identity, options
from caps.config.sources import parse_assignments

ROOT = Path(__file__).parents[2]
FIELD = """    forbearance: int = option(
        3, "Times that the judge reads its reply again.", "asking", metavar="TIMES", least=1, most=9,
        per_request=True, per_judge="forbearance",
    )  # fmt: skip
    confidence: str = option("""
USE = "            temperature=config.judge_temperature + 0 * config.forbearance,"
LOOK = """
import json, pickle
from dataclasses import replace
from typing import get_type_hints

from caps.config import JUDGING, RunConfig, command_words, identity, read_judges
from caps.config.sources import read_environment
from caps.server.admission import Limits
from caps.server.openapi import description
from caps.session.keywords import SelectOptions
from caps.session.resolve import resolve

changed = RunConfig(forbearance=5, model="m", base_url="http://localhost:1/v1")
usual = replace(changed, forbearance=3)
sent = pickle.loads(pickle.dumps(resolve(changed)))
body = description(usual, Limits())["paths"]["/v1/select"]["post"]["requestBody"]["content"]["application/json"]
print(json.dumps({
    "environment": read_environment(["forbearance"], {"CAPS_FORBEARANCE": "4"}),
    "typed": "forbearance" in get_type_hints(SelectOptions),
    "server": body["schema"]["properties"]["caps"]["properties"]["forbearance"],
    "run": identity(changed) != identity(usual),
    "worker": sent.judges[0].config.forbearance,
    "diagnose": command_words(changed, JUDGING),
    "judge": dict(read_judges([{"model": "a", "forbearance": 2}], "x")[0].settings),
}))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the project with one more setting."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("src", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path, old, new in (
        ("config/run_config.py", "    confidence: str = option(", FIELD),
        ("session/judges.py", "            temperature=config.judge_temperature,", USE),
    ):
        file = folder / "src" / "caps" / path
        text = file.read_text()
        assert text.count(old) == 1
        file.write_text(text.replace(old, new))
    return folder


def run(copy, *words, **variables):
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy / "src"),
        "NO_COLOR": "1",
        "COLUMNS": "200",
        **variables,
    }
    done = subprocess.run(
        [sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    return done.stdout


def test_a_new_setting_appears_everywhere_and_is_named_in_two_files(copy):
    named = [path for path in (copy / "src").rglob("*.py") if "forbearance" in path.read_text()]
    assert sorted(path.name for path in named) == ["judges.py", "run_config.py"]
    run(copy, "scripts/api_keywords.py")
    seen = json.loads(run(copy, "-c", LOOK))
    assert seen["environment"] == {"forbearance": 4}
    assert seen["typed"]
    assert (seen["server"]["minimum"], seen["server"]["maximum"]) == (1, 9)
    assert seen["run"], "results with other values are not mixed"
    assert seen["worker"] == 5
    assert seen["diagnose"][-2:] == ["--forbearance", "5"]
    assert seen["judge"] == {"forbearance": 2}


def test_the_new_setting_is_an_option_and_a_key_of_a_settings_file(copy):
    assert "--forbearance" in run(copy, "-m", "caps", "select", "--help")
    (copy / "mine.toml").write_text("forbearance = 0\n")
    (copy / "cases.jsonl").write_text('{"problem": "?", "candidates": ["1", "2"]}\n')
    done = subprocess.run(
        [sys.executable, "-m", "caps", "select", "cases.jsonl", "--config", "mine.toml", "--dry-run"],
        cwd=copy, env={**os.environ, "PYTHONPATH": str(copy / "src")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "mine.toml: forbearance = 0: must be a whole number from 1 to 9" in " ".join(done.stderr.split())


def test_the_typed_keywords_of_the_api_are_up_to_date():
    written = runpy.run_path(str(ROOT / "scripts" / "api_keywords.py"))["text"]()
    file = ROOT / "src" / "caps" / "session" / "keywords.py"
    assert written == file.read_text(), "make docs writes it"


#: Another value for each kind of setting; where a kind is not enough, the setting is named.
OTHER = {
    "text": "other", "integer": 17, "number": 0.25, "flag": True, "mapping": {"a": 1},
    "integer or auto": 3, "tables": [{"model": "z"}], "judges": [{"model": "y"}, {"model": "z"}],
}  # fmt: skip


def test_every_deciding_setting_changes_the_identity_and_no_other_does():
    usual = RunConfig()
    for setting in options().values():
        value = OTHER.get(setting.kind, ["http://localhost:9/v1"])
        if setting.choices:
            value = next(choice for choice in setting.choices if choice != setting.default)
        if setting.name == "context_tokens":
            value = 4096
        prices = {"price_input": 1.0, "price_output": 1.0} if setting.name.startswith("price_") else {}
        changed = replace(usual, **{**prices, setting.name: value})
        assert (identity(changed) != identity(usual)) == setting.decides, setting.name


def test_the_words_of_a_command_line_give_the_same_judge_again():
    config = RunConfig(
        model="m", base_url=["http://localhost:1/v1", "http://localhost:2/v1"], judge_model="j",
        extra={"reasoning_effort": "low", "top_k": 3}, views={"partial": "thinking"}, reply="json",
        confidence="logprobs", context_tokens=9000, vision="yes", judge_temperature=0.5,
    )  # fmt: skip
    words = command_words(config, JUDGING)
    given: dict[str, list[str]] = {}
    for flag, value in zip(words[::2], words[1::2], strict=True):
        given.setdefault(flag, []).append(value)
    values = {}
    for name, text in parse_assignments(given.pop("--set")).items():
        values[name] = options()[name].check_text(text, "")
    for setting in options().values():
        if setting.advanced:
            continue
        if setting.flags[0] in given:
            texts = given[setting.flags[0]]
            if setting.kind == "mapping":
                values[setting.name] = (parse_extra if setting.is_json else parse_assignments)(texts)
            else:
                values[setting.name] = setting.check_text(" ".join(texts), "")
    assert identity(RunConfig(**values)) == identity(config)
