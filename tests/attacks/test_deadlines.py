"""Work that would never end: budgets of seconds hold for all of it, and the first Ctrl-C ends it."""

import asyncio
import json
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from caps import Caps, Case, Verdict
from caps.core.types import Candidate, Message, Problem
from caps.engines.budget import BudgetLimits
from caps.engines.local import LocalEngine
from caps.evidence.signatures import LONGEST_PARSED
from caps.findings.answers import AnswerFinder
from caps.findings.base import TIME_ENDED, Findings, recall
from caps.findings.programs import BehaviourFinder
from caps.grading.math import MathGrader
from caps.journal.store import Journal
from caps.judging.preparation import LONG_CODE
from caps.judging.recorded import ScriptedJudge
from caps.models.base import Request
from caps.models.embedded import EmbeddedModel
from caps.models.weights import default_weights
from caps.session.parts import make_prepare
from caps.testing import Reply, ScriptedEndpoint, better_quality_wins
from caps.workers.texts import TextWorkers
from support.closing import closing
from support.sandboxing import needs_bubblewrap
from support.serving import served
from support.shell import CAPS, caps, clean, json_lines, split_words, start
from support.waiting import PATIENCE, until, wait_until

#: Which of these are equal, algebra cannot tell within any time.
SLOW_SUMS = [
    rf"\boxed{{\sum_{{k=1}}^{{10^7}} \frac{{1}}{{k^{{k^{{1/{i}}}}} + \sin k}}}}" for i in range(3, 7)
]  # slow to evaluate, and not too large to try


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def math_row(name, *candidates):
    return {"id": name, "domain": "math", "problem": "What is it?", "candidates": candidates}


def code_row(name, *candidates, **more):
    return {"id": name, "domain": "code", "problem": "Write it.", "candidates": candidates, **more}


def select(server, cases, *more):
    return ("select", cases, "--model m --base-url", server.url, "--no-journal --strategy caps", *more)


def test_a_budget_of_seconds_covers_algebra(tmp_path):
    cases = write(
        tmp_path / "c.jsonl", math_row("hard", *SLOW_SUMS), math_row("easy", "\\boxed{1}", "\\boxed{2}")
    )
    with ScriptedEndpoint(better_quality_wins) as server:
        done = caps(*select(server, cases, "--hard-evidence", "auto", "--budget-seconds", "4"))
    assert done.returncode in (0, 3), done.stderr  # 3: time ended before the last verdict, too
    assert [line["id"] for line in json_lines(done)] == ["hard", "easy"]
    assert json_lines(done)[0]["clusters"] == 4
    assert TIME_ENDED in done.stderr


@needs_bubblewrap
def test_a_budget_of_seconds_covers_programs_that_hang(tmp_path):
    tests = {"public": [{"input": "1", "output": "1"}]}
    hanging = [f"```python\nwhile True: pass  # {'x' * i}\nprint({i})\n```" for i in range(12)]
    cases = write(tmp_path / "c.jsonl", code_row("hangs", *hanging, tests=tests))
    with ScriptedEndpoint(better_quality_wins) as server:
        done = caps(*select(server, cases, "--hard-evidence", "auto", "--budget-seconds", "2"))
    assert done.returncode in (0, 3), done.stderr
    assert TIME_ENDED in done.stderr


def test_what_the_end_of_time_cut_short_is_recalled_and_looked_for_again(tmp_path):
    case = Case.of("p", [*SLOW_SUMS, "\\boxed{1/2}", "\\boxed{0.5}"], domain="math")

    async def look(findings, seconds):
        until = None if seconds is None else asyncio.get_running_loop().time() + seconds
        try:
            return await findings.find(case, until)
        finally:
            await findings.close()

    with Journal.open(tmp_path / "j.sqlite") as journal:
        cut = Findings({"math": AnswerFinder(MathGrader())}, journal)
        found = asyncio.run(look(cut, 0.0))
        assert cut.unusable == {TIME_ENDED: 1}
        assert found.candidates[4].found.cluster == found.candidates[5].found.cluster is not None
        assert recall(journal, cut.versions, case) == found
        grader = MathGrader(case_pairs=0)  # as good as all the time there is
        whole = Findings({"math": AnswerFinder(grader)}, journal)
        asyncio.run(look(whole, None))
        assert not whole.unusable
        assert asyncio.run(look(whole, None)) == recall(journal, whole.versions, case)


@pytest.mark.parametrize("settings", [{"case_pairs": 2}, {"case_seconds": 0.2, "seconds": 0.1}])
async def test_algebra_on_a_case_is_bounded_for_all_its_pairs_together(settings):
    answers = [rf"\sum_{{k=1}}^{{10^7}} \frac{{1}}{{k^{{k^{{1/{i}}}}} + \sin k}}" for i in range(3, 27)]

    grader = MathGrader(**{"seconds": 0.1, **settings})
    asked = []
    put = grader._workers.ask

    async def ask(question, **limits):
        asked.append(question)
        return await put(question, **limits)

    grader._workers.ask = ask
    try:
        classes, count = await grader.classes([*answers, "1/2", "0.5"]), len(asked)
    finally:
        await grader.close()
    assert classes == [*range(24), 24, 24]  # what is undecided is different; what is cheap is still told
    assert 1 <= count <= 4  # not 276


async def test_pairs_cut_short_for_one_case_are_decided_for_the_next():
    a, b = r"(x+1)^2", r"x^2+2x+1"

    async with closing(MathGrader(seconds=60, case_seconds=0)) as grader:
        assert await grader.classes([a, b]) == [0, 1]
        assert await grader.equal(a, b) is True


async def test_the_time_of_a_case_begins_before_it_is_looked_into():
    deadlines = []

    class Slow:
        version = "slow-1"

        async def find(self, case, until=None):
            deadlines.append(until - asyncio.get_running_loop().time())
            await asyncio.sleep(until - asyncio.get_running_loop().time())
            raise TimeoutError

        async def close(self):
            pass

    judge = ScriptedJudge(lambda _, __: Verdict(9, 3))
    findings = Findings({"general": Slow()})
    engine = LocalEngine(
        judge,
        make_prepare(),
        capacity=lambda: 2,
        case_budget=BudgetLimits(seconds=1.0),
        find=findings.find,
    )
    (outcome,) = [one async for one in engine.run([Case.of("p", ["a", "b"])], Caps(), seed=1)]
    unusable = findings.unusable
    assert outcome.failure is None
    assert unusable == {TIME_ENDED: 1}
    assert deadlines[0] <= 0.5  # half of it: the rest is for the judge


def test_a_case_that_cannot_be_prepared_in_its_time_fails_alone(tmp_path):
    long = [f"a{i};" * LONG_CODE for i in range(3)]
    short = math_row("short", "quality=0.1 \\boxed{1}", "quality=0.2 \\boxed{2}")
    cases = write(tmp_path / "c.jsonl", code_row("long", *long), short)
    with ScriptedEndpoint(better_quality_wins) as server:
        done = caps(*select(server, cases, "--budget-seconds", "0.001"))
    assert done.returncode == 1
    assert "long" in done.stderr
    assert "characters of text could not be read: the deadline passed first" in done.stderr
    assert json_lines(done)[-1]["id"] == "short"
    assert "Traceback" not in done.stderr


async def test_a_request_that_cannot_be_prepared_in_its_time_is_an_error_object():
    half = LONGEST_PARSED // 2 - 8  # programs of the greatest length that is parsed
    programs = ("a;" * place + "b;" + "a;" * (half - place) for place in range(16))
    body = {**code_row("1", *programs), "caps": {"seconds": 0.1}}

    async with ScriptedEndpoint(better_quality_wins) as stub, served(stub.url, model="m") as server:
        answer = await server(path="/v1/select", body=body)
    assert answer.status == 504, answer.body
    assert "could not be read within the time limit" in answer.json["error"]["message"]


def interrupted(process, ready, sign=signal.SIGINT):
    """How a command that was interrupted in the middle of something ends, and what it says."""
    wait_until(lambda: ready() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    process.send_signal(sign)
    _, error = process.communicate(timeout=PATIENCE)
    return process.returncode, error


def plugged_in(*words):
    """A command that finds the plug-ins of this folder."""
    environment = clean({"PYTHONPATH": str(Path(__file__).parent.parent)})
    return subprocess.Popen(
        [CAPS, *split_words(words)],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def assert_clean(code, error):
    assert code == 130, error
    assert "interrupted after 0 cases" in error
    for trouble in ("Traceback", "Unclosed", "never retrieved", "was destroyed"):
        assert trouble not in error


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_the_first_interrupt_ends_algebra(tmp_path, sign):
    cases = write(tmp_path / "c.jsonl", math_row("hard", *SLOW_SUMS))
    with ScriptedEndpoint(better_quality_wins) as server:
        words = select(server, cases, "--hard-evidence", "auto", "--confidence", "auto")
        code, error = interrupted(start(*words), lambda: server.requests > 0, sign)
        assert_clean(code, error)
        assert server.requests == 1, "log-probabilities were tried; no judge was asked"


@needs_bubblewrap
def test_the_first_interrupt_ends_programs_that_hang(tmp_path):
    tests = {"public": [{"input": "1", "output": "1"}]}
    hanging = [f"```python\nwhile True: pass  # {'x' * i}\nprint({i})\n```" for i in range(12)]
    cases = write(tmp_path / "c.jsonl", code_row("hangs", *hanging, tests=tests))
    with ScriptedEndpoint(better_quality_wins) as server:
        words = select(server, cases, "--hard-evidence", "auto", "--confidence", "auto")
        code, error = interrupted(start(*words), lambda: server.requests > 0)
        assert_clean(code, error)


def test_the_first_interrupt_ends_the_preparation_of_a_case(tmp_path):
    cases = write(
        tmp_path / "c.jsonl", code_row("long", f"endless {tmp_path / 'begun'}{' ' * LONG_CODE}", "b")
    )
    with ScriptedEndpoint(better_quality_wins) as server:
        words = select(server, cases, "--view", "partial=support.slow_views:endless")
        code, error = interrupted(plugged_in(*words), (tmp_path / "begun").exists)
        assert_clean(code, error)


def test_the_first_interrupt_ends_what_holds_up_the_event_loop_itself(tmp_path):
    cases = write(
        tmp_path / "c.jsonl", code_row("short", f"endless {tmp_path / 'begun'}", "b")
    )  # read inline
    with ScriptedEndpoint(better_quality_wins) as server:
        words = select(server, cases, "--view", "partial=support.slow_views:endless")
        code, error = interrupted(plugged_in(*words), (tmp_path / "begun").exists)
        assert code == 130, error
        assert "Traceback" not in error


def test_a_second_interrupt_ends_the_grace_and_leaves_no_connection_open(tmp_path):
    cases = write(tmp_path / "c.jsonl", math_row("1", "quality=0.1 \\boxed{1}", "quality=0.2 \\boxed{2}"))

    def held(body, number):
        return Reply("late", until=lambda: False) if "quality=" in str(body) else Reply("OK")

    with ScriptedEndpoint(held) as server:
        process = start(*select(server, cases))
        wait_until(lambda: server.requests > 0)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)  # the time of grace is 3 s: should both arrive at once, the first still ends it
        process.send_signal(signal.SIGINT)
        _, error = process.communicate()
        assert_clean(process.returncode, error)


async def test_no_call_goes_on_after_a_second_interrupt():
    begun, ended = [], []

    class Silent(ScriptedJudge):
        async def rule(self, prepared, ask, budget=None):
            begun.append(ask)
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(ask)

    engine = LocalEngine(
        Silent(lambda _, __: Verdict(9, 3)), make_prepare(), capacity=lambda: 4, grace=PATIENCE
    )

    async def run():
        return [one async for one in engine.run([Case.of("p", "abcdefgh")], Caps(), seed=1)]

    task = asyncio.create_task(run())
    await until(lambda: len(begun) == 4)
    for _ in range(2):  # the first begins the time of grace
        task.cancel()
        await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(map(str, ended)) == sorted(map(str, begun))


async def test_a_worker_is_gone_when_a_run_was_interrupted(tmp_path):
    texts = TextWorkers(count=1)
    prepare = make_prepare(views={"partial": "support.slow_views:endless"})
    case = Case("1", Problem.of("p"), (Candidate("endless" + " " * LONG_CODE), Candidate("b")), "code")
    engine = LocalEngine(ScriptedJudge(lambda _, __: Verdict(9, 3)), prepare, capacity=lambda: 1, texts=texts)

    async def run():
        return [one async for one in engine.run([replace(case)], Caps(), seed=1)]

    task = asyncio.create_task(run())
    while not texts._workers._busy:
        await asyncio.sleep(0.01)
    (worker,) = texts._workers._busy
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert worker.process.returncode == -signal.SIGKILL
    await texts.close()


async def test_a_finder_that_has_no_time_at_all_looks_at_nothing():
    case = Case(
        "1",
        Problem.of("p"),
        (Candidate("print(1)"),),
        "code",
        extra={"tests": {"public": [{"input": "1", "output": "1"}]}},
    )

    assert (
        await Findings({"code": BehaviourFinder()}).find(case, asyncio.get_running_loop().time())
    ).candidates[0].found is None


@pytest.mark.xdist_group("llama.cpp")
async def test_interrupts_while_weights_load_and_unload_leave_nothing_open():
    model = EmbeddedModel(default_weights(user_cache_path("caps")), context=256)
    request = Request((Message("user", "Hello"),), model.name, max_tokens=4)
    call = asyncio.create_task(model.complete(request))
    while model._starting is None:
        await asyncio.sleep(0)
    call.cancel()
    closing = asyncio.create_task(model.close())
    await asyncio.sleep(0)
    for _ in range(3):
        closing.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert call.cancelled()
    await asyncio.get_running_loop().shutdown_default_executor()  # where weights load, should they still
    assert model._server is None  # loaded, and let go again
    assert await model.close() is None
