"""Reward servers: what is sent, how scores are read, what is wrong with a reply, and what is not asked twice."""

import asyncio
import json

import pytest

from caps.config import REWARD_APIS
from caps.core.errors import GarbledError, SettingError, TooLongError, UnreachableError
from caps.core.types import Message
from caps.journal.store import Journal
from caps.models.base import Request
from caps.models.faults import Retries
from caps.models.http import HttpModel
from caps.models.journaled import JournaledModel
from caps.models.rewards import APIS, BATCH, Form, RewardModel, read_scores
from caps.models.servers import ServersModel
from support.reward_server import RewardServer

SERVERS = {"vllm-score": "vllm", "vllm-classify": "vllm", "vllm-pooling": "vllm", "sglang": "sglang"}
ANSWERS = ["It is 3, quality=0.2", "It is 4, quality=0.9", "It is 5, quality=0.4"]


def form_of(api, **more):
    template = "chatml" if api == "sglang" else ""
    return Form(api, **{"template": template, **more})


def request(answer, problem="What is 2 + 2?", **more):
    return Request((Message("user", problem), Message("assistant", answer)), "rm", template="t", **more)


def score(server, form, answers, *, journal=None, requests=None, wrap=None, **more):
    """What each answer gets: its score, or the error."""
    said = []

    async def all_of():
        http = wrap(server) if wrap else HttpModel(server.url, connections=4, retries=Retries(most=0), **more)
        model = RewardModel(http, form, notify=said.append)
        outer = model if journal is None else JournaledModel(model, journal)
        try:
            wanted = requests or [request(one) for one in answers]
            done = await asyncio.gather(*map(outer.complete, wanted), return_exceptions=True)
        finally:
            await model.close()
        return [one if isinstance(one, Exception) else float(one.text) for one in done], done

    scores, done = asyncio.run(all_of())
    return scores, done, said


@pytest.mark.parametrize("api", APIS)
def test_every_api_scores_the_answers_of_a_problem_in_their_order(api):
    with RewardServer(SERVERS[api]) as server:
        scores, done, said = score(server, form_of(api), ANSWERS)
    expected = [0.4, 1.8, 0.8] if api == "vllm-classify" else [0.2, 0.9, 0.4]  # log-odds of two logits
    assert scores == pytest.approx(expected)
    assert said == []
    lists = api not in ("vllm-classify", "vllm-pooling")
    assert server.requests == (1 if lists else 3)
    assert {one.model for one in done} == {"rm"}
    assert not any(one.usage.estimated for one in done)
    assert all(one.usage.output == 0 < one.usage.prompt for one in done)


def test_what_is_sent_is_what_the_servers_document():
    with RewardServer("vllm") as server:
        for api in ("vllm-score", "vllm-classify", "vllm-pooling"):
            score(server, form_of(api), ANSWERS[:1])
    chat = [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": ANSWERS[0]}]
    assert server.paths == ["/v1/score", "/classify", "/pooling"]
    assert server.bodies == [
        {"model": "rm", "text_1": "What is 2 + 2?", "text_2": ANSWERS[:1], "use_activation": False},
        {"model": "rm", "messages": chat, "use_activation": False},
        {"model": "rm", "messages": chat},
    ]
    with RewardServer("sglang") as server:
        score(server, Form("sglang", "plain"), ANSWERS[:1])
    assert server.paths == ["/classify"]
    assert server.bodies == [{"model": "rm", "text": [f"What is 2 + 2?\n\n{ANSWERS[0]}"]}]


def test_a_template_renders_problem_and_answer_and_then_a_call_takes_a_list():
    with RewardServer("vllm") as server:
        score(server, Form("vllm-classify", "{problem} => {answer}"), ANSWERS)
        assert server.bodies[0]["input"] == [f"What is 2 + 2? => {one}" for one in ANSWERS]
    rendered = Form("sglang", "chatml").render((Message("user", "Q"), Message("assistant", "A")))
    assert rendered == "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
    hostile = Form("sglang", "plain").render((Message("user", "{answer}"), Message("assistant", "{problem}")))
    assert hostile == "{answer}\n\n{problem}"


def test_numbers_of_tokens_are_combined_and_a_class_is_chosen():
    def pooled(*rows):
        return {"data": [{"index": 0, "data": list(rows)}]}

    for steps, expected in (("last", 2.0), ("min", -1.0), ("mean", 1.0)):
        assert read_scores(Form("vllm-pooling", steps=steps), pooled([2.0], [-1.0], [2.0]), 1) == [expected]
    logits, chances = [0.5, 2.5], [0.2, 0.8]
    probs = {"data": [{"index": 0, "probs": logits}, {"index": 1, "probs": chances}]}
    high, odds = read_scores(Form("vllm-classify"), probs, 2)
    assert high == pytest.approx(2.0)
    assert odds == pytest.approx(1.3863, abs=1e-4)
    assert read_scores(Form("vllm-classify", class_=0), probs, 2)[0] == pytest.approx(-2.0)
    assert "classes" in read_scores(Form("vllm-classify", class_=2), probs, 2)[0]
    assert "not a reward model" in read_scores(Form("vllm-pooling"), pooled(*[0.1] * 900), 1)[0]


WRONG = {
    "too few": (lambda reply, _: {**reply, "data": reply["data"][:2]}, "too few scores: 2 of 3"),
    "too many": (lambda reply, _: {**reply, "data": reply["data"] * 2}, "too many scores: 6 of 3"),
    "twice": (
        lambda reply, _: {**reply, "data": [{**row, "index": 1} for row in reply["data"]]},
        "has the index 1 among",
    ),
    "no index": (
        lambda reply, _: {**reply, "data": [{"score": row["score"]} for row in reply["data"]]},
        "has the index None among",
    ),
    "text": (lambda *_: b'"I like the second"', "has no list 'data'|is not a list"),
    "prose": (lambda *_: b"I like the second one.", "did not send a reply of /score"),
    "10 MB": (lambda reply, _: json.dumps({**reply, "x": "y" * 10_000_000}).encode(), "more than 4,194,304"),
    "500": (lambda *_: 500, "failed with status 500"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_reply_that_cannot_be_assigned_gives_no_score_to_anyone(name):
    spoil, message = WRONG[name]
    with RewardServer("vllm", spoil=spoil) as server:
        scores, _, said = score(server, Form("vllm-score"), ANSWERS)
        assert server.requests == 1
    for error in scores:
        with pytest.raises(Exception, match=message):
            raise error
    if isinstance(scores[0], GarbledError) and scores[0].cause == "no-score":
        assert len(said) == 1
        assert server.url.removesuffix("/v1") in said[0]


@pytest.mark.parametrize("bad", ["NaN", '"0.9"', "null", "1e999", "true", "[]"])
def test_one_score_that_is_no_number_leaves_the_others(bad):
    def spoil(reply, _):
        return json.dumps(reply).replace("0.9", bad).encode()

    with RewardServer("vllm", spoil=spoil) as server:
        (first, second, third), _, said = score(server, Form("vllm-score"), ANSWERS)
    assert (first, third) == (0.2, 0.4)
    assert isinstance(second, GarbledError)
    assert second.cause == "no-score"
    assert len(said) == 1


def test_an_answer_that_is_too_long_fails_alone():
    with RewardServer("vllm", most=100) as server:
        scores, _, _ = score(server, Form("vllm-score"), [ANSWERS[0], "x" * 200, ANSWERS[2]])
        assert server.requests == 4
    assert (scores[0], scores[2]) == (0.2, 0.4)
    assert isinstance(scores[1], TooLongError)


def test_another_api_than_the_servers_is_named():
    with RewardServer("sglang") as server:
        (error,), _, _ = score(server, Form("vllm-score"), ANSWERS[:1])
    assert isinstance(error, UnreachableError)
    assert "there is no /score at" in str(error)
    assert "--reward-api" in str(error)


def test_the_journal_keeps_a_score_per_answer_and_only_the_rest_is_asked(tmp_path):
    with RewardServer("vllm") as server, Journal.open(tmp_path / "journal.sqlite") as journal:
        score(server, Form("vllm-score"), ANSWERS[:2], journal=journal)
        scores, done, _ = score(server, Form("vllm-score"), ANSWERS, journal=journal)
        assert scores == [0.2, 0.9, 0.4]
        assert [one.replayed for one in done] == [True, True, False]
        assert [body["text_2"] for body in server.bodies] == [ANSWERS[:2], ANSWERS[2:]]


def test_a_call_is_about_one_problem_and_not_too_many_answers():
    many = [request(f"answer {k}") for k in range(BATCH + 1)]
    with RewardServer("vllm") as server:
        score(server, Form("vllm-score"), (), requests=[*many, request("x", problem="Another?")])
        sizes = sorted(len(body["text_2"]) for body in server.bodies)
    assert sizes == [1, 1, BATCH]


async def test_a_cancelled_answer_does_not_take_the_others_with_it():
    with RewardServer("vllm") as server:
        model = RewardModel(HttpModel(server.url), Form("vllm-score"))
        first, second = (asyncio.ensure_future(model.complete(request(one))) for one in ANSWERS[:2])
        await asyncio.sleep(0)
        first.cancel()
        done = await second
        await model.close()
        assert done.text == "0.9"
        assert server.bodies[0]["text_2"] == [ANSWERS[1]]


def test_several_servers_go_on_when_one_of_them_fails():
    with RewardServer("vllm", spoil=lambda *_: 500) as broken, RewardServer("vllm") as fine:

        def wrap(_):
            return ServersModel([broken.url, fine.url], connections=2)

        for k in range(4):
            scores, _, _ = score(fine, Form("vllm-score"), [f"{k} {one}" for one in ANSWERS], wrap=wrap)
            assert scores == [0.2, 0.9, 0.4]


def test_fields_that_caps_sets_are_refused_and_others_are_sent():
    with RewardServer("vllm") as server:
        (error,), _, _ = score(server, Form("vllm-score"), (), requests=[request("a", extra={"text_2": "x"})])
        assert isinstance(error, SettingError)
        score(server, Form("vllm-score"), (), requests=[request("a", extra={"truncate_prompt_tokens": 9})])
        assert server.bodies[0]["truncate_prompt_tokens"] == 9


def test_every_api_can_be_set():
    assert tuple(APIS) == REWARD_APIS


def test_an_error_nobody_foresaw_reaches_those_who_wait():
    class Failing:
        address, connections = "here", 1

        def held_connection(self):
            raise RuntimeError("unforeseen")

        async def close(self):
            pass

    (first, second), _, _ = score(None, Form("vllm-score"), ANSWERS[:2], wrap=lambda _: Failing())
    assert str(first) == str(second) == "unforeseen"


def test_logits_out_of_all_proportion_are_no_score():
    wild = {"data": [{"index": 0, "probs": [-1.7e308, 1.7e308]}]}
    assert read_scores(Form("vllm-classify"), wild, 1) == ["the score is not finite"]


def test_a_form_that_cannot_work_is_refused():
    with pytest.raises(SettingError, match="needs --set reward_template"):
        Form("sglang")
    with pytest.raises(SettingError, match="takes problem and answer separately"):
        Form("vllm-score", "chatml")
    with pytest.raises(SettingError, match=r"has no \{answer\}"):
        Form("sglang", "just {problem}")


def test_half_a_surrogate_pair_in_an_answer_does_not_end_the_call():
    with RewardServer("vllm") as server:
        assert score(server, Form("vllm-score"), ["bad \ud800 quality=0.3"])[0] == [0.3]
