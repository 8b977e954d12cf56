"""Wrong use of the Python API: a clear error or a result with one, nothing lost, the journal intact."""

import asyncio
import gc
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest

import caps
from caps.core.errors import UnreachableError
from caps.testing import Reply, ScriptedEndpoint, Status, cases, is_judge, stated_quality
from support.waiting import PATIENCE


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in ("CAPS_MODEL", "CAPS_BASE_URL", "OPENAI_BASE_URL", "CAPS_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


class Better:
    """A judge that reads what is written after `quality=`, and keeps its answers; `fails` breaks it."""

    full_views = True
    judge_id = "better-1"

    def __init__(self, fails=None):
        self.fails, self.asked = fails, 0

    def __call__(self, problem, a, b):
        self.asked += 1
        if self.fails is not None and "case 1" in problem:
            return self.fails()
        first, second = stated_quality(a), stated_quality(b)
        return "TIE" if first == second else "A" if first > second else "B"


def raising():
    raise RuntimeError("the judge broke")


def assert_intact(path):
    with sqlite3.connect(path) as journal:
        assert journal.execute("pragma integrity_check").fetchall() == [("ok",)]
    journal.close()


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        (raising, "RuntimeError: the judge broke"),
        (lambda: "neither of them", "malformed: returned 'neither of them'"),
        (lambda: None, "malformed: returned None"),
        (lambda: caps.Verdict(11, 0), "malformed"),
        (lambda: threading.Event().wait(), "timeout"),
    ],
    ids=["raises", "says nonsense", "returns nothing", "rates too high", "hangs"],
)
def test_a_judge_that_fails_in_one_case_spoils_no_other_and_what_it_answered_is_kept(fails, words, tmp_path):
    made, journal = cases(3), tmp_path / "journal.sqlite"
    results = caps.select_many_sync(
        made, judge=Better(fails), journal=journal, timeout=3 if words == "timeout" else 60
    )
    assert [one.error is None for one in results] == [True, False, True]
    assert words in results[1].error
    assert_intact(journal)
    again = Better()
    healed = caps.select_many_sync(made, judge=again, journal=journal)
    assert [one.correct for one in healed] == [True] * 3
    assert again.asked == sum(healed[1].ledger.calls.values())  # only the case that had failed


def test_where_the_generator_of_cases_raises_the_journal_has_all_that_was_answered(tmp_path):
    made, journal, judge = cases(4), tmp_path / "journal.sqlite", Better()

    def cut_off():
        yield from made
        raise OSError("the disk is gone")

    results = caps.select_many_sync(cut_off(), judge=judge, journal=journal)
    assert [one.error is None for one in results] == [True] * 4 + [False]
    assert results[-1].error == "the cases ended early, after 4: OSError: the disk is gone"
    assert_intact(journal)
    again = Better()
    assert [one.winner for one in caps.select_many_sync(made, judge=again, journal=journal)] == [
        one.winner for one in results[:4]
    ]
    assert again.asked == 0


def rising(body, number):
    """Answers of rising quality; nobody asks for a verdict."""
    assert not is_judge(body)
    return Reply(f"with quality={0.1 + 0.2 * number:.1f}, that it is \\boxed{{{number}}}")


@pytest.mark.parametrize("call", ["select", "best", "many", "solve"])
def test_every_sync_function_works_inside_a_running_loop(call):
    case = cases(1)[0]
    texts = [one.text for one in case.candidates]

    async def notebook():
        with ScriptedEndpoint(rising) as server:
            return {
                "select": lambda: caps.select_sync(case, judge=Better()).correct,
                "best": lambda: caps.best_sync("?", texts, judge=Better(), domain="math").text == texts[best],
                "many": lambda: caps.select_many_sync([case], judge=Better())[0].correct,
                "solve": lambda: solved(
                    caps.solve_sync("?", n=4, model="m", base_url=server.url, judge=Better())
                ),
            }[call]()

    best = [one.correct for one in case.candidates].index(True)
    assert asyncio.run(notebook())


def solved(found):
    """Whether the best of the generated answers was chosen."""
    return stated_quality(found.text) == max(stated_quality(one.text) for one in found.case.candidates)


def test_solve_takes_a_function_as_the_judge_and_asks_the_model_for_answers_only():
    judge = Better()
    with ScriptedEndpoint(rising) as server:
        found = caps.solve_sync("What is it?", n=4, model="m", base_url=server.url, judge=judge)
        assert server.requests == 4
    assert solved(found)
    assert judge.asked == sum(found.selected.ledger.calls.values()) > 0
    with pytest.raises(caps.SettingError, match="no endpoint"):
        caps.solve_sync("What is it?", judge=judge)  # it judges, but cannot answer


def test_solve_whose_judge_fails_says_why():
    with (
        ScriptedEndpoint(lambda _, number: Reply(f"\\boxed{{{number}}}")) as server,
        pytest.raises(caps.CapsError, match="RuntimeError: the judge broke"),
    ):
        caps.solve_sync(
            "?", n=3, model="m", base_url=server.url, judge=lambda *_: raising(), strategy="knockout"
        )


def test_a_misspelt_variable_is_refused_as_on_the_command_line(monkeypatch):
    monkeypatch.setenv("CAPS_STRATGY", "caps")
    for work in (
        lambda: caps.select_sync(cases(1)[0], judge=Better()),
        lambda: caps.select_many_sync(cases(1), judge=Better()),
        lambda: caps.solve_sync("?"),
    ):
        with pytest.raises(caps.SettingError, match="variable CAPS_STRATGY: no such setting; did you mean"):
            work()
    monkeypatch.delenv("CAPS_STRATGY")
    monkeypatch.setenv("CAPS_OF_SOMEONE_ELSE", "1")
    assert caps.select_sync(cases(1)[0], judge=Better()).correct


def test_what_goes_wrong_is_raised_also_out_of_a_running_loop():
    async def notebook(**where):
        return caps.select_sync(cases(1)[0], model="m", **where)

    with pytest.raises(UnreachableError, match="no server answers at"):
        asyncio.run(notebook(base_url="http://127.0.0.1:9/v1", confidence="auto"))
    with ScriptedEndpoint([Reply("OK"), Status(400, "no")]) as server, pytest.raises(caps.CapsError):
        caps.select_sync(cases(1)[0], model="m", base_url=server.url, confidence="auto")


INTERRUPTED = """
import asyncio, itertools, os, signal, sys, threading, time
import caps

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start its jobs with interrupts ignored
numbers, calls = itertools.count(1), 0  # a counter of its own: several threads judge

def judge(problem, a, b):
    global calls
    calls = number = next(numbers)
    if number == 3:
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.05)
    return "A"

def judging():
    return any(thread.name == "caps judge" for thread in threading.enumerate())

judge.judge_id = "first"
cases = [caps.Case.of("?", [f"{n} {i}" for i in range(8)], name=str(n)) for n in range(4000)]

async def notebook():
    try:
        caps.select_many_sync(cases, judge=judge, journal=sys.argv[1])
    except KeyboardInterrupt:
        while judging():
            time.sleep(0.01)  # threads of calls that were under way cannot be stopped
        seen = calls
        time.sleep(0.5)
        print("interrupted", "and ended" if calls == seen < 4000 else f"but went on: {seen} calls, then {calls}")

# As a notebook's kernel does: the signal raises in the cell that is running.
loop = asyncio.new_event_loop()
loop.run_until_complete(notebook())
"""


def test_interrupting_a_cell_of_a_notebook_ends_the_run_and_keeps_what_was_answered(tmp_path):
    journal = tmp_path / "journal.sqlite"
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, journal],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout == "interrupted and ended\n", done.stderr
    assert done.returncode != -signal.SIGINT
    assert_intact(journal)


@pytest.mark.parametrize("is_failing", [False, True])
def test_the_cycle_collector_runs_less_often_during_a_call_and_is_set_back(is_failing):
    before, seen = gc.get_threshold(), []

    def judge(problem, a, b):
        seen.append(gc.get_threshold())
        return "nonsense" if is_failing else "A"

    (result,) = caps.select_many_sync(cases(1), judge=judge)
    assert (result.error is not None) == is_failing
    assert seen[0][0] > before[0]
    assert gc.get_threshold() == before
    gc.set_threshold(50_000, 5, 5)  # a program that keeps it from running is left alone
    try:
        seen.clear()
        caps.select_many_sync(cases(1), judge=judge)
        assert {*seen, gc.get_threshold()} == {(50_000, 5, 5)}
    finally:
        gc.set_threshold(*before)


@pytest.mark.parametrize(
    ("keywords", "named"),
    [
        (
            {"judge": "reward", "model": "m", "base_url": "http://127.0.0.1:9", "strategy": "caps"},
            "needs reward_api",
        ),
        ({"model": "m", "base_url": "http://127.0.0.1:9", "budget_usd": 1}, "price_input"),
        ({"base_url": "http://127.0.0.1:9"}, "give model"),
    ],
)
def test_errors_name_keywords_and_not_options_of_the_command_line(keywords, named):
    for call in (caps.select_sync, lambda case, **more: caps.select_many_sync([case], **more)):
        with pytest.raises(caps.CapsError) as error:
            call(cases(1)[0], **keywords)
        assert named in str(error.value)
        assert "--" not in str(error.value)
