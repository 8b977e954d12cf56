"""Several judges: how answers are averaged, judge tables, and whole runs with real servers as judges."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import caps as api
from caps.config import Keys, RunConfig, read_judges
from caps.config.judges import parse_word
from caps.config.sources import read_config_file
from caps.core.errors import SettingError
from caps.core.types import Pick, Rating, Unanswered, Verdict
from caps.judging.base import UNREAD, Attempt, Ruling, Usage
from caps.judging.several import JudgeTotals, WeightedJudge, add_rulings, average, combined
from caps.session.resolve import resolve
from caps.testing import Reply, ScriptedEndpoint, Status, better_quality_wins, write_cases
from support.several_judges import RunOfJudges, three_judges
from support.shell import caps, json_lines

HIGH_A, HIGH_B, LOW_A, LOW_B, TIE = Verdict(9, 3), Verdict(3, 9), Verdict(7, 5), Verdict(5, 7), Verdict(5, 5)


@pytest.fixture
def judges(tmp_path):
    with three_judges(tmp_path) as run:
        yield run


# How answers are averaged


def test_verdicts_and_ratings_are_averaged_by_weight_and_picks_are_counted_by_weight():
    assert average([(1, HIGH_A), (1, LOW_B)]) == Verdict(7, 5)
    assert average([(1, HIGH_A), (1, HIGH_B)]).outcome == 0.5
    assert average([(1, HIGH_A), (3, LOW_B)]) == Verdict(6, 6)
    assert average([(1, HIGH_A), (4, LOW_B)]).outcome == 0
    assert average([(1, Rating(4)), (3, Rating(8))]) == Rating(7)
    assert average([(1, Pick(2)), (1, Pick(1)), (1, Pick(1))]) == Pick(1)
    assert average([(1, Pick(2)), (1, Pick(1)), (2.5, Pick(0))]) == Pick(0)
    assert average([(1, Pick(2)), (1, Pick(1))]) == Pick(2), "the first judge decides"


VERDICTS = st.sampled_from([HIGH_A, LOW_A, TIE, LOW_B, HIGH_B])


@given(answers=st.lists(st.tuples(st.floats(0.01, 100), VERDICTS), min_size=1, max_size=5))
def test_swapping_slots_swaps_the_mean_and_unanimous_judges_keep_their_verdict(answers):
    mean = average(answers)
    swapped = average([(weight, verdict.swapped()) for weight, verdict in answers])
    assert mean == swapped.swapped()
    assert 1 <= min(mean.a, mean.b) <= max(mean.a, mean.b) <= 10
    assert average([(weight, LOW_A) for weight, _ in answers]) == LOW_A


def ruling_of(answer, *hows, malformed=None):
    attempts = [
        Attempt("k", Usage(100, 10), "stop", how, None, 0.1, replayed=False, requests=1) for how in hows
    ]
    return Ruling(answer, tuple(attempts), malformed)


def test_a_judge_that_fails_or_cannot_be_read_leaves_the_mean_of_the_others():
    first, second, third = (WeightedJudge(name, None) for name in ("a", "b", "c"))
    failed, unread = Ruling(Unanswered("server")), ruling_of(TIE, UNREAD, UNREAD, malformed="no-tag")
    ruling = combined([(first, ruling_of(LOW_B, "tag")), (second, failed), (third, unread)])
    assert ruling.answer == LOW_B
    assert ruling.readable
    assert [one.readable for one in ruling.opinions] == [True, False, False]
    tie = combined([(second, failed), (third, unread)])
    assert (tie.answer, tie.malformed) == (TIE, "no-tag"), "as with the one judge that replied"
    assert combined([(second, failed), (first, Ruling(Unanswered("budget")))]).unanswered == "budget"


def test_totals_count_what_each_judge_answered_cost_and_how_far_it_agrees():
    first, second = WeightedJudge("a", None, weight=2), WeightedJudge("b", None)
    totals: dict[str, JudgeTotals] = {}
    unread = ruling_of(TIE, UNREAD, UNREAD, malformed="no-tag")
    add_rulings(
        totals,
        [
            combined([(first, ruling_of(HIGH_A, "tag")), (second, ruling_of(HIGH_B, "tag"))]),
            combined([(first, ruling_of(HIGH_A, "tag")), (second, ruling_of(LOW_A, UNREAD, "tag"))]),
            combined([(first, ruling_of(HIGH_A, "tag")), (second, unread)]),
            combined([(first, ruling_of(HIGH_A, "tag")), (second, Ruling(Unanswered("server")))]),
        ],
    )
    assert (totals["a"].asks, totals["a"].compared, totals["a"].agreement) == (4, 2, 1.0)
    assert (totals["b"].agreed, totals["b"].agreement, totals["b"].unreadable) == (1, 0.5, 3)
    assert totals["b"].as_line()["unanswered"] == {"server": 1}
    assert (totals["a"].billed, totals["b"].output) == (400, 50)


# Tables


WRONG = {
    "wieght = 1": "wieght: no such key; did you mean 'weight'?",
    "weight = 0": "weight: must be a number above 0, not 0",
    "weight = inf": "weight: must be a number of at most 1,000,000,000, not inf",
    'level = "most"': "level: must be one of both, partial, full, not 'most'",
    'level = "full"\nweight = "2"': "weight: must be a number, not '2'",
    'name = "first"': "judges 1 and 2: both have the name 'first'",
    'model = "m1"': "judges 1 and 2: model: both ask 'm1' in the same way",
    'judge = "py:x:y"': "give only one of model, judge and recorded",
    "price_input = 1": "a price needs both price_input and price_output",
    "profile = {e2_high = 1}": "profile: no such key",
    "max_tokens = 0": "max_tokens = 0: must be a whole number of at least 1",
}


def test_a_wrong_table_gets_a_message_that_names_file_table_and_field(tmp_path):
    file = tmp_path / "judges.toml"
    for line, expected in WRONG.items():
        model = "" if line.startswith("model") else 'model = "m2"\n'
        file.write_text(f'[[judge]]\nname = "first"\nmodel = "m1"\n\n[[judge]]\n{model}{line}\n')
        done = caps("select", "cases.jsonl", "--config", file)
        words = " ".join(done.stderr.split())
        assert done.returncode == 2
        assert str(file) in done.stderr.replace("\n", "")
        assert expected in words
        assert "judge 2" in words or "judges 1 and 2" in words


def test_each_level_needs_a_judge_and_one_model_may_be_asked_differently_at_each():
    with pytest.raises(SettingError, match=r"no judge is asked about full views \(E2\)"):
        read_judges([{"model": "m", "level": "partial"}], "--judge")
    tables = [
        {"name": "brief", "model": "m", "level": "partial", "max_tokens": 512},
        {"model": "m", "level": "full", "extra": {"reasoning_effort": "high"}},
    ]
    judges = resolve(RunConfig(base_url="http://localhost:1/v1", judges=tables)).judges
    asked = [(spec.settings().max_tokens, spec.config.extra) for spec in judges]
    assert asked == [(512, {}), (4096, {"reasoning_effort": "high"})]


def test_the_key_of_the_run_goes_to_no_other_address():
    run, other = "http://localhost:1/v1", "http://localhost:2/v1"
    tables = [
        {"model": "a"}, {"model": "b", "base_url": run}, {"model": "c", "base_url": other},
        {"model": "d", "base_url": other, "api_key_env": "OWN"},
    ]  # fmt: skip
    keys = Keys(api_key="generator", judges={"OWN": "own"})

    def keys_sent(**config):
        return [spec.where.api_key for spec in resolve(RunConfig(**config), keys).judges]

    assert keys_sent(base_url=run, judges=tables) == ["generator", "generator", None, "own"]
    assert keys_sent(model="m", base_url=run, judge_base_url=other, judges=tables[:2]) == [None, "generator"]
    assert keys_sent(model="m", base_url=run, judges=tables[2:3]) == [None]


def test_a_missing_variable_names_judge_and_field(tmp_path):
    file = tmp_path / "judges.toml"
    file.write_text('[[judge]]\nmodel = "a"\n\n[[judge]]\nmodel = "b"\napi_key_env = "NO_SUCH_KEY"\n')
    done = caps("select", "cases.jsonl", "--config", file)
    assert "judge 'b': api_key_env: environment variable 'NO_SUCH_KEY'" in " ".join(done.stderr.split())


def test_a_single_bracket_and_a_found_file_are_refused(tmp_path):
    file = tmp_path / "caps.toml"
    file.write_text('[judge]\nmodel = "a"\n')
    with pytest.raises(SettingError, match="two brackets"):
        read_config_file(file)
    file.write_text('[[judge]]\nmodel = "a"\nbase_url = "http://evil"\n')
    with pytest.raises(SettingError, match="cannot set this"):
        read_config_file(file, auto_loaded=True)


def test_words_of_the_command_line_are_tables():
    tables = read_judges([parse_word("model=m,weight=2,price_input=0.5,price_output=1"), "py:x:y"], "--judge")
    assert [(one.name, one.weight, one.settings.get("price_input")) for one in tables] == [
        ("m", 2, 0.5),
        ("py:x:y", 1, None),
    ]


def test_no_key_is_in_the_config_and_no_address_or_extra_field_is_shown():
    table = {
        "model": "m",
        "api_key_env": "K",
        "base_url": "http://u:very-secret@x",
        "extra": {"k": "very-secret"},
    }
    config = RunConfig(judges=[table, {"model": "n"}])
    keys = Keys.find(config, environment={"K": "very-secret-key"})
    assert keys.judges == {"K": "very-secret-key"}
    assert "very-secret" not in repr(keys) + repr(config)
    assert "very-secret-key" not in json.dumps(config.to_dict())


# Runs with real servers


def test_all_judges_are_asked_once_and_resume_and_replay_ask_nothing(judges):
    first = judges.run()
    assert first.returncode == 0, first.stderr
    asked = judges.asked()
    assert asked[0] == asked[1] == asked[2] > 0
    lines = judges.lines()
    for line in lines:
        totals = line["judges"]
        assert totals["j0"]["agreed"] == totals["j0"]["compared"] == totals["j0"]["asks"]
        assert totals["j2"]["agreed"] == 0, "it always prefers the other candidate"
    assert "judge j2: " in first.stderr
    assert "agrees with the mean in 0" in " ".join(first.stderr.split())
    again = judges.run()
    assert again.returncode == 0, again.stderr
    assert judges.asked() == asked, "nothing is paid twice"
    replayed = caps("replay", judges.folder / "out")
    assert replayed.returncode == 0, replayed.stderr
    assert "all as in the run" in replayed.stderr
    assert [one["order"] for one in json_lines(replayed)] == [line["order"] for line in lines]


def test_a_judge_with_more_weight_than_the_others_decides(judges):
    judges.write(weights=(1, 1, 3))
    assert judges.run().returncode == 0
    assert all(line["judges"]["j2"]["agreed"] == line["judges"]["j2"]["asks"] for line in judges.lines())


def test_a_judge_on_the_command_line_replaces_those_of_a_file(judges):
    where = ("--model", "stub-0", "--base-url", judges.servers[0].url)
    done = judges.run("select", "--judge", "model", *where)
    assert done.returncode == 0, done.stderr
    assert judges.asked()[0] > 0 == judges.asked()[1]
    assert "judges" not in judges.lines()[0]


def test_partial_views_are_judged_by_another_judge(judges):
    judges.write(levels=("partial", "full", "both"))
    assert judges.run().returncode == 0
    levels = {name: set() for name in ("j0", "j1", "j2")}
    for line in judges.lines(name="rulings"):
        levels[line["judge"]].add(line["level"])
    assert levels == {"j0": {"E1"}, "j1": {"E2"}, "j2": {"E1", "E2"}}
    assert "all as in the run" in caps("replay", judges.folder / "out").stderr


def test_dollars_are_those_of_each_judge(judges):
    done = judges.run("select", "--budget-total-usd", "1")
    assert done.returncode == 0, done.stderr
    rulings, lines = judges.lines(name="rulings"), judges.lines()
    for name, price in (("j0", 1), ("j1", 2), ("j2", 3)):
        tokens = sum(one["tokens"] + one["output"] for one in rulings if one["judge"] == name)
        assert sum(line["judges"][name]["usd"] for line in lines) == pytest.approx(
            price * tokens / 1e6, abs=1e-5
        )
    by_judge = sum(judge["usd"] for line in lines for judge in line["judges"].values())
    assert sum(line["usd"] for line in lines) == pytest.approx(by_judge, abs=1e-5)


def test_a_judge_that_dies_in_mid_run_is_left_out_and_its_asks_are_counted(tmp_path):
    def dies(body, number):
        return better_quality_wins(body) if number < 4 else Status(401, "no longer")

    with (
        ScriptedEndpoint(better_quality_wins) as a,
        ScriptedEndpoint(dies) as b,
        ScriptedEndpoint(better_quality_wins) as c,
    ):
        judges = RunOfJudges(tmp_path, a, b, c)
        done = judges.run()
        assert done.returncode == 0, done.stderr
        assert "judge 'j1' failed" in " ".join(done.stderr.split())
        assert judges.asked()[1] < judges.asked()[0]
        lines = judges.lines()
        assert any(line["judges"]["j1"]["unanswered"] for line in lines)
        assert all("winner" in line for line in lines)
        replayed = caps("replay", tmp_path / "out")
        assert "all as in the run" in replayed.stderr, replayed.stderr


def test_a_judge_whose_replies_cannot_be_read_changes_no_choice(tmp_path):
    def rambles(body, number):
        return Reply("OK" if "quality=" not in str(body) else "Both have their merits.")

    with ScriptedEndpoint(better_quality_wins) as a, ScriptedEndpoint(rambles) as b:
        judges = RunOfJudges(tmp_path, a, b)
        done = judges.run()
        assert done.returncode == 0, done.stderr
        lines = judges.lines()
        assert all(line["judges"]["j1"]["unreadable"] == 3 * line["judges"]["j1"]["asks"] for line in lines)
        assert all(line["malformed"] == 0 for line in lines)
        alone = judges.run("select", "--judge", "model=stub-0", "--base-url", a.url, out="alone")
        assert alone.returncode == 0, alone.stderr
        assert [line["order"] for line in lines] == [line["order"] for line in judges.lines("alone")]
        assert "all as in the run" in caps("replay", tmp_path / "out").stderr


def test_if_all_judges_refuse_the_run_ends_as_with_one_judge(tmp_path):
    def refuses(body, number):
        return better_quality_wins(body) if "quality=" not in str(body) else Status(401, "no")

    with ScriptedEndpoint(refuses) as a, ScriptedEndpoint(refuses) as b:
        done = RunOfJudges(tmp_path, a, b).run()
        assert done.returncode == 2
        assert "refused the API key" in " ".join(done.stderr.split())


def test_if_no_judge_answers_the_case_fails_alone(tmp_path):
    def broken(body, number):
        return Reply("OK") if "quality=" not in str(body) else Status(413, "too long")

    with ScriptedEndpoint(broken) as a, ScriptedEndpoint(broken) as b:
        done = RunOfJudges(tmp_path, a, b).run()
        assert done.returncode == 1
        assert "none of its" in done.stderr


def test_one_judge_table_is_that_judge_with_the_same_keys_and_run_file(tmp_path):
    with ScriptedEndpoint(better_quality_wins) as server:
        cases = write_cases(tmp_path / "cases.jsonl", 1, n=4)
        where = ("--base-url", server.url, "--no-journal", "--strategy", "caps-r", "--quiet")
        alone = caps("select", cases, "--model", "stub", *where, "--out", tmp_path / "alone")
        one = caps("select", cases, "--judge", "model=stub", *where, "--out", tmp_path / "one")
        assert alone.returncode == one.returncode == 0, one.stderr

    def rulings(out):
        lines = (tmp_path / out / "rulings.jsonl").read_text().splitlines()
        return [{k: v for k, v in json.loads(line).items() if k != "latency"} for line in lines]

    assert rulings("one") == rulings("alone")
    configs = [json.loads((tmp_path / out / "run.json").read_text())["config"] for out in ("one", "alone")]
    assert configs[0] == configs[1]


def test_each_judge_keeps_the_keys_it_has_alone(judges):
    assert judges.run().returncode == 0
    keys = {line["key"] for line in judges.lines(name="rulings") if line["judge"] == "j0"}
    alone = judges.run("select", "--judge", "model=stub-0", "--base-url", judges.servers[0].url, out="alone")
    assert alone.returncode == 0, alone.stderr
    again = [line for line in judges.lines("alone", "rulings") if line["key"] in keys]
    assert again
    assert all(line["replayed"] for line in again)


def test_a_budget_holds_for_all_judges_together_and_its_run_replays(judges):
    done = judges.run("select", "--budget-tokens", "20000", "--max-tokens", "100")
    assert done.returncode in (0, 3), done.stderr
    for line in judges.lines():
        assert line["tokens"]["asked"] + line["tokens"]["output"] <= 20000
    replayed = caps("replay", judges.folder / "out")
    assert "all as in the run" in replayed.stderr, replayed.stderr


def test_one_function_in_a_list_is_that_judge_and_one_that_raises_is_left_out():
    case = api.Case.of("Which?", ["short", "much longer", "x"])

    def longer(problem, a, b):
        return "A" if len(a) > len(b) else "B"

    def broken(problem, a, b):
        raise OSError("the disk is full")

    for judge in (longer, [longer], [broken, longer]):
        assert api.select_sync(case, judge=judge).text == "much longer"
