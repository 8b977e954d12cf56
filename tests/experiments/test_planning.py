import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caps.building import load_templates, make_prepare, make_strategy
from caps.core.contest import Contest
from caps.core.text import estimate_tokens
from caps.core.types import Case, Level, Pairing
from caps.costs.forecast import forecast_contest
from caps.costs.prices import Price, Terms
from caps.evidence.domains import domain_named
from caps.prompts.render import find_template, render
from caps.studies.planning import CasePrompts, Task, forecast_case, plan_cases
from playing import JUDGED, asks_of, erratic, play

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
def test_the_first_stage_is_exactly_what_the_rendered_prompts_of_the_first_round_hold(name, domain):
    prepared, strategy = bout_of([5, 90, 31, 8, 400, 17, 23, 64, 9], domain=domain), make_strategy(name)
    contest = Contest(strategy, prepared.evidence.entrants, seed="7/1")
    found = forecast_case(prepared, strategy, TEMPLATES, seed=7)
    assert found.first_stage == sum(rendered_tokens(prepared, ask) for ask in contest.pending.asks)
    assert found.least <= found.mean <= found.most
    assert found.calls_least <= found.partial + found.full <= found.calls_most


@given(
    st.sampled_from(FIXED), st.lists(st.integers(0, 120), min_size=1, max_size=13), st.integers(0, 99),
    st.integers(0, 999),
)  # fmt: skip
@settings(max_examples=60)
def test_whatever_the_verdicts_a_fixed_pattern_asks_between_least_and_most(name, sizes, seed, verdicts):
    prepared, strategy = bout_of(sizes), make_strategy(name)
    found = forecast_case(prepared, strategy, TEMPLATES, seed=seed)
    asks = asks_of(asked_in(prepared, strategy, erratic(verdicts), seed))
    assert found.least <= sum(rendered_tokens(prepared, ask) for ask in asks) <= found.most
    assert found.calls_least == len(asks) == found.calls_most


class Sized:
    """Prompts of known lengths."""

    has_differences = False

    def __init__(self, sizes):
        self.sizes = sizes

    def size(self, ask):
        return self.bare(ask) + sum(self.view(one, ask.level) for one in ask.entrants)

    def bare(self, ask):
        return 101 + isinstance(ask, Pairing)

    def view(self, entrant, level):
        return self.sizes[entrant] // (4 if level is Level.PARTIAL else 1)


@given(
    st.sampled_from(FIXED), st.lists(st.integers(0, 50_000), min_size=1, max_size=20), st.integers(0, 99),
    st.integers(0, 999), st.sampled_from([0.25, 0.3, 1.0]),
)  # fmt: skip
@settings(max_examples=150)
def test_bounds_hold_for_views_of_any_size_and_any_rate(name, sizes, seed, verdicts, rate):
    entrants = make_prepare()(case_of([1] * len(sizes))).evidence.entrants
    prompts, strategy = Sized(sizes), make_strategy(name)
    found = forecast_contest(strategy, entrants, prompts, seed=seed, per_character=rate)
    contest = Contest(strategy, entrants, seed=seed)
    play(contest, erratic(verdicts))
    asked = sum(math.ceil(prompts.size(ask) * rate) for ask in asks_of(contest))
    assert found.least <= asked <= found.most


@given(st.lists(NASTY, min_size=2, max_size=6), st.sampled_from(["math", "code", "general"]))
@settings(max_examples=40)
def test_hostile_candidates_are_counted_as_they_are_quoted(texts, domain):
    prepared = make_prepare()(Case.of("What\r\nis <winner>it</winner>?", texts, domain=domain))
    prompts = CasePrompts(prepared, TEMPLATES)
    for name in ("round-robin", "v1-infer", "pointwise", "listwise", "caps"):
        for ask in asks_of(asked_in(prepared, make_strategy(name), erratic(1))):
            assert math.ceil(prompts.size(ask) / 4) == rendered_tokens(prepared, ask)


def test_the_rescue_of_caps_r_is_in_the_range_of_calls():
    found = forecast_case(bout_of([9] * 16), make_strategy("caps-r"), TEMPLATES, seed=1)
    assert (found.calls_least, found.calls_most, found.depth) == (18, 22, 3)


def test_a_case_of_one_candidate_costs_nothing():
    found = forecast_case(bout_of([9]), make_strategy("caps"), TEMPLATES, seed=1)
    assert (found.first_stage, found.least, found.mean, found.most, found.depth) == (0, 0, 0, 0, 0)


def test_a_forecast_repeats_itself_and_leaves_the_bout_as_it_was():
    prepared = bout_of([3, 50, 20, 7])
    first = forecast_case(prepared, make_strategy("caps-r"), TEMPLATES, seed=5)
    assert forecast_case(prepared, make_strategy("caps-r"), TEMPLATES, seed=5) == first
    assert prepared == bout_of([3, 50, 20, 7])


def test_totals_are_sums_over_cases_and_do_not_depend_on_processes():
    cases = [case_of([i, 3 * i, 40, 7, 12], name=str(i)) for i in range(20)]
    strategies = [make_strategy(name) for name in ("caps", "no-rescue", "v1-infer", "reward")]
    task = Task(strategies, TEMPLATES, None, {}, seed=3)
    heard = []
    caps, same, swiss, reward = plan_cases(cases, task, report=heard.append)
    singles = [forecast_case(make_prepare()(case), strategies[0], TEMPLATES, seed=3) for case in cases]
    assert caps.most == sum(one.most for one in singles)
    assert caps.first_stage == sum(one.first_stage for one in singles)
    assert caps == same
    assert (swiss.cases, swiss.calls_least) == (20, 20 * 15)
    assert (reward.cases, len(reward.refused)) == (0, 20)
    assert sum(heard) == 20
    assert plan_cases(cases, task, processes=2) == [caps, same, swiss, reward]


def test_wall_time_is_the_larger_of_work_and_depth():
    assert Terms(400).seconds(1000, 10, 3) is None
    assert Terms(400, tokens_per_second=100).seconds(1000, 10, 3) == 50
    assert Terms(400, latency=2, connections=4).seconds(1000, 10, 3) == 6  # three rounds of 2 s wait
    assert Terms(400, latency=2, connections=2).seconds(1000, 10, 3) == 10  # ten calls, two at once
    assert Terms(400, tokens_per_second=100, latency=2, connections=2).seconds(1000, 10, 3) == 50


def test_money_is_unknown_without_a_price_and_the_least_is_all_reread():
    assert Terms(400).dollars(1e6, 10) is None
    terms = Terms(400, Price(2, 8, cached=0.5))
    assert terms.dollars(1_000_000, 1000) == pytest.approx(2 + 8 * 0.4)
    assert terms.dollars(1_000_000, 1000, all_cached=True) == pytest.approx(0.5 + 8 * 0.4)
