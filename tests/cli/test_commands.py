import json

import pytest

from caps import __version__
from caps.config import options
from support.playing import ALL
from support.running import run_here
from support.shell import caps, caps_json


def test_plan_prints_every_strategy_with_calls_depth_and_share():
    rows = {row["strategy"]: row for row in caps_json("plan", "--pool", 16, "--rho", 0.12)}
    assert list(rows) == ALL
    assert rows["caps"]["calls"] == {"E1": 8, "E2": 10}
    assert rows["caps"]["depth"] == {"mean": 3, "most": 3}
    assert rows["caps"]["token_share"] == pytest.approx(0.228, abs=6e-4)
    assert rows["v1-infer"]["calls"] == {"E1": 0, "E2": 48}
    assert (rows["v1-infer"]["depth"]["most"], rows["v1-infer"]["token_share"]) == (6, 1)
    assert rows["pointwise"]["tokens"]["mean"] == 16 * 4500
    assert rows["caps-r"]["calls_total"]["low"] == 18
    assert rows["caps-r"]["calls_total"]["high"] == 22


def test_plan_forecasts_one_strategy_with_its_fields_changed():
    (row,) = caps_json("plan", "--strategy", "caps", "--set", "finalists=2", "--set", "small_pool=finals")
    assert row["calls"] == {"E1": 8, "E2": 7}


def test_it_tells_its_version():
    assert caps("--version").stdout == f"caps {__version__}\n"


def test_every_strategy_is_listed_with_a_reference_and_the_meaning_of_its_fields():
    rows = caps_json("list", "strategies")
    assert [row["strategy"] for row in rows] == ALL
    assert all(row["about"] and row["reference"] for row in rows)
    for name in ALL:
        rows = json.loads(run_here("list", "strategies", name, "--json").stdout)
        assert all(row["takes"] and row["meaning"] for row in rows), name


def test_list_without_a_kind_lists_the_kinds_and_every_kind_can_be_listed():
    kinds = [row["kind"] for row in caps_json("list")]
    assert {"strategies", "models", "judges", "settings", "plugins"} <= set(kinds)
    for kind in kinds:
        if kind != "models":  # which looks for servers on this machine
            assert isinstance(json.loads(run_here("list", kind, "--json").stdout), list), kind
            assert run_here("list", kind).exit_code == 0, kind


def test_list_refuses_a_misspelt_kind_and_fields_of_what_has_none():
    done = caps("list", "strategy")
    assert done.returncode == 2
    assert "did you mean 'strategies'?" in done.stderr
    done = caps("list", "judges", "model")
    assert done.returncode == 2
    assert "only strategies, presets, methods have fields" in done.stderr


def test_list_settings_names_every_setting_with_its_variable_and_meaning():
    rows = {row["setting"]: row for row in caps_json("list", "settings")}
    assert set(rows) == set(options())
    assert rows["max_tokens"]["variable"] == "CAPS_MAX_TOKENS"
    assert all(row["about"] for row in rows.values())


def test_simulate_prints_all_figures_and_says_that_they_are_simulated():
    told = caps_json("simulate", "--problems", 150, "--strategies", "caps,caps-r,v1-infer", "--seed", 1)
    assert told["simulated"] == "pools and verdicts"
    caps_row, rescue_row, swiss = told["strategies"]
    assert caps_row["strategy"] == "caps"
    low, high = caps_row["pass_at_1_interval"]
    assert low < caps_row["pass_at_1"] < high
    assert set(caps_row["calls"]) == set(caps_row["tokens"]) == set(caps_row["pair_accuracy"]) == {"E1", "E2"}
    assert swiss["token_share"] == 1
    assert caps_row["token_share"] == pytest.approx(0.226, abs=0.01)
    assert rescue_row["rescue_rate"] > caps_row["rescue_rate"] == 0


def test_simulate_repeats_itself_and_another_seed_differs():
    words = ("simulate", "--problems", 60, "--strategies", "caps")
    assert caps_json(*words) == caps_json(*words)
    assert caps_json(*words) != caps_json(*words, "--seed", 2)


def test_simulate_plays_on_labelled_cases_and_draws(tmp_path):
    candidates = [{"text": f"it is \\boxed{{{i % 3}}}", "correct": i % 3 == 0} for i in range(9)]
    case = {"id": "a", "domain": "math", "problem": "?", "candidates": candidates}
    cases, plots = tmp_path / "cases.jsonl", tmp_path / "plots"
    cases.write_text(json.dumps(case) + "\n")
    told = caps_json("simulate", "--cases", cases, "--strategies", "majority,caps", "--plots", plots)
    assert told["simulated"].startswith("verdicts; pools")
    assert told["problems"] == 1
    assert told["strategies"][1]["calls"] == {"E1": 1, "E2": 1}
    assert (plots / "strategies.svg").read_text().startswith("<?xml")


def test_a_simulated_demo_draws_a_bracket_and_names_the_winner():
    done = caps("demo", "--simulated")
    assert done.returncode == 0
    assert "├─" in done.stdout
    assert "win rate" in done.stdout
    assert "The winner is" in done.stdout
    assert "simulated" in done.stdout


def test_colour_is_off_when_asked():
    assert "\x1b[" in caps("demo", "--simulated", FORCE_COLOR="1").stdout
    assert "\x1b[3" not in caps("demo", "--simulated", NO_COLOR="1").stdout
