import json

import pytest
from aiohttp import web

from caps.testing import ScriptedEndpoint, better_quality_wins, case_line, spread, write_cases
from support.playing import ALL
from support.shell import caps, caps_json


@pytest.fixture
def cases(tmp_path):
    return write_cases(tmp_path / "cases.jsonl", 3)


def rows_of(*words, **environment):
    return {row["strategy"]: row for row in caps_json("plan", *words, **environment)}


@pytest.mark.parametrize("strategy", ["caps", "caps-r", "v1-infer", "pointwise", "knockout", "listwise"])
def test_a_run_asks_what_was_planned(tmp_path, cases, strategy):
    (planned,) = caps_json("plan", cases, "--strategy", strategy)
    with ScriptedEndpoint(better_quality_wins) as server:
        done = caps(
            "select", cases, "--strategy", strategy, "--base-url", server.url, "--model", "stub",
            "--journal", tmp_path / "journal.sqlite", "--out", tmp_path / "run", "--seed", 1234,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    rulings = [json.loads(line) for line in (tmp_path / "run" / "rulings.jsonl").read_text().splitlines()]
    asked = sum(line["tokens"]["asked"] for line in found)
    calls = sum(sum(line["calls"].values()) for line in found)
    assert calls == pytest.approx(planned["calls_total"]["mean"], rel=0.2)  # the judge is always right
    assert asked == pytest.approx(planned["tokens"]["mean"], rel=0.2)
    firsts = {line["case"]: line["stage"] for line in reversed(rulings)}
    if strategy in ("caps", "caps-r", "pointwise"):  # elsewhere later rounds go by the same name
        first = sum(one["tokens"] for one in rulings if one["stage"] == firsts[one["case"]])
        assert planned["first_stage_tokens"] == first


def test_every_strategy_is_planned_side_by_side_and_v1_infer_is_the_measure(cases):
    rows = rows_of(cases)  # ends well although some strategies, such as reward, cannot play these cases
    assert list(rows) == ALL
    assert rows["v1-infer"]["token_share"] == pytest.approx(1, rel=0.01)
    assert rows["caps"]["calls"] == {"E1": 24, "E2": 30}
    assert rows["caps"]["depth"] == {"mean": 3, "most": 3}
    assert rows["caps"] == {**rows["no-rescue"], "strategy": "caps"}
    assert 54 <= rows["caps-r"]["calls_total"]["low"] < rows["caps-r"]["calls_total"]["high"] <= 66
    assert rows["caps"]["token_share"] == pytest.approx(
        rows["caps"]["tokens"]["mean"] / rows["v1-infer"]["tokens"]["mean"], rel=0.01
    )
    assert rows["pointwise"]["tokens"] == dict.fromkeys(
        ("mean", "low", "high"), rows["pointwise"]["first_stage_tokens"]
    )
    assert rows["majority"]["calls_total"]["high"] == rows["majority"]["tokens"]["high"] == 0
    assert all(row["usd"] is None for row in rows.values())


def test_prices_multiply_out(cases):
    words = (cases, "--strategy", "caps-r", "--output-tokens", 100)
    (row,) = caps_json("plan", *words, "--price-input 2 --price-output 8 --set price_cached=1")
    tokens, usd = row["tokens"], row["usd"]
    calls = row["calls_total"]
    assert row["output_tokens"] == round(100 * calls["mean"])
    assert usd["low"] == pytest.approx((tokens["low"] + 800 * calls["low"]) / 1e6, rel=0.02)
    assert usd["mean"] == pytest.approx((2 * tokens["mean"] + 800 * calls["mean"]) / 1e6, rel=1e-3)
    assert usd["high"] == pytest.approx((2 * tokens["high"] + 800 * calls["high"]) / 1e6, rel=0.02)


def test_a_listed_price_is_used_and_an_unknown_one_is_called_unknown(cases):
    known = ("--model", "gpt-4o-mini", "--base-url", "https://api.openai.com/v1")
    (row,) = caps_json("plan", cases, "--strategy", "caps", *known)
    assert 0 < row["usd"]["low"] < row["usd"]["mean"] <= row["usd"]["high"]
    unknown = ("--model", "mine", "--base-url", "http://localhost:8000/v1")
    assert caps_json("plan", cases, "--strategy", "caps", *unknown)[0]["usd"] is None
    assert "cost: unknown" in caps("plan", cases, "--strategy caps", *unknown).stdout


def test_the_efforts_of_posterior_are_compared_for_these_cases_and_for_a_pool(cases):
    for words in ((cases,), ("--pool", 4)):
        (row,) = caps_json("plan", *words, "--strategy", "posterior")
        by_key = {(one["judge"], one["effort"]): one for one in row["efforts"]}
        assert by_key[0.95, "high"]["right"] > by_key[0.6, "low"]["right"]
        for judge in (0.6, 0.95):
            low, high = by_key[judge, "low"], by_key[judge, "high"]
            assert low["calls"] < high["calls"]
            assert low["token_share"] < high["token_share"]
    assert "SIMULATED: right, calls of a case" in caps("plan", "--pool", 4, "--strategy", "posterior").stdout
    assert "efforts" not in caps_json("plan", cases, "--strategy", "caps,posterior")[1]


def test_sizes_of_the_closed_form_are_refused_for_cases_which_have_their_own(cases):
    for words in ("--pool 8", "--rho 0.2"):
        refused = caps("plan", cases, words)
        assert refused.returncode == 2
        assert f"{words.split()[0]} is for a plan without CASES" in refused.stderr


def test_it_takes_the_settings_file_and_the_variables_of_the_run(tmp_path, cases):
    (tmp_path / "run.toml").write_text("price_input = 2\nprice_output = 8\nprice_cached = 1\n")
    words = ("plan", cases, "--strategy", "caps-r")
    (stated,) = caps_json(*words, "--price-input 2 --price-output 8 --set price_cached=1")
    assert caps_json(*words, "--config", tmp_path / "run.toml") == [stated]
    environment = {"CAPS_PRICE_INPUT": "2", "CAPS_PRICE_OUTPUT": "8", "CAPS_PRICE_CACHED": "1"}
    assert caps_json(*words, **environment) == [stated]


def test_views_prompts_seed_limit_and_standard_input(tmp_path, cases):
    words = (cases, "--strategy", "caps")
    (plain,) = caps_json("plan", *words)
    assert caps_json("plan", *words, "--limit", 1)[0]["cases"] == 1
    (tmp_path / "pair-e1-math.txt").write_text("MINE {problem} {a} {b}")
    (short,) = caps_json("plan", *words, "--prompts", tmp_path)
    assert short["first_stage_tokens"] < plain["first_stage_tokens"]
    done = caps("plan", "-", "--json", "--strategy", "caps", stdin=cases.read_text())
    assert json.loads(done.stdout) == [plain]


def test_bad_lines_are_named_and_the_rest_is_planned(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join([case_line("a", spread(4)), "not json", case_line("b", spread(4))]) + "\n")
    done = caps("plan", path, "--json", "--strategy", "caps")
    assert done.returncode == 1
    assert f"{path}:2: not JSON" in " ".join(done.stderr.split())
    assert json.loads(done.stdout)[0]["cases"] == 2


def test_a_strategy_that_cannot_play_fails_where_it_is_asked_for(cases):
    done = caps("plan", cases, "--strategy", "reward")
    assert done.returncode == 1
    assert "reward: cannot select in 3 of 3 cases" in done.stderr


def test_the_table_is_narrow_enough_to_read(cases):
    done = caps("plan", cases, "--price-input", 1, "--price-output", 1)
    lines = done.stdout.splitlines()
    assert lines[1].split()[0] == "strategy"
    assert max(len(line.rstrip()) for line in lines[: 2 + len(ALL)]) <= 120


def test_a_judge_known_to_be_at_chance_is_not_asked_by_posterior(tmp_path):
    profile = tmp_path / "judge.json"
    profile.write_text(json.dumps(dict.fromkeys(("e1_high", "e1_low", "e2_high", "e2_low"), 0.5)))
    plain, known = rows_of("--pool", 8), rows_of("--pool", 8, "--judge-profile", profile)
    assert plain["posterior"]["calls_total"]["low"] > 0
    assert known["posterior"]["calls_total"]["high"] == 0
    assert known["caps"] == plain["caps"]


class Tokenizing(ScriptedEndpoint):
    """An endpoint that counts three characters a token, as vLLM or as llama.cpp says it."""

    def __init__(self, reply):
        super().__init__()
        self.reply, self.texts = reply, []

    def add_routes(self, app):
        async def tokenize(request):
            body = await request.json()
            self.texts.append(body["prompt"])
            assert body["content"] == body["prompt"]
            return web.json_response(self.reply(len(body["prompt"]) // 3))

        app.router.add_post("/tokenize", tokenize)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (
            lambda count: {"count": count, "max_model_len": 9},
            "tokens per character, as the server counts",
        ),
        (lambda count: {"tokens": [0] * count}, "tokens per character, as the server counts"),
        (lambda _: {"count": "many"}, "estimated, 4 characters per token"),
        (lambda _: {"count": 10**12}, "estimated, 4 characters per token"),
        (lambda _: [], "estimated, 4 characters per token"),
    ],
)
def test_tokens_are_counted_by_the_server_where_it_does(reply, words, tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 30)
    with Tokenizing(reply) as server:
        done = caps("plan", cases, "--strategy", "caps-r", "--model", "m", "--base-url", server.url)
        assert len(server.texts) <= 20
    assert done.returncode == 0, done.stderr
    assert words in " ".join(done.stdout.split())


def test_a_server_that_counts_nothing_leaves_the_estimate(tmp_path):
    cases = write_cases(tmp_path / "cases.jsonl", 2)
    for url in ("http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1=2,http://127.0.0.1:10/v1"):
        done = caps("plan", cases, "--strategy", "caps-r", "--model", "m", "--base-url", url)
        assert "estimated, 4 characters per token" in " ".join(done.stdout.split()), done.stderr


def test_a_dry_run_and_the_server_state_the_forecast_of_the_plan(tmp_path, cases):
    (planned,) = caps_json("plan", cases, "--strategy", "posterior")
    done = caps("select", cases, "--strategy posterior --dry-run --base-url http://127.0.0.1:9/v1")
    assert done.returncode == 0, done.stderr
    calls, tokens = planned["calls_total"], planned["tokens"]
    said = " ".join(done.stdout.split())
    bounds = "" if calls["low"] == calls["high"] else f" ({calls['low']}–{calls['high']})"
    assert f"{calls['mean']:.0f}{bounds} calls" in said
    assert f"({tokens['low']:,}–{tokens['high']:,}) tokens" in said
    assert "right in 75 % of comparisons" in said
