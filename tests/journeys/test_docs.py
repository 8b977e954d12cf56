"""Every snippet of the documents is run: Python is executed, commands are called, JSON is read."""

import importlib.util
import json
import re
import shlex
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest

from caps.evidence import domains
from caps.testing import running
from support.batching import BatchServer
from support.reward_server import RewardServer
from support.shell import caps, caps_json

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r'^```\w+ title="([\w.]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
#: Options of other programs that pages name alone.
OTHER_OPTIONS = {
    "--approach", "--build-arg", "--die-with-parent", "--enable-prefix-caching", "--help", "--info-fd", "--install-completion",
    "--is-embedding", "--show-completion", "--version",
}  # fmt: skip
ENDPOINT = "http://localhost:8000/v1"
SERVE = "http://127.0.0.1:8400"  # where pages expect `caps serve`


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


def write_files(page, folder, endpoint):
    """Write the blocks of a page that have the name of a file as their title."""
    for name, body in FILE.findall(page.read_text()):
        (folder / name).write_text(body.replace(ENDPOINT, endpoint))
        sys.modules.pop(Path(name).stem, None)


class DocsServer(RewardServer, BatchServer):
    """What the documents call http://localhost:8000/v1: chat completions, batches and scores."""


@pytest.fixture
def server():
    with DocsServer(holds=("tags", "json")) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize(("page", "body"), blocks("python"))
def test_python_runs(page, body, server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(page, tmp_path, server.url)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(domains, "_registered", {})  # what a page registers is gone afterwards
    body = body.replace(ENDPOINT, server.url)
    with running(server.url) if SERVE in body else nullcontext() as serving:
        if serving:
            body = body.replace(SERVE, serving.url.removesuffix("/v1"))
        exec(compile(body, str(page), "exec"), {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "```console" in page.read_text()],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_commands_run(page, server, tmp_path, monkeypatch):
    """A page's own commands are run in order, against a stub where they name an endpoint; make targets must exist."""
    monkeypatch.chdir(tmp_path)
    write_files(page, tmp_path, server.url)
    case = {
        "id": "sum",
        "domain": "math",
        "problem": "?",
        "candidates": [f"quality=0.{i} \\boxed{{{min(i, 4)}}}" for i in range(1, 7)],  # half say 4
    }
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n")
    labelled = [{"text": text, "correct": place > 1} for place, text in enumerate(case["candidates"])]
    (tmp_path / "labelled.jsonl").write_text(json.dumps(case | {"candidates": labelled}) + "\n")
    problem = {"id": "sum", "domain": "math", "problem": "What is 17 * 23?", "answer": "391"}
    (tmp_path / "problems.jsonl").write_text(json.dumps(problem) + "\n")
    (tmp_path / "studies").symlink_to(ROOT / "studies")
    for example in (ROOT / "examples").glob("own_*.py"):
        (tmp_path / example.name).symlink_to(example)
    commands = [
        line
        for found in BLOCK.finditer(page.read_text())
        if found[1] == "console"
        for line in found[2].splitlines()
    ]
    for line in commands:
        words = shlex.split(line, comments=True)
        if words[:1] == ["make"]:
            assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text()
            continue
        assert words[:1] == ["caps"], line
        words = [re.sub(r"https?://[^,]+", server.url, word) for word in words[1:]]
        words = ["40" if word == "2000" else word for word in words]
        words += ["--contests", "20"] if words[0] == "diagnose" else []
        if "--journal" not in words and words[0] == "journal":
            words += ["--journal", _journal(tmp_path, server)]
        done = caps(*words, XDG_DATA_HOME=str(tmp_path))
        assert done.returncode in (0, 3, 4), (line, done.stderr)


def _journal(tmp_path, server):
    """A journal with something in it."""
    path = tmp_path / "journal.sqlite"
    if not path.exists():
        caps("select", tmp_path / "cases.jsonl", "--model", "m", "--base-url", server.url, "--journal", path)
    return path


def test_the_command_reference_is_what_the_program_says():
    spec = importlib.util.spec_from_file_location("cli_reference", ROOT / "scripts" / "cli_reference.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    written = {page.name: page.read_text() for page in script.FOLDER.glob("*.md")}
    assert written == script.pages(), "run make docs"


def test_every_option_has_an_anchor_of_its_own():
    for page in (ROOT / "docs" / "reference" / "cli").glob("*.md"):
        anchors = re.findall(r"\{#([\w-]+)\}$", page.read_text(), re.MULTILINE)
        assert len(anchors) == len(set(anchors)), page
    assert "### `--strategy NAME` {#strategy}" in (ROOT / "docs/reference/cli/select.md").read_text()


def test_every_option_that_a_page_names_exists():
    reference = ROOT / "docs" / "reference" / "cli"
    headings = "".join(
        re.findall(r"^#+ `.*$", "".join(page.read_text() for page in reference.glob("*.md")), re.MULTILINE)
    )
    known = set(re.findall(r"--[a-z][a-z0-9-]*", headings)) | OTHER_OPTIONS
    for page in PAGES:
        spans = re.findall(r"`((?:caps |--)[^`\n]*)`", page.read_text())
        named = {
            option for span in spans for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*(?![\w…-])", span)
        }
        assert named <= known, (page, named - known)


@pytest.mark.parametrize(("page", "body"), blocks("json"))
def test_json_is_json(page, body):
    for line in body.splitlines():
        assert isinstance(json.loads(line), dict)


def test_every_block_is_run_or_is_plain_text():
    run = {"python", "console", "json"}
    for page in PAGES:
        kinds = set(re.findall(r"^ *```(\w+)", page.read_text(), re.MULTILINE))
        assert kinds <= run | {"text", "toml", "sh"}, page


def test_every_install_line_names_the_package_and_an_extra_that_it_has():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    sources = [
        *PAGES,
        ROOT / "CHANGELOG.md",
        *(ROOT / "src").rglob("*.py"),
        ROOT / "deploy" / "Containerfile",
    ]
    for source in sources:
        text = source.read_text()
        assert not re.search(
            r"pip install '?caps(?!-select)\b", text.replace("`pip install caps` installed", "")
        ), source
        for extras in re.findall(rf"{project['name']}\[([\w,]+)\]", text):
            assert set(extras.split(",")) <= set(project["optional-dependencies"]), source


def test_the_share_in_the_readme_is_that_of_the_plan():
    readme = " ".join((ROOT / "README.md").read_text().split())
    (plain,) = caps_json("plan", "--pool", 16, "--rho", 0.12, "--strategy", "caps")
    calls, share = plain["calls_total"]["mean"], f"{100 * plain['token_share']:.1f} %"
    assert f"{calls} calls and {share} of the tokens of V1-Infer" in readme


def test_the_table_of_the_demo_is_what_the_demo_prints(tmp_path):
    words = ("--out", tmp_path, "--journal", tmp_path / "j.sqlite", "--base-url", "http://127.0.0.1:9/v1")
    printed = caps("demo", "--model", "nobody", *words).stdout
    for page in ("README.md", "docs/tutorial.md"):
        tables = [found[2] for found in BLOCK.finditer((ROOT / page).read_text()) if found[1] == "text"]
        (table,) = [table for table in tables if "judge calls" in table]
        for line in table.splitlines():
            assert line in printed, page


def test_the_drawn_contest_is_what_the_demo_draws():
    page = (ROOT / "docs" / "explanation" / "how-caps-works.md").read_text()
    (picture,) = (found[2] for found in BLOCK.finditer(page) if found[1] == "text" and "win rate" in found[2])
    drawn = "\n".join(line.rstrip() for line in caps("demo", "--simulated").stdout.splitlines())
    assert picture.strip() in drawn
