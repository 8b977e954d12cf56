"""Panels: how answers are combined, and whole runs with several real servers as judges."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import caps as api
from caps.config import Keys, RunConfig
from caps.config_sources import read_config_file
from caps.core.errors import SettingError
from caps.core.judge_profile import JudgeProfile
from caps.core.panel import Member, Opinion, PanelRule, disagreement, discounts
from caps.core.types import Group, Level, Pairing, Pick, Rating, Solo, Unanswered, Verdict
from caps.judge_tables import parse_word, read_tables
from caps.models.scripted import ScriptedModel
from caps.runner import Runner
from caps.testing import Reply, ScriptedEndpoint, Status, better_quality_wins, write_cases
from shell import caps, json_lines

PAIR = Pairing(0, 1, Level.FULL)
HIGH_A, HIGH_B, LOW_A, LOW_B, TIE = Verdict(9, 3), Verdict(3, 9), Verdict(7, 5), Verdict(5, 7), Verdict(5, 5)


def rule(*profiles, **settings):
    members = tuple(Member(name, profile) for name, profile in zip("abcde", profiles, strict=False))
    return PanelRule(members, **settings)


def said(*answers):
    return [Opinion(name, answer) for name, answer in zip("abcde", answers, strict=False)]


THREE = rule(JudgeProfile(), JudgeProfile(), JudgeProfile())
STRONG = JudgeProfile(e2_high=0.95, e2_low=0.85)
WEAK = JudgeProfile(e2_high=0.62, e2_low=0.55)


# How answers are combined


def test_equal_judges_count_one_over_the_design_effect():
    assert discounts([0.8] * 3, 0.4) == pytest.approx([1 / 1.8] * 3)
    assert discounts([0.8] * 3, 0.0) == pytest.approx([1] * 3)
    assert discounts([0.73], 0.4) == [1]


def test_the_probability_of_a_unanimous_panel_is_what_the_formula_says():
    verdict = THREE.combine(PAIR, said(HIGH_A, HIGH_A, HIGH_A))
    odds = 3 * math.log(0.82 / 0.18) / 1.8
    assert verdict.weight == pytest.approx(2 / (1 + math.exp(-odds)) - 1)
    assert verdict.outcome == 1


def test_the_only_answer_is_returned_as_it_is():
    assert THREE.combine(PAIR, said(LOW_B)) == LOW_B


def test_two_outvote_one_of_the_same_reliability_and_a_strong_judge_outvotes_two_weak_ones():
    assert THREE.combine(PAIR, said(HIGH_A, HIGH_B, HIGH_B)).outcome == 0
    assert rule(STRONG, WEAK, WEAK).combine(PAIR, said(HIGH_A, HIGH_B, HIGH_B)).outcome == 1


def test_a_low_verdict_yields_to_a_high_one_and_equal_opposites_are_a_tie():
    assert THREE.combine(PAIR, said(LOW_A, HIGH_B)).outcome == 0
    assert THREE.combine(PAIR, said(HIGH_A, HIGH_B)).outcome == 0.5
    assert THREE.combine(PAIR, said(TIE, LOW_B)).outcome == 0


def test_a_judge_at_chance_or_worse_beside_better_ones_counts_nothing():
    wrong = JudgeProfile(e2_high=0.2, e2_low=0.3)
    assert rule(STRONG, wrong).combine(PAIR, said(LOW_A, HIGH_B)).outcome == 1


def test_ratings_are_averaged_and_picks_are_counted():
    assert THREE.combine(Solo(0, Level.FULL), said(Rating(4), Rating(7), Rating(10))) == Rating(7)
    group = Group((0, 1, 2), Level.FULL)
    assert THREE.combine(group, said(Pick(2), Pick(1), Pick(1))) == Pick(1)


def test_a_cascade_asks_on_while_it_is_unsure_or_divided():
    def asked(*answers):
        return len(THREE.cascade(PAIR, dict(zip("abc", answers, strict=True))))

    assert asked(HIGH_A, HIGH_A, HIGH_A) == 1
    assert asked(LOW_A, HIGH_A, HIGH_A) == 2
    assert asked(LOW_A, HIGH_B, HIGH_A) == 3
    assert asked(TIE, TIE, HIGH_A) == 3


def test_disagreement_is_the_share_that_differs_from_the_panel():
    assert disagreement(PAIR, HIGH_A, said(HIGH_A, LOW_A, LOW_B)) == pytest.approx(1 / 3)
    assert disagreement(PAIR, HIGH_A, said(HIGH_A, Unanswered("server"))) is None
    assert disagreement(
        Solo(0, Level.FULL), Rating(6), said(Rating(9), Rating(6), Rating(3))
    ) == pytest.approx(2 / 3)


VERDICTS = st.sampled_from([HIGH_A, LOW_A, TIE, LOW_B, HIGH_B])
PROFILES = st.builds(JudgeProfile, e2_high=st.floats(0, 1), e2_low=st.floats(0, 1), e2_sure=st.floats(0, 1))


@given(
    some=st.lists(st.tuples(PROFILES, VERDICTS), min_size=2, max_size=5),
    correlation=st.floats(0, 0.95),
)
def test_swapping_the_slots_swaps_the_panels_verdict_and_it_stays_on_the_scale(some, correlation):
    profiles, verdicts = zip(*some, strict=True)
    panel = rule(*profiles, correlation=correlation)
    one = panel.combine(PAIR, said(*verdicts))
    other = panel.combine(Pairing(1, 0, Level.FULL), said(*(verdict.swapped() for verdict in verdicts)))
    assert (one.a, one.b) == pytest.approx((other.b, other.a))
    assert 1 <= min(one.a, one.b) <= max(one.a, one.b) <= 10


@given(accuracies=st.lists(st.floats(0, 1), min_size=1, max_size=6), correlation=st.floats(0, 0.95))
def test_no_discount_is_negative_and_someone_always_counts(accuracies, correlation):
    found = discounts(accuracies, correlation)
    assert min(found) >= 0
    assert max(found) > 0


# Tables


WRONG = {
    "wieght = 1": "wieght: no such field; did you mean 'weight'?",
    "weight = 0": "weight = 0: must be a number above 0",
    'level = "most"': "level = 'most': must be one of both, partial, full",
    'name = "first"': "judges 1 and 2: both have the name 'first'",
    'model = "m1"': "judges 1 and 2: model: both ask 'm1' in the same way",
    'judge = "py:x:y"': "give only one of model, judge and recorded",
    "price_input = 1": "a price needs both price_input and price_output",
    'profile = {e2_hihg = 1}': "profile = {'e2_hihg': 1}: must be a file of caps diagnose --save",
    "max_tokens = 0": "max_tokens = 0: must be a whole number of at least 1",
}  # fmt: skip


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_table_gets_a_message_that_names_file_table_and_field(tmp_path, line):
    file = tmp_path / "panel.toml"
    model = "" if line.startswith("model") else 'model = "m2"\n'
    file.write_text(f'[[judge]]\nname = "first"\nmodel = "m1"\n\n[[judge]]\n{model}{line}\n')
    done = caps("select", "cases.jsonl", "--config", file)
    words = " ".join(done.stderr.split())
    assert done.returncode == 2
    assert str(file) in done.stderr.replace("\n", "")
    assert WRONG[line] in words
    assert "judge 2" in words or "judges 1 and 2" in words


def test_the_key_of_the_run_goes_to_no_other_address():
    run, other = "http://localhost:1/v1", "http://localhost:2/v1"
    tables = [
        {"model": "a"}, {"model": "b", "base_url": run}, {"model": "c", "base_url": other},
        {"model": "d", "base_url": other, "api_key_env": "OWN"},
    ]  # fmt: skip
    keys = Keys(api_key="generator", members={"OWN": "own"})
    found = Runner(RunConfig(base_url=run, judges=tables), keys=keys).members
    assert [one.source.endpoints.full.api_key for one in found] == ["generator", "generator", None, "own"]
    away = Runner(
        RunConfig(model="m", base_url=run, judge_base_url=other, judges=tables[:2]), keys=keys
    ).members
    assert [one.source.endpoints.full.api_key for one in away] == [None, "generator"]
    alone = Runner(RunConfig(model="m", base_url=run, judges=tables[2:3]), keys=keys)
    assert alone.endpoints.full.api_key is None


def test_a_panel_is_weighed_by_a_profile_that_its_strategy_ignores(tmp_path):
    path = tmp_path / "panel.json"
    path.write_text(json.dumps({"e2_high": 0.9, "correlation": 0.25}))
    judges = [{"model": "a"}, {"model": "b"}]
    config = RunConfig(
        judges=judges, base_url="http://localhost:1/v1", judge_profile=str(path), strategy="caps"
    )
    runner = Runner(config)
    assert runner.panel_rule.correlation == 0.25
    assert runner.judge(lambda _: ScriptedModel([]))


def test_a_list_of_one_function_is_that_function():
    case = api.Case.of("Which?", ["short", "much longer", "x"])

    def longer(problem, a, b):
        return "A" if len(a) > len(b) else "B"

    assert (
        api.select_sync(case, judge=[longer]).text
        == api.select_sync(case, judge=longer).text
        == "much longer"
    )


def test_a_missing_variable_names_file_table_and_field(tmp_path):
    file = tmp_path / "panel.toml"
    file.write_text('[[judge]]\nmodel = "a"\n\n[[judge]]\nmodel = "b"\napi_key_env = "NO_SUCH_KEY"\n')
    done = caps("select", "cases.jsonl", "--config", file)
    assert "judge 2 ('b'): api_key_env: environment variable 'NO_SUCH_KEY'" in " ".join(done.stderr.split())


def test_a_single_bracket_and_a_found_file_are_refused(tmp_path):
    file = tmp_path / "caps.toml"
    file.write_text('[judge]\nmodel = "a"\n')
    with pytest.raises(SettingError, match="two brackets"):
        read_config_file(file)
    file.write_text('[[judge]]\nmodel = "a"\nbase_url = "http://evil"\n')
    with pytest.raises(SettingError, match="may not set this"):
        read_config_file(file, found=True)


def test_words_of_the_command_line_are_tables():
    tables = read_tables([parse_word("model=m,weight=2,price_input=0.5,price_output=1"), "py:x:y"], "--judge")
    assert [(one.name, one.weight, one.price_input) for one in tables] == [("m", 2, 0.5), ("py:x:y", 1, None)]


def test_no_key_of_a_panel_is_in_its_config_or_shown():
    config = RunConfig(judges=[{"model": "m", "api_key_env": "K"}, {"model": "n"}])
    keys = Keys.find(config, environment={"K": "very-secret-key"})
    assert keys.members == {"K": "very-secret-key"}
    assert "very-secret" not in repr(keys) + repr(config) + json.dumps(config.to_dict())


# Runs with real servers


def opposite(body, number=0):
    """A judge that prefers the worse candidate."""
    text = better_quality_wins(body).text
    return Reply(
        text.replace("<winner>A", "<winner>_")
        .replace("<winner>B", "<winner>A")
        .replace("<winner>_", "<winner>B")
    )


def unsure(body, number=0):
    return Reply(better_quality_wins(body).text.replace("HIGH", "LOW"))


class Panel:
    """Servers as judges, named j0, j1, …, whose tables stand in a file."""

    def __init__(self, folder: Path, *servers: ScriptedEndpoint, **more: object) -> None:
        self.folder, self.servers = folder, servers
        self.cases = write_cases(folder / "cases.jsonl", 2, n=5)
        tables = [
            f'[[judge]]\nname = "j{i}"\nmodel = "stub-{i}"\nbase_url = "{one.url}"\n'
            f"price_input = {i + 1}\nprice_output = {i + 1}\n"
            for i, one in enumerate(servers)
        ]
        self.file = folder / "panel.toml"
        self.file.write_text('strategy = "caps-r"\nhard_evidence = "off"\n' + "\n".join(tables))

    def run(self, command="select", *words, out="out", journal="journal.sqlite"):
        options = ("--config", self.file, "--journal", self.folder / journal, "--out", self.folder / out)
        return caps(command, self.cases, *options, *words)

    def asked(self):
        """Requests of each server that judge something."""
        return [sum("quality=" in str(body) for body in one.bodies) for one in self.servers]

    def lines(self, out="out", name="selections"):
        return [json.loads(line) for line in (self.folder / out / f"{name}.jsonl").read_text().splitlines()]


@pytest.fixture
def panel(tmp_path):
    with (
        ScriptedEndpoint(better_quality_wins) as a,
        ScriptedEndpoint(better_quality_wins) as b,
        ScriptedEndpoint(opposite) as c,
    ):
        yield Panel(tmp_path, a, b, c)


def test_all_judges_are_asked_once_a_resumed_run_pays_nothing_and_a_replay_asks_nothing(panel):
    first = panel.run()
    assert first.returncode == 0, first.stderr
    asked = panel.asked()
    assert asked[0] == asked[1] == asked[2] > 0
    lines = panel.lines()
    assert all(line["panel"]["disagreement"] == pytest.approx(1 / 3, abs=1e-4) for line in lines)
    assert "panel: asks of j0" in first.stderr
    again = panel.run()
    assert again.returncode == 0, again.stderr
    assert panel.asked() == asked, "nothing is paid twice"
    replayed = caps("replay", panel.folder / "out")
    assert replayed.returncode == 0, replayed.stderr
    assert "all as in the run" in replayed.stderr
    assert [one["order"] for one in json_lines(replayed)] == [line["order"] for line in lines]
    assert [one["panel"] for one in json_lines(replayed)] == [line["panel"] for line in lines]


def test_a_judge_on_the_command_line_replaces_the_panel_of_a_file(panel):
    where = ("--model", "stub-0", "--base-url", panel.servers[0].url)
    done = panel.run("select", "--judge", "model", *where)
    assert done.returncode == 0, done.stderr
    assert panel.asked()[0] > 0 == panel.asked()[1]
    assert "panel" not in panel.lines()[0]


def test_the_dollars_of_a_panel_are_those_of_each_judge(panel):
    assert panel.run().returncode == 0
    rulings = panel.lines(name="rulings")
    expected = sum((int(one["judge"][1]) + 1) * (one["tokens"] + one["output"]) / 1e6 for one in rulings)
    assert sum(line["usd"] for line in panel.lines()) == pytest.approx(expected, abs=1e-5)


def test_a_cascade_asks_the_cheapest_first_and_the_others_where_it_is_unsure(tmp_path):
    with (
        ScriptedEndpoint(unsure) as a,
        ScriptedEndpoint(better_quality_wins) as b,
        ScriptedEndpoint(opposite) as c,
    ):
        panel = Panel(tmp_path, a, b, c)
        done = panel.run("select", "--panel", "cascade")
        assert done.returncode == 0, done.stderr
        first, second, third = panel.asked()
        assert first == second > 0, "the first is never sure, and the second agrees"
        assert third == 0


def test_a_judge_that_dies_in_mid_run_leaves_the_panel_going_and_is_counted(tmp_path):
    def dies(body, number):
        return better_quality_wins(body) if number < 4 else Status(401, "no longer")

    with (
        ScriptedEndpoint(better_quality_wins) as a,
        ScriptedEndpoint(dies) as b,
        ScriptedEndpoint(better_quality_wins) as c,
    ):
        panel = Panel(tmp_path, a, b, c)
        done = panel.run()
        assert done.returncode == 0, done.stderr
        words = " ".join(done.stderr.split())
        assert "judge 'j1' failed" in words
        assert "panel: judge j1 left" in words
        assert any(line["panel"]["unanswered"].get("j1") for line in panel.lines())
        assert all("winner" in line for line in panel.lines())
        replayed = caps("replay", tmp_path / "out")
        assert "all as in the run" in replayed.stderr, replayed.stderr


def test_if_all_judges_refuse_the_run_ends_as_with_one_judge(tmp_path):
    def refuses(body, number):
        return better_quality_wins(body) if "quality=" not in str(body) else Status(401, "no")

    with ScriptedEndpoint(refuses) as a, ScriptedEndpoint(refuses) as b:
        done = Panel(tmp_path, a, b).run()
        assert done.returncode == 2
        assert "refused the API key" in " ".join(done.stderr.split())


def test_if_no_judge_answers_the_case_fails_alone(tmp_path):
    def broken(body, number):
        return Reply("OK") if "quality=" not in str(body) else Status(413, "too long")

    with ScriptedEndpoint(broken) as a, ScriptedEndpoint(broken) as b:
        done = Panel(tmp_path, a, b).run()
        assert done.returncode == 1
        assert "none of its" in done.stderr


def test_a_panel_of_one_is_that_judge_with_the_same_keys_and_run_file(tmp_path):
    with ScriptedEndpoint(better_quality_wins) as server:
        cases = write_cases(tmp_path / "cases.jsonl", 1, n=4)
        where = ("--base-url", server.url, "--no-journal", "--strategy", "caps-r", "--quiet")
        alone = caps("select", cases, "--model", "stub", *where, "--out", tmp_path / "alone")
        one = caps("select", cases, "--judge", "model=stub", *where, "--out", tmp_path / "one")
        assert alone.returncode == one.returncode == 0, one.stderr

    def keys(out):
        lines = (tmp_path / out / "rulings.jsonl").read_text().splitlines()
        return [{k: v for k, v in json.loads(line).items() if k != "latency"} for line in lines]

    assert keys("one") == keys("alone")
    configs = [json.loads((tmp_path / out / "run.json").read_text())["config"] for out in ("one", "alone")]
    assert configs[0] == configs[1]


def test_members_keep_the_keys_they_have_alone(panel):
    assert panel.run().returncode == 0
    keys = {line["key"] for line in panel.lines(name="rulings") if line["judge"] == "j0"}
    server = panel.servers[0]
    alone = caps(
        "select", panel.cases, "--model", "stub-0", "--base-url", server.url, "--strategy", "caps-r",
        "--hard-evidence", "off", "--journal", panel.folder / "journal.sqlite", "--out", panel.folder / "alone",
    )  # fmt: skip
    assert alone.returncode == 0, alone.stderr
    again = [line for line in panel.lines("alone", "rulings") if line["key"] in keys]
    assert again
    assert all(line["replayed"] for line in again)


def test_a_budget_holds_for_the_whole_panel_and_its_run_replays(panel):
    done = panel.run("select", "--budget-tokens", "20000", "--max-tokens", "100")
    assert done.returncode in (0, 3), done.stderr
    for line in panel.lines():
        assert line["tokens"]["asked"] + line["tokens"]["output"] <= 20000
    replayed = caps("replay", panel.folder / "out")
    assert "all as in the run" in replayed.stderr, replayed.stderr


def test_command_api_and_callables_give_the_same_choice(panel):
    assert panel.run().returncode == 0
    tables = [{"model": f"stub-{i}", "base_url": one.url} for i, one in enumerate(panel.servers)]
    rows = [json.loads(line) for line in panel.cases.read_text().splitlines()]
    found = api.select_many_sync(rows, judge=tables, strategy="caps-r", hard_evidence="off")
    assert [list(one.order) for one in found] == [line["order"] for line in panel.lines()]

    def better(problem, a, b):
        from caps.testing import QUALITY  # noqa: PLC0415

        one, other = (float(QUALITY.search(text)[1]) for text in (a, b))
        return "A" if one > other else "B"

    def worse(problem, a, b):
        return "B" if better(problem, a, b) == "A" else "A"

    def best(problem, a, b):
        return better(problem, a, b)

    own = api.select_many_sync(rows, judge=[better, best, worse], strategy="caps-r", hard_evidence="off")
    assert [list(one.order) for one in own] == [line["order"] for line in panel.lines()]


def test_a_judge_that_keeps_failing_rests_after_three_failures_and_the_choice_stands():
    asked = {"good": 0, "broken": 0}

    def good(problem, a, b):
        asked["good"] += 1
        return "A" if len(a) > len(b) else "B"

    def broken(problem, a, b):
        asked["broken"] += 1
        raise OSError("the disk is full")

    case = api.Case.of("Which?", ["x" * n for n in (3, 9, 5, 1, 7, 2)])
    best = api.select_sync(case, judge=[good, broken], strategy="caps-r", max_connections=1)
    assert best.text == "x" * 9
    assert asked["broken"] == 3 < asked["good"]


def test_a_prompt_that_is_too_long_for_one_judge_does_not_rest_it(tmp_path):
    def short(body, number):
        long = Status(400, {"error": {"message": "exceeds the context length"}})
        return Reply("OK") if "quality=" not in str(body) else long

    with ScriptedEndpoint(better_quality_wins) as a, ScriptedEndpoint(short) as b:
        panel = Panel(tmp_path, a, b)
        assert panel.run().returncode == 0
        assert panel.asked()[0] == panel.asked()[1]
        assert set(panel.lines()[-1]["panel"]["unanswered"]["j1"]) == {"too-long"}
