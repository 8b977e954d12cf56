import json

from support.sandboxing import needs_bubblewrap
from support.shell import caps

MATH = {
    "id": "half",
    "domain": "math",
    "problem": "?",
    "answer": "1/2",
    "candidates": [r"\boxed{0.5}", r"\boxed{2}", ""],
}
CODE = {
    "id": "sum", "domain": "code", "problem": "Add.", "source": "ours",
    "tests": {"hidden": [{"input": "4 5\n", "output": "9\n"}]},
    "candidates": ["```python\nprint(sum(map(int, input().split())))\n```", "```python\nprint(1)\n```"],
}  # fmt: skip


def written(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@needs_bubblewrap
def test_every_candidate_is_labelled_and_the_second_time_nothing_is_graded(tmp_path):
    cases, out = written(tmp_path / "c.jsonl", MATH, CODE), tmp_path / "out.jsonl"
    words = ("grade", cases, "-o", out, "--journal", tmp_path / "j.sqlite", "--explain")
    done = caps(*words)
    assert done.returncode == 0, done.stderr
    half, total = (json.loads(line) for line in out.read_text().splitlines())
    assert [one["correct"] for one in half["candidates"]] == [True, False, False]
    assert [one["correct"] for one in total["candidates"]] == [True, False]
    assert total["source"] == "ours"
    assert "candidate 0: right: '0.5' against '1/2' (exact)" in done.stderr
    assert "candidate 1: different: '2' against '1/2' (exact)" in done.stderr
    assert "answers compared: exact 2" in done.stderr
    assert r"test 1: input '4 5\n', expected '9\n', got '1\n'" in done.stderr
    assert "5 candidates in 2 cases: 2 right" in done.stderr
    again = caps(*words[:3], tmp_path / "again.jsonl", *words[4:6], "--sandbox", "unsafe-local")
    assert again.returncode == 0
    assert (tmp_path / "again.jsonl").read_text() == out.read_text()
    assert "answers compared: exact 2" in again.stderr


def test_truth_that_cannot_be_used_is_named_and_the_rest_goes_on(tmp_path):
    bad = [
        {"id": "gold", "domain": "math", "problem": "?", "answer": {"a": 1}, "candidates": ["x"]},
        {"id": "none", "domain": "math", "problem": "?", "candidates": ["x"]},
        {"id": "chat", "domain": "general", "problem": "?", "candidates": ["x"]},
        {"id": "diff", "domain": "patch", "problem": "?", "candidates": ["x"]},
    ]
    done = caps("grade", written(tmp_path / "c.jsonl", *bad, MATH), "--no-journal")
    assert done.returncode == 1
    for said in (
        "case 'gold': answer: must be",
        "case 'none': answer: is missing",
        "case 'chat': answer: is missing",
        "case 'diff': domain: 'patch'",
    ):
        assert said in done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["id"] for line in lines] == ["gold", "none", "chat", "diff", "half"]
    assert [one["correct"] for one in lines[-1]["candidates"]] == [True, False, False]


@needs_bubblewrap
def test_tests_that_cannot_run_are_named(tmp_path):
    broken = CODE | {"tests": "def check(candidate:\n"}
    done = caps("grade", written(tmp_path / "c.jsonl", broken), "--no-journal")
    assert done.returncode == 1
    assert "case 'sum': tests: the test program does not parse" in done.stderr
