import gzip
import json
import signal
from collections import Counter

import pytest

from caps.core.errors import CapsError
from caps.testing import Reply, ScriptedEndpoint, Status
from support.generating import answering
from support.shell import caps, read_lines, start
from support.waiting import wait_until


@pytest.fixture
def server():
    with ScriptedEndpoint(answering) as running:
        yield running


def write_problems(path, count, **more):
    rows = [{"id": f"p{i}", "domain": "math", "problem": f"Question {i}?", **more} for i in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_problems_become_cases_that_select_takes_and_a_second_run_pays_nothing(invoke, server, tmp_path):
    problems, cases = write_problems(tmp_path / "p.jsonl", 3, source="s", answer="1"), tmp_path / "c.jsonl"
    done = invoke("sample", problems, "-n", 4, "-o", cases)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "3 of 3 problems sampled" in done.stderr
    served = server.tokens
    assert f"tokens: {served['prompt']} billed (0 cached), {served['output']} written" in done.stderr
    assert server.requests == 12
    found = read_lines(cases)
    assert [case["id"] for case in found] == ["p0", "p1", "p2"]
    assert list(found[0]) == ["id", "domain", "problem", "source", "answer", "candidates"]
    assert [one[-2] for one in found[0]["candidates"]] == ["0", "1", "2", "3"]
    again = invoke("sample", problems, "-n", 4)
    assert server.requests == 12
    assert again.stdout == cases.read_text()
    assert "12 of them from the journal" in again.stderr
    selected = lines(invoke("select", cases).stdout)
    assert [line["winner"] for line in selected] == [1, 1, 1]


def test_bad_lines_and_failed_samples_are_named_and_the_good_ones_delivered(tmp_path):
    path = tmp_path / "p.jsonl"
    good = '{"id": "%s", "problem": "%s", "domain": "math"}'
    wrong = ["not json", '{"id": "x"}', good % ("a", "twice"), good % ("dead", "dead?")]
    path.write_text("\n".join([good % ("a", "first?"), *wrong, good % ("b", "last?")]) + "\n")

    def reply(body, number):
        asked = body["messages"][0]["content"]
        if "dead" in asked or ("last" in asked and body["seed"] == 1235):
            return Status(400, "rather not")
        return answering(body)

    with ScriptedEndpoint(reply) as server:
        done = caps(
            "sample", path, f"-n 2 --base-url {server.url} --model m --journal", tmp_path / "j.sqlite"
        )
    assert done.returncode == 1
    assert [(case["id"], len(case["candidates"])) for case in lines(done.stdout)] == [("a", 2), ("b", 1)]
    for said in (
        f"{path}:2: not JSON",
        f"{path}:3: problem: must be",
        f"{path}:4: id: 'a'",
        "failed: problem 'dead': none of its 2 samples succeeded",
        "sample failed: problem 'b': sample 1: ",
        "failed samples: 3 (refused 3)",
    ):
        assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_after_a_kill_and_after_ctrl_c_only_what_was_in_flight_is_drawn_again(tmp_path):
    problems, cases, asked = write_problems(tmp_path / "p.jsonl", 12), tmp_path / "c.jsonl", Counter()

    def reply(body, number):
        asked[body["messages"][0]["content"], body.get("seed")] += 1
        return Reply(answering(body).text, until=lambda: number < may_answer[-1])

    may_answer = [20]
    with ScriptedEndpoint(reply) as server:
        words = (
            "sample", problems, "-n", 4, "-o", cases, "--base-url", server.url, "--model", "m",
            "--journal", tmp_path / "j.sqlite", "--max-connections", 3,
        )  # fmt: skip
        killed = start(*words)
        wait_until(lambda: server.requests > 20 or killed.poll() is not None)
        killed.kill()
        killed.communicate()
        assert not cases.exists(), "half a run does not stand under the name"
        assert read_lines(tmp_path / "c.jsonl.partial")[0]["id"] == "p0"
        may_answer.append(35)
        stopped = start(*words)
        wait_until(lambda: server.requests > 35 or stopped.poll() is not None)
        stopped.send_signal(signal.SIGINT)
        may_answer.append(10**9)
        _, said = stopped.communicate()
        assert stopped.returncode == 130
        assert "every reply so far is in the journal" in said
        assert f"{cases}.partial: run the same command again" in said
        last = caps(*words, "--json")
    assert last.returncode == 0, last.stderr
    told = json.loads(last.stdout)
    assert (told["problems"], told["samples"], told["failed"]) == (12, 48, 0)
    assert [case["id"] for case in read_lines(cases)] == [f"p{i}" for i in range(12)]
    drawn = {key: times for key, times in asked.items() if key[1] is not None}
    assert len(drawn) == 48
    assert sum(drawn.values()) <= 48 + 3, "only the three calls under way at the kill were lost"


def test_a_dry_run_shows_the_first_request_and_asks_nothing(invoke, server, tmp_path):
    problems = write_problems(tmp_path / "p.jsonl", 2)
    done = invoke("sample", problems, "--dry-run", "--preset", "gpt-oss-20b", "--seed", 5)
    assert "Question 0?" in done.stdout
    assert "reasoning_effort = medium" in done.stdout
    body = json.loads(invoke("sample", problems, "--dry-run", "--json", "--preset", "small").stdout)
    assert (len(body["messages"]), body["temperature"]) == (9, 0.5)
    assert server.requests == 0


def test_standard_input_gzip_limit_and_log_probabilities(invoke, server, tmp_path):
    text = write_problems(tmp_path / "p.jsonl", 3).read_text()
    out = tmp_path / "c.jsonl.gz"
    assert invoke("sample", "-", "-n", 1, "-o", out, "--limit", 2, stdin=text).exit_code == 0
    assert len(lines(gzip.decompress(out.read_bytes()).decode())) == 2
    with pytest.raises(CapsError, match="returns no log-probabilities"):
        invoke("sample", tmp_path / "p.jsonl", "--logprobs")


def test_recursive_aggregation_judges_between_loops_and_shows_every_step(invoke, server, tmp_path):
    problems = write_problems(tmp_path / "p.jsonl", 1, answer="1")
    done = invoke(
        "sample", problems, "-n", 4, "--method", "rsa", "--set", "loops=2", "--set", "group=2",
        "--set", "fitness=majority", "--set", "temperature_math=0.3",
    )  # fmt: skip
    assert done.exit_code == 0
    assert server.requests == 4 + 2 * 4
    assert {body["temperature"] for body in server.bodies} == {0.3}
    assert "step 0: Pass@N 100.0 %, mean 25.0 %" in done.stderr
    assert "step 2: Pass@N 0.0 %" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["missing.jsonl"], "missing.jsonl: No such file"),
        (["{problems}", "--preset", "nope"], "no preset is called 'nope'"),
        (["{problems}", "--method", "nope"], "no method is called 'nope'"),
        (["{problems}", "--set", "loops=2"], "no field 'loops'"),
        (["{problems}", "--set", "temprature_code=2"], "did you mean 'temperature_code'"),
        (["{problems}", "--set", "top_p=2"], "top_p = 2"),
        (["{problems}", "-o", "/nowhere/c.jsonl"], "--output /nowhere/c.jsonl: No such file"),
        (["{problems}", "--method", "rsa", "--set", "fitness=nope"], "no strategy is called 'nope'"),
        (
            ["{problems}", "--method", "rsa", "--set", "fitness=caps", "--budget-total-tokens", "9"],
            "a total budget does not count",
        ),
    ],
)
def test_a_mistake_is_named_before_anything_is_drawn(invoke, server, tmp_path, words, said):
    problems = write_problems(tmp_path / "p.jsonl", 1)
    with pytest.raises(CapsError) as caught:
        invoke("sample", *[word.format(problems=problems) for word in words])
    assert said in str(caught.value)
    assert not [body for body in server.bodies if "Question" in body["messages"][0]["content"]]


def test_auto_generates_by_agreement_and_again_pays_for_nothing(invoke, tmp_path):
    with ScriptedEndpoint([Reply("Surely \\boxed{4}")]) as agreed:
        problems = write_problems(tmp_path / "p.jsonl", 3, answer="4")
        words = ("sample", problems, "--n", "auto", "-o", tmp_path / "drawn.jsonl", "--base-url", agreed.url)
        done = invoke(*words)
        asked = agreed.requests
        invoke(*words)
        assert agreed.requests <= asked + 1, "only the endpoint is tested again"
    assert done.exit_code == 0
    rows = read_lines(tmp_path / "drawn.jsonl")
    assert [row["id"] for row in rows] == ["p0", "p1", "p2"]
    assert all(2 <= len(row["candidates"]) <= 4 for row in rows)
