"""Recorded outputs: what every command prints for fixed inputs, written down once.

`make golden` records them anew; do that only when an output is meant to change, and say why in the commit.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from caps.testing import Reply, ScriptedEndpoint, better_quality_wins, case_line, spread
from support.shell import caps

FOLDER = Path(__file__).parent / "outputs"
PROGRAMS = ("print(sum(map(int, input().split())))", "print(3)", "print(int(input().split()[0]))", "a =")


def answer(body: dict, number: int = 0) -> Reply:
    """Judge by quality; as a writer, answer by the seed."""
    if "BEGIN CANDIDATE" in body["messages"][0]["content"]:
        return better_quality_wins(body)
    which = body.get("seed", 1234) - 1234
    return Reply(f"I take quality=0.{1 + which * 7 % 9}, so \\boxed{{{which % 5}}}")


def inputs(folder: Path) -> dict[str, Path]:
    """The files that commands are given."""
    math = [case_line(f"math {i}", spread(8, i)) for i in range(3)]
    halves = ("2", "0.5", "2", r"\frac{1}{2}", "1/2", "7")
    texts = [{"text": f"quality=0.{9 - i} makes \\boxed{{{half}}}"} for i, half in enumerate(halves)]
    row = {"id": "halves", "domain": "math", "problem": "One half?", "candidates": texts, "answer": "1/2"}
    sums = {
        "id": "sums",
        "domain": "code",
        "problem": "Print the sum of two numbers.",
        "tests": {
            "public": [{"input": "1 2\n", "output": "3\n"}],
            "hidden": [{"input": "4 5\n", "output": "9\n"}],
        },
        "candidates": [f"quality=0.{i + 1}\n```python\n{text}\n```" for i, text in enumerate(PROGRAMS)],
    }
    files = {"cases": [*math, json.dumps(row), json.dumps(sums)], "bad": [*math[:1], "{", '{"id": 1}']}
    files["problems"] = [json.dumps({"domain": "math", "problem": f"Question {i}?"}) for i in range(2)]
    found = {}
    for name, lines in files.items():
        found[name] = folder / f"{name}.jsonl"
        found[name].write_text("".join(f"{line}\n" for line in lines))
    return found


def commands(folder: Path, url: str) -> Iterator[tuple[str, list[object]]]:
    """The words of every command that is recorded, by the name of its file."""
    files = inputs(folder)
    cases, run = files["cases"], folder / "run"
    judge = ["--model", "stub", "--base-url", url, "--journal", folder / "journal.sqlite"]
    for strategy in ("posterior", "caps-r", "caps", "v1-infer", "majority", "tests-first", "pointwise"):
        yield f"select-{strategy}", ["select", cases, *judge, "--strategy", strategy, "--quiet"]
    yield "select-out", ["select", cases, *judge, "--strategy", "caps-r", "--bracket", "--out", run]
    yield "select-bad", ["select", files["bad"], *judge, "--strategy", "caps-r", "--quiet"]
    yield "select-no-evidence", ["select", cases, *judge, "--hard-evidence", "off", "--quiet"]
    yield (
        "select-budget",
        ["select", cases, *judge, "--strategy", "caps-r", "--budget-tokens", 3000, "--quiet"],
    )
    yield "select-dry-run", ["select", cases, "--strategy", "caps-r", "--dry-run"]
    yield "replay", ["replay", run]
    yield "replay-other", ["replay", run, "--strategy", "caps"]
    yield "export", ["export", run, "--format", "preferences"]
    yield "receipt", ["report", run, "--case", "halves", "--json"]
    yield "solve", ["solve", "One half?", "-n", 4, "--domain", "math", *judge, "--json", "--quiet"]
    yield "sample", ["sample", files["problems"], "-n", 2, *judge, "--quiet"]
    yield "grade", ["grade", cases]
    yield "plan", ["plan", cases, "--strategy", "caps-r", "--json"]
    yield "plan-pool", ["plan", "--pool", 16, "--rho", 0.12, "--json"]
    yield "diagnose", ["diagnose", "--simulate", 80, "--pairs", 20, "--contests", 20, "--json"]
    yield "simulate", ["simulate", "--problems", 30, "--n", 8, "--json"]
    yield "list-strategies", ["list", "strategies", "--json"]


def record(folder: Path) -> dict[str, str]:
    """What each command printed; what differs from run to run is replaced by a word."""
    found = {}
    with ScriptedEndpoint(answer) as server:
        for name, words in commands(folder, server.url):
            done = caps(*words)
            said = re.sub(r".*; .* elapsed.*\n", "", done.stderr)  # progress, on a slow machine
            text = f"exit {done.returncode}\n{done.stdout}" + (f"--- stderr\n{said}" if said else "")
            text = text.replace(str(folder), "FOLDER").replace(server.url, "URL")
            text = re.sub(r'"latency": ?[0-9.e-]+', '"latency":0', text)
            found[name] = re.sub(r"\b[0-9.]+ s\b", "N s", text)
    return found


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in record(Path(folder)).items():
            (FOLDER / f"{name}.txt").write_text(text)
            sys.stdout.write(f"{name}: {text.splitlines()[0]}\n")
