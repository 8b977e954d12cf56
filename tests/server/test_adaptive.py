"""The server with adaptive sampling: early answers, progress events, virtual models."""

import json

import pytest

from caps.config import Keys, RunConfig
from caps.core.errors import SettingError
from caps.server.app import ServerConfig
from caps.session.resolve import resolve
from caps.testing import Hang, Reply, ScriptedEndpoint, asked, is_judge, upstream
from support.serving import inside
from support.waiting import wait_until


def ask(url, *bodies, config=None):
    """The answers of a server to some requests; a body of None asks for its models."""

    async def work(app):
        return [await (app("GET", "/v1/models") if body is None else app(body=body)) for body in bodies]

    return inside(url, work, config_={"samples": "auto", **(config or {})})


def test_agreement_is_answered_without_waiting_for_a_straggler_which_is_cancelled():
    with ScriptedEndpoint(lambda _, number: Hang() if number == 1 else Reply("It is \\boxed{4}")) as server:
        (answer,) = ask(server.url, asked("2 + 2?"))
        wait_until(lambda: server.busy == 0)
    said = answer.json
    assert said["choices"][0]["message"]["content"] == "It is \\boxed{4}"
    (generator,) = said["usage"]["caps"]["generators"]
    assert generator["cancelled"] >= 1
    assert generator["samples"] == said["caps"]["samples"] + generator["cancelled"]
    assert said["usage"]["caps"]["estimated"]
    assert said["caps"]["probability"] > 0.8


def test_a_client_may_ask_for_auto_and_for_n_choices():
    auto = {"n": "auto", "max_n": 6, "target": 0.9}
    with ScriptedEndpoint(upstream) as server:
        answer, wrong = ask(
            server.url, asked(n=3, caps=auto), asked(caps={**auto, "max_n": 99}), config={"samples": 8}
        )
    assert len(answer.json["choices"]) == 3
    assert 3 <= answer.json["caps"]["samples"] <= 6
    assert wrong.status == 400
    assert "caps.max_n" in wrong.json["error"]["message"]


@pytest.mark.parametrize("n", ["auto", 8])
def test_a_budget_of_tokens_covers_samples_and_verdicts(n):
    limited = [{"n": n, "budget_tokens": tokens} for tokens in (0, 200, 2000)]
    with ScriptedEndpoint(upstream) as server:
        bodies = [asked(max_tokens=50, caps=one) for one in ({"n": n}, *limited)]
        free, none, few, most = (answer.json for answer in ask(server.url, *bodies))
        sent = len(server.bodies)
    assert none["caps"]["samples"] == 1  # there is always an answer
    assert none["usage"]["total_tokens"] < few["usage"]["total_tokens"] <= 200
    assert most["usage"]["total_tokens"] <= 2000
    if n == 8:
        assert free["usage"]["total_tokens"] > 2000  # with its verdicts
        assert 1 < few["caps"]["samples"] < most["caps"]["samples"] == 8
    calls = [one["usage"]["caps"] for one in (free, none, few, most)]
    assert sum(one["generation"]["calls"] for one in calls) <= sent


def test_streaming_clients_may_follow_the_progress():
    with ScriptedEndpoint(upstream) as server:
        body = asked("4?", stream=True, stream_options={"include_progress": True, "include_usage": True})
        streamed, plain = ask(server.url, body, asked("4?", stream=True))
    events = [
        json.loads(line[6:]) for line in streamed.body.decode().splitlines() if line.startswith("data: {")
    ]
    progress = [one["caps"]["progress"] for one in events if "progress" in one.get("caps", {})]
    assert [one["samples"] for one in progress] == sorted(one["samples"] for one in progress)
    assert progress[-1]["probability"] > 0.5
    assert all(one["object"] == "chat.completion.chunk" for one in events)
    assert b"progress" not in plain.body


def test_a_virtual_model_asks_several_models_and_says_who_wrote_the_winner():
    def team(body, number):
        if is_judge(body):
            return upstream(body, number)
        return Reply("It is \\boxed{4}" if body["model"] == "large" else f"It is \\boxed{{{number + 10}}}")

    table = {"team": {"generators": ["small", "large"], "judge": "large", "max_n": 12}}
    with ScriptedEndpoint(team, models=("small", "large")) as server:
        question = asked("2 + 2?", model="caps/team")
        answer, *again, listed = ask(
            server.url, question, question, question, None, config={"models": table, "samples": 8}
        )
    said = answer.json
    assert said["model"] == "caps/team"
    assert set(said["caps"]["written_by"]) <= {"small", "large"}
    assert said["caps"]["model"] in ("small", "large")
    assert {one["model"] for one in said["usage"]["caps"]["generators"]} == {"small", "large"}
    assert "caps/team" in {one["id"] for one in listed.json["data"]}
    first, *_, last = (
        {one["model"]: one["quality"] for one in each.json["usage"]["caps"]["generators"]}
        for each in (answer, *again)
    )
    assert first == {"small": 0.6, "large": 0.6}
    assert last["large"] > last["small"]  # learned from who agreed with what was chosen


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"team": {}}, "models.team.generators: is missing; a list of at least one model is wanted"),
        ({"team": {"generators": []}}, "models.team.generators: must be a list of at least one model"),
        ({"team": {"generators": ["a"], "juge": "b"}}, "did you mean 'judge'"),
        ({"team": "a"}, "models.team: must be a table"),
    ],
)
def test_a_wrong_virtual_model_is_named_before_the_server_starts(table, said):
    config = RunConfig(base_url=("http://127.0.0.1:9",), models=table)
    with pytest.raises(SettingError, match=said):
        ServerConfig(resolved=resolve(config, Keys(), any_model=True))


def test_where_every_sample_fails_there_is_an_error():
    with ScriptedEndpoint([Reply("")]) as server:
        (answer,) = ask(server.url, asked("2 + 2?"), config={"max_n": 3})
    assert answer.status == 502
