import asyncio

import pytest

from caps import Level, Pairing, Pick, Rating, Unanswered, Verdict
from caps.core.errors import AccessError, BusyError, SettingError, TooLongError
from caps.core.types import Group, Solo, TokenLogprob, Usage
from caps.datasets.case_files import parse_case
from caps.judging.llm import JudgeSettings, JudgingModel, LlmJudge
from caps.models.base import Completion
from caps.models.scripted import ScriptedModel
from caps.session.parts import load_templates, make_prepare
from caps.testing import case_line

BOUT = make_prepare()(parse_case(case_line("one", [0.2, 0.9, 0.5]), default_id=""))
PAIR = Pairing(0, 1, Level.FULL)
GOOD = "Read.\n<winner>B</winner>\n<confidence>HIGH</confidence>"


def judge_of(replies, **settings):
    model = ScriptedModel(replies)
    judging_model = JudgingModel(model, "m", {"top_k": 5})
    return model, LlmJudge(judging_model, load_templates(), JudgeSettings(**settings))


def rule(replies, ask=PAIR, **settings):
    model, judge = judge_of(replies, **settings)
    return model, asyncio.run(judge.rule(BOUT, ask))


def cut(text):
    return Completion(text, "length", Usage(100, 10))


def test_a_readable_reply_is_a_verdict_after_one_call_at_temperature_0():
    model, ruling = rule([GOOD])
    assert ruling.answer == Verdict(3, 9)
    assert (ruling.winner, ruling.confidence, ruling.malformed) == ("B", "HIGH", None)
    (request,) = model.requests
    assert (request.temperature, request.draw, request.seed, request.top_logprobs) == (0, 0, None, 0)
    assert request.template == "pair-e2-math.txt"
    assert request.extra == {"top_k": 5}


def test_slot_a_is_shown_first():
    model, _ = rule([GOOD], Pairing(1, 0, Level.FULL))
    prompt = model.requests[0].messages[0].content
    assert prompt.index("quality=0.9") < prompt.index("quality=0.2")


@pytest.mark.parametrize(
    ("ask", "reply", "answer", "template"),
    [
        (Pairing(0, 1, Level.PARTIAL), GOOD, Verdict(3, 9), "pair-e1-math.txt"),
        (Pairing(0, 1, Level.FULL, dialect="ratings"), "<rating_A>2</rating_A><rating_B>8</rating_B>", Verdict(2, 8), "pair-ratings-math.txt"),
        (Solo(2, Level.FULL), "<rating>7</rating>", Rating(7), "solo-math.txt"),
        (Group((2, 0, 1), Level.FULL), "<best>3</best>", Pick(1), "group-math.txt"),
    ],
)  # fmt: skip
def test_every_kind_of_ask_has_its_words_and_its_answer(ask, reply, answer, template):
    model, ruling = rule([reply], ask)
    assert ruling.answer == answer
    assert model.requests[0].template == template


def test_an_unreadable_reply_is_asked_for_again_as_a_sampled_draw():
    model, ruling = rule(["Hmm.", GOOD])
    assert ruling.answer == Verdict(3, 9)
    assert [(r.temperature, r.draw) for r in model.requests] == [(0, 0), (0.7, 100)]
    assert model.requests[1].seed == 100
    assert [attempt.cause for attempt in ruling.attempts] == ["no-tag", None]


def test_a_further_draw_of_a_pair_is_sampled_from_the_start():
    model, _ = rule([GOOD], Pairing(0, 1, Level.FULL, draw=2))
    assert (model.requests[0].temperature, model.requests[0].seed) == (0.7, 2)


def test_a_cut_reply_is_drawn_again_with_more_room():
    model, ruling = rule([cut("I think that"), GOOD], max_tokens=50)
    assert ruling.answer == Verdict(3, 9)
    assert [(r.max_tokens, r.temperature, r.draw) for r in model.requests] == [(50, 0, 0), (100, 0.7, 100)]
    assert ruling.attempts[0].cause == "truncated"


@pytest.mark.parametrize(
    ("ask", "reply", "answer", "ending"),
    [
        (PAIR, "<winner>B-CODE</winner>", Verdict(5, 7), "<winner>A-CODE</winner>\n<winner>B-CODE</winner>\n<winner>TIE-CODE</winner>"),
        (Solo(0, Level.FULL), "<rating>7-CODE</rating>", Rating(7), "ends with </rating>: <rating>N-CODE</rating>, with a number from 1 to 10 for N"),
        (Group((0, 1), Level.FULL), "<best>2-CODE</best>", Pick(1), "ends with </best>: <best>N-CODE</best>, with the number of the best candidate for N"),
    ],
)  # fmt: skip
def test_the_last_try_asks_for_the_verdict_alone(ask, reply, answer, ending):
    """The same prompt, so that it is cached, and at its end what to copy."""
    model, ruling = rule(["Hmm.", cut("Well"), reply.replace("CODE", BOUT.code)], ask, max_tokens=50)
    assert ruling.answer == answer
    first, drawn, short = (request.messages[0].content for request in model.requests)
    assert drawn == first
    assert short.startswith(first)
    assert short.endswith(ending.replace("CODE", BOUT.code))
    assert "Write no reasoning this time" in short.removeprefix(first)
    assert [(r.max_tokens, r.temperature, r.draw) for r in model.requests] == [
        (50, 0, 0),
        (50, 0.7, 100),
        (50, 0, 0),
    ]
    _, copied = rule(["Hmm.", "Well.", short.removeprefix(first)], ask)
    assert copied.malformed == "no-tag", "a judge that copies all choices has made none"


def test_a_judge_that_a_server_holds_to_a_form_is_not_asked_for_the_short_one():
    model, _ = rule(["Hmm."] * 3, reply="tags")
    assert len({request.messages for request in model.requests}) == 1


@pytest.mark.parametrize(
    ("replies", "cause"),
    [
        (["Hmm.", "Well.", "Who knows?"], "no-tag"),
        ([cut("a"), cut("b"), cut("c")], "truncated"),
        (["I cannot assist with that."] * 3, "refused"),
        ([""] * 3, "empty"),
    ],
)
def test_after_two_retries_an_unreadable_verdict_is_a_tie_and_counted_by_cause(replies, cause):
    model, ruling = rule(replies)
    assert ruling.answer == Verdict(5, 5)
    assert ruling.malformed == cause
    assert len(ruling.attempts) == len(model.requests) == 3


def test_an_unreadable_rating_is_the_middle_and_an_unreadable_pick_is_none():
    assert rule(["?"] * 3, Solo(0, Level.FULL))[1].answer == Rating(5)
    assert rule(["?"] * 3, Group((0, 1), Level.FULL))[1].answer == Unanswered("malformed")


def test_every_attempt_is_billed():
    _, ruling = rule(["Hmm.", "Well.", GOOD])
    assert [attempt.usage.prompt > 100 for attempt in ruling.attempts] == [True] * 3


def test_a_call_that_failed_for_good_is_unanswered_and_its_requests_are_kept():
    error = TooLongError("too long", attempts=1)
    _, ruling = rule([error])
    assert ruling.answer == Unanswered(error.cause)
    assert ruling.attempts[-1].requests == error.attempts


@pytest.mark.parametrize("error", [AccessError("wrong key"), BusyError("429, and never a reply")])
def test_what_would_fail_every_call_is_raised(error):
    with pytest.raises(type(error)):
        rule([error])


def test_token_probabilities_replace_the_word_where_they_are_wanted():
    tokens = (
        TokenLogprob("<winner>", 0.0),
        TokenLogprob("B", -0.36, (("B", -0.36), ("A", -1.2))),
        TokenLogprob("</winner>", 0.0),
    )
    reply = Completion("<winner>B</winner>", "stop", Usage(100, 5), logprobs=tokens)
    model, ruling = rule([reply], confidence="logprobs")
    assert model.requests[0].top_logprobs > 0
    assert ruling.answer.b > ruling.answer.a
    assert ruling.answer.weight == pytest.approx(0.4, abs=0.02)
    _, verbal = rule([reply])
    assert verbal.answer == Verdict(5, 7)


def test_a_missing_template_is_named():
    model = ScriptedModel([GOOD])
    judge = LlmJudge(JudgingModel(model, "m"), {})
    with pytest.raises(SettingError, match=r"pair-e2-math\.txt"):
        asyncio.run(judge.rule(BOUT, PAIR))


def test_with_more_retries_there_are_more_draws_before_the_short_form():
    model, ruling = rule(["Hmm.", cut("so"), cut("so so"), GOOD], max_tokens=50, retries=3)
    assert ruling.answer == Verdict(3, 9)
    asked = [(r.max_tokens, r.temperature, r.draw) for r in model.requests]
    assert asked == [(50, 0, 0), (50, 0.7, 100), (100, 0.7, 200), (50, 0, 0)]
    assert [attempt.cause for attempt in ruling.attempts] == ["no-tag", "truncated", "truncated", None]


def test_a_thought_among_the_tokens_is_not_weighed():
    thought = [TokenLogprob(word, 0.0) for word in ("Hmm: <winner>", "A", "</winner>, no.", "\n\n")]
    own = [
        TokenLogprob("<winner>", 0.0),
        TokenLogprob("\n", 0.0),
        TokenLogprob("B", -0.36, (("B", -0.36), ("A", -1.2))),
        TokenLogprob("</winner>", 0.0),
    ]
    text = "<winner>\nB</winner>"
    for tokens, weight in (((*thought, *own), 0.4), (tuple(thought), 2 / 9), ((), 2 / 9)):
        reply = Completion(text, "stop", Usage(100, 5), reasoning="Hmm", logprobs=tokens)
        _, ruling = rule([reply], confidence="logprobs")
        assert ruling.answer.outcome == 0.0
        assert ruling.answer.weight == pytest.approx(weight, abs=0.02)
