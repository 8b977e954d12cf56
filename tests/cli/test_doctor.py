"""What `caps doctor` finds: what is missing is optional, what is broken is said with what mends it."""

import json
import tomllib
from pathlib import Path

import pytest

from caps.cli.doctor import (
    EXTRAS,
    Extra,
    check_endpoint,
    check_extra,
    check_journal,
    check_python,
    check_sandbox,
    check_weights,
    environment_places,
)
from caps.models.endpoints import ServerAddress
from caps.models.weights import cached_path
from caps.testing import ScriptedEndpoint
from support.shell import caps, installed


def test_this_python_works():
    assert check_python().state == "ok"


def test_every_extra_that_a_user_needs_is_known_to_the_doctor():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert {extra.name for extra in EXTRAS} == set(project["optional-dependencies"]) - {"dev", "docs"}


def test_an_extra_is_there_or_missing_or_broken(tmp_path, monkeypatch):
    assert check_extra(Extra("some", ("json",), "reading")).state == "ok"
    absent = check_extra(Extra("some", ("json", "no_such_package"), "reading"))
    assert (absent.state, absent.mend) == ("missing", "pip install 'caps-select[some]'")
    (tmp_path / "crooked_package.py").write_text("raise RuntimeError('built for another machine')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    crooked = check_extra(Extra("some", ("crooked_package",), "reading"))
    assert crooked.state == "broken"
    assert "another machine" in crooked.found


def test_weights_are_whole_or_missing_or_damaged(tmp_path):
    assert check_weights(tmp_path).state == "missing"
    cached_path(tmp_path).write_bytes(b"GGUF half of it")
    damaged = check_weights(tmp_path)
    assert (damaged.state, damaged.mend) == ("broken", "caps doctor --fetch")


def test_an_endpoint_is_asked_for_its_models_and_nothing_that_costs():
    with ScriptedEndpoint(models=("a", "b")) as server:
        place = ServerAddress("CAPS_BASE_URL", server.url)
        assert check_endpoint(place, "b").state == "ok"
        assert "serves 2 models" in check_endpoint(place).found
        wrong = check_endpoint(place, "c")
        assert (wrong.state, wrong.mend) == ("broken", "export CAPS_MODEL=a")
        assert server.requests == 0
    gone = check_endpoint(place)
    assert gone.state == "broken"
    assert "nothing is listening" in gone.found
    assert check_endpoint(None).state == "missing"
    assert check_endpoint(ServerAddress("CAPS_BASE_URL", "localhost:8000")).state == "broken"


def test_the_folder_of_the_journal_is_tried(tmp_path):
    assert check_journal(tmp_path / "not" / "made" / "yet.sqlite").state == "ok"
    (tmp_path / "file").touch()
    assert check_journal(tmp_path / "file" / "journal.sqlite").state == "broken"


@pytest.mark.parametrize(
    ("script", "state"), [("exit 0", "ok"), ("echo no namespaces >&2; exit 1", "broken")]
)
def test_a_sandbox_must_really_start(script, state, tmp_path):
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    found = check_sandbox(str(program))
    assert found.state == state
    assert check_sandbox("no-such-program").state == "missing"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, []),
        ({"OPENAI_BASE_URL": "http://o", "OPENAI_API_KEY": "ok"}, [("http://o", "ok")]),
        ({"CAPS_BASE_URL": "http://c", "OPENAI_API_KEY": "ok"}, [("http://c", "ok")]),
        (
            {"CAPS_BASE_URL": "http://c", "CAPS_API_KEY": "ck", "OPENAI_BASE_URL": "http://o", "OPENAI_API_KEY": "ok"},
            [("http://c", "ck"), ("http://o", "ok")],
        ),
        ({"CAPS_BASE_URL": "http://c", "OPENAI_BASE_URL": "http://c"}, [("http://c", None)]),
        ({"CAPS_BASE_URL": "http://a/v1, http://b/v1", "CAPS_API_KEY": "ck"}, [("http://a/v1", "ck"), ("http://b/v1", "ck")]),
        ({"CAPS_BASE_URL": "http://c", "CAPS_API_KEY": "ck", "OPENAI_BASE_URL": "http://o"}, [("http://c", "ck"), ("http://o", None)]),
    ],
)  # fmt: skip
def test_endpoints_of_the_environment_keep_their_own_keys(variables, expected, monkeypatch):
    for name in ("CAPS_BASE_URL", "CAPS_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert [(place.base_url, place.api_key) for place in environment_places()] == expected


def test_the_commands_print_what_was_found_and_fail_for_what_is_broken(tmp_path):
    with ScriptedEndpoint(models=("a",)) as server:
        fine = {"CAPS_BASE_URL": server.url, "CAPS_JOURNAL": str(tmp_path / "j"), "CAPS_API_KEY": "sk-secret"}
        listed = caps("list", "models", "--json", **fine)
    rows = json.loads(listed.stdout)
    assert rows[0]["where"] == "embedded"
    assert rows[1]["models"] == [{"name": "a", "context": None}]
    done = installed("doctor", "--json", **fine)
    assert done.returncode == 1
    states = {check["name"]: check["state"] for check in json.loads(done.stdout)}
    assert (states["endpoint"], states["journal"]) == ("broken", "ok")
    assert "sk-secret" not in listed.stdout + listed.stderr + done.stdout + done.stderr
