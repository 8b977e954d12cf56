"""Files of the working directory that are named like modules: no command imports one, in whatever process it works."""

import json
import os
import re
import subprocess
import sys
from ast import literal_eval
from importlib.metadata import packages_distributions
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from caps.cli.main import COMMANDS
from caps.testing import Reply, ScriptedEndpoint, better_quality_wins
from caps.workers.child_python import isolated
from support.sandboxing import why_not
from support.shell import CAPS, clean, installed
from support.waiting import PATIENCE

REPOSITORY = Path(__file__).parents[2]
#: A module that says that it was imported, and then is of no use.
SHADOW = (
    "with open({told!r}, 'a') as file: file.write(__name__ + ' of ' + {place!r} + '\\n')\nraise ImportError\n"
)
TOLD = "imported.txt"
LONG = "Because of this and that. " * 4_000  # read in a worker process


def math_case(number, note="", **extra):
    texts = [f"{note}So it is \\boxed{{x + {number} + \\sqrt{{{8 + k}}}}}." for k in (0, 0, 1)]
    candidates = [{"text": text, "correct": k < 2} for k, text in enumerate(texts)]
    return {"id": f"m{number}", "domain": "math", "problem": f"{note}Add.", "candidates": candidates, **extra}


def code_case():
    sources = (
        "def double(n):\n    return 2 * n",
        "def double(n):\n    return n + n",
        "def double(n):\n    return n",
    )
    tests = {"public": [{"input": [2], "output": 4}], "hidden": [{"input": [3], "output": 6}]}
    return {
        "id": "c", "domain": "code", "problem": "Write double(n: int) -> int.", "entry_point": "double", "tests": tests,
        "candidates": [{"text": f"```python\n{source}\n```", "correct": place < 2} for place, source in enumerate(sources)],
    }  # fmt: skip


def answer(body, number=0):
    prompt = json.dumps(body["messages"])
    return better_quality_wins(body) if "CANDIDATE" in prompt else Reply("So it is \\boxed{4}.")


@pytest.fixture(scope="module")
def shadows(tmp_path_factory):
    """A folder full of files named like every module that Python or an installed package has."""
    folder = tmp_path_factory.mktemp("shadows")
    names = {
        *sys.stdlib_module_names,
        *packages_distributions(),
        "caps",
        "pip",
        "usercustomize",
        "sitecustomize",
    }
    for name in filter(str.isidentifier, names):
        (folder / f"{name}.py").write_text(SHADOW.format(told=str(folder / TOLD), place=f"{name}.py"))
    cases = [code_case(), *(math_case(number, answer=f"x + {number} + 2\\sqrt{{2}}") for number in range(2))]
    write(folder / "cases.jsonl", [*cases, math_case(2, LONG, answer="1")])
    write(folder / "problems.jsonl", [{"id": "p", "problem": LONG}])
    write(folder / "many.jsonl", [math_case(number) for number in range(70)])
    (folder / "study.toml").write_text(STUDY)
    return folder


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(folder, *words, **environment):
    """Run a command there; what it imported from there, and what became of it."""
    told = folder / TOLD
    told.unlink(missing_ok=True)
    journal = str(folder / "journal.sqlite")
    done = installed(*words, before=lambda: os.chdir(folder), CAPS_JOURNAL=journal, **environment)
    return (told.read_text() if told.exists() else ""), done


@pytest.fixture(scope="module")
def server():
    with ScriptedEndpoint(answer) as running:
        yield running


MODEL = ("--model", "stub", "--base-url", "{url}")
STRATEGY = ("--strategy", "caps")
STUDY = """
title = "A study"
seeds = [1, 2]
reference = "V1"
suites = [{ name = "made up", n = 8, simulated = { problems = 400, kind = "math" } }]
strategies = [{ name = "V1", use = "v1-infer" }, { name = "CAPS", use = "caps-r" }]
[[tables]]
name = "all"
title = "All"
metrics = ["pass_at_1"]
"""
#: Every command so that it does its work, with as many processes as it has. They run in this order, in one folder.
WORDS = {
    "select": [
        ("cases.jsonl", *STRATEGY, *MODEL, "--out", "run"),
        ("cases.jsonl", *STRATEGY, "--model", "stub", "--engine", "batch", "--batch-dir", "batch"),
    ],
    "demo": [MODEL, ("--simulated",)],
    "solve": [("What is 2 + 2?", *MODEL, "--n", "2")],
    "sample": [("problems.jsonl", *MODEL, "--n", "2", "--output", "sampled.jsonl")],
    "score": [("cases.jsonl", *MODEL, "--limit", "1")],
    "plan": [("many.jsonl", *STRATEGY)],
    "diagnose": [("cases.jsonl", *MODEL, "--pairs", "4")],
    "simulate": [("--problems", "1000", "--strategies", "majority", "--processes", "2")],
    "bench": [("study.toml", "--simulate", "--processes", "2")],
    "reproduce": [("--simulate", "--limit", "1", "--benchmarks", "aime-2025", "--out", "paper")],
    "grade": [("cases.jsonl", "--output", "graded.jsonl")],
    "report": [("run",)],
    "replay": [("run",)],
    "export": [("run", "--format", "verdicts", "--output", "verdicts.jsonl")],
    "import": [("cases.jsonl", "--output", "imported.jsonl")],
    "list": [("strategies",)],
    "doctor": [("--fetch",)],
    "journal": [("stats",)],
}
STARTED_BY_ITSELF = {"serve"}
#: Commands that fail for a good reason: this server scores nothing, and there is no network.
MAY_FAIL = {"score", "doctor", "diagnose"}


@pytest.fixture(scope="module")
def prepared(shadows, server):
    """The folder with a run in it, for the commands that need one."""
    if why_not:
        pytest.skip(why_not)
    return shadows


def test_every_command_is_tried():
    assert WORDS.keys() | STARTED_BY_ITSELF == COMMANDS.keys()


@pytest.mark.xdist_group("shadow modules")
@pytest.mark.parametrize("command", WORDS)
def test_no_command_imports_from_the_working_directory(command, prepared, server):
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_CACHE_DIR": "1", "XDG_CACHE_HOME": str(prepared / "cache")}
    for words in WORDS[command]:
        imported, done = run(
            prepared, command, *(word.replace("{url}", server.url) for word in words), **offline
        )
        assert imported == "", f"caps {command} {' '.join(words)}"
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 4) or command in MAY_FAIL, done.stderr


@pytest.mark.xdist_group("shadow modules")
def test_the_server_imports_nothing_from_the_working_directory(prepared, server):
    told = prepared / TOLD
    told.unlink(missing_ok=True)
    words = [CAPS, "serve", "--port", "0", "--model", "stub", "--base-url", server.url]
    serving = subprocess.Popen(
        words,
        cwd=prepared,
        env=clean({"CAPS_JOURNAL": str(prepared / "served.sqlite")}),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = next(
            found[0] for line in serving.stderr if (found := re.search(r"http://[\d.]+:\d+", line))
        )
        body = {"model": "caps/stub", "messages": [{"role": "user", "content": LONG}], "n": 2}
        request = Request(
            f"{address}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urlopen(request, timeout=PATIENCE) as reply:
            assert reply.status == 200
    finally:
        serving.terminate()
        serving.communicate()
    assert not told.exists(), told.read_text()


def test_a_child_has_none_of_the_keys_and_the_working_directory_last(monkeypatch, tmp_path):
    monkeypatch.setenv("CAPS_API_KEY", "sk-secret")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    child = isolated("print(sorted(os.environ)); print(sys.path[-1], '' in sys.path, sys.argv[1:])", "word")
    done = subprocess.run(child.argv, env=child.env, capture_output=True, text=True, check=True)
    variables, path = done.stdout.splitlines()
    assert set(literal_eval(variables)) <= {"PYTHONHASHSEED", "LC_CTYPE"}
    assert path == f"{tmp_path} False ['word']"


def test_interpreters_are_started_in_one_place_only():
    ways = re.compile(
        r"sys\.executable,|ProcessPoolExecutor\(|multiprocessing\.(?:Process|Pool)|get_context\("
    )
    package = REPOSITORY / "src" / "caps"
    places = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if ways.search(path.read_text())
    }
    assert places == {"workers/child_python.py", "testing/endpoint.py"}, (
        "the latter runs code of its caller alone"
    )
