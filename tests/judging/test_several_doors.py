"""Several judges through every entry point: API, server, batch files, workers, diagnosis, plan and doctor."""

import json
import pickle

import pytest

import caps as api
from caps.config import RunConfig
from caps.core.judge_profile import JudgeProfile
from caps.judging.profiles import read_profile
from caps.session.resolve import resolve
from caps.testing import QUALITY, Reply, ScriptedEndpoint, better_quality_wins, case_line, spread
from support.batching import request_rows, to_the_end
from support.running import run_here
from support.serving import served
from support.several_judges import RunOfJudges, opposite, three_judges
from support.shell import caps, caps_json


@pytest.fixture
def judges(tmp_path):
    with three_judges(tmp_path) as run:
        yield run


def orders(judges):
    done = judges.run()
    assert done.returncode == 0, done.stderr
    return [line["order"] for line in judges.lines()]


async def test_api_functions_and_server_choose_as_the_command(judges):
    wanted, before = orders(judges), judges.asked()
    rows = [json.loads(line) for line in judges.cases.read_text().splitlines()]
    tables = [
        {"name": f"j{i}", "model": f"stub-{i}", "base_url": server.url}
        for i, server in enumerate(judges.servers)
    ]
    config = {"strategy": "caps-r", "hard_evidence": "off"}
    assert [list(one.order) for one in api.select_many_sync(rows, judge=tables, **config)] == wanted

    def better(problem, a, b):
        first, second = (float(QUALITY.search(text)[1]) for text in (a, b))
        return "A" if first > second else "B"

    def best(problem, a, b):
        return better(problem, a, b)

    def worse(problem, a, b):
        return "B" if better(problem, a, b) == "A" else "A"

    chosen = api.select_many_sync(rows, judge=[better, best, worse], **config)
    assert [list(one.order) for one in chosen] == wanted

    async with served(judges.servers[0].url, config_={"judges": tables, **config}) as app:
        answer = await app("POST", "/v1/select", rows[0])
    assert answer.status == 200, answer.body
    assert answer.json["order"] == wanted[0]
    assert answer.json["judges"]["j2"]["agreed"] == 0
    assert all(now > was for now, was in zip(judges.asked(), before, strict=True))


def test_batch_files_hold_the_requests_of_all_judges_and_choose_as_a_live_run(judges):
    wanted, folder = orders(judges), judges.folder / "batch"

    def fate(body, number=0):
        return opposite(body) if body["model"] == "stub-2" else better_quality_wins(body)

    where = ("--config", judges.file, "--journal", judges.folder / "batch.sqlite", "--batch-dir", folder)
    done = to_the_end(lambda: run_here("select", judges.cases, "--engine", "batch", *where), folder, fate)
    models = {
        row["body"]["model"] for number in (1, 2, 3) for row in request_rows(folder, f"00{number}.jsonl")
    }
    assert models == {"stub-0", "stub-1", "stub-2"}
    assert [json.loads(line)["order"] for line in done.stdout.splitlines()] == wanted


def test_a_runner_with_several_judges_can_be_sent_to_a_worker_process():
    config = RunConfig(judges=[{"model": "a"}, {"model": "b", "weight": 2}], base_url="http://localhost:1/v1")
    resolved = pickle.loads(pickle.dumps(resolve(config)))
    judges = [(spec.where.model, spec.table.weight) for spec in resolved.judges]
    assert judges == [("a", 1), ("b", 2)]


def test_diagnose_measures_several_judges_as_one_judge(tmp_path):
    with three_judges(tmp_path) as judges:
        cases = tmp_path / "labelled.jsonl"
        cases.write_text("".join(case_line(f"case {i}", spread(4, i)) + "\n" for i in range(8)))
        words = ("diagnose", cases, "--config", judges.file, "--journal", tmp_path / "j.sqlite")
        saved = tmp_path / "judges.json"
        row = caps_json(*words, "--contests", 5, "--pairs", 8, "--save", saved)
        asked = judges.asked()
        alone = caps_json(
            "diagnose", cases, "--judge", "model=stub-2", "--base-url", judges.servers[2].url, "--contests", 5,
            "--pairs", 8, "--journal", tmp_path / "j.sqlite",
        )  # fmt: skip
        assert judges.asked() == asked, "a judge that was one of several is measured from the journal"
    assert row["judge"]["model"] == "j0, j1, j2"
    assert row["levels"]["E2"]["accuracy"]["value"] > 0.9
    assert alone["levels"]["E2"]["accuracy"]["value"] < 0.1
    assert f"--config {judges.file}" in row["advice"]["command"]
    assert read_profile(saved).e2_low > JudgeProfile().e2_low, "two of three agree in every verdict"


def test_plan_adds_up_the_prices_and_doctor_checks_every_judge(tmp_path):
    with ScriptedEndpoint(better_quality_wins, models=("stub-0",)) as a:
        judges = RunOfJudges(tmp_path, a, a)
        words = ("plan", judges.cases, "--strategy", "caps-r")
        row = caps_json(*words, "--config", judges.file)[0]
        alone = caps_json(*words, "--price-input", 1, "--price-output", 1)[0]
        assert row["judges_of_an_ask"] == 2
        assert row["usd"]["mean"] == pytest.approx(3 * alone["usd"]["mean"])
        done = caps("doctor", "--config", judges.file, "--json")
    states = {one["name"]: (one["state"], one["found"]) for one in json.loads(done.stdout)}
    assert states["judge j0"][0] == "ok"
    assert states["judge j1"][0] == "broken"
    assert "serves no 'stub-1'" in states["judge j1"][1]


def test_the_report_shows_the_judges_and_what_each_said(judges):
    orders(judges)
    page = judges.folder / "report.html"
    done = caps("report", judges.folder / "out", "--output", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "unreadable replies" in text
    assert "j2" in text


def test_solve_generates_with_the_model_and_judges_with_several_judges(tmp_path):
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
    assert json.loads(done.stdout)["judges"].keys() == {"first", "second"}


def test_each_judge_is_asked_in_the_form_that_its_server_holds_replies_to(tmp_path):
    def in_form(body, number):
        reply = better_quality_wins(body)
        if "structured_outputs" in body:
            wanted = "<winner>A" if "<winner>A" in reply.text else "<winner>B"
            return Reply(next(one for one in body["structured_outputs"]["choice"] if wanted in one))
        return reply

    with ScriptedEndpoint(in_form, holds=("choice",)) as a, ScriptedEndpoint(better_quality_wins) as b:
        judges = RunOfJudges(tmp_path, a, b)
        done = judges.run("select", "--reply", "auto")
        assert done.returncode == 0, done.stderr
    held = [
        {"structured_outputs" in body for body in server.bodies if "quality=" in str(body)}
        for server in (a, b)
    ]
    assert held == [{True}, {False}]
    assert "all as in the run" in caps("replay", tmp_path / "out").stderr
