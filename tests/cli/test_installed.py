"""Every command from scratch, as the shell starts it: each loads by itself what it needs."""

import json
import shlex

import pytest

from caps.cli.main import COMMANDS
from caps.testing import ScriptedEndpoint, write_cases
from support.generating import answering
from support.logs import lm_eval, write
from support.reward_server import RewardServer
from support.running import run_cases
from support.shell import installed

STUDY = """
title = "A study"
reference = "V1"
suites = [{ name = "made up", n = 4, simulated = { problems = 2, kind = "math" } }]
strategies = [{ name = "V1", use = "v1-infer" }]
tables = [{ name = "all", title = "Everything", metrics = ["pass_at_1"] }]
"""
GRADED = {"id": "2", "domain": "math", "problem": "?", "answer": "1/2", "candidates": ["\\boxed{0.5}"]}

#: Words for each command, and what then stands in its output.
ALONE = {
    "bench": ("study.toml --simulate --processes 1 --out out", "Everything"),
    "demo": ("--simulated", "The winner is"),
    "diagnose": ("cases.jsonl --contests 5 {judge} --json", '"accuracy"'),
    "export": ("run --format openai-batch", '"custom_id"'),
    "grade": ("graded.jsonl --no-journal", '"correct":true'),
    "import": ("log.jsonl", '"candidates"'),
    "journal": ("stats --journal journal.sqlite", "tokens written"),
    "list": ("strategies", "caps-plus"),
    "plan": ("cases.jsonl --strategy caps", "token"),
    "replay": ("run", '"winner"'),
    "reproduce": ("--simulate --limit 1 --benchmarks aime-2025 --out out", "Main results"),
    "report": ("run --case 'case 0' --json", '"case 0"'),
    "score": ("cases.jsonl --reward-api vllm-score {judge}", '"rm_score"'),
    "sample": ("problems.jsonl -n 2 {judge}", '"candidates"'),
    "select": ("cases.jsonl {judge}", '"winner"'),
    "simulate": ("--problems 5 --strategies caps", "Simulated"),
    "solve": ("What? -n 2 --domain math {judge}", "answer: 1"),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_command_does_its_work_in_a_python_that_knows_nothing(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "graded.jsonl").write_text(json.dumps(GRADED) + "\n")
    (tmp_path / "problems.jsonl").write_text('{"id": "1", "domain": "math", "problem": "?"}\n')
    write(tmp_path / "log.jsonl", lm_eval(1, "a", filter=None))
    run_cases(write_cases(tmp_path / "cases.jsonl", 2, n=4), tmp_path / "run")
    words, said = ALONE[name]
    with RewardServer() if name == "score" else ScriptedEndpoint(answering) as server:
        judge = f"--model m --base-url {server.url} --no-journal"
        done = installed(name, *shlex.split(words.format(judge=judge)))
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_no_command_is_left_out():
    assert {*ALONE, "doctor", "serve"} == set(COMMANDS), "these two start from scratch in tests of their own"
