"""Inspect AI itself, in an environment of its own, with the commands that the documents show."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from caps.datasets.imports import open_cases
from caps.testing import Reply, ScriptedEndpoint, better_quality_wins, is_judge

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("inspect")]

ROOT = Path(__file__).parents[2]
TASK = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes

@task
def products():
    return Task(dataset=[Sample(input="What is 17 * 23?", target="391")], scorer=includes())
"""
ANSWERS = [(401, 0.3), (391, 0.9), (391, 0.8), (291, 0.4)]  # with what the judge thinks of them


USAGE = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}


class Writer:
    """Writes the answers in turn, and judges by quality."""

    def __init__(self):
        self.written = 0

    def __call__(self, body, number):
        if is_judge(body):
            text = better_quality_wins(body).text
        else:
            answer, quality = ANSWERS[self.written % len(ANSWERS)]
            text = f"With quality={quality} it is \\boxed{{{answer}}}"
            self.written += 1
        return Reply(text, usage=USAGE, more={"id": f"chatcmpl-{number}", "created": 1_700_000_000})


@pytest.fixture(scope="module")
def inspect(tmp_path_factory):
    """The command `inspect` of an environment with Inspect AI and the wheel of this tree."""
    home = tmp_path_factory.mktemp("inspect")
    python = home / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, ROOT, "inspect-ai", "openai"], check=True)
    return home / "bin" / "inspect"


@pytest.mark.parametrize(
    ("words", "scored_by"),
    [
        (["--epochs", "4", "--epochs-reducer", "caps/vote"], "caps/vote"),
        (["--solver", "caps/best_of_n", "-S", "n=4"], None),
    ],
)
def test_the_documented_commands_choose_the_right_answer(inspect, tmp_path, words, scored_by):
    (tmp_path / "task.py").write_text(TASK)
    clean = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    with ScriptedEndpoint(Writer(), models=("m",)) as server:
        variables = {**clean, "HOME": str(tmp_path), "STUB_BASE_URL": server.url, "STUB_API_KEY": "k"}
        command = [inspect, "eval", "task.py", "--model", "openai-api/stub/m", *words]
        more = ["--display", "plain", "--log-format", "json", "--log-dir", "logs"]
        done = subprocess.run(
            [*command, *more], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    (log,) = (tmp_path / "logs").glob("*.json")
    (score,) = json.loads(log.read_text())["results"]["scores"]
    assert score["metrics"]["accuracy"]["value"] == 1
    assert score.get("reducer") == scored_by


SAMPLES = """
import json, sys
from inspect_ai.log import read_eval_log
log = read_eval_log(sys.argv[1])
rows = sorted((str(sample.id), sample.epoch, sample.output.completion) for sample in log.samples)
print(json.dumps(rows))
"""


@pytest.mark.parametrize("ending", ["eval", "json"])
def test_a_log_is_read_as_inspect_itself_reads_it(inspect, tmp_path, ending):
    (tmp_path / "task.py").write_text(TASK)
    clean = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    with ScriptedEndpoint(Writer(), models=("m",)) as server:
        variables = {**clean, "HOME": str(tmp_path), "STUB_BASE_URL": server.url, "STUB_API_KEY": "k"}
        command = [inspect, "eval", "task.py", "--model", "openai-api/stub/m", "--epochs", "4"]
        more = ["--display", "plain", "--log-format", ending, "--log-dir", "logs"]
        subprocess.run([*command, *more], cwd=tmp_path, env=variables, capture_output=True, check=True)
    (log,) = (tmp_path / "logs").glob(f"*.{ending}")
    python = inspect.with_name("python")
    read = subprocess.run(
        [python, "-c", SAMPLES, log], cwd=tmp_path, env=clean, capture_output=True, text=True, check=True
    )
    theirs = [text for _, _, text in json.loads(read.stdout)]
    (case,) = open_cases(str(log))
    assert [candidate.text for candidate in case.candidates] == theirs
    assert case.problem.text == "What is 17 * 23?"
