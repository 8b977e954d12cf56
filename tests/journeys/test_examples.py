"""Every example runs as its own program, and mypy accepts all of them and rejects wrong keywords."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from caps.testing import Reply, ScriptedEndpoint, better_quality_wins

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOK = ROOT / "examples" / "tour.ipynb"
EXECUTE = """
import sys, nbclient, nbformat
book = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
nbformat.write(book, sys.argv[2])
"""


def right_sum_wins(body, number=0):
    """A judge that can add: it prefers the candidate whose equation holds."""
    prompt = body["messages"][0]["content"]
    if "BEGIN CANDIDATE" not in prompt or "What is 17 * 23?" in prompt:
        return better_quality_wins(body)
    holds = [
        int(a) + int(b) == int(c) for a, b, c in re.findall(r"(\d+) \+ (\d+) = \\boxed\{(-?\d+)\}", prompt)
    ]
    winner = "TIE" if holds[0] == holds[1] else "A" if holds[0] else "B"
    return Reply(f"<winner>{winner}</winner>\n<confidence>HIGH</confidence>")


def run(name):
    with ScriptedEndpoint(right_sum_wins) as server:
        where = {"CAPS_MODEL": "stub", "CAPS_BASE_URL": server.url}
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("CAPS_", "OPENAI_"))
        }
        command = [sys.executable, "-W", "error", ROOT / "examples" / name]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, env=clean | where, check=False
        )
    assert done.returncode == 0, done.stderr
    return done


#: What each example prints, as a pattern of its whole output.
PRINTED = {
    "best_of_n.py": r"candidate 0, answer 391.*",
    "many_cases.py": r"200 of 200 cases done.*",
    "own_judge.py": r"(?=.*return 2 \* x)((?!candidate 1).)*(candidate 1((?!candidate 1).)*){3}",
    "own_strategy.py": r"(?=.*champion: Air scatters blue light most\. \(2 calls\)).*posterior: Air scatters blue light most\..*",
    "own_domain.py": r"select name from staff order by pay desc limit 1\n",
    "own_model.py": r"4806 m\. \(4 calls\)\n",
    "own_view.py": r"(?=.*candidate 1).*seen: 'Step two\.\\nSo it is.*",
    "own_grader.py": r"[^\n]* right\n[^\n]* right\n[^\n]* off\n",
    "own_dataset.py": r"capital-France: What is the capital of France\?.*",
}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_promises(name):
    done = run(name)
    assert re.fullmatch(PRINTED[name], done.stdout, re.DOTALL), done.stdout
    if name == "many_cases.py":
        assert "200/200" in done.stderr, "it shows its progress"


def test_a_domain_of_your_own_takes_less_than_80_lines():
    assert len((ROOT / "examples" / "own_domain.py").read_text().splitlines()) < 80


def cells():
    """The cells of the notebook that hold code, by their ids."""
    book = json.loads(NOTEBOOK.read_text())
    return {cell["id"]: cell for cell in book["cells"] if cell["cell_type"] == "code"}


def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    done = tmp_path / "tour.ipynb"
    command = [sys.executable, "-c", EXECUTE, NOTEBOOK, done]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CAPS_", "OPENAI_"))}
    said = subprocess.run(command, capture_output=True, text=True, timeout=300, env=clean, check=False)
    assert said.returncode == 0, said.stderr
    shown = {
        cell["id"]: [output["data"] for output in cell.get("outputs", []) if "data" in output]
        for cell in json.loads(done.read_text())["cells"]
    }
    streams = [
        output
        for cell in json.loads(done.read_text())["cells"]
        for output in cell.get("outputs", [])
        if "data" not in output
    ]
    assert streams == []  # no warnings
    for cell in ("judge", "strategy"):
        assert "".join(shown[cell][0]["text/plain"]) == "cases 200/200"
        assert "<progress value='200' max='200'" in "".join(shown[cell][0]["text/html"])
    assert len(shown["judge"]) == 2  # the bar is one output that is replaced, then the result
    assert "<svg" in "".join(shown["judge"][1]["text/html"])
    assert "labelled right" in "".join(shown["judge"][1]["text/html"])
    assert "of 200 right" in "".join(shown["rows"][0]["text/plain"])
    compared = "".join(shown["compare"][0]["text/html"])
    assert re.search(r"a difference of -[\d.]+ points \(-[\d.]+ to -[\d.]+; p = 0\.0", compared)
    assert re.search(r"times as many \(0\.\d+ to 0\.\d+\)", compared)
    receipt = "".join(shown["receipt"][0]["text/html"])
    assert "ask (E2)" in receipt, "the questions, with their verdicts"
    assert "█" in receipt, "the final probabilities as bars"


def test_the_notebook_is_kept_with_outputs_and_uses_the_public_names_only():
    for place, cell in enumerate(cells().values(), 1):
        assert cell["outputs"], "run it from top to bottom before it is committed"
        assert cell["execution_count"] == place
        assert "caps." not in "".join(line for line in cell["source"] if line.startswith(("import", "from")))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_tested_and_uses_the_public_names_only(path):
    tests = (Path(__file__), Path(__file__).parents[1] / "integrations" / "test_fastapi.py")
    assert any(path.name in test.read_text() for test in tests)
    nodes = list(ast.walk(ast.parse(path.read_text())))
    imported = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    imported += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    assert "caps" in imported
    assert not [name for name in imported if name.startswith("caps.")]


WRONG = """
import caps

def judge(problem: str, a: str, b: str) -> str:
    return "A"

def swapped(problem: int, a: str) -> str:
    return "A"

case = caps.Case.of("?", ["a", "b"])
caps.select_sync(case, modle="m")
caps.select_sync(case, seed="1")
caps.select_sync(case, judge=swapped)
caps.select_sync(case, hard_evidence="maybe")
caps.select_sync(case, progress=True)
caps.select_sync(case, budget_total_usd=1.0)
caps.best_sync("?", ["a"], base_urls="http://a")
caps.best_sync(["?"], ["a"])
caps.select_many_sync([case], budget_total=1.0)
caps.select_many_sync([case], progress="yes")
caps.select_many_sync(case)
caps.solve_sync("?", samples=3)
caps.solve_sync("?", judge_key="k")
caps.stream([case], modell="m")
caps.select(case, strategy=3)
caps.best("?", ["a"], domian="math")
caps.open(connection=3)
caps.solve("?", temperature=0.3)
caps.RunConfig(modle="m")
caps.resolve(caps.RunConfig(), judges=judge)
caps.compare_results(caps.select_sync(case), [])
caps.compare_results([], [], correct=judge)
caps.load_run(folder=3)
"""
RIGHT = """
import asyncio
import caps

async def judge(problem: str, a: str, b: str) -> caps.Verdict:
    return caps.Verdict(9, 3)

def costly(problem: str, a: str, b: str) -> tuple[str | caps.Verdict, caps.Usage]:
    return "A", caps.Usage(10, 1)

case = caps.Case.of("?", ["a", "b"])
text: str = caps.best_sync("?", ["a", "b"], judge=judge, domain="math").text
usd: float | None = caps.select_sync(case, judge=costly, strategy=caps.Caps(finalists=2)).usd
results: list[caps.Selected] = caps.select_many_sync([case, {"problem": "?"}], budget_total_usd=1.0, progress=True)
run: caps.LoadedRun = caps.load_run("run")
gain: caps.Interval | None = caps.compare_results(results, run.results, correct=lambda one: one.answer == "1").gain
resolved = caps.resolve(caps.RunConfig(seed=1), objects=caps.Objects(judge=costly))

async def main() -> None:
    async for result in caps.stream(iter([case]), model="m", base_url=["http://a", "http://b"]):
        print(result.winner)
    solved: caps.Solved = await caps.solve("?", n=4, model="m", judge_api_key="k")
    async with caps.open(model="m", budget_total_usd=1.0) as client:
        best: caps.Selected = await client.best("?", ["a", "b"])

asyncio.run(main())
"""


def test_mypy_accepts_the_examples_and_rejects_each_wrong_keyword(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "right.py").write_text(RIGHT)
    notebook = "\n".join("".join(cell["source"]) + "\n" for cell in cells().values())
    (tmp_path / "notebook.py").write_text(notebook)
    paths = [*EXAMPLES, tmp_path / "notebook.py", tmp_path / "wrong.py", tmp_path / "right.py"]
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-color-output", *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert done.stderr == ""
    assert not [line for line in errors if "wrong.py" not in line]
    rejected = {int(line.partition("wrong.py:")[2].partition(":")[0]) for line in errors}
    calls = WRONG.splitlines()
    wanted = {number for number, line in enumerate(calls, 1) if line.startswith("caps.")}
    assert rejected == wanted, [calls[number - 1] for number in rejected ^ wanted]
