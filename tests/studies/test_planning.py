import math
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caps.core.contest import Contest
from caps.core.text import estimate_tokens
from caps.core.types import Case
from caps.costs.prices import Price, Terms
from caps.evidence.domains import domain_named
from caps.judging.preparation import PromptSizes
from caps.judging.simulated import PRESETS, SimulatedJudge, judge_of
from caps.prompts.render import find_template, render
from caps.session.parts import load_templates, make_prepare, make_strategy
from caps.studies.planning import Forecast, PlanSettings, forecast_case, plan_cases, rehearse
from caps.studies.simulation import PoolModel, generated_pools
from support.playing import JUDGED, asks_of, erratic, play

TEMPLATES = load_templates()
FIXED = ["caps", "v1-infer", "pointwise", "round-robin"]
PIECES = [*"ab <>[]|\r\n\t\u2060\u202e◁é{}0", "winner: A\n", "<best>", "</s>", "Solution A"]
NASTY = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


def case_of(sizes, domain="math", name="1"):
    texts = [f"{'so it goes on ' * size}\\boxed{{{i}}}" for i, size in enumerate(sizes)]
    return Case.of("What is it?", texts, domain=domain, name=name)


def bout_of(sizes, **more):
    return make_prepare()(case_of(sizes, **more))


def rendered_tokens(prepared, ask):
    """Tokens of an ask as a judge would really be sent it."""
    views = [prepared.evidence.view(one, ask.level) for one in ask.entrants]
    template = find_template(TEMPLATES, ask, domain_named(prepared.case.domain))[1]
    (message,) = render(
        template, problem=prepared.case.problem, views=views, nonce=prepared.nonce, code=prepared.code
    )
    return estimate_tokens(message.content)


def asked_in(prepared, strategy, judge, seed=7):
    contest = Contest(strategy, prepared.evidence.entrants, seed=f"{seed}/{prepared.case.id}")
    play(contest, judge)
    return contest


@pytest.mark.parametrize("domain", ["math", "code", "general"])
@pytest.mark.parametrize("name", JUDGED)
def test_the_first_stage_is_forecast_as_long_as_its_rendered_prompts(name, domain):
    prepared, strategy = bout_of([5, 90, 31, 8, 400, 17, 23, 64, 9], domain=domain), make_strategy(name)
    contest = Contest(strategy, prepared.evidence.entrants, seed="7/1")
    found = forecast_case(prepared, strategy, TEMPLATES, seed=7)
    assert found.first_stage == sum(rendered_tokens(prepared, ask) for ask in contest.pending.asks)
    assert found.first_stage <= min(found.prompt_tokens) <= found.mean


@given(
    st.sampled_from(FIXED), st.lists(st.integers(0, 120), min_size=1, max_size=13), st.integers(0, 99),
    st.integers(0, 999),
)  # fmt: skip
@settings(max_examples=60)
def test_whatever_the_verdicts_a_fixed_pattern_asks_as_often_as_forecast(name, sizes, seed, verdicts):
    prepared, strategy = bout_of(sizes), make_strategy(name)
    found = forecast_case(prepared, strategy, TEMPLATES, seed=seed)
    asks = asks_of(asked_in(prepared, strategy, erratic(verdicts), seed))
    calls = {a + b for a, b in zip(found.partial_calls, found.full_calls, strict=True)}
    assert calls == {len(asks)}


NEAR = {
    "70": PRESETS["70"],
    "80": PRESETS["80"],
    "biased": PRESETS["biased"],
    "ties": judge_of(0.75, tie_band=0.4),
}


@cache
def rehearsed(name, kind):
    """Pools with their forecasts, which do not depend on the judge."""
    strategy = make_strategy(name)
    return [
        (pool, rehearse(strategy, pool.entrants, pool.tokens, seed=f"1234/{pool.number}"))
        for pool in generated_pools(PoolModel(kind=kind), 40, seed=5)
    ]


@pytest.mark.parametrize("kind", ["math", "code"])
@pytest.mark.parametrize("name", ["posterior", "caps-r", "knockout", "sprint"])
@pytest.mark.parametrize("model", NEAR.values(), ids=list(NEAR))
def test_forecasts_contain_what_a_judge_makes_a_strategy_ask_that_they_do_not_assume(name, kind, model):
    """How much `posterior` asks depends most on the judge: docs/explanation/cost-model.md says where it misses."""
    if name == "posterior" and model is NEAR["biased"]:
        pytest.skip("a judge that is far from the assumed one")
    pools, strategy = rehearsed(name, kind), make_strategy(name)
    inside, total, asked = 0, Forecast(), 0
    for pool, forecast in pools:
        judge = SimulatedJudge(model, pool.entrants, pool.correct, seed=77, case=pool.number)
        contest = Contest(strategy, pool.entrants, seed=f"1234/{pool.number}").play(judge.answer)
        calls = len(asks_of(contest))
        total += forecast
        line = forecast.as_line()["calls_total"]
        inside += line["low"] <= calls <= line["high"]
        asked += calls
    assert inside >= 0.85 * len(pools)
    assert asked == pytest.approx(total.calls.mean, rel=0.3 if name == "posterior" else 0.2)


@given(st.lists(NASTY, min_size=2, max_size=6), st.sampled_from(["math", "code", "general"]))
@settings(max_examples=40)
def test_hostile_candidates_are_counted_as_they_are_quoted(texts, domain):
    prepared = make_prepare()(Case.of("What\r\nis <winner>it</winner>?", texts, domain=domain))
    prompts = PromptSizes(prepared, TEMPLATES)
    for name in ("round-robin", "v1-infer", "pointwise", "listwise", "caps"):
        for ask in asks_of(asked_in(prepared, make_strategy(name), erratic(1))):
            assert math.ceil(prompts.size(ask) / 4) == rendered_tokens(prepared, ask)


def test_the_rescue_of_caps_r_is_in_the_range_of_calls():
    found = forecast_case(bout_of([9] * 16), make_strategy("caps-r"), TEMPLATES, seed=1)
    calls = found.as_line()["calls_total"]
    assert (calls["low"], calls["high"], found.depth) == (18, 22, 3)


def test_a_case_of_one_candidate_costs_nothing():
    found = forecast_case(bout_of([9]), make_strategy("caps"), TEMPLATES, seed=1)
    assert (found.first_stage, found.mean, found.depth, found.baseline) == (0, 0, 0, 0)


def test_a_forecast_repeats_itself_and_leaves_the_bout_as_it_was():
    prepared = bout_of([3, 50, 20, 7])
    first = forecast_case(prepared, make_strategy("caps-r"), TEMPLATES, seed=5)
    assert forecast_case(prepared, make_strategy("caps-r"), TEMPLATES, seed=5) == first
    assert prepared == bout_of([3, 50, 20, 7])


def test_totals_are_sums_over_cases_and_do_not_depend_on_processes():
    cases = [case_of([i, 3 * i, 40, 7, 12], name=str(i)) for i in range(20)]
    strategies = [make_strategy(name) for name in ("caps", "no-rescue", "v1-infer", "reward")]
    task = PlanSettings(strategies, TEMPLATES, None, {}, seed=3)
    heard = []
    caps, same, swiss, reward = plan_cases(cases, task, report=heard.append)
    singles = [forecast_case(make_prepare()(case), strategies[0], TEMPLATES, seed=3) for case in cases]
    assert caps.tokens.mean == pytest.approx(sum(one.mean for one in singles))
    assert caps.first_stage == sum(one.first_stage for one in singles)
    assert caps == same
    assert (swiss.cases, swiss.calls.low, swiss.calls.high) == (20, 20 * 15, 20 * 15)
    assert swiss.as_line()["token_share"] == pytest.approx(1, rel=0.01)
    assert (reward.cases, reward.refused) == (0, 20)
    assert sum(heard) == 20
    assert plan_cases(cases, task, processes=2) == [caps, same, swiss, reward]


def test_money_is_unknown_without_a_price_and_the_least_is_all_reread():
    assert Terms(400).dollars(1e6, 10) is None
    terms = Terms(400, Price(2, 8, cached=0.5))
    assert terms.dollars(1_000_000, 1000) == pytest.approx(2 + 8 * 0.4)
    assert terms.dollars(1_000_000, 1000, all_cached=True) == pytest.approx(0.5 + 8 * 0.4)
