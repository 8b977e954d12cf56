"""A panel through every entry point: server, batch files, Ray, diagnosis, plan and doctor."""

import json
import random

import pytest

from batching import request_rows, to_the_end
from caps.config import RunConfig
from caps.core.types import Level, Pairing, Verdict
from caps.judging.profiles import read_panel_profile
from caps.runner import Runner
from caps.statistics.observations import Observation
from caps.statistics.panels import error_correlation
from caps.testing import Reply, ScriptedEndpoint, better_quality_wins, case_line, spread
from judges.test_panel import Panel, opposite
from running import run_here
from server.serving import inside
from shell import caps, caps_json


@pytest.fixture
def panel(tmp_path):
    with (
        ScriptedEndpoint(better_quality_wins) as a,
        ScriptedEndpoint(better_quality_wins) as b,
        ScriptedEndpoint(opposite) as c,
    ):
        yield Panel(tmp_path, a, b, c)


def orders(panel):
    done = panel.run()
    assert done.returncode == 0, done.stderr
    return [line["order"] for line in panel.lines()]


def test_the_server_asks_the_panel_of_its_config(panel):
    wanted, before = orders(panel), panel.asked()
    row = json.loads(panel.cases.read_text().splitlines()[0])
    tables = [
        {"name": f"j{i}", "model": f"stub-{i}", "base_url": one.url} for i, one in enumerate(panel.servers)
    ]
    config = {"judges": tables, "strategy": "caps-r", "hard_evidence": "off"}

    async def ask(app):
        return await app("POST", "/v1/select", row)

    answer = inside(panel.servers[0].url, ask, config_=config)
    assert answer.status == 200, answer.body
    assert answer.json["order"] == wanted[0]
    assert answer.json["panel"]["disagreement"] == pytest.approx(1 / 3, abs=1e-4)
    assert all(now > was for now, was in zip(panel.asked(), before, strict=True))


def test_batch_files_hold_the_requests_of_all_judges_and_choose_as_a_live_run(panel):
    wanted, folder = orders(panel), panel.folder / "batch"

    def fate(body, number=0):
        return opposite(body) if body["model"] == "stub-2" else better_quality_wins(body)

    where = ("--config", panel.file, "--journal", panel.folder / "batch.sqlite", "--batch-dir", folder)
    done = to_the_end(lambda: run_here("select", panel.cases, "--engine", "batch", *where), folder, fate)
    models = {
        row["body"]["model"] for number in (1, 2, 3) for row in request_rows(folder, f"00{number}.jsonl")
    }
    assert models == {"stub-0", "stub-1", "stub-2"}
    assert [json.loads(line)["order"] for line in done.stdout.splitlines()] == wanted


def test_a_runner_with_a_panel_can_be_sent_to_a_worker_process():
    import pickle  # noqa: PLC0415

    config = RunConfig(judges=[{"model": "a"}, {"model": "b", "weight": 2}], base_url="http://localhost:1/v1")
    runner = Runner(config)
    assert len(runner.members) == 2
    again = pickle.loads(pickle.dumps(runner))
    assert [one.source.endpoints.full.model for one in again.members] == ["a", "b"]
    assert again.panel_rule == runner.panel_rule


def noisy(share, salt):
    """A judge that is wrong on a share of its prompts, and unsure of some."""

    def judge(body, number=0):
        luck = random.Random(salt + str(body["messages"]))
        reply = opposite(body) if luck.random() < share else better_quality_wins(body)
        return Reply(reply.text.replace("HIGH", "LOW")) if luck.random() < 0.4 else reply

    return judge


def test_diagnose_compares_the_panel_with_its_judges_and_saves_all_profiles(tmp_path):
    with (
        ScriptedEndpoint(noisy(0.3, "a")) as a,
        ScriptedEndpoint(noisy(0.2, "b")) as b,
        ScriptedEndpoint(noisy(0.1, "c")) as c,
    ):
        panel = Panel(tmp_path, a, b, c)
        cases = tmp_path / "labelled.jsonl"
        cases.write_text("".join(case_line(f"case {i}", spread(4, i)) + "\n" for i in range(16)))
        words = (
            "diagnose",
            cases,
            "--config",
            panel.file,
            "--journal",
            tmp_path / "j.sqlite",
            "--contests",
            5,
        )
        row = caps_json(*words, "--pairs", 32, "--no-stop", "--save", tmp_path / "panel.json")
    ways = {one["name"]: one for one in row["panel"]["ways"]}
    assert list(ways) == ["j0", "j1", "j2", "all", "cascade"]
    assert ways["all"]["calls"] == 3
    assert 1 <= ways["cascade"]["calls"] < 3
    assert ways["all"]["usd"] == pytest.approx(sum(ways[f"j{i}"]["usd"] for i in range(3)))
    assert row["panel"]["best"] in ("j0", "j1", "j2")
    assert "times its price" in row["panel"]["conclusion"]
    kept = read_panel_profile(tmp_path / "panel.json")
    assert set(kept.members) == {"j0", "j1", "j2"}
    config = RunConfig(
        judges=[{"model": f"j{i}"} for i in range(3)], judge_profile=str(tmp_path / "panel.json")
    )
    rule = Runner(config, offline=True).panel_rule
    assert {one.name: one.profile for one in rule.members} == dict(kept.members)
    assert rule.correlation == kept.correlation


def test_judges_that_always_err_together_correlate_and_independent_ones_do_not():
    def seen(salt):
        found = []
        for number in range(400):
            luck = random.Random(f"{salt}/{number}").random()
            verdict = Verdict(9, 3) if luck < 0.7 else Verdict(3, 9)
            pairing = Pairing(0, 1, Level.FULL)
            found.append(
                Observation(
                    case=number, one=pairing.a, other=pairing.b, level=Level.FULL, first=True, verdict=verdict,
                    sizes=(1, 1),
                )
            )  # fmt: skip
        return found

    assert error_correlation({"a": seen(1), "b": seen(1)}) == 0.95
    assert error_correlation({"a": seen(1), "b": seen(2)}) < 0.2


def test_plan_adds_up_the_prices_and_doctor_checks_every_judge(tmp_path):
    with ScriptedEndpoint(better_quality_wins, models=("stub-0",)) as a:
        panel = Panel(tmp_path, a, a)
        rows = {
            mode: caps_json(
                "plan", panel.cases, "--config", panel.file, "--strategy", "caps-r", "--panel", mode
            )[0]
            for mode in ("all", "cascade")
        }
        alone = caps_json(
            "plan", panel.cases, "--strategy", "caps-r", "--price-input", 1, "--price-output", 1
        )[0]
        assert rows["all"]["judges_of_an_ask"] == [2, 2]
        assert rows["cascade"]["judges_of_an_ask"] == [1, 2]
        assert rows["all"]["usd"]["mean"] == pytest.approx(3 * alone["usd"]["mean"])
        assert rows["cascade"]["usd"]["low"] == pytest.approx(alone["usd"]["low"])
        done = caps("doctor", "--config", panel.file, "--json")
    states = {one["name"]: (one["state"], one["found"]) for one in json.loads(done.stdout)}
    assert states["judge j0"][0] == "ok"
    assert states["judge j1"][0] == "broken"
    assert "serves no 'stub-1'" in states["judge j1"][1]


def test_the_report_shows_the_judges_and_what_each_said(panel):
    orders(panel)
    page = panel.folder / "report.html"
    done = caps("report", panel.folder / "out", "--output", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "Panel of judges" in text
    assert "panel: j0" in text


def test_solve_generates_with_the_model_and_judges_with_the_panel(tmp_path):
    def reply(body, number=0):
        if "quality=" in str(body):
            return better_quality_wins(body)
        return Reply(f"With quality=0.{body.get('seed', 0) % 9} it is \\boxed{{{body.get('seed', 0) % 3}}}")

    with ScriptedEndpoint(reply) as server:
        where = ("--model", "stub", "--base-url", server.url, "--no-journal", "--strategy", "caps-r")
        judges = ("--judge", "model=first", "--judge", "model=second")
        done = caps("solve", "What is it?", "-n", 4, *where, *judges, "--json", "--quiet")
        assert done.returncode == 0, done.stderr
        asked = {body["model"] for body in server.bodies if "quality=" in str(body)}
        generated = {body["model"] for body in server.bodies if "What is it?" in str(body)} - asked
    assert asked == {"first", "second"}
    assert generated == {"stub"}
    assert json.loads(done.stdout)["panel"]["asked"].keys() == {"first", "second"}


@pytest.mark.linux
def test_several_processes_ask_each_judge_in_the_form_that_its_server_holds_replies_to(tmp_path):
    def in_form(body, number):
        reply = better_quality_wins(body)
        if "structured_outputs" in body:
            wanted = "<winner>A" if "<winner>A" in reply.text else "<winner>B"
            return Reply(next(one for one in body["structured_outputs"]["choice"] if wanted in one))
        return reply

    with ScriptedEndpoint(in_form, holds=("choice",)) as a, ScriptedEndpoint(better_quality_wins) as b:
        panel = Panel(tmp_path, a, b)
        first = panel.run("select", "--reply", "auto")
        assert first.returncode == 0, first.stderr
        assert any("structured_outputs" in body for body in a.bodies if "quality=" in str(body))
        asked = panel.asked()
        again = panel.run("select", "--reply", "auto", "--processes", "2", out="again")
        assert again.returncode == 0, again.stderr
        assert panel.asked() == asked, "every reply was in the journal"
        assert [line["order"] for line in panel.lines("again")] == [line["order"] for line in panel.lines()]
