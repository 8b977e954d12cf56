"""A Python function as the judge, and all that can go wrong in one."""

import asyncio
import subprocess
import sys
import threading

import pytest

import caps
from caps.judging.callables import CallableJudge
from caps.judging.recorded import ScriptedJudge
from caps.testing import cases, judge_by_quality, stated_quality
from support.waiting import PATIENCE


async def better_async(problem, a, b):
    await asyncio.sleep(0)
    return judge_by_quality(problem, a, b)


better_async.full_views = True


class Object:
    """A judge with a state, which also rates and picks."""

    full_views = True

    def __init__(self):
        self.asked = 0

    def __call__(self, problem, a, b):
        self.asked += 1
        return judge_by_quality(problem, a, b), caps.Usage(100, 5)

    def rate(self, problem, a):
        self.asked += 1
        return 1 + 9 * stated_quality(a)

    async def pick(self, problem, shown):
        self.asked += 1
        return max(range(len(shown)), key=lambda i: stated_quality(shown[i]))


CASE = cases(1)[0]
BEST = [one.correct for one in CASE.candidates].index(True)


@pytest.mark.parametrize("judge", [judge_by_quality, better_async, Object()], ids=["sync", "async", "object"])
@pytest.mark.parametrize("strategy", ["posterior", "caps-r", "v1-infer", "knockout", "round-robin"])
def test_a_function_judges_for_every_strategy_that_compares(judge, strategy):
    assert caps.select_sync(CASE, judge=judge, strategy=strategy).winner == BEST


def test_a_plain_function_that_returns_a_coroutine_is_awaited():
    def judge(*texts):
        return better_async(*texts)

    judge.full_views = True
    assert caps.select_sync(CASE, judge=judge).winner == BEST


def test_a_verdict_with_ratings_is_taken_as_it_is():
    def rated(problem, a, b):
        return caps.Verdict(1 + 9 * stated_quality(a), 1 + 9 * stated_quality(b))

    rated.full_views = True
    assert caps.select_sync(CASE, judge=rated).winner == BEST


def seen_by(**attributes):
    seen = set()

    def judge(problem, a, b):
        seen.update((a, b))
        return "A"

    vars(judge).update(attributes)
    code = [f"I think about {i}.\n```python\ndef f():\n    return {i}\n```" for i in range(6)]
    caps.select_sync(
        caps.Case.of("Write f.", code, domain="code"), judge=judge, strategy="caps", hard_evidence="off"
    )
    return seen, len(code)


def test_it_sees_the_views_of_the_level_asked_or_full_ones_if_it_says_so():
    by_level, count = seen_by()
    always_full, _ = seen_by(full_views=True)
    assert len(always_full) == count
    assert by_level - always_full  # partial views, at E1
    assert by_level & always_full  # full ones, at E2


def test_what_it_costs_is_counted_and_budgets_hold():
    judge = Object()
    result = caps.select_sync(CASE, judge=judge, price_input=1.0, price_output=2.0)
    assert result.tokens == 100 * judge.asked
    assert result.usd == pytest.approx(judge.asked * (100 * 1.0 + 5 * 2.0) / 1e6)
    limited = caps.select_sync(
        CASE, judge=Object(), strategy="round-robin", budget_tokens=1000, max_connections=1
    )
    assert limited.selection.provisional
    assert limited.tokens <= 1000 + 105


@pytest.mark.parametrize(("strategy", "kind"), [("pointwise", "rating"), ("listwise", "pick")])
def test_a_strategy_that_asks_for_something_else_is_refused_before_anything_runs(strategy, kind):
    asked = []
    with pytest.raises(caps.SettingError, match=f"asks the judge for a {kind}"):
        caps.select_sync(CASE, judge=lambda *texts: asked.append(texts), strategy=strategy)
    assert not asked
    assert caps.select_sync(CASE, judge=Object(), strategy=strategy).winner == BEST


class BoomError(Exception):
    def __str__(self):
        return "the server said\x1b[2J no" + "!" * 1000


def raises(error):
    def judge(problem, a, b):
        raise error

    return judge


def raises_async(error):
    async def judge(problem, a, b):
        raise error

    return judge


@pytest.mark.parametrize("make", [raises, raises_async])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no key"), "ValueError: no key"),
        (TimeoutError("its own"), "TimeoutError: its own"),
        (caps.ModelError("refused"), "ModelError: refused"),
        (BoomError(), "BoomError: the server said"),
    ],
    ids=["value", "timeout", "model", "long"],
)
def test_an_exception_leaves_the_ask_unanswered_with_the_reason(make, error, words):
    result = caps.select_many_sync([CASE], judge=make(error))[0]
    assert words in result.error
    assert "\x1b" not in result.error
    assert all(len(reason) <= 200 for reason in result.ledger.unanswered)
    with pytest.raises(caps.CapsError, match=words.partition(":")[0]):
        caps.select_sync(CASE, judge=make(error))


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration("x")])
def test_a_function_that_wants_to_end_the_program_in_its_thread_does_not(error):
    assert type(error).__name__ in caps.select_many_sync([CASE], judge=raises(error))[0].error


NONSENSE = [
    None, "", "C", "maybe A", 1, True, b"A", [], ("A",), ("A", 3), {"winner": "A"}, object(), caps.Verdict(0, 11),
    caps.Verdict(float("nan"), 5), caps.Verdict("9", 3), caps.Unanswered("no"), ("A", caps.Usage(-1, 0)), lambda: "A",
]  # fmt: skip


@pytest.mark.parametrize("returned", NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense_is_unanswered_with_a_clear_reason(returned):
    result = caps.select_many_sync([CASE], judge=lambda *_: returned)[0]
    assert "malformed: " in result.error
    assert result.winner is None


@pytest.mark.parametrize("word", ["a", " B ", "Tie"])
def test_a_word_may_be_written_as_one_likes(word):
    assert caps.select_sync(CASE, judge=lambda *_: word).error is None


def test_a_single_failure_does_not_spoil_the_case():
    failing = threading.Event()

    def judge(problem, a, b):
        if not failing.is_set():
            failing.set()
            raise OSError("once")
        return judge_by_quality(problem, a, b)

    judge.full_views = True
    result = caps.select_sync(CASE, judge=judge, strategy="round-robin")
    assert result.winner is not None
    assert result.to_dict()["causes"] == {"OSError: once": 1}


def test_a_blocking_function_does_not_stop_the_others():
    """Each call waits until another has begun: one at a time they would wait for ever."""
    both = threading.Barrier(2, timeout=60)

    def judge(problem, a, b):
        both.wait()
        return "A"

    case = caps.Case.of("?", ["w", "x", "y", "z"])  # six pairs: an even number of calls
    result = caps.select_sync(case, judge=judge, strategy="round-robin")
    assert result.error is None


def test_a_function_that_hangs_is_given_up_and_the_program_ends():
    words = """
import threading, caps
case = caps.Case.of("?", ["x", "y"])
result = caps.select_many_sync([case], judge=lambda problem, a, b: threading.Event().wait(), timeout=0.1)[0]
print(result.error)
"""
    done = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert "timeout" in done.stdout


def test_an_async_function_that_hangs_is_cancelled():
    cancelled = []

    async def judge(problem, a, b):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(problem)
            raise

    result = caps.select_many_sync([CASE], judge=judge, timeout=0.1)[0]
    assert "timeout" in result.error
    assert cancelled


def test_the_time_of_a_case_holds_for_a_function_too():
    async def judge(problem, a, b):
        await asyncio.Event().wait()

    result = caps.select_sync(CASE, judge=judge, budget_seconds=0.2)
    assert result.selection.provisional


# The journal


def test_answers_are_kept_only_under_a_judge_id(tmp_path):
    for judge_id, asked_again in ((None, True), ("better-1", False)):
        judge = Object()
        if judge_id:
            judge.judge_id = judge_id
        kept = {"judge": judge, "journal": tmp_path / f"{judge_id}.sqlite"}
        first = caps.select_sync(CASE, **kept)
        asked = judge.asked
        again = caps.select_sync(CASE, **kept)
        assert (judge.asked > asked) is asked_again
        assert again.winner == first.winner
        assert again.tokens == first.tokens
        assert (again.ledger.total().billed > 0) is asked_again


def test_another_judge_id_is_another_judge(tmp_path):
    first, second = Object(), Object()
    first.judge_id, second.judge_id = "one", "two"
    for judge in (first, second):
        caps.select_sync(CASE, judge=judge, journal=tmp_path / "journal.sqlite")
    assert second.asked == first.asked > 0


@pytest.mark.parametrize("strategy", ["pointwise", "listwise"])
def test_ratings_and_picks_are_kept_too(strategy, tmp_path):
    judge = Object()
    judge.judge_id = "kept"
    kept = {"judge": judge, "journal": tmp_path / "journal.sqlite", "strategy": strategy}
    first = caps.select_sync(CASE, **kept)
    asked = judge.asked
    assert caps.select_sync(CASE, **kept).order == first.order
    assert judge.asked == asked


def test_what_was_not_answered_is_not_kept(tmp_path):
    judge = raises(ValueError("down"))
    judge.judge_id = "flaky"
    kept = {"journal": tmp_path / "journal.sqlite"}
    assert caps.select_many_sync([CASE], judge=judge, **kept)[0].error is not None
    better_now = Object()
    better_now.judge_id = "flaky"
    assert caps.select_sync(CASE, judge=better_now, **kept).winner == BEST


# Judges that are objects, and things that are no judges


def test_a_session_takes_a_judge_object_and_a_function():
    scripted = ScriptedJudge(
        lambda prepared, ask: caps.Verdict(
            *(10 if prepared.case.candidates[one].correct else 1 for one in ask.entrants)
        )
    )

    async def winners(judge):
        objects, config = caps.Objects(judge=judge), caps.RunConfig(strategy="round-robin")
        async with caps.open_session(caps.resolve(config, objects=objects)) as session:
            return [outcome.selection.winner async for outcome in session.run(cases(3))]

    wanted = [[one.correct for one in case.candidates].index(True) for case in cases(3)]
    for judge in (scripted, judge_by_quality):
        assert asyncio.run(winners(judge)) == wanted


class HalfAJudge:
    async def rule(self, prepared, ask, budget): ...


@pytest.mark.parametrize(
    ("judge", "words"),
    [
        ("qwen3-14b", "no judge is called"),
        (HalfAJudge(), "no method 'max_usage'"),
        (HalfAJudge, "is a class"),
        (type("Wide", (Object,), {"connections": 0})(), "connections = 0"),
        (type("Named", (Object,), {"judge_id": 7})(), "judge_id = 7"),
    ],
    ids=["text", "half", "class", "connections", "id"],
)
def test_what_is_no_judge_is_refused_with_what_is_missing(judge, words):
    with pytest.raises(caps.SettingError, match=words):
        caps.select_sync(CASE, judge=judge)


def test_a_function_cannot_judge_in_batches_or_on_a_cluster():
    async def run(engine):
        objects, config = (
            caps.Objects(judge=judge_by_quality),
            caps.RunConfig(engine=engine, journal="unused.sqlite"),
        )
        async with caps.open_session(caps.resolve(config, objects=objects)) as session:
            return [outcome async for outcome in session.run([CASE])]

    for engine in ("batch", "ray"):
        with pytest.raises(caps.SettingError, match="cannot be the judge"):
            asyncio.run(run(engine))


def test_its_answers_say_what_it_can_be_asked():
    assert CallableJudge(judge_by_quality).answers == {"pair"}
    assert CallableJudge(Object()).answers == {"pair", "rating", "pick"}
