import gzip
import json
from dataclasses import replace

import pytest

from caps.cli.report import open_run
from caps.reports.report import load_report
from caps.testing import Reply, ScriptedEndpoint, better_quality_wins, case_line, spread, write_cases
from support.shell import caps, json_lines, read_lines


def test_the_best_candidate_of_each_case_is_printed_with_its_cost(select, server, tmp_path):
    done = select(write_cases(tmp_path / "cases.jsonl", 5), "--strategy", "caps")
    assert done.returncode == 0, done.stderr
    found = json_lines(done)
    assert [line["id"] for line in found] == [f"case {i}" for i in range(5)]
    for line in found:
        assert "quality=0.9412" in line["text"]
        assert line["calls"] == {"E1": 8, "E2": 10}
        assert sorted(line["order"]) == list(range(16))
        assert line["order"][0] == line["winner"]
        assert (line["provisional"], line["malformed"], line["clusters"]) == (False, 0, 16)
        assert line["usd"] is None
    billed = sum(line["tokens"]["billed"] + line["tokens"]["output"] for line in found)
    assert billed == sum(server.tokens.values())
    assert "labelled: 5 right, 0 missed, 0 impossible" in done.stderr
    assert "unknown" in done.stderr


def test_a_strategy_that_knows_how_sure_it_is_says_so_on_the_result_line(select, tmp_path):
    (tmp_path / "judge.json").write_text('{"e2_high": 0.95}')
    cases = write_cases(tmp_path / "cases.jsonl", 2, n=4)
    words = ("--strategy posterior --judge-profile", tmp_path / "judge.json", "--set abstain_below=0.999")
    done = select(cases, *words)
    assert done.returncode == 0, done.stderr
    for line in json_lines(done):
        assert 0.5 < line["probability"] < 0.999
        assert line["abstain"] is True
        assert line["winner"] == line["order"][0]


def test_the_same_command_again_asks_nothing(select, server, tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 3)
    first = json_lines(select(cases))
    asked = server.requests
    again = json_lines(select(cases))
    assert server.requests == asked
    assert [line["winner"] for line in again] == [line["winner"] for line in first]
    assert [line["tokens"]["asked"] for line in again] == [line["tokens"]["asked"] for line in first]
    assert sum(line["tokens"]["billed"] for line in again) == 0


def test_more_cases_ask_only_what_is_missing_and_without_a_journal_all_is_asked(select, server, tmp_path):
    select(write_cases(tmp_path / "cases.jsonl", 2), "--strategy", "caps")
    asked = server.requests
    select(write_cases(tmp_path / "cases.jsonl", 3), "--strategy", "caps")
    assert server.requests == asked + 18
    caps(
        "select",
        tmp_path / "cases.jsonl",
        f"--base-url {server.url} --model stub --strategy caps --no-journal",
    )
    assert server.requests == asked + 18 + 3 * 18


def test_a_run_folder_holds_everything_but_the_key(select, tmp_path):
    cases, out = write_cases(tmp_path / "cases.jsonl", 2), tmp_path / "run"
    done = select(cases, "--out", out, "--strategy caps-r --set finalists=2", OPENAI_API_KEY="sk-very-secret")
    assert done.returncode == 0, done.stderr
    run = json.loads((out / "run.json").read_text())
    assert run["config"]["strategy"] == "caps-r"
    assert run["config"]["settings"]["finalists"] == 2
    assert run["prompt_digests"]["pair-e1-math.txt"]
    assert run["versions"]["caps"]
    assert run["summary"]["cases"] == 2
    selections = read_lines(out / "selections.jsonl")
    assert selections == json_lines(done)
    rulings = read_lines(out / "rulings.jsonl")
    calls = sum(sum(line["calls"].values()) for line in selections)
    assert len(rulings) == calls
    first = rulings[0]
    known = "case stage level pair a verdict weight tokens cached latency finish attempt key"
    assert set(known.split()) <= set(first)
    assert first["a"] in first["pair"]
    for path in [*out.iterdir(), tmp_path / "journal.sqlite"]:
        assert b"sk-very-secret" not in path.read_bytes()
    assert "sk-very-secret" not in done.stdout + done.stderr


def test_a_terminal_gets_a_table_and_the_bracket_goes_to_standard_error(select, tmp_path):
    done = select(write_cases(tmp_path / "cases.jsonl", 1), "--strategy", "caps-r", "--bracket", "--quiet")
    assert "├─" in done.stderr
    assert done.stdout.startswith("{")


def test_quiet_says_nothing_and_json_is_the_same(select, tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 1)
    done = select(cases, "--quiet", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(json_lines(done)) == 1


def test_limit_standard_input_and_gzip(select, server, tmp_path):
    text = "".join(case_line(f"{i}", spread(4, i)) + "\n" for i in range(5))
    (tmp_path / "cases.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    assert len(json_lines(select(tmp_path / "cases.jsonl.gz", "--limit", 2))) == 2
    done = caps("select", "-", "--base-url", server.url, "--model", "stub", "--no-journal", stdin=text)
    assert len(json_lines(done)) == 5


def test_the_environment_and_a_config_file_set_options_and_the_command_line_wins(server, tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 1, n=4)
    config = tmp_path / "caps.toml"
    config.write_text('strategy = "v1-infer"\nseed = 7\nno_journal = true\n[set]\nwindow = 3\n')
    env = {"CAPS_BASE_URL": server.url, "CAPS_MODEL": "stub"}
    (line,) = json_lines(caps("select", cases, "--config", config, **env))
    assert (line["strategy"], line["seed"]) == ("v1-infer", 7)
    (line,) = json_lines(caps("select", cases, "--config", config, "--seed", 8, **env))
    assert line["seed"] == 8
    (line,) = json_lines(caps("select", cases, "--config", config, CAPS_SEED="9", **env))
    assert line["seed"] == 9
    env["OPENAI_BASE_URL"] = env.pop("CAPS_BASE_URL")
    assert caps("select", cases, "--config", config, **env).returncode == 0


def test_extras_reach_the_server_and_views_change_what_is_shown(select, server, tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 1, n=4)
    done = select(
        cases,
        "--extra",
        'chat_template_kwargs={"enable_thinking": false}',
        "--extra reasoning_effort=low --view partial=thinking",
    )
    assert done.returncode == 0, done.stderr
    body = server.bodies[-1]
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["reasoning_effort"] == "low"


def test_own_prompts_are_used(select, server, tmp_path):
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "pair-e1-math.txt").write_text("MINE {problem} {a} {b} <winner>A or B or TIE</winner>")
    cases = write_cases(tmp_path / "cases.jsonl", 1, n=4)
    assert select(cases, "--prompts", folder, "--strategy", "caps").returncode == 0
    prompts = [body["messages"][0]["content"] for body in server.bodies]
    assert sum(prompt.startswith("MINE") for prompt in prompts) == 2


def test_money_is_counted_when_a_price_is_given(select, tmp_path):
    cases, out = write_cases(tmp_path / "cases.jsonl", 1), tmp_path / "run"
    done = select(cases, "--price-input", 2, "--price-output", 8)
    (line,) = json_lines(done)
    tokens = line["tokens"]
    assert line["usd"] == pytest.approx((2 * tokens["billed"] + 8 * tokens["output"]) / 1e6, abs=1e-6)
    done = select(cases, "--confidence", "auto", "--price-input", 2, "--price-output", 8, "--out", out)
    assert "written, 7 to try the endpoint" in done.stderr
    whole, (line,) = json.loads((out / "run.json").read_text())["summary"], json_lines(done)
    assert whole["usd"] - line["usd"] == pytest.approx((2 * 6 + 8 * 1) / 1e6, abs=1e-6), "the test call"


def test_a_dry_run_asks_nothing(select, server, tmp_path):
    done = select(write_cases(tmp_path / "cases.jsonl", 2), "--dry-run")
    assert done.returncode == 0
    assert server.requests == 0
    assert "case 1" in done.stdout


def test_a_guessed_domain_is_said(select, tmp_path):
    row = json.loads(case_line("guess", spread(4)))
    del row["domain"]
    (tmp_path / "cases.jsonl").write_text(json.dumps(row))
    done = select(tmp_path / "cases.jsonl")
    assert "guessed domains: math 1" in done.stderr


def test_500_bad_lines_print_five_and_a_count_and_the_folder_has_all(select, tmp_path):
    cases, run = write_cases(tmp_path / "cases.jsonl", 1), tmp_path / "run"
    cases.write_text(cases.read_text() + "{\n" * 500)
    done = select(cases, "--quiet", "--out", run)
    assert done.returncode == 1
    *named, last = done.stderr.splitlines()
    assert len(named) == 5
    assert last == f"failed: 495 more, 500 in all; all of them are in {run / 'selections.jsonl'}"
    assert (run / "selections.jsonl").read_text().count('"error"') == 500
    with open_run(run) as read:
        assert load_report(read).figures.failed == 500
    assert "keep them all with --out DIR" in select(cases, "--quiet").stderr


def test_what_would_surely_cost_too_much_is_not_started(select, server, tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 4)
    price = ("--price-input", 10, "--price-output", 10)
    refused = select(cases, "--max-usd", 0.05, *price)
    assert refused.returncode == 2
    assert "--max-usd 0.05: the run would read" in refused.stderr
    assert server.requests == 0
    assert select(cases, "--max-usd", 5, *price).returncode == 0
    assert select(cases, "--max-usd", 5).returncode == 2


def test_a_budget_for_the_whole_run_holds_and_every_case_has_an_answer(select, tmp_path):
    done = select(write_cases(tmp_path / "cases.jsonl", 6), "--budget-total-tokens 9000 --max-tokens 300")
    assert done.returncode == 3, done.stderr
    found = json_lines(done)
    assert len(found) == 6
    assert sum(line["tokens"]["billed"] + line["tokens"]["output"] for line in found) <= 9000
    assert any(line["provisional"] for line in found)


def test_results_are_written_in_the_order_of_input_though_the_first_case_ends_last(tmp_path):
    cases, others = write_cases(tmp_path / "cases.jsonl", 4, n=4), []

    def behave(body, number):
        prompt, reply = body["messages"][0]["content"], better_quality_wins(body, number)
        if "it, case 0?" in prompt:
            return replace(reply, until=lambda: len(others) == 3 * 6)
        others.extend(["asked"] * ("it, case" in prompt))
        return reply

    with ScriptedEndpoint(behave) as server:
        where = ("--base-url", server.url, "--model", "stub", "--no-journal", "--max-connections", "32")
        done = caps("select", cases, *where, "--strategy", "round-robin", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert [line["id"] for line in json_lines(done)] == [f"case {i}" for i in range(4)]
    kept = [
        json.loads(line)["case"] for line in (tmp_path / "run" / "rulings.jsonl").read_text().splitlines()
    ]
    assert kept == [f"case {i}" for i in range(4) for _ in range(6)]


def test_several_files_are_one_run(tmp_path):
    one = {"problem": "1 + 1?", "candidates": ["\\boxed{2}", "\\boxed{2}", "\\boxed{3}"]}
    (tmp_path / "a.jsonl").write_text(json.dumps(one) + "\n")
    (tmp_path / "b.json").write_text(json.dumps([{"question": "2 + 2?", "responses": ["4", "4", "5"]}]))
    words = (
        "select",
        tmp_path / "a.jsonl",
        tmp_path / "b.json",
        "--strategy majority --out",
        tmp_path / "run",
    )
    lines = json_lines(caps(*words))
    assert [(line["id"], line["winner"]) for line in lines] == [("a-1", 0), ("b-1", 0)]
    assert caps(*words).returncode == 0, "the same run goes on"
    exported = json_lines(caps("export", tmp_path / "run", "--format", "best"))
    assert [line["prompt"] for line in exported] == ["1 + 1?", "2 + 2?"]
    (tmp_path / "b.json").write_text(json.dumps([{"question": "3 + 3?", "responses": ["6"]}]))
    assert "holds a run with another 'cases'" in caps(*words).stderr
    twice = caps("select", tmp_path / "a.jsonl", "-", "--strategy", "majority")
    assert (twice.returncode, "standard input cannot be read together" in twice.stderr) == (2, True)


def test_no_journal_goes_before_a_journal_of_the_environment(server, tmp_path):
    cases, journal = write_cases(tmp_path / "cases.jsonl", 1), tmp_path / "journal.sqlite"
    words = ("select", cases, "--base-url", server.url, "--model", "stub", "--no-journal")
    done = caps(*words, CAPS_JOURNAL=str(journal))
    assert done.returncode == 0, done.stderr
    assert not journal.exists()


def test_the_summary_counts_as_many_different_answers_as_the_results(select, tmp_path):
    texts = ["\\boxed{4}", "\\boxed{4.0}", "\\boxed{5}", "I do not know", "I do not know"]
    case = {"id": "sum", "domain": "math", "problem": "2 + 2", "candidates": texts}
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n")
    for strategy in ("posterior", "v1-infer"):
        select(tmp_path / "cases.jsonl", "--strategy", strategy, "--out", tmp_path / strategy)
        (line,) = read_lines(tmp_path / strategy / "selections.jsonl")
        findings = json.loads((tmp_path / strategy / "run.json").read_text())["summary"]["findings"]
        assert findings["clusters"] == line["clusters"]


def test_an_unreadable_reply_that_was_asked_for_again_is_counted(tmp_path):
    def hesitant(body, number):
        return Reply("hm") if number % 3 == 1 else better_quality_wins(body)

    cases = write_cases(tmp_path / "cases.jsonl", 1, n=4)
    with ScriptedEndpoint(hesitant) as server:
        done = caps(
            "select", cases, "--strategy", "round-robin", "--base-url", server.url, "--model", "stub",
            "--no-journal", "--max-connections", 1, "--out", tmp_path / "run",
        )  # fmt: skip
    rulings = read_lines(tmp_path / "run" / "rulings.jsonl")
    unread = sum(line["how"] == "none" for line in rulings)
    assert unread > 0
    assert f"unreadable replies: {unread} (no-tag {unread}) of {len(rulings)}; 0 questions" in done.stderr
    with open_run(tmp_path / "run") as run:
        assert load_report(run).figures.unreadable_rate == unread / len(rulings)
