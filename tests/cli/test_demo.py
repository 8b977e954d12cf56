import re
from itertools import permutations

import pytest

from caps.testing import Reply, ScriptedEndpoint, better_quality_wins
from support.shell import caps, json_lines, read_lines


def longer_wins(body, number=0):
    prompt = body["messages"][0]["content"]
    if "<winner>" not in prompt:
        return better_quality_wins(body)
    shown = re.findall(r"<<<BEGIN CANDIDATE [AB] \w+>>>\n(.*?)\n<<<END", prompt, re.S)
    return Reply(
        f"<winner>{'A' if len(shown[0]) > len(shown[1]) else 'B'}</winner>\n<confidence>HIGH</confidence>"
    )


@pytest.fixture
def demo(tmp_path):
    def run(*words, **environment):
        return caps("demo", "--out", tmp_path, "--journal", tmp_path / "j.sqlite", *words, **environment)

    return run


def test_strategies_are_compared_a_case_is_explained_and_a_report_written(demo, tmp_path):
    with ScriptedEndpoint(longer_wins) as server:
        first = demo("--model", "stub", "--base-url", server.url)
        assert first.returncode == 0, first.stderr
        asked = server.requests
        second = demo("--model", "stub", "--base-url", server.url)
        assert server.requests == asked > 0
    for said in (
        "which ones are right?",
        "How posterior decided",
        "The same job live, with stub",
        "caps select",
    ):
        assert said in first.stdout
    assert "every reply came from the journal" in second.stdout
    assert "too small to judge" not in first.stdout
    assert (tmp_path / "run" / "report.html").is_file()
    right = {name: int(count) for name, count in re.findall(r"^(\S+).*?(\d+) of \d+ ", first.stdout, re.M)}
    assert right["posterior"] >= right["the"], "better than the first answer"


def test_the_table_states_what_caps_select_chooses_from_the_same_files(demo, tmp_path):
    with ScriptedEndpoint(longer_wins) as server:
        shown = demo("--model", "stub", "--base-url", server.url).stdout
    cases = read_lines(tmp_path / "cases.jsonl")
    for strategy in ("majority", "posterior", "caps-r", "v1-infer"):
        words = ("--recorded", tmp_path / "verdicts.jsonl", "--strategy", strategy, "--no-journal")
        lines = json_lines(caps("select", tmp_path / "cases.jsonl", *words))
        labels = {case["id"]: [candidate["correct"] for candidate in case["candidates"]] for case in cases}
        right = sum(labels[line["id"]][line["winner"]] for line in lines)
        tokens = sum(line["tokens"]["asked"] for line in lines)
        (row,) = [line for line in shown.splitlines() if line.startswith(strategy)]
        assert f"{right} of {len(cases)}" in row
        assert row.rstrip().endswith(f"{tokens:,}")


def test_every_case_has_right_and_wrong_answers_and_every_pair_a_verdict(demo, tmp_path):
    demo("--model", "stub", "--base-url", "http://127.0.0.1:9/v1")
    cases = read_lines(tmp_path / "cases.jsonl")
    verdicts = read_lines(tmp_path / "verdicts.jsonl")
    assert len(cases) >= 12
    shown = {(verdict["case"], *verdict["shown"]) for verdict in verdicts}
    for case in cases:
        assert {candidate["correct"] for candidate in case["candidates"]} == {True, False}
        assert all((case["id"], *pair) in shown for pair in permutations(range(8), 2))


def test_a_dead_endpoint_is_one_sentence_after_the_recorded_part(demo):
    done = demo("--model", "stub", "--base-url", "http://127.0.0.1:9/v1")
    assert done.returncode == 2
    assert "posterior (the default)" in done.stdout
    assert done.stderr.strip().splitlines()[-1].startswith("caps: no server answers at http://127.0.0.1:9/v1")


def test_without_network_and_weights_one_sentence_says_so_after_the_recorded_part(demo, tmp_path):
    nothing = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PIP_NO_INDEX": "1", "PIP_NO_CACHE_DIR": "1"}
    done = demo(HOME=str(tmp_path), **nothing)
    assert done.returncode == 2
    assert "posterior (the default)" in done.stdout
    assert "check the network" in done.stderr
    assert "Traceback" not in done.stderr
