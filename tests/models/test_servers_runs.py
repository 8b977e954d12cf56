"""Whole runs on several servers."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from caps import select_sync
from caps.cli.main import make_app
from caps.config import RunConfig
from caps.core.errors import MissingFeatureError
from caps.engines.base import in_order
from caps.models.endpoints import Callbacks
from caps.session.resolve import resolve
from caps.session.session import open_session
from caps.testing import Reply, ScriptedEndpoint, asked, better_quality_wins, cases, upstream, write_cases
from support.serving import inside, served
from support.several_servers import NOBODY, slowly
from support.shell import caps


def run(*urls, count=8, told=None, **settings):
    """Play cases; who won each, what each cost, and how the servers fared."""

    async def play():
        settings_ = {"strategy": "caps-r", "seed": 7, "hard_evidence": "off", **settings}
        config = RunConfig(model="stub", base_url=urls, **settings_)
        callbacks = Callbacks((told if told is not None else []).append)
        async with open_session(resolve(config, callbacks=callbacks)) as ready:
            outcomes = [one async for one in in_order(ready.run(cases(count)))]
            return outcomes, ready.servers()

    outcomes, records = asyncio.run(play())
    assert [one.failure for one in outcomes] == [None] * count
    return [one.selection.order for one in outcomes], outcomes, records


def dying(at):
    """A server that ends in the middle of its request number `at`."""

    def behave(body, number):
        if number == at:
            server.die()
        return slowly(0.02)(body, number)

    server = ScriptedEndpoint(behave)
    return server


def test_a_server_that_dies_in_the_middle_loses_nothing():
    many = 24  # cases: ports decide which server each prefers, and the first must be preferred by some
    with ScriptedEndpoint(better_quality_wins) as alone:
        clean, _, none = run(alone.url, count=many)
        asks = alone.requests
    told = []
    with dying(at=4) as first, ScriptedEndpoint(better_quality_wins) as second:
        orders, outcomes, records = run(first.url, second.url, told=told, count=many)
        assert first.requests >= 5, "it had its share"
    assert orders == clean
    assert none == []
    assert sum(one.ledger.unanswered.total() for one in outcomes) == 0
    assert sum(record.calls for record in records) == asks
    assert records[0].out
    assert not records[1].out
    assert len(told) == 1
    assert first.url in told[0]


def test_one_server_and_several_share_a_journal(tmp_path):
    journal = tmp_path / "j.sqlite"
    with ScriptedEndpoint(better_quality_wins) as one, ScriptedEndpoint(better_quality_wins) as other:
        orders, _, _ = run(one.url, other.url, journal=journal)
    with ScriptedEndpoint(better_quality_wins) as alone:
        again, outcomes, _ = run(alone.url, journal=journal)
        assert alone.requests == 0
    assert again == orders
    assert sum(one.ledger.total().billed for one in outcomes) == 0


def test_a_server_without_log_probabilities_is_named():
    token = {"token": "OK", "logprob": -0.1, "top_logprobs": [{"token": "OK", "logprob": -0.1}]}
    with (
        ScriptedEndpoint([Reply(logprobs=[token])]) as able,
        ScriptedEndpoint([Reply()]) as unable,
        pytest.raises(MissingFeatureError, match=unable.url),
    ):
        run(able.url, unable.url, confidence="logprobs")


def test_a_server_that_is_down_at_the_start_may_come_later():
    told = []
    with ScriptedEndpoint(better_quality_wins) as up:
        _, _, records = run(NOBODY, up.url, told=told, count=2)
    assert [record.out for record in records] == [True, False]
    assert len(told) == 1


def test_from_python_several_addresses_are_a_list():
    with ScriptedEndpoint(better_quality_wins) as one, ScriptedEndpoint(better_quality_wins) as other:
        for case in cases(4):
            assert select_sync(case, model="m", base_url=[one.url, other.url], max_connections=1).text
        assert one.requests
        assert other.requests


def test_nobody_at_all_is_a_line_and_exit_code_2(tmp_path):
    cases_ = write_cases(tmp_path / "cases.jsonl", 1, n=4)
    done = caps("select", cases_, "--model", "m", "--base-url", NOBODY, "--base-url http://127.0.0.1:10")
    assert done.returncode == 2
    said = "caps: none of the 2 servers is available: no server answers at http://127.0.0.1:9/v1"
    assert said in done.stderr
    assert "http://127.0.0.1:10/v1" in done.stderr


def invoked(*words, **environment):
    return CliRunner().invoke(make_app(), [str(word) for word in words], env=environment)


@pytest.fixture(autouse=True)
def nothing_of_the_callers(monkeypatch):
    for name in ("CAPS_BASE_URL", "OPENAI_BASE_URL", "CAPS_API_KEY", "OPENAI_API_KEY", "CAPS_MODEL"):
        monkeypatch.delenv(name, raising=False)


def test_select_tells_what_every_server_did_and_hides_passwords(tmp_path):
    with ScriptedEndpoint(better_quality_wins) as one, ScriptedEndpoint(better_quality_wins) as other:
        cases_, out = write_cases(tmp_path / "cases.jsonl", 6, n=4), tmp_path / "run"
        hidden = other.url.replace("http://", "http://user:secret@")
        where = ("--model", "m", "--base-url", one.url, "--base-url", hidden)
        done = invoked("select", cases_, *where, "--no-journal", "--out", out)
        calls = one.requests + other.requests
    assert done.exit_code == 0, done.stderr
    made = json.loads((out / "run.json").read_text())
    assert made["config"]["base_url"] == [f"{one.url},{other.url}"]
    servers = made["summary"]["servers"]
    assert [(row["address"], row["failed"], row["out"]) for row in servers] == [
        (one.url, 0, False), (other.url, 0, False),
    ]  # fmt: skip
    assert sum(row["calls"] for row in servers) == calls
    assert f"servers: {one.url} {servers[0]['calls']} calls; {other.url}" in done.stderr
    assert "secret" not in done.stderr + (out / "run.json").read_text()


@pytest.mark.parametrize("form", ["environment", "config", "list"])
def test_several_addresses_also_come_from_the_environment_and_a_file(form, tmp_path):
    cases_ = write_cases(tmp_path / "cases.jsonl", 6, n=4)
    with ScriptedEndpoint(better_quality_wins) as one, ScriptedEndpoint(better_quality_wins) as other:
        told = {
            "environment": "",
            "config": f'base_url = "{one.url}, {other.url}"',
            "list": f'base_url = ["{one.url}", "{other.url}"]',
        }[form]
        (tmp_path / "caps.toml").write_text(f'{told}\nmodel = "m"\nno_journal = true\n')
        environment = {"CAPS_BASE_URL": f"{one.url},{other.url}"} if form == "environment" else {}
        done = invoked("select", cases_, "--config", tmp_path / "caps.toml", **environment)
        assert done.exit_code == 0, done.output
        assert one.requests > 1
        assert other.requests > 1


async def test_serve_stands_before_several_servers_and_outlives_one():
    async with (
        ScriptedEndpoint(upstream) as first,
        ScriptedEndpoint(upstream) as second,
        served(f"{first.url} {second.url}") as call,
    ):
        answers = [await call(body=asked("vary")) for _ in range(2)]
        first.__exit__()
        answers += [await call(body=asked("vary", n=1)) for _ in range(2)]
        answers += [await call(body=asked(f"hello {i}", model="other")) for i in range(6)]  # forwarded
        health = await call("GET", "/health")
        listed = await call("GET", "/v1/models")
        statuses, health, listed = [answer.status for answer in answers], health.json, listed.status
    assert statuses == [200] * 10
    assert listed == 200
    assert health["upstream"] == {"state": "serving", "address": f"{first.url}, {second.url}"}
    assert [row["out"] for row in health["servers"]] == [True, False]


def test_models_are_listed_by_a_server_that_lives_whichever_has_died():
    async def work(call):
        dead.__exit__()
        return (await call("GET", "/v1/models")).status

    for first_dies in (True, False):
        with ScriptedEndpoint(upstream) as one, ScriptedEndpoint(upstream) as other:
            dead = one if first_dies else other
            assert inside(f"{one.url} {other.url}", work) == 200
