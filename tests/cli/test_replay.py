import json

import pytest

from judging import better_quality_wins, write_cases
from models.server import Reply, Status, StubServer
from shell import caps


@pytest.fixture
def run(tmp_path):
    """A finished run of three cases; the server is gone."""
    cases, out = write_cases(tmp_path / "cases.jsonl", 3), tmp_path / "run"
    with StubServer(better_quality_wins) as server:
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
    with StubServer(better_quality_wins) as server:
        words = ("--model", "stub", "--base-url", server.url, "--journal", tmp_path / "journal.sqlite")
        caps("select", cases, *words, "--out", out, "--strategy", "caps")
        asked = server.requests
        wider = caps("replay", out, "--strategy", "caps", "--set", "screening=E2", "--ask")
        assert wider.returncode == 0, wider.stderr
        assert asked < server.requests <= asked + 1 + 2 * 18
        again = caps("replay", out, "--strategy", "caps", "--set", "screening=E2")
        assert again.returncode == 0, again.stderr
    assert orders(again) == orders(wider)


def test_what_went_unanswered_stays_unanswered(tmp_path):
    """Every third prompt is refused for good; the replay leaves the same gaps."""

    def picky(body, number):
        prompt = body["messages"][0]["content"]
        refuse = "quality=" in prompt and len(prompt) % 3 == 0
        return Status(400, "no") if refuse else better_quality_wins(body)

    cases, out = write_cases(tmp_path / "cases.jsonl", 8), tmp_path / "run"
    with StubServer(picky) as server:
        done = caps(
            "select",
            cases,
            "--model",
            "m",
            "--base-url",
            server.url,
            "--journal",
            tmp_path / "j",
            "--out",
            out,
        )
    assert done.returncode == 3
    again = caps("replay", out)
    assert orders(again) == orders(done)


def test_a_run_under_a_budget_replays_exactly(tmp_path):
    cases, out = write_cases(tmp_path / "cases.jsonl", 4), tmp_path / "run"
    with StubServer(better_quality_wins) as server:
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

    with StubServer(slow) as server:
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
    lines = [json.loads(line) for line in (out / "selections.jsonl").read_text().splitlines()]
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


@pytest.mark.parametrize("damage", ["nowhere", "empty", "garbage", "no journal", "stdin", "prompts"])
def test_what_cannot_be_replayed_is_named(run, tmp_path, damage):
    out, _ = run
    made = json.loads((out / "run.json").read_text())
    if damage == "nowhere":
        out = tmp_path / "nowhere"
    elif damage == "empty":
        (out / "run.json").unlink()
    elif damage == "garbage":
        (out / "run.json").write_text("{")
    elif damage == "no journal":
        made["config"]["journal"] = str(tmp_path / "gone.sqlite")
    elif damage == "stdin":
        made["cases"] = "-"
    else:
        made["prompt_digests"]["pair-e1-math.v2.txt"] = "0" * 16
    if damage in ("no journal", "stdin", "prompts"):
        (out / "run.json").write_text(json.dumps(made))
    done = caps("replay", out)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("caps: ")


@pytest.mark.parametrize("strategy", ["pointwise", "listwise", "v1-infer", "knockout", "pivot", "caps-plus"])
def test_every_kind_of_ask_is_replayed_gaps_included(tmp_path, strategy):
    def picky(body, number):
        prompt = body["messages"][0]["content"]
        return (
            Status(400, "no") if "quality=" in prompt and len(prompt) % 5 == 0 else better_quality_wins(body)
        )

    cases, out = write_cases(tmp_path / "cases.jsonl", 5, n=9), tmp_path / "run"
    with StubServer(picky) as server:
        done = caps(
            "select", cases, "--model", "m", "--base-url", server.url, "--journal", tmp_path / "j", "--out", out,
            "--strategy", strategy, "--limit", 4,
        )  # fmt: skip
    assert done.returncode in (0, 1, 3), done.stderr
    again = caps("replay", out)
    assert orders(again) == orders(done)
    assert "unfinished" not in again.stderr


@pytest.fixture
def old_run(tmp_path):
    """The folder and the journal of a run that was asked in the words of version 0.1."""
    cases, out = write_cases(tmp_path / "cases.jsonl", 3), tmp_path / "run"
    words = (
        "select",
        cases,
        "--model",
        "stub",
        "--journal",
        tmp_path / "journal.sqlite",
        "--strategy",
        "caps",
    )
    with StubServer(better_quality_wins) as server:
        done = caps(*words, "--base-url", server.url, "--out", out, "--prompt-version", "v1")
        assert done.returncode == 0, done.stderr
    made = json.loads((out / "run.json").read_text())
    assert made["config"]["prompt_version"] == "v1"
    assert all(name.endswith(".v1.txt") for name in made["prompt_digests"])
    return out, words, done


def test_a_run_of_version_0_1_replays_with_the_prompts_it_was_made_with(old_run):
    out, _, done = old_run
    again = caps("replay", out)
    assert again.returncode == 0, again.stderr
    assert orders(again) == orders(done)
    assert "3 cases replayed without a call, all as in the run" in again.stderr


def test_a_run_of_version_0_1_goes_on_in_its_folder_and_pays_for_nothing_again(old_run):
    out, words, done = old_run
    with StubServer(better_quality_wins) as server:
        again = caps(*words, "--base-url", server.url, "--out", out)
        assert again.returncode == 0, again.stderr
        assert server.requests <= 1  # the one that tries the endpoint
    assert orders(again) == orders(done)
    assert json.loads((out / "run.json").read_text())["config"]["prompt_version"] == "v1"


def test_what_is_asked_for_a_run_of_version_0_1_is_asked_in_its_words(old_run):
    out, _, _ = old_run
    made = json.loads((out / "run.json").read_text())
    with StubServer(better_quality_wins) as server:
        made["config"]["base_url"] = [server.url]
        (out / "run.json").write_text(json.dumps(made))
        wider = caps("replay", out, "--strategy", "caps", "--set", "screening=E2", "--ask")
        assert wider.returncode == 0, wider.stderr
        prompts = [body["messages"][0]["content"] for body in server.bodies[1:]]
    assert prompts
    assert all("<winner>A or B or TIE</winner>" in prompt for prompt in prompts)


def test_a_new_run_is_asked_in_the_new_words_and_says_so(run):
    out, _ = run
    made = json.loads((out / "run.json").read_text())
    assert made["config"]["prompt_version"] == "v3"
    assert all(name.endswith((".v2.txt", ".v3.txt")) for name in made["prompt_digests"])


def test_an_unknown_version_of_the_prompts_is_named(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 1)
    done = caps("select", cases, "--model", "m", "--base-url", "http://127.0.0.1:9", "--prompt-version", "v9")
    assert done.returncode == 2
    assert "--prompt-version 'v9': must be one of v1, v2, v3" in done.stderr


def test_own_prompts_of_an_earlier_version_keep_their_name_and_so_their_replies(tmp_path):
    """A folder made for version 0.1 holds templates without a code: its journal answers a new run."""
    cases, prompts = write_cases(tmp_path / "cases.jsonl", 2), tmp_path / "prompts"
    prompts.mkdir()
    for name in ("pair-e1-math", "pair-e2-math"):
        (prompts / f"{name}.v1.txt").write_text("{problem}\n{a}\n{b}\nWhich? <winner>A or B or TIE</winner>")
    words = (
        "select", cases, "--model", "m", "--journal", tmp_path / "j", "--prompts", prompts, "--strategy", "caps",
    )  # fmt: skip
    with StubServer(better_quality_wins) as server:
        done = caps(*words, "--base-url", server.url, "--prompt-version", "v1")
        paid = server.requests
        again = caps(*words, "--base-url", server.url, "--out", tmp_path / "run")
        assert again.returncode == 0, again.stderr
        assert server.requests <= paid + 1
    assert orders(again) == orders(done)
    made = json.loads((tmp_path / "run" / "run.json").read_text())
    own = {name for name in made["prompt_digests"] if name.endswith(".v1.txt")}
    assert own == {"pair-e1-math.v1.txt", "pair-e2-math.v1.txt"}
    assert len(made["prompt_digests"]) == 21
