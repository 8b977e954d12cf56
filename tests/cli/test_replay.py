import json
from zlib import crc32

import pytest

from caps.testing import Reply, ScriptedEndpoint, Status, better_quality_wins, write_cases
from support.shell import caps, read_lines


@pytest.fixture
def run(tmp_path):
    """A finished run of three cases; the server is gone."""
    cases, out = write_cases(tmp_path / "cases.jsonl", 3), tmp_path / "run"
    with ScriptedEndpoint(better_quality_wins) as server:
        done = caps(
            "select", cases, "--model", "stub", "--base-url", server.url, "--journal", tmp_path / "journal.sqlite",
            "--out", out, "--strategy", "caps-r", "--set", "finalists=2", "--price-input", 2, "--price-output", 8,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    return out, done


def orders(done):
    return {line["id"]: line["order"] for line in map(json.loads, done.stdout.splitlines())}


def test_a_run_is_redone_without_a_model(run):
    out, done = run
    again = caps("replay", out)
    assert again.returncode == 0, again.stderr
    assert orders(again) == orders(done)
    assert "3 cases replayed without a call, all as in the run" in again.stderr
    first = json.loads(again.stdout.splitlines()[0])
    assert (first["tokens"]["billed"], first["usd"]) == (0, 0)


def test_another_strategy_uses_the_same_replies_where_they_are_enough(run):
    out, _ = run
    fewer = caps("replay", out, "--strategy", "majority")
    assert fewer.returncode == 0, fewer.stderr
    assert len(orders(fewer)) == 3


def test_another_strategy_that_needs_more_is_refused_with_the_number_and_the_price(run):
    out, _ = run
    refused = caps("replay", out, "--strategy", "v1-infer")
    assert refused.returncode == 2
    assert refused.stdout == ""
    said = " ".join(refused.stderr.split())
    assert "24 calls of the next rounds of 3 cases are not in the journal" in said
    assert "$0.0" in said
    assert "--ask" in said


def test_with_ask_only_what_is_missing_is_asked(tmp_path):
    cases, out = write_cases(tmp_path / "cases.jsonl", 2), tmp_path / "run"
    with ScriptedEndpoint(better_quality_wins) as server:
        words = ("--model", "stub", "--base-url", server.url, "--journal", tmp_path / "journal.sqlite")
        caps("select", cases, *words, "--out", out, "--strategy", "caps")
        asked = server.requests
        wider = caps("replay", out, "--strategy", "caps", "--set", "screening=E2", "--ask")
        assert wider.returncode == 0, wider.stderr
        assert asked < server.requests <= asked + 1 + 2 * 18
        again = caps("replay", out, "--strategy", "caps", "--set", "screening=E2")
        assert again.returncode == 0, again.stderr
    assert orders(again) == orders(wider)


def test_a_run_under_a_budget_replays_exactly(tmp_path):
    cases, out = write_cases(tmp_path / "cases.jsonl", 4), tmp_path / "run"
    with ScriptedEndpoint(better_quality_wins) as server:
        done = caps(
            "select", cases, "--model", "m", "--base-url", server.url, "--journal", tmp_path / "j", "--out", out,
            "--budget-tokens", 3000, "--max-tokens", 400,
        )  # fmt: skip
    assert done.returncode == 3, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(line["tokens"]["asked"] + line["tokens"]["output"] <= 3000 for line in lines)
    assert all(line["provisional"] and line["causes"]["budget"] for line in lines)
    assert orders(caps("replay", out)) == orders(done)


def test_a_run_cut_short_by_time_replays_as_it_ended(tmp_path):
    cases, out = write_cases(tmp_path / "cases.jsonl", 4), tmp_path / "run"

    def slow(body, number):
        return Reply(better_quality_wins(body).text, delay=0.1)

    with ScriptedEndpoint(slow) as server:
        done = caps(
            "select", cases, "--model", "m", "--base-url", server.url, "--journal", tmp_path / "j", "--out", out,
            "--budget-seconds", 0.35, "--max-connections", 8,
        )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert len(orders(done)) == 4
    assert orders(caps("replay", out)) == orders(done)


def test_an_unfinished_run_replays_what_is_finished_and_names_the_rest(run, tmp_path):
    out, done = run
    made = json.loads((out / "run.json").read_text())
    write_cases(tmp_path / "cases.jsonl", 4)
    again = caps("replay", out)
    assert again.returncode == 1
    assert orders(again) == orders(done)
    assert "unfinished: case 'case 3'" in again.stderr
    assert made["cases"].endswith("cases.jsonl")


def test_a_selection_that_was_tampered_with_is_noticed(run):
    out, _ = run
    lines = read_lines(out / "selections.jsonl")
    lines[1]["order"] = lines[1]["order"][::-1]
    (out / "selections.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    again = caps("replay", out)
    assert again.returncode == 1
    assert "different from the run: case 'case 1'" in again.stderr


def test_a_file_that_ends_in_the_middle_of_a_line_is_read(run):
    out, done = run
    with (out / "rulings.jsonl").open("ab") as file:
        file.write(b'{"case": "case 0", "sta')
    assert orders(caps("replay", out)) == orders(done)


def test_what_cannot_be_replayed_is_named(run, tmp_path):
    file = run[0] / "run.json"
    made = json.loads(file.read_text())
    digests = {**made["prompt_digests"], "pair-e1-math.txt": "0" * 16}
    wrong = [
        {**made, "config": {**made["config"], "journal": str(tmp_path / "gone.sqlite")}},
        {**made, "cases": "-"},
        {**made, "prompt_digests": digests},
    ]
    for text in ("{", *map(json.dumps, wrong), None):
        file.unlink() if text is None else file.write_text(text)
        done = caps("replay", run[0])
        assert done.returncode == 2, text
        assert done.stderr.startswith("caps: ")
    assert caps("replay", tmp_path / "nowhere").returncode == 2


@pytest.mark.parametrize(
    "strategy", ["posterior", "pointwise", "listwise", "v1-infer", "knockout", "pivot", "caps-plus"]
)
def test_every_kind_of_ask_is_replayed_gaps_included(tmp_path, strategy):
    def picky(body, number):
        prompt = body["messages"][0]["content"]
        refuse = "quality=" in prompt and crc32(prompt.encode()) % 5 == 0
        return Status(413, "too long") if refuse else better_quality_wins(body)

    cases, out = write_cases(tmp_path / "cases.jsonl", 5, n=9), tmp_path / "run"
    with ScriptedEndpoint(picky) as server:
        done = caps(
            "select", cases, "--model", "m", "--base-url", server.url, "--journal", tmp_path / "j", "--out", out,
            "--strategy", strategy, "--limit", 4,
        )  # fmt: skip
    assert done.returncode in (0, 1, 3), done.stderr
    again = caps("replay", out)
    assert orders(again) == orders(done)
    assert "unfinished" not in again.stderr


@pytest.fixture
def own_prompts(tmp_path):
    """A folder of templates without a code, as a user may write them."""
    folder = tmp_path / "prompts"
    folder.mkdir()
    for name in ("pair-e1-math", "pair-e2-math"):
        (folder / f"{name}.txt").write_text("{problem}\n{a}\n{b}\nWhich? <winner>A or B or TIE</winner>")
    return folder


def test_an_edited_template_is_never_answered_with_replies_to_the_old_one(own_prompts, tmp_path):
    cases, out = write_cases(tmp_path / "cases.jsonl", 2), tmp_path / "run"
    words = (
        "select", cases, "--model", "m", "--journal", tmp_path / "j", "--prompts", own_prompts, "--strategy", "caps",
    )  # fmt: skip
    with ScriptedEndpoint(better_quality_wins) as server:
        done = caps(*words, "--base-url", server.url, "--out", out)
        assert done.returncode == 0, done.stderr
        paid = server.requests
        again = caps(*words, "--base-url", server.url)
        assert orders(again) == orders(done)
        assert server.requests <= paid + 1, "the journal answers prompts that did not change"
        paid = server.requests
        for template in own_prompts.iterdir():
            template.write_text(template.read_text() + " Think.")
        edited = caps(*words, "--base-url", server.url)
        assert edited.returncode == 0, edited.stderr
        asked = [body["messages"][0]["content"] for body in server.bodies[paid:]]
    assert sum(prompt.endswith(" Think.") for prompt in asked) >= 2
    replayed = caps("replay", out)
    assert replayed.returncode == 2
    assert "pair-e1-math.txt" in replayed.stderr
