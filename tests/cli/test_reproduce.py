"""The paper in one command: on small files of its five data sets, with a scripted or the embedded model."""

import gzip
import json
from random import Random

import pytest

from caps.datasets.verdicts import read_records
from caps.testing.cases import better_quality_wins
from caps.testing.endpoint import Reply, ScriptedEndpoint
from support.shell import caps, start
from support.waiting import wait_until

TESTS = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]


def livecodebench(number, day):
    return {
        "question_title": "Sum", "question_content": f"Add two numbers, variant {number}.", "platform": "atcoder",
        "question_id": f"q{number}", "contest_id": "abc", "contest_date": f"{day}T00:00:00", "starter_code": "",
        "difficulty": ("easy", "medium", "hard")[number % 3], "public_test_cases": json.dumps(TESTS),
        "private_test_cases": json.dumps(TESTS), "metadata": "{}",
    }  # fmt: skip


def contest(number):
    columns = {"input": ["1 2\n"], "output": ["3\n"]}
    return {
        "name": f"Contest task {number}", "description": f"Add two numbers, contest {number}.", "public_tests": columns,
        "private_tests": columns, "generated_tests": {"input": [], "output": []},
    }  # fmt: skip


def write_data(folder, count):
    """Files of the five data sets, as they are published, with some problems each."""
    folder.mkdir()
    rows = {
        "livecodebench-v5": [livecodebench(number, "2024-12-01") for number in range(count)],
        "livecodebench-v6": [livecodebench(number, "2025-03-01") for number in range(count)],
        "codecontests": [contest(number) for number in range(count)],
        "aime-2025": [{"question": f"Find the number {i}.", "answer": "7"} for i in range(count)],
        "hmmt-feb-2025": [
            {"problem_idx": i + 1, "problem": f"Find it, {i}.", "answer": "7"} for i in range(count)
        ],
    }
    for name, some in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    return folder


def solve_or_judge(body, _number=0):
    """Answer a problem, rightly with every other seed, or judge two answers by the quality they state."""
    prompt = str(body["messages"][-1]["content"])
    if "quality=" in prompt or ("Add two" not in prompt and "Find" not in prompt):
        return better_quality_wins(body)
    seed = body.get("seed", 0)
    right = seed % 2 == 0
    quality = (seed % 7) / 20 + (0.5 if right else 0.1)
    if "Add two" in prompt:
        code = f"a, b = map(int, input().split())\nprint(a {'+' if right else '-'} b)  # {seed}"
        return Reply(f"<thinking>quality={quality:.2f}, I add them.</thinking>\n```python\n{code}\n```")
    return Reply(f"I reckon, with quality={quality:.2f}, that it is \\boxed{{{7 if right else seed}}}")


@pytest.mark.slow
def test_killed_at_five_moments_and_resumed_it_ends_with_the_same_page(tmp_path):
    data, came = write_data(tmp_path / "data", 3), []

    def reply(body, number):
        came.append(json.dumps(body, sort_keys=True))
        return solve_or_judge(body, number)

    def words(name):
        kept = ("--journal", tmp_path / f"{name}.sqlite", "--out", tmp_path / name, "--max-connections", 4)
        return (*kept, "--data", data, "--any-count", "-n", 4, "--yes", "--model", "Qwen/Qwen3-14B")

    with ScriptedEndpoint(reply, models=("Qwen/Qwen3-14B",)) as server:
        undisturbed = caps("reproduce", *words("whole"), "--base-url", server.url)
        assert undisturbed.returncode == 0, undisturbed.stderr
        total = len(came)
        came.clear()
        moments = sorted(Random(51).sample(range(1, total), 5))
        for moment in moments:
            process = start("reproduce", *words("killed"), "--base-url", server.url)
            wait_until(lambda: len(came) >= moment or process.poll() is not None)  # noqa: B023
            process.kill()
            process.communicate()
        resumed = caps("reproduce", *words("killed"), "--base-url", server.url)
        assert resumed.returncode == 0, resumed.stderr
        asked = [body for body in came if "quality=" in body or "Add two" in body or "Find" in body]
        before = len(came)
        again = caps("reproduce", *words("killed"), "--base-url", server.url)
    assert len(asked) - len(set(asked)) <= 4 * len(moments), (
        "only what was in flight at a kill is asked twice"
    )
    assert "forecast: at most about" in undisturbed.stderr
    assert again.returncode == 0, again.stderr
    assert not [body for body in came[before:] if "quality=" in body], "a finished run asks nothing"
    for name in ("page.html", "results.json", "main/tables.md"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    results = json.loads((tmp_path / "killed" / "results.json").read_text())
    assert results["standing"]["suites"] == 5
    assert results["counts"]["selections"] == 5 * 3 * 7 * 3
    assert set(results["suites"]["Qwen3-14B LCB-v5"]["prompts"]) >= {"pair-e1-code.txt", "pair-e2-code.txt"}
    verdicts = read_records(str(tmp_path / "killed" / "verdicts" / "qwen3-14b-aime-2025.verdicts.jsonl.gz"))
    assert list(verdicts.judges) == ["Qwen/Qwen3-14B"]
    replayed = caps(
        "bench", tmp_path / "killed/verdicts/qwen3-14b-aime-2025.cases.jsonl.gz",
        "--recorded", tmp_path / "killed/verdicts/qwen3-14b-aime-2025.verdicts.jsonl.gz",
        "--strategies", "posterior,caps-r,majority", "--out", tmp_path / "replayed", "--json",
    )  # fmt: skip
    assert replayed.returncode == 0, replayed.stderr


def test_a_trial_with_a_model_of_your_own_names_its_suites_and_compares_nothing(tmp_path):
    data = write_data(tmp_path / "data", 2)
    with ScriptedEndpoint(solve_or_judge, models=("mine",)) as server:
        words = ("--model mine --base-url", server.url, "--no-journal --limit 1 -n 2 --yes --data", data)
        done = caps("reproduce", *words, "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert list(results["suites"]) == [
        f"mine {name}" for name in ("LCB-v5", "LCB-v6", "CodeContests", "AIME 2025", "HMMT 2025")
    ]
    figures = [row for study in results["studies"] for table in study["tables"] for row in table["figures"]]
    assert all(row["paper"] is None for row in figures)
    page = (tmp_path / "out" / "page.html").read_text()
    assert "CAPS is ahead of V1-Infer on" in page
    assert "A trial: the first 1 problems" in page
    assert "[1 of 5] mine, livecodebench-v5" in done.stderr or "samples" in done.stderr


def test_missing_data_sets_are_named_with_the_commands_that_bring_them(tmp_path):
    (tmp_path / "data").mkdir()
    done = caps("reproduce", "--model m --base-url http://localhost:9 --data", tmp_path / "data")
    assert done.returncode == 2
    assert "5 data sets missing" in done.stderr
    assert (
        f"caps import --dataset aime-2025 --fetch -o {tmp_path / 'data' / 'aime-2025'}.jsonl" in done.stderr
    )


def test_the_forecast_is_printed_and_nothing_starts_without_consent(tmp_path):
    data = write_data(tmp_path / "data", 1)
    with ScriptedEndpoint(solve_or_judge, models=("m",)) as server:
        words = (
            "reproduce",
            "--model m --base-url",
            server.url,
            "--any-count --data",
            data,
            "--out",
            tmp_path / "o",
        )
        done = caps(*words, "--no-journal")
        assert done.returncode == 2
        assert "forecast: at most about" in done.stderr
        assert "hours at 1,000 tokens" in done.stderr
        assert "add --yes" in done.stderr
        asked = [body for body in server.bodies if "Find" in str(body) or "Add two" in str(body)]
    assert not asked


def test_an_unknown_table_is_named(tmp_path):
    done = caps("reproduce", "--simulate --tables ablatio --out", tmp_path)
    assert done.returncode == 2
    assert "did you mean 'ablation'" in done.stderr


@pytest.mark.slow
@pytest.mark.xdist_group("llama.cpp")
def test_with_the_embedded_model_from_problems_to_the_page(tmp_path):
    data = write_data(tmp_path / "data", 2)
    process = start(
        "reproduce", "--model embedded -n 4 --tables disagreements --benchmarks aime-2025 --any-count --yes",
        "--max-tokens 32 --data", data, "--journal", tmp_path / "journal.sqlite", "--out", tmp_path / "out",
        "--quiet",
    )  # fmt: skip
    _, error = process.communicate(timeout=1800)  # a small model on a busy machine
    assert process.returncode == 0, error
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["counts"]["selections"] == 2 * 2 * 3
    with gzip.open(tmp_path / "out" / "verdicts" / "embedded-aime-2025.cases.jsonl.gz", "rt") as lines:
        assert [len(json.loads(line)["candidates"]) for line in lines] == [4, 4]


def test_simulated_it_needs_no_model_and_says_what_is_assumed(tmp_path):
    done = caps("reproduce", "--simulate --tables difficulty --limit 4 --processes 1 --out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "page.html").read_text()
    assert "What is assumed, and what follows from it" in page
    assert "Simulated (pools and verdicts)" in page
    assert 'href="#table-0-0"' in page
    assert 'id="table-0-0"' in page
