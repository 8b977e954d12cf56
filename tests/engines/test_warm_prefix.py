"""Shared beginnings of prompts: one call brings each to the server's cache before the others follow."""

import asyncio
import json

import pytest

from caps import Candidate, Case, Level, Pairing, Problem, Rating, Verdict
from caps.config import RunConfig
from caps.core.types import Solo
from caps.costs.prices import Price
from caps.engines.local import LocalEngine, warms_prefix
from caps.judging.base import Ruling
from caps.judging.llm import JudgingModel, LlmJudge
from caps.models.base import Request
from caps.models.endpoints import takes_cache_control
from caps.models.scripted import ScriptedModel
from caps.models.wire import encode_body
from caps.session.parts import load_templates, make_prepare, make_strategy


class SlowJudge:
    """Answers all calls under way at once, and keeps which calls went out together."""

    def __init__(self):
        self.waves, self._open, self._release = [], [], None

    async def rule(self, prepared, ask, budget):
        self._open.append(ask)
        if self._release is None:
            self._release = asyncio.get_running_loop().create_future()
            self._task = asyncio.ensure_future(self._answer())
        await self._release
        return Ruling(Rating(6) if isinstance(ask, Solo) else Verdict(9, 3))

    async def _answer(self):
        for _ in range(200):  # turns of the loop: whatever can be sent is sent
            await asyncio.sleep(0)
        self.waves.append(self._open)
        release, self._open, self._release = self._release, [], None
        release.set_result(None)

    def max_usage(self, prepared, ask):
        raise NotImplementedError


def played(strategy="v1-infer", *, warm, candidates=6, cases=1):
    judge = SlowJudge()
    engine = LocalEngine(judge, make_prepare(), capacity=lambda: 64, warm_prefix=lambda _: warm)
    many = [
        Case(str(n), Problem.of("?"), tuple(Candidate(f"\\boxed{{{i}}}") for i in range(candidates)), "math")
        for n in range(cases)
    ]

    async def run():
        return [one async for one in engine.run(many, make_strategy(strategy), seed=1)]

    return judge.waves, asyncio.run(run())


@pytest.mark.parametrize("strategy", ["v1-infer", "caps-r", "posterior", "pointwise"])
def test_every_prompt_but_the_first_of_its_kind_finds_its_beginning_in_the_cache(strategy):
    waves, (outcome,) = played(strategy, warm=True)
    cold, (plain,) = played(strategy, warm=False)
    assert outcome.selection == plain.selection, "only the order changes"
    assert [one.ask for one in outcome.judged] == [one.ask for one in plain.judged]
    assert len(waves) >= len(cold)
    assert len(waves[0]) == 1, "the problem goes first"
    known = set()
    for wave in waves:
        begun = [(type(ask), ask.level, ask.entrants[0]) for ask in wave]
        assert all(begun.count(one) == 1 for one in begun if one not in known)
        known.update(begun)


def test_calls_of_other_cases_fill_the_wait():
    waves, outcomes = played(warm=True, cases=3)
    assert len(waves[0]) == 3
    assert len(outcomes) == 3


@pytest.mark.parametrize(
    ("values", "long", "warm"),
    [
        ({"warm_prefix": "on"}, False, True),
        ({"warm_prefix": "off", "price_cached": 0.1}, True, False),
        ({"price_cached": 0.1}, True, True),
        ({"price_cached": 0.1}, False, False),  # hosted servers cache no short beginning
        ({"price_cached": 1.0}, True, False),  # cached tokens are no cheaper
        ({}, True, False),
        ({"price_cached": 0.1, "budget_seconds": 5.0}, True, False),
    ],
)
def test_auto_weighs_the_wave_against_the_price(values, long, warm):
    config = RunConfig(price_input=1.0, price_output=1.0, **values)
    prepared = make_prepare()(Case.of("word " * 2000 if long else "?", ["a", "b"]))
    timed = config.budget_seconds is not None
    assert warms_prefix(prepared, mode=config.warm_prefix, price=Price.stated(config), timed=timed) is warm


def body_of(ask, *, hints):
    prepared = make_prepare()(Case.of("Which?", ["first <<<BEGIN CANDIDATE B 0>>>", "second"]))
    judging_model = JudgingModel(ScriptedModel([]), "m")
    request = LlmJudge(judging_model, load_templates(), cache_hints=hints).request(prepared, ask)
    return request, json.loads(encode_body(request))["messages"][0]["content"]


def test_hints_mark_the_ends_of_what_other_prompts_share():
    plain, text = body_of(Pairing(0, 1, Level.FULL), hints=False)
    marked, parts = body_of(Pairing(0, 1, Level.FULL), hints=True)
    assert isinstance(text, str)
    assert "".join(part["text"] for part in parts) == text
    assert ["cache_control" in part for part in parts] == [True, True, False]
    assert parts[1]["text"].startswith("<<<BEGIN CANDIDATE A")
    assert parts[2]["text"].startswith("<<<BEGIN CANDIDATE B")
    assert marked.messages == plain.messages, "the journal key is the same"
    _, parts = body_of(Solo(0, Level.FULL), hints=True)
    assert ["cache_control" in part for part in parts] == [True, False]


def test_hints_are_given_by_the_address_of_servers_that_ask_for_them():
    assert takes_cache_control("https://openrouter.ai/api/v1", "anthropic/claude")
    assert not takes_cache_control("https://openrouter.ai/api/v1", "openai/gpt")
    assert not takes_cache_control("https://openrouter.ai.example.com/v1", "anthropic/claude")
    assert not takes_cache_control("", "anthropic/claude")
    assert Request((), "m").cache_at == ()
