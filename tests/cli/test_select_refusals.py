"""What `caps select` refuses, and what it says of input, endpoints and replies it cannot use."""

import pytest

from caps.testing import Reply, ScriptedEndpoint, Status, better_quality_wins, case_line, spread, write_cases
from support.shell import caps, json_lines


def test_bad_lines_are_named_and_the_good_cases_delivered(select, tmp_path):
    good = [case_line(f"good {i}", spread(4, i)) for i in range(3)]
    bad = [
        "not json",
        '{"id": "x", "problem": "?", "candidates": []}',
        case_line("good 0", spread(4)),
        '{"problem": 3, "candidates": ["x"]}',
    ]
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join([good[0], bad[0], good[1], bad[1], bad[2], bad[3], good[2]]) + "\n")
    done = select(path)
    assert done.returncode == 1
    assert [line["id"] for line in json_lines(done)] == ["good 0", "good 1", "good 2"]
    said = " ".join(done.stderr.split())
    for part in (
        f"{path}:2: not JSON",
        f"{path}:4: candidates: is empty",
        f"{path}:5: id: 'good 0'",
        f"{path}:6: problem: must be",
    ):
        assert part in said
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no endpoint"),
        (["--base-url", "http://127.0.0.1:1/v1"], "no model"),
        (["--base-url", "nonsense", "--model", "m"], "base URL"),
    ],
)
def test_an_endpoint_must_be_given(tmp_path, words, said):
    done = caps("select", write_cases(tmp_path / "c.jsonl", 1), *words, "--no-journal")
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ({"api_key": "right"}, "refused the API key"),
        ({"models": ("llama", "qwen3-8b", "qwen3-32b")}, "it offers qwen3-8b, qwen3-32b, llama"),
        ({"script": [Status(400, "no")]}, "refused the request"),
        ({"script": [Status(404, "no")]}, "no chat completions"),
        (None, "is the server up"),
    ],
    ids=["a wrong key", "an unknown model", "every request refused", "another API", "no server"],
)
def test_what_every_call_would_meet_ends_the_run_at_once_in_one_sentence(tmp_path, script, said):
    cases = write_cases(tmp_path / "c.jsonl", 40)
    usual = {"script": better_quality_wins, "models": ("qwen3-8",), "check_model": True}
    with ScriptedEndpoint(**{**usual, **(script or {})}) as server:
        if script is None:
            server.die()
        words = f"--base-url {server.url} --model qwen3-8 --no-journal --timeout 5"
        done = caps("select", cases, words, CAPS_API_KEY="wrong-key-1")
        assert server.requests < 40
    assert done.returncode == 2
    assert " ".join(done.stderr.split()).count(said) == 1
    assert server.url.partition("/v1")[0] in done.stderr
    assert "wrong-key-1" not in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_log_probabilities_are_found_before_money_is_spent(select, server, tmp_path):
    cases = write_cases(tmp_path / "c.jsonl", 1)
    done = select(cases, "--confidence", "logprobs")
    assert done.returncode == 2
    assert "gives no log-probabilities" in done.stderr
    assert "--confidence verbal" in done.stderr
    assert server.requests <= 2
    assert select(cases, "--confidence", "auto").returncode == 0


def test_a_server_that_refuses_every_prompt_fails_the_cases_and_exits_1(tmp_path):
    def refuse(body, number):
        return (
            Reply("OK")
            if number == 0
            else Status(400, {"error": {"message": "maximum context length is 10"}})
        )

    with ScriptedEndpoint(refuse) as server:
        done = caps(
            "select",
            write_cases(tmp_path / "c.jsonl", 2, n=4),
            f"--base-url {server.url} --model m --no-journal",
        )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "case 'case 0': none of its" in done.stderr
    assert "too-long" in done.stderr
