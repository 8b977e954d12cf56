"""Other systems than Linux, as far as they can be told from here: nothing at start needs Linux, texts are UTF-8."""

import json
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from caps.testing import RunningServer, ScriptedEndpoint, asked, upstream
from support.shell import clean
from support.waiting import PATIENCE

STRICT = ("-X", "warn_default_encoding", "-W", "error::EncodingWarning")
PRETEND = [sys.executable, *STRICT, str(Path(__file__).parents[1] / "support" / "other_platform.py")]


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_a_run_its_journal_and_its_report_need_nothing_of_linux(platform, tmp_path):
    case = {
        "id": "größe",
        "problem": "½ + ½ = ?",
        "candidates": ["quality=0.1 é", "quality=0.9 ∑", "quality=0.5"],
    }
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n", encoding="utf-8")
    with ScriptedEndpoint(upstream, models=("m",)) as stub:
        commands = [
            ["--help"],
            [
                "select", "cases.jsonl", "--model", "m", "--base-url", stub.url, "--journal", "j.db", "--out",
                "run", "--json",
            ],
            ["report", "run"],
        ]  # fmt: skip
        done = subprocess.run(
            [*PRETEND, platform, *map(json.dumps, commands)],
            capture_output=True,
            encoding="utf-8",
            env=clean({}),
            cwd=tmp_path,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("{"))
    assert json.loads(line)["text"] == "quality=0.9 ∑"
    assert "½ + ½" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_a_server_starts_answers_and_ends_without_signal_handlers_of_the_event_loop():
    with ScriptedEndpoint(upstream, models=("m",)) as stub:
        command = [*PRETEND, "win32", json.dumps(["serve", "--base-url", stub.url, "--port", "0"])]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=clean({})) as process:
            try:
                serving = RunningServer(process)
                body = json.dumps(asked("vary", caps={"n": 2})).encode()
                sent = Request(f"{serving.url}/chat/completions", body, {"Content-Type": "application/json"})
                with urlopen(sent, timeout=PATIENCE) as reply:
                    assert json.load(reply)["caps"]["samples"] == 2
                assert serving.end() == 0
            finally:
                if process.poll() is None:
                    process.kill()
    assert serving.lines[-1]["event"] == "stopped"
