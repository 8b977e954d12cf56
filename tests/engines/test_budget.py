import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caps import Caps
from caps.core.errors import SettingError
from caps.core.types import Usage
from caps.costs.budget import Shortage
from caps.costs.prices import Price
from caps.engines.base import in_order
from caps.engines.budget import BudgetLimits, CaseBudget, RunBudget
from caps.engines.local import LocalEngine
from caps.judging.llm import JudgeSettings, JudgingModel, LlmJudge
from caps.models.scripted import ScriptedModel
from caps.session.parts import load_templates, make_prepare, make_strategy
from caps.testing import cases
from support.replying import replying
from support.waiting import skip

PRICE = Price(2.0, 10.0)
HOUR = 3600.0


def run(source, *, strategy=None, lengths=(0,), max_tokens=400, capacity=6, **budgets):
    async def collect():
        model = ScriptedModel(replying(lengths))
        judging_model = JudgingModel(model, "m")
        judge = LlmJudge(judging_model, load_templates(), JudgeSettings(max_tokens=max_tokens))
        engine = LocalEngine(judge, make_prepare(), capacity=lambda: capacity, price=PRICE, **budgets)
        return [outcome async for outcome in in_order(engine.run(source, strategy or Caps(), seed=1))]

    return asyncio.run(collect())


class SlowAfter(ScriptedModel):
    """After some calls, each takes an hour."""

    def __init__(self, quick, reply):
        super().__init__(reply)
        self.quick = quick

    async def complete(self, request):
        if self.calls >= self.quick:
            skip(HOUR)
            await asyncio.sleep(HOUR)
        return await super().complete(request)


def tokens(outcome):
    total = outcome.ledger.total()
    return total.asked + total.output


def dollars(outcome):
    return PRICE.of_sums(outcome.ledger.total())


@settings(max_examples=120)
@given(
    name=st.sampled_from(["caps", "caps-r", "v1-infer", "pointwise", "listwise", "knockout", "round-robin"]),
    limit=st.integers(0, 12_000),
    total=st.integers(0, 40_000) | st.none(),
    lengths=st.lists(st.integers(0, 120), min_size=1, max_size=5),
    capacity=st.integers(1, 9),
)
def test_spending_never_passes_a_budget_and_there_is_always_an_answer(name, limit, total, lengths, capacity):
    outcomes = run(
        cases(4, n=6),
        strategy=make_strategy(name),
        lengths=lengths,
        capacity=capacity,
        case_budget=BudgetLimits(tokens=limit),
        total_budget=BudgetLimits(tokens=total),
    )
    assert len(outcomes) == 4
    for outcome in outcomes:
        assert tokens(outcome) <= limit
        assert sorted(outcome.selection.order) == list(range(6))
    if total is not None:
        assert sum(map(tokens, outcomes)) <= total


@settings(max_examples=60)
@given(
    limit=st.floats(0, 0.06),
    total=st.floats(0, 0.2),
    lengths=st.lists(st.integers(0, 120), min_size=1, max_size=5),
)
def test_neither_does_spending_in_dollars(limit, total, lengths):
    budgets = {"case_budget": BudgetLimits(usd=limit), "total_budget": BudgetLimits(usd=total)}
    outcomes = run(cases(4, n=6), lengths=lengths, **budgets)
    assert all(dollars(outcome) <= limit + 1e-9 for outcome in outcomes)
    assert sum(map(dollars, outcomes)) <= total + 1e-9
    assert all(outcome.selection is not None for outcome in outcomes)


@settings(max_examples=40)
@given(limit=st.integers(500, 9_000), lengths=st.lists(st.integers(0, 90), min_size=1, max_size=5))
def test_what_a_case_can_afford_does_not_depend_on_capacity_or_company(limit, lengths):
    budget = BudgetLimits(tokens=limit)
    together = run(cases(5), lengths=lengths, capacity=16, case_budget=budget)
    for case, outcome in zip(cases(5), together, strict=True):
        (alone,) = run([case], lengths=lengths, capacity=1, case_budget=budget)
        assert alone.selection == outcome.selection
        assert tokens(alone) == tokens(outcome)


def test_a_budget_that_is_enough_changes_nothing():
    free = run(cases(4))
    rich = run(cases(4), case_budget=BudgetLimits(tokens=10**7, usd=1000.0, seconds=1000))
    assert [outcome.selection for outcome in free] == [outcome.selection for outcome in rich]
    assert not any(outcome.selection.provisional for outcome in rich)


def test_a_budget_that_ends_midway_gives_a_better_answer_than_none():
    (poor,) = run(cases(1, n=16), case_budget=BudgetLimits(tokens=3_500))
    assert poor.selection.provisional
    assert poor.ledger.calls["E1"] > 0
    assert poor.ledger.unanswered["budget"] > 0


def test_a_judge_that_never_speaks_readably_still_leaves_an_answer():
    for name in ("caps", "pointwise", "listwise"):
        (mumbled,) = run(cases(1), strategy=make_strategy(name), lengths=[3])
        assert mumbled.selection is not None
        assert mumbled.ledger.malformed["no-tag"] > 0


def test_without_any_money_the_first_ranking_stands():
    (broke,) = run(cases(1), case_budget=BudgetLimits(tokens=0))
    assert broke.selection.provisional
    assert broke.contest.stopped == "budget"
    assert tokens(broke) == 0


def test_time_ends_a_case_and_a_run_with_an_answer():
    async def collect(**budgets):
        judge = LlmJudge(JudgingModel(SlowAfter(10, replying([0])), "m"), load_templates())
        engine = LocalEngine(judge, make_prepare(), capacity=lambda: 4, **budgets)
        return [outcome async for outcome in engine.run(cases(6, n=16), Caps(), seed=1)]

    for budgets in (
        {"case_budget": BudgetLimits(seconds=HOUR)},
        {"total_budget": BudgetLimits(seconds=HOUR)},
    ):
        outcomes = asyncio.run(collect(**budgets))
        assert len(outcomes) == 6
        assert all(outcome.selection is not None for outcome in outcomes)
        assert any(outcome.ledger.unanswered["time"] for outcome in outcomes)


async def test_what_was_paid_before_time_ended_is_in_the_ledger():
    judge = LlmJudge(JudgingModel(SlowAfter(1, lambda _: "hm"), "m"), load_templates())
    engine = LocalEngine(judge, make_prepare(), capacity=lambda: 1, case_budget=BudgetLimits(seconds=HOUR))
    (outcome,) = [outcome async for outcome in engine.run(cases(1, n=2), Caps(), seed=1)]
    assert outcome.ledger.unanswered == {"time": 1}
    assert outcome.ledger.total().billed > 100


async def test_a_call_that_does_not_fit_waits_while_others_may_give_back():
    total = RunBudget(BudgetLimits(tokens=100), None)
    first, second = (CaseBudget(BudgetLimits(), None, total) for _ in range(2))
    assert await first.reserve(Usage(60, 20)) is None
    waiting = asyncio.ensure_future(second.reserve(Usage(50, 20)))
    await asyncio.sleep(0)
    assert not waiting.done()
    first.settle(Usage(60, 20), Usage(20, 5), replayed=False)
    assert await waiting is None
    second.settle(Usage(50, 20), Usage(50, 20), replayed=False)
    assert await first.reserve(Usage(6, 0)) == Shortage("budget_total_tokens", 6, 5)
    assert await first.reserve(Usage(5, 0)) is None


async def test_what_the_journal_answers_is_free_for_the_run_but_not_for_the_case():
    total = RunBudget(BudgetLimits(tokens=100), None)
    budget = CaseBudget(BudgetLimits(tokens=150), None, total)
    for _ in range(2):
        assert await budget.reserve(Usage(60, 0)) is None
        budget.settle(Usage(60, 0), Usage(60, 0), replayed=True)
    assert total.account.tokens == 0
    assert await budget.reserve(Usage(60, 0)) == Shortage("budget_tokens", 60, 30)


async def test_a_stored_reply_needs_no_room_in_the_budget_of_the_run():
    total = RunBudget(BudgetLimits(tokens=10), None)
    budget = CaseBudget(BudgetLimits(tokens=100), None, total)
    assert await budget.reserve(Usage(60, 0)) == Shortage("budget_total_tokens", 60, 10)
    stored = budget.for_stored_replies()
    assert await stored.reserve(Usage(60, 0)) is None
    stored.settle(Usage(60, 0), Usage(60, 0), replayed=True)
    assert (total.account.tokens, total.account.reserved_tokens) == (0, 0)
    assert await budget.reserve(Usage(41, 0)) == Shortage("budget_tokens", 41, 40)


def test_dollars_need_a_price_and_limits_must_be_possible():
    with pytest.raises(SettingError, match="needs a price"):
        CaseBudget(BudgetLimits(usd=1.0), None, RunBudget(BudgetLimits(), None))
    for wrong in ({"tokens": -1}, {"usd": float("nan")}, {"seconds": float("inf")}):
        with pytest.raises(SettingError, match="budget of"):
            BudgetLimits(**wrong)
