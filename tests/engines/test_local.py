import asyncio
from dataclasses import replace

import pytest

from caps import Caps, Pairing, Unanswered, Verdict
from caps.core.errors import AccessError, InputError
from caps.core.types import Found
from caps.datasets.case_files import parse_case
from caps.engines.base import in_order
from caps.engines.budget import BudgetLimits
from caps.engines.local import LocalEngine
from caps.engines.scheduler import MAX_PREPARING, MAX_WAITING
from caps.judging.base import Ruling
from caps.session.parts import make_prepare
from caps.testing import QUALITY, case_line, spread
from support.waiting import until


class WatchfulJudge:
    """Better quality wins, after a while; remembers what was under way."""

    def __init__(self, delay=0.0, broken=(), unanswered=()):
        self.delay, self.broken, self.unanswered = delay, broken, unanswered
        self.busy = self.peak = 0
        self.log = []

    async def rule(self, prepared, ask, budget=None):
        self.log.append((prepared.case.id, ask))
        self.busy += 1
        self.peak = max(self.peak, self.busy)
        try:
            await asyncio.sleep(self.delay)
        finally:
            self.busy -= 1
        if prepared.case.id in self.broken:
            raise self.broken[prepared.case.id]
        if prepared.case.id in self.unanswered:
            return Ruling(Unanswered("timeout"))
        a, b = (float(QUALITY.search(prepared.evidence.view(one, ask.level))[1]) for one in ask.entrants)
        return Ruling(Verdict(9, 3) if a > b else Verdict(3, 9))


def cases(count, n=16):
    return [parse_case(case_line(f"case {i}", spread(n, i)), default_id="") for i in range(count)]


def run(judge, source, *, capacity=8, strategy=None, find=None):
    async def collect():
        engine = LocalEngine(judge, make_prepare(), capacity=lambda: capacity, find=find)
        return [outcome async for outcome in in_order(engine.run(source, strategy or Caps(), seed=1))]

    return asyncio.run(collect())


def test_every_case_gets_its_best_candidate_in_the_order_of_input():
    outcomes = run(WatchfulJudge(), cases(30))
    assert [outcome.name for outcome in outcomes] == [f"case {i}" for i in range(30)]
    for outcome in outcomes:
        assert outcome.prepared.case.candidates[outcome.selection.winner].correct
        assert outcome.ledger.calls == {"E1": 8, "E2": 10}


def test_calls_never_exceed_the_capacity_and_always_use_it():
    judge = WatchfulJudge(delay=0.002)
    run(judge, cases(12), capacity=5)
    assert judge.peak == 5


def test_the_selection_does_not_depend_on_capacity_or_company():
    together = {o.name: o.selection for o in run(WatchfulJudge(), cases(9), capacity=64)}
    for case in cases(9):
        (alone,) = run(WatchfulJudge(), [case], capacity=1)
        assert alone.selection == together[case.id]


def test_later_rounds_go_first():
    judge = WatchfulJudge()
    run(judge, cases(40), capacity=2)
    finals = [i for i, (_, ask) in enumerate(judge.log) if ask.level == 2]
    assert finals[0] < 20
    last_of_first = max(i for i, (name, _) in enumerate(judge.log) if name == "case 0")
    assert last_of_first < 40


class InWaves(WatchfulJudge):
    """Answers all calls that are under way at the same time."""

    def __init__(self):
        super().__init__()
        self.waves, self.answered = 0, asyncio.Event()

    async def rule(self, prepared, ask, budget=None):
        await self.answered.wait()
        return await super().rule(prepared, ask)

    async def answer(self):
        while True:
            for _ in range(200):  # until all that may start has started
                await asyncio.sleep(0)
            self.waves += 1
            self.answered.set()
            self.answered = asyncio.Event()


def waves(count, **limits):
    """How many waves of 64 calls these cases took."""

    async def play():
        judge = InWaves()
        answering = asyncio.create_task(judge.answer())
        engine = LocalEngine(judge, make_prepare(), capacity=lambda: 64, **limits)
        async for _ in engine.run(cases(count), Caps(), seed=1):
            pass
        answering.cancel()
        return judge.waves

    return asyncio.run(play())


def test_the_last_cases_do_not_end_the_run_with_calls_to_spare():
    assert waves(20) == 6  # 360 calls: 5.6 waves of 64


def test_with_a_total_budget_or_a_time_limit_cases_finish_first():
    assert waves(20, total_budget=BudgetLimits(tokens=10**9)) == 7
    assert waves(20, case_budget=BudgetLimits(seconds=1000)) == 7


def test_calls_that_share_slot_a_go_out_together():
    judge = WatchfulJudge()
    run(judge, cases(1), capacity=1)
    finals = [ask.a for _, ask in judge.log[-6:]]
    assert finals == sorted(finals)


async def test_a_case_comes_out_when_it_is_over_and_waits_for_nobody():
    class Silent(WatchfulJudge):
        async def rule(self, prepared, ask, budget=None):
            if prepared.case.id == "case 0":
                await last.wait()
            return await super().rule(prepared, ask)

    last = asyncio.Event()

    engine, seen = LocalEngine(Silent(), make_prepare(), capacity=lambda: 32), []
    async for outcome in engine.run(cases(5), Caps(), seed=1):
        seen.append(outcome.number)
        if len(seen) == 4:
            last.set()
    assert seen[-1] == 0


def test_cases_are_read_only_as_far_as_needed():
    read = 0

    def source():
        nonlocal read
        for case in cases(200, n=4):
            read += 1
            yield case

    async def first_only():
        engine = LocalEngine(WatchfulJudge(), make_prepare(), capacity=lambda: 4)
        async for outcome in engine.run(source(), Caps(), seed=1):
            return outcome

    assert asyncio.run(first_only()).selection is not None
    assert read < 20


async def test_a_capacity_that_grows_is_used():
    judge, allowed = WatchfulJudge(delay=0.001), iter([1] * 5 + [20] * 10_000)

    engine = LocalEngine(judge, make_prepare(), capacity=lambda: next(allowed))
    assert len([outcome async for outcome in engine.run(cases(10), Caps(), seed=1)]) == 10
    assert judge.peak == 20


async def test_a_capacity_that_shrinks_is_kept_to():
    judge, allowed = WatchfulJudge(delay=0.002), [20]

    engine = LocalEngine(judge, make_prepare(), capacity=lambda: allowed[0])
    async for outcome in engine.run(cases(30), Caps(), seed=1):
        if outcome.number == 0:
            assert judge.peak == 20
            allowed[0] = 2
            await until(lambda: judge.busy <= 2)
            judge.peak = 0
    assert judge.peak == 2


def test_a_bad_line_and_a_judge_that_breaks_fail_their_case_alone():
    judge = WatchfulJudge(broken={"case 1": RuntimeError("boom")})
    a, b, c = cases(3)
    outcomes = run(judge, [a, InputError("file:2: not JSON"), b, c])
    assert [outcome.failure for outcome in outcomes] == [None, "file:2: not JSON", "RuntimeError: boom", None]
    assert outcomes[3].selection is not None


def test_a_source_that_breaks_off_ends_with_the_reason():
    def source():
        yield from cases(2)
        raise InputError("cases.jsonl.gz: broken archive")

    outcomes = run(WatchfulJudge(), source())
    assert [outcome.failure for outcome in outcomes] == [None, None, "cases.jsonl.gz: broken archive"]


def test_a_case_without_answers_has_failed_and_one_with_some_is_provisional():
    (silent,) = run(WatchfulJudge(unanswered={"case 0"}), cases(1))
    assert silent.failure == "none of its 18 judge calls was answered: timeout (18)"
    assert silent.selection is None

    class Deaf(WatchfulJudge):
        async def rule(self, prepared, ask, budget=None):
            ruling = await super().rule(prepared, ask, budget)
            return Ruling(Unanswered("server"), ruling.attempts) if ask.level == 1 else ruling

    (partly,) = run(Deaf(), cases(1))
    assert partly.selection.provisional
    assert partly.ledger.unanswered == {"server": 8}


def test_what_would_fail_every_call_ends_the_run():
    with pytest.raises(AccessError):
        run(WatchfulJudge(broken={"case 0": AccessError("no key")}), cases(5))


async def leave_early(judge, **more):
    """Leave a run while eight calls are under way; how many were seen in the end."""
    engine, seen = LocalEngine(judge, make_prepare(), capacity=lambda: 8, **more), []
    engine.watch = seen.append
    running = engine.run(cases(3), Caps(), seed=1)
    task = asyncio.ensure_future(anext(running))
    await until(lambda: judge.busy == 8)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await running.aclose()
    return len(seen)


def test_leaving_early_cancels_what_is_under_way():
    judge = WatchfulJudge(delay=30)
    assert asyncio.run(leave_early(judge)) == 0
    assert (judge.peak, judge.busy) == (8, 0)


def test_with_grace_what_is_under_way_comes_in_and_nothing_more_is_asked():
    judge = WatchfulJudge(delay=0.2)
    assert asyncio.run(leave_early(judge, grace=60)) == 8 == len(judge.log)


def test_cases_without_a_question_pass_in_numbers():
    same = parse_case(case_line("same", [0.5]), default_id="")
    many = [replace(same, id=str(i)) for i in range(MAX_WAITING + 500)]
    outcomes = run(WatchfulJudge(), many, capacity=2)
    assert [outcome.name for outcome in outcomes] == [case.id for case in many]
    assert all(not outcome.judged for outcome in outcomes)


def test_one_slow_case_does_not_hold_up_the_others():
    class OneSlow(WatchfulJudge):
        async def rule(self, prepared, ask, budget=None):
            if prepared.case.id == "case 0" and ask.level == 1:
                await until(lambda: "case 59" in [name for name, _ in self.log])
            return await super().rule(prepared, ask, budget)

    judge = OneSlow()
    run(judge, cases(60), capacity=16)
    assert isinstance(judge.log[0][1], Pairing)


class Looking:
    """Finds that every other candidate is like the one before it, after a while; remembers how many at once."""

    def __init__(self, broken=()):
        self.busy = self.peak = 0
        self.broken = broken

    async def __call__(self, case, until):
        self.busy += 1
        self.peak = max(self.peak, self.busy)
        await asyncio.sleep(0.001 * (len(case.id) % 3))
        self.busy -= 1
        if case.id in self.broken:
            raise ValueError("lost my glasses")
        merged = [replace(one, found=Found(cluster=f"{i // 2}")) for i, one in enumerate(case.candidates)]
        return replace(case, candidates=tuple(merged))


def test_cases_are_looked_into_first_a_few_at_once_and_come_out_in_order():
    looking = Looking()

    async def collect():
        prepare = make_prepare(None, {"signature": "clusters"})
        engine = LocalEngine(WatchfulJudge(), prepare, capacity=lambda: 8, find=looking)
        return [outcome async for outcome in in_order(engine.run(cases(60), Caps(), seed=1))]

    outcomes = asyncio.run(collect())
    assert [outcome.name for outcome in outcomes] == [f"case {i}" for i in range(60)]
    assert all(outcome.ledger.calls == {"E1": 4, "E2": 6} for outcome in outcomes)
    assert 2 <= looking.peak <= MAX_PREPARING


def test_a_case_that_cannot_be_looked_into_fails_alone():
    outcomes = run(WatchfulJudge(), cases(9), find=Looking(broken=("case 4",)))
    assert [outcome.name for outcome in outcomes if outcome.failure] == ["case 4"]
    assert outcomes[4].failure == "ValueError: lost my glasses"
    assert all(outcome.selection for outcome in outcomes if outcome.name != "case 4")
