"""One mechanism: live, resumed, replayed and interleaved runs reach the same selections."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from caps.engines.base import CaseRun
from caps.engines.budget import BudgetLimits, CaseBudget, RunBudget
from caps.engines.local import LocalEngine, fast_forward
from caps.journal.store import Journal
from caps.judging.llm import JudgeSettings, JudgingModel, LlmJudge
from caps.models.journaled import JournaledModel, ReplayedModel
from caps.models.scripted import ScriptedModel
from caps.session.parts import load_templates, make_prepare, make_strategy
from caps.testing import cases
from support.replying import replying

SETTINGS = JudgeSettings(max_tokens=300)


def judge_over(model):
    return LlmJudge(JudgingModel(model, "m"), load_templates(), SETTINGS)


def live(journal, lengths, strategy, *, capacity, budget, stop_after=None):
    """Run on a journal; leave after some outcomes if told to. Selections so far, and calls made."""

    async def play():
        model = ScriptedModel(replying(lengths))
        engine = LocalEngine(
            judge_over(JournaledModel(model, journal)),
            make_prepare(),
            capacity=lambda: capacity,
            case_budget=budget,
        )
        found, running = {}, engine.run(cases(6), strategy, seed=3)
        async for outcome in running:
            found[outcome.name] = outcome.selection
            if len(found) == stop_after:
                break
        await running.aclose()
        return found, model.calls

    return asyncio.run(play())


def replay(journal, strategy, budget):
    """Fast-forward every case; selections and how much is open."""
    judge, found, missing = judge_over(ReplayedModel(journal)), {}, 0
    for number, case in enumerate(cases(6)):
        play = CaseRun(
            number,
            make_prepare()(case),
            strategy,
            3,
            CaseBudget(budget, None, RunBudget(BudgetLimits(), None)),
        )
        missing += len(fast_forward(play, judge))
        if play.round is None:
            found[case.id] = play.outcome.selection
    return found, missing


@settings(max_examples=10)
@given(
    name=st.sampled_from(["caps-r", "caps-plus", "v1-infer", "pointwise", "listwise"]),
    lengths=st.lists(st.integers(0, 80), min_size=1, max_size=5),
    stop_after=st.integers(1, 6),
    limit=st.none() | st.integers(2_000, 12_000),
)
def test_live_resumed_replayed_and_interleaved_runs_select_the_same(name, lengths, stop_after, limit):
    strategy, budget = make_strategy(name), BudgetLimits(tokens=limit)
    with tempfile.TemporaryDirectory() as folder:
        journals = [Journal.open(Path(folder) / f"{i}.sqlite") for i in range(3)]
        whole, calls = live(journals[0], lengths, strategy, capacity=8, budget=budget)

        part, before = live(journals[1], lengths, strategy, capacity=3, budget=budget, stop_after=stop_after)
        resumed, after = live(journals[1], lengths, strategy, capacity=5, budget=budget)
        assert resumed == whole
        assert part == {case: whole[case] for case in part}
        assert after <= calls - (before - 3), "only what was in flight when it left may be asked again"

        replayed, missing = replay(journals[0], strategy, budget)
        assert (replayed, missing) == (whole, 0)

        async def interleaved():
            runs = []
            for capacity in (2, 7):
                model = JournaledModel(ScriptedModel(replying(lengths)), journals[2])
                engine = LocalEngine(
                    judge_over(model), make_prepare(), capacity=lambda c=capacity: c, case_budget=budget
                )
                runs.append(engine)

            async def collect(engine):
                return {o.name: o.selection async for o in engine.run(cases(6), strategy, seed=3)}

            return await asyncio.gather(*map(collect, runs))

        assert asyncio.run(interleaved()) == [whole, whole]
        for journal in journals:
            journal.close()


def test_what_is_not_recorded_is_open_and_the_contest_waits_there(tmp_path):
    strategy, budget = make_strategy("caps"), BudgetLimits()
    with Journal.open(tmp_path / "j.sqlite") as journal:
        found, missing = replay(journal, strategy, budget)
        assert found == {}
        assert missing == 6 * 4
        live(journal, [0], strategy, capacity=4, budget=budget)
        assert replay(journal, strategy, budget)[1] == 0
        assert replay(journal, make_strategy("v1-infer"), budget)[1] > 0
