import asyncio
from dataclasses import replace

import pytest

from caps.core.errors import AccessError, MissingFeatureError, RefusedError
from caps.core.types import Candidate, Usage
from caps.evidence.anatomy import dissect
from caps.models.base import Completion
from caps.registry import PRESETS
from caps.sampling.methods import Independent, make_preset
from caps.sampling.sampler import interface_of, summarize_logprobs
from caps.testing import Reply, ScriptedEndpoint, Status
from support.drawing import draw, problem, run, sampler_of, texts
from support.waiting import PATIENCE, until

PAPER = {"top_p": 0.95, "top_k": -1, "max_tokens": 32768}
SENT = {
    "qwen3-14b": PAPER,
    "qwen3-4b-instruct": PAPER | {"chat_template_kwargs": {"enable_thinking": False}},
    "qwen3-4b-thinking": PAPER | {"chat_template_kwargs": {"enable_thinking": True}},
    "gpt-oss-20b": PAPER | {"reasoning_effort": "medium"},
    "default": {"top_p": 0.95, "max_tokens": 8192},
    "small": {"top_p": 0.95, "max_tokens": 256},
}


@pytest.mark.parametrize("name", PRESETS.table)
def test_requests_carry_exactly_what_the_preset_says(name):
    problems = [problem("a", "code"), problem("b", "math")]
    with ScriptedEndpoint() as server:
        draw(server, problems, n=2, preset=make_preset(name), max_connections=1)
    heat = {"small": (0.5, 0.5)}.get(name, (0.6, 1.0))
    for body, temperature, seed in zip(
        server.bodies, (heat[0], heat[0], heat[1], heat[1]), (1234, 1235) * 2, strict=True
    ):
        del body["messages"]
        assert body == {"model": "stub", "temperature": temperature, "seed": seed, **SENT[name]}


def test_what_is_left_to_the_server_is_not_sent_and_extras_of_the_user_win():
    preset = make_preset("qwen3-4b-thinking", {"temperature_math": "-1", "seed": "7"})
    with ScriptedEndpoint() as server:
        draw(server, [problem()], n=1, preset=preset, extra={"top_k": 20, "seed": None})
    (body,) = server.bodies
    assert not {"temperature", "seed"} & set(body)
    assert body["top_k"] == 20


def test_the_i_th_sample_is_the_i_th_draw_and_cases_come_in_the_order_of_input():
    def reply(body, number):
        name = body["messages"][-1]["content"].split()[1]
        return Reply(f"{name} seed {body['seed']}", delay=0.05 if name.startswith("0") else 0)

    with ScriptedEndpoint(reply) as server:
        found = draw(server, [problem(str(i)) for i in range(6)], n=3, max_connections=8)
    assert [one.name for one in found] == [str(i) for i in range(6)]
    for i, one in enumerate(found):
        assert texts(one) == [f"{i}? seed {1234 + k}" for k in range(3)]


def test_more_samples_later_pay_only_for_those_that_are_new(tmp_path):
    with ScriptedEndpoint(lambda _, number: Reply(f"reply {number}")) as server:
        first = draw(server, [problem()], n=3, journal=tmp_path / "j.sqlite")
        again = draw(server, [problem()], n=5, journal=tmp_path / "j.sqlite")
        assert server.requests == 5
    assert texts(again[0])[:3] == texts(first[0])
    assert [sample.replayed for sample in again[0].samples] == [True] * 3 + [False] * 2


def test_problems_are_read_only_as_far_as_needed_and_connections_are_kept_busy():
    ahead = []

    def source(server):
        for i in range(60):
            ahead.append(i - server.requests // 4)
            yield problem(str(i))

    with ScriptedEndpoint([Reply(until=lambda: server.peak == 6)]) as server:
        draw(server, source(server), n=4, max_connections=6)
        assert server.peak == 6
    assert max(ahead) <= 4


def test_a_failed_sample_is_told_and_the_others_stand():
    def reply(body, number):
        return Status(400, "this one not") if body["seed"] == 1235 else Reply(f"{body['seed']}")

    with ScriptedEndpoint(reply) as server:
        (sampled,) = draw(server, [problem()], n=3)
    assert texts(sampled) == ["1234", "1236"]
    (lost,) = [sample for sample in sampled.samples if sample.candidate is None]
    assert (lost.number, lost.cause) == (1, "refused")
    assert "this one not" in lost.failure


def test_a_problem_without_any_sample_fails_and_the_next_goes_on():
    def reply(request):
        return RefusedError("no") if "bad" in request.messages[0].content else "fine"

    bad, good = run(Independent(), sampler_of(reply), [problem("bad"), problem("good")], n=2)
    assert bad.case is None
    assert bad.failure == "none of its 2 samples succeeded: no"
    assert texts(good) == ["fine", "fine"]


def test_a_refused_key_ends_the_run_at_once():
    sampler = sampler_of(lambda _: AccessError("the key"))
    with pytest.raises(AccessError):
        run(Independent(), sampler, (problem(str(i)) for i in range(1000)), n=2)
    assert sampler.model.calls < 20


def test_reasoning_is_kept_before_the_answer_where_the_evidence_finds_it():
    reply = Reply("So \\boxed{4}", message={"reasoning_content": "2 + 2 is 4"})
    with ScriptedEndpoint([reply]) as server:
        (sampled,) = draw(server, [problem()], n=1)
    (candidate,) = sampled.case.candidates
    assert candidate.text == "<think>\n2 + 2 is 4\n</think>\n\nSo \\boxed{4}"
    assert dissect(candidate).reasoning == "2 + 2 is 4"


def test_an_empty_reply_is_no_candidate_and_what_it_cost_is_known():
    empty = Completion("", "content_filter", Usage(10, 3))
    (sampled,) = run(
        Independent(), sampler_of(lambda request: "ok" if request.draw else empty), [problem()], n=2
    )
    assert texts(sampled) == ["ok"]
    assert (sampled.samples[0].cause, sampled.samples[0].usage.output) == ("empty", 3)


def test_a_budget_holds_and_what_it_could_not_pay_for_is_told():
    preset = make_preset("default", {"max_tokens": "100"})
    with ScriptedEndpoint() as server:
        (sampled,) = draw(server, [problem()], n=20, preset=preset, budget_total_tokens=400)
        assert 1 < server.requests < 20
        assert sum(server.tokens.values()) <= 400
    assert len(sampled.case.candidates) == server.requests
    assert {sample.cause for sample in sampled.samples if sample.failure} == {"budget"}


def test_log_probabilities_are_summarized_where_they_are_asked_for():
    tokens = [{"token": "a", "logprob": -1.0}, {"token": "b", "logprob": -0.5}]
    with ScriptedEndpoint([Reply("ab", logprobs=tokens)]) as server:
        (asked,) = draw(server, [problem()], n=1, logprobs=True)
        assert server.bodies[0]["logprobs"] is True
        draw(server, [problem()], n=1)
        assert "logprobs" not in server.bodies[1]
    windows = {"logprob_tail": -0.75, "logprob_lowest": -0.75}
    assert asked.case.candidates == (Candidate("ab", logprob=-0.75, numbers=windows),)


def test_doubtful_passages_show_in_the_lowest_window_and_in_the_tail():
    steady, doubtful = [-0.1] * 32, [-2.0] * 32
    mean, windows = summarize_logprobs([*steady, *doubtful, *steady, *steady])
    assert mean == pytest.approx((3 * -0.1 - 2.0) / 4)
    assert windows == {"logprob_tail": pytest.approx(-0.1), "logprob_lowest": pytest.approx(-2.0)}
    _, ending = summarize_logprobs([*steady, *doubtful])
    assert ending["logprob_tail"] == ending["logprob_lowest"] == pytest.approx(-2.0)


def test_a_server_without_log_probabilities_ends_a_run_that_asks_for_them():
    with ScriptedEndpoint() as server, pytest.raises(MissingFeatureError, match="leave out --logprobs"):
        draw(server, [problem()], logprobs=True)


def test_a_problem_that_has_candidates_is_not_drawn_for_again():
    sampler = sampler_of(lambda _: "x")
    (sampled,) = run(Independent(), sampler, [replace(problem(), candidates=(Candidate("old"),))])
    assert "--method aggregate" in sampled.failure
    assert sampler.model.calls == 0


def test_code_that_is_called_shows_its_interface():
    assert interface_of(problem(starter_code="class S:\n  def f(self):\n")) == "class S:\n  def f(self):"
    assert interface_of(problem(entry_point="solve")) == "def solve(...):"
    assert interface_of(problem(entry_point="", starter_code="  ")) == ""
    request = sampler_of([]).request(problem(domain="code", entry_point="solve"), 0)
    assert "def solve(...):" in request.messages[0].content
    assert request.template == "instruct-function.txt"


async def test_what_is_under_way_when_the_run_is_stopped_comes_in_and_nothing_new_begins():
    begun, done, release = [], [], asyncio.Event()
    sampler = sampler_of(lambda _: "x", capacity=2)
    answer = sampler.model.complete

    async def complete(request):
        begun.append(request.draw)
        await release.wait()
        done.append(request.draw)
        return await answer(request)

    sampler.model.complete = complete
    drawing = asyncio.ensure_future(sampler.generate(problem(), range(10)))
    await until(lambda: len(begun) == 2)
    stopping = asyncio.ensure_future(sampler.stop(grace=PATIENCE))
    await asyncio.sleep(0)
    release.set()
    await stopping
    drawing.cancel()
    await asyncio.gather(drawing, return_exceptions=True)
    assert done == [0, 1]
