"""Every snippet of the documents is run: Python is executed, commands are called, JSON is read."""

import json
import re
import shlex
from pathlib import Path

import pytest

from judging import better_quality_wins
from models.server import StubServer
from shell import caps

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language):
    return [
        pytest.param(
            page, body, id=f"{page.relative_to(ROOT)}:{page.read_text()[: found.start()].count(chr(10)) + 1}"
        )
        for page in PAGES
        for found in BLOCK.finditer(page.read_text())
        for body in [found[2]]
        if found[1] == language
    ]


@pytest.fixture
def server():
    with StubServer(better_quality_wins) as running:
        yield running


@pytest.mark.parametrize(("page", "body"), blocks("python"))
def test_python_runs(page, body, server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(body, str(page), "exec"), {"BASE_URL": server.url, "MODEL": "stub"})


@pytest.mark.parametrize(("page", "body"), blocks("console"))
def test_commands_run(page, body, server, tmp_path, monkeypatch):
    """Our own commands are run, against a stub where they name an endpoint; make targets must exist."""
    monkeypatch.chdir(tmp_path)
    case = {
        "id": "sum",
        "domain": "math",
        "problem": "?",
        "candidates": [f"quality=0.{i} \\boxed{{{i}}}" for i in range(1, 5)],
    }
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n")
    ran = 0
    for line in body.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["make"]:
            assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text()
        elif words[:1] == ["caps"]:
            words = [server.url if word.startswith("http") else word for word in words[1:]]
            words = ["40" if word == "2000" else word for word in words]
            done = caps(*words, XDG_DATA_HOME=str(tmp_path))
            assert done.returncode == 0, done.stderr
        else:
            assert not words or words[0] in ("pip", "python", "git", "vllm", "docker"), line
            continue
        ran += 1
    assert ran


@pytest.mark.parametrize(("page", "body"), blocks("json"))
def test_json_is_json(page, body):
    for line in body.splitlines():
        assert isinstance(json.loads(line), dict)


def test_the_readme_result_is_what_the_command_prints(server, tmp_path):
    readme = (ROOT / "README.md").read_text()
    case, shown = (json.loads(found[2]) for found in BLOCK.finditer(readme) if found[1] == "json")
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n")
    done = caps(
        "select", tmp_path / "cases.jsonl", "--model", "stub", "--base-url", server.url, "--no-journal"
    )
    assert json.loads(done.stdout) == shown
