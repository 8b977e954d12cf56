"""A judge that thinks at length, as a server serves one: cut replies, drafts of verdicts inside its thoughts."""

import json

import pytest

from caps.testing import Reply, ScriptedEndpoint, better_quality_wins, write_cases
from support.shell import caps

STUDY = """
title = "Thinking"
seeds = [1]
reference = "V1"
[[suites]]
name = "thinkers"
cases = "cases.jsonl"
model = "thinker"
views = { full = "without-thoughts" }
judge = { max_tokens = 16384, extra = { chat_template_kwargs = { enable_thinking = true } } }
[[strategies]]
name = "V1"
use = "v1-infer-caps"
set = { budget = 1.0 }
[[strategies]]
name = "CAPS"
use = "caps-r"
views = { partial = "candidate-head" }
[[tables]]
name = "t"
title = "t"
metrics = ["pass_at_1", "malformed", "calls"]
"""


def thinks(body: dict, number: int) -> Reply:
    """Think for 5,000 to 20,000 tokens, with drafts of both verdicts, then say which is better."""
    prompt = body["messages"][0]["content"]
    verdict = better_quality_wins(body).text
    if verdict == "OK":
        return Reply("OK")
    needed = 5000 + sum(map(ord, prompt)) * 37 % 15_000
    draft = "Let me see. <winner>A</winner> <confidence>HIGH</confidence> Hmm, or <rating_A>1</rating_A>? "
    other = "No: <winner>B</winner>, <rating_B>10</rating_B>. Wait. "
    thought = (draft + other) * (needed // 30)
    room = body.get("max_tokens") or body["max_completion_tokens"]
    usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": min(room, needed)}
    cut = room < needed
    said = None if cut else verdict
    how = number % 3
    if how == 0:  # the server tells thoughts apart
        thoughts = {"reasoning_content": thought[: 4 * room]}
        return Reply(said, "length" if cut else "stop", usage=usage, message=thoughts)
    opening = "<think>\n" if how == 1 else "Okay, "  # some chat templates write the first tag themselves
    if cut:
        return Reply(f"{opening}{thought[: 4 * room]}", "length", usage=usage)
    return Reply(f"{opening}{thought}\n</think>\n\n{verdict}", usage=usage)


@pytest.mark.parametrize(("given", "readable"), [((), True), (("--max-tokens", "2048"), False)])
def test_a_judge_with_room_to_think_is_read_and_one_without_is_not(tmp_path, given, readable):
    (tmp_path / "study.toml").write_text(STUDY)
    write_cases(tmp_path / "cases.jsonl", 2, n=8)
    with ScriptedEndpoint(thinks) as server:
        done = caps(
            "bench", tmp_path / "study.toml", "--base-url", server.url, "--no-journal", "--out",
            tmp_path / "out", "--json", "--quiet", "--keep-going", *given,
        )  # fmt: skip
        asked = [body for body in server.bodies if "quality=" in json.dumps(body)]
    assert done.returncode == 0, done.stderr
    (table,) = json.loads(done.stdout)["tables"]
    malformed = {row["column"]: row["ours"] for row in table["figures"] if row["metric"] == "malformed"}
    assert (set(malformed.values()) == {0.0}) is readable, malformed
    if readable:
        right = [row["ours"] for row in table["figures"] if row["metric"] == "pass_at_1"]
        assert right == [100.0, 100.0]
        rooms = {body.get("max_tokens") or body["max_completion_tokens"] for body in asked}
        assert rooms <= {16_384, 32_768}
        assert all(body["chat_template_kwargs"] == {"enable_thinking": True} for body in asked)


ONE = """
title = "One"
seeds = [1]
reference = "V1"
suites = [{ name = "real", cases = "cases.jsonl", n = 4 }]
strategies = [{ name = "V1", use = "v1-infer-caps", output = "budget{budget}_seed{seed}" }, { name = "CAPS", use = "caps-r", output = "caps_r_f{finalists}_seed{seed}" }]
tables = [
  { name = "first", title = "Title first", metrics = ["pass_at_1", "same_choice", "rescued_wins"], published = { real = { "CAPS Pass@1" = 46.5 } } },
  { name = "second", title = "Title second", metrics = ["pass_at_1", "same_choice", "rescued_wins"], published = { real = { "CAPS Pass@1" = 46.5 } } },
]
"""


def test_a_study_forecasts_its_price_is_paid_for_once_and_writes_a_page(tmp_path):
    (tmp_path / "one.toml").write_text(ONE)
    write_cases(tmp_path / "cases.jsonl", 2, n=4)
    with ScriptedEndpoint(better_quality_wins) as server:
        words = ["bench", tmp_path / "one.toml", "--model", "stub", "--base-url", server.url, "--out",
                 tmp_path / "out", "--journal", tmp_path / "journal.sqlite",
                 "--price-input", "1", "--price-output", "2"]  # fmt: skip
        planned = caps(*words, "--dry-run")
        assert server.requests == 0
        done = caps(*words)
        paid = server.requests
        again = caps(*words)
        assert server.requests == paid
    for run in (planned, done):
        assert run.returncode == 0, run.stderr
        assert "forecast: at most about " in run.stderr
        assert "about $0.0" in run.stderr
    assert "forecast: " not in again.stderr
    page = (tmp_path / "out" / "page.html").read_text()
    for words in ("One", "Title first", "Title second", "paper 46.5", "caps bench"):
        assert words in page
    assert page.partition("</main>")[0].count("<table>") == 2
    chosen = tmp_path / "out" / "selections" / "real"
    assert {path.name for path in chosen.iterdir()} == {"budget3.0_seed1.jsonl", "caps_r_f4_seed1.jsonl"}
    assert json.loads((chosen / "caps_r_f4_seed1.jsonl").read_text().splitlines()[0])["correct"] is True


def test_one_table_of_a_study_can_be_run_alone(tmp_path):
    (tmp_path / "one.toml").write_text(ONE)
    write_cases(tmp_path / "cases.jsonl", 1, n=4)
    words = ["bench", tmp_path / "one.toml", "--simulate", "--out", tmp_path / "out", "--only"]
    done = caps(*words, "second")
    assert done.returncode == 0, done.stderr
    assert "Title second" in done.stdout
    assert "Title first" not in done.stdout
    wrong = caps(*words, "secnd")
    assert wrong.returncode == 2
    assert "did you mean 'second'?" in wrong.stderr
