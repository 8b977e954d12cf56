"""What `caps select` refuses, and what it says of input, endpoints and replies it cannot use."""

import pytest

from caps.testing import Reply, ScriptedEndpoint, Status, better_quality_wins, case_line, spread, write_cases
from shell import caps, json_lines


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
        (["missing.jsonl"], "missing.jsonl: No such file"),
        (["."], ".: holds no file that ends in"),
        (["{cases}", "--strategy", "nope"], "no strategy is called 'nope'"),
        (["{cases}", "--strategy", "caps", "--set", "finalists=0"], "finalists = 0"),
        (["{cases}", "--set", "votes=-1"], "votes = -1"),
        (["{cases}", "--view", "partial=nope"], "nope"),
        (["{cases}", "--view", "middle=full"], "middle"),
        (["{cases}", "--profile", "nope"], "nope"),
        (["{cases}", "--confidence", "maybe"], "--confidence 'maybe'"),
        (["{cases}", "--max-connections", "0"], "--max-connections '0'"),
        (["{cases}", "--price-input", "1"], "both --price-input and --price-output"),
        (["{cases}", "--extra", "novalue"], "--extra 'novalue'"),
        (["{cases}", "--prompts", "nowhere"], "--prompts nowhere"),
        (["{cases}", "--config", "nowhere.toml"], "--config nowhere.toml"),
        (["{cases}", "--out", "{cases}/run"], "--out"),
        (["{cases}", "--journal", "/proc/nowhere/journal"], "/proc/nowhere"),
    ],
)
def test_a_mistake_exits_2_before_anything_is_asked(server, tmp_path, words, said):
    cases = write_cases(tmp_path / "cases.jsonl", 1, n=4)
    words = [word.format(cases=cases) for word in words]
    journal = [] if "--journal" in words else ["--journal", tmp_path / "journal.sqlite"]
    done = caps("select", *words, "--base-url", server.url, "--model", "stub", *journal)
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not [body for body in server.bodies if "quality=" in body["messages"][0]["content"]]


def test_an_unknown_key_of_a_config_file_is_an_error(server, tmp_path):
    config = tmp_path / "caps.toml"
    config.write_text('stratgy = "caps"\n')
    done = caps("select", write_cases(tmp_path / "c.jsonl", 1), "--config", config)
    assert done.returncode == 2
    assert "stratgy" in done.stderr
    assert "strategy" in done.stderr


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


def test_a_dead_endpoint_is_named_at_once(tmp_path):
    done = caps(
        "select",
        write_cases(tmp_path / "c.jsonl", 1),
        "--base-url",
        "http://127.0.0.1:9/v1",
        "--model",
        "m",
        "--no-journal",
    )
    assert done.returncode == 2
    assert "127.0.0.1:9" in done.stderr
    assert "is the server up" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_key_and_an_unknown_model_end_a_run_at_once(tmp_path):
    cases = write_cases(tmp_path / "c.jsonl", 3)
    with ScriptedEndpoint(
        better_quality_wins, api_key="right", models=("qwen3-14b", "other"), check_model=True
    ) as server:
        wrong = caps(
            "select",
            cases,
            "--base-url",
            server.url,
            "--model",
            "other",
            "--no-journal",
            CAPS_API_KEY="wrong-key-1",
        )
        unknown = caps(
            "select",
            cases,
            "--base-url",
            server.url,
            "--model",
            "qwen3-14",
            "--no-journal",
            CAPS_API_KEY="right",
        )
        assert server.requests < 20
    assert (wrong.returncode, unknown.returncode) == (2, 2)
    assert "wrong-key-1" not in wrong.stderr
    assert "key" in wrong.stderr
    assert "qwen3-14b" in unknown.stderr


def test_missing_log_probabilities_are_found_before_money_is_spent(select, server, tmp_path):
    cases = write_cases(tmp_path / "c.jsonl", 1)
    done = select(cases, "--confidence", "logprobs")
    assert done.returncode == 2
    assert "log-probabilities" in done.stderr
    assert server.requests <= 2
    assert select(cases, "--confidence", "auto").returncode == 0


def test_unreadable_replies_are_counted_and_the_case_still_has_an_answer(tmp_path):
    with ScriptedEndpoint([Reply("I would rather not say.")]) as server:
        done = caps(
            "select",
            write_cases(tmp_path / "c.jsonl", 1, n=4),
            "--base-url",
            server.url,
            "--model",
            "m",
            "--no-journal",
            "--strategy",
            "caps",
            "--keep-going",
        )
    (line,) = json_lines(done)
    assert line["malformed"] == 3
    assert "unreadable replies: 9 (no-tag 9) of 9; 3 questions without a readable reply" in done.stderr


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
            "--base-url",
            server.url,
            "--model",
            "m",
            "--no-journal",
        )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "case 'case 0': none of its" in done.stderr
    assert "too-long" in done.stderr
