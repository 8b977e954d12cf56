"""The Python functions and the server with a judge whose replies cannot be read."""

import pytest

import caps
from caps.testing import Reply, ScriptedEndpoint, asked, cases, is_judge
from support.serving import served

AGREED = caps.Case.of("2+2?", ["\\boxed{4}"], domain="math", name="agreed")


def unreadable(body, number):
    return Reply("Both look fine.") if is_judge(body) else Reply(f"It is \\boxed{{{number}}}")


@pytest.fixture
def server():
    with ScriptedEndpoint(unreadable) as running:
        yield running


def test_best_raises_an_error_of_its_own_that_says_what_to_do(server):
    with pytest.raises(caps.UnreadableJudgeError, match="a reply begins: 'Both look fine.'") as raised:
        caps.best_sync("What is it?", ["\\boxed{1}", "\\boxed{2}"], model="stub", base_url=server.url)
    assert isinstance(raised.value, caps.ModelError)


def test_best_with_keep_going_returns_a_provisional_answer_and_its_cause(server):
    best = caps.best_sync(
        "What is it?", ["\\boxed{1}", "\\boxed{2}"], model="stub", base_url=server.url, keep_going=True
    )
    assert best.selection.provisional
    assert best.to_dict()["cause"] == "unreadable"


def test_select_many_stops_and_hands_over_what_was_finished(server):
    with pytest.raises(caps.UnreadableJudgeError) as raised:
        caps.select_many_sync(
            [AGREED, *cases(30)], model="stub", base_url=server.url, strategy="caps", max_connections=4
        )
    assert [one.id for one in raised.value.results] == ["agreed"]
    assert len([body for body in server.bodies if is_judge(body)]) < 100


async def test_a_stream_yields_what_was_finished_and_then_raises(server):
    results = caps.stream([AGREED, *cases(30)], model="stub", base_url=server.url)
    assert (await anext(results)).id == "agreed"
    with pytest.raises(caps.UnreadableJudgeError):
        await anext(results)


def test_a_function_that_answers_nonsense_is_a_failed_case_as_before():
    with pytest.raises(caps.CapsError, match="judge calls was answered"):
        caps.best_sync("What is it?", ["\\boxed{1}", "\\boxed{2}"], judge=lambda *_: "neither")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
async def test_the_server_answers_with_a_clear_error(server, path):
    async with served(server.url, model="m") as call:
        answer = await call(path=path, body={**asked(max_tokens=100), "input": "vary"})
    assert answer.status == 502
    assert "cannot be read" in answer.json["error"]["message"]
    assert answer.json["error"]["code"] == "upstream_unreadable"


@pytest.mark.parametrize("who", ["operator", "client"])
async def test_the_server_answers_with_the_votes_if_it_is_told_to_keep_going(server, who):
    def writer(body, number):
        return Reply("Hm.") if is_judge(body) else Reply(f"It is \\boxed{{{4 if number % 4 else 5}}}")

    more = {"caps": {"keep_going": True}} if who == "client" else {}

    async with (
        ScriptedEndpoint(writer) as upstream,
        served(upstream.url, model="m", config_={"keep_going": who == "operator"}) as call,
    ):
        answer = await call(body={**asked(), **more})
    assert answer.status == 200, answer.body
    assert answer.json["choices"][0]["message"]["content"] == "It is \\boxed{4}"
    assert answer.json["caps"]["provisional"] is True
    assert answer.json["caps"]["cause"] == "unreadable"


async def test_the_server_says_so_for_a_case_too(server):
    case = {"problem": "What is it?", "candidates": ["\\boxed{1}", "\\boxed{2}", "\\boxed{3}"]}

    async with served(server.url, model="m") as call:
        refused, chosen = [
            await call(path="/v1/select", body=case),
            await call(path="/v1/select", body={**case, "caps": {"keep_going": True}}),
        ]
    assert refused.status == 502
    assert (chosen.json["provisional"], chosen.json["cause"]) == (True, "unreadable")
