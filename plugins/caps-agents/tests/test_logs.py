"""Runs of agents in the formats of the tools that write them, each made here after its published layout."""

import json

import pytest

from caps import Case, InputError
from caps.datasets.case_files import parse_row
from caps.datasets.imports import merge, open_cases
from caps_agents.runs import Call, final_state, read_run, run_full, run_summary
from support.logs import archive

DIFF = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n"
TASK = "Set a to 2 in x.py."


def call(command):
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    return {"id": "1", "type": "function", "function": function}


CHAT = [
    {"role": "system", "content": "You are an agent."},
    {"role": "user", "content": TASK},
    {"role": "assistant", "content": "I look at the file.", "tool_calls": [call("cat x.py")]},
    {"role": "tool", "tool_call_id": "1", "content": '{"returncode": 0, "output": "a = 1\\n"}'},
    {"role": "assistant", "content": None, "tool_calls": [call("sed -i s/1/2/ y.py")]},
    {"role": "tool", "tool_call_id": "1", "content": '{"returncode": 2, "output": "sed: no such file"}'},
    {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
]
ATIF = {
    "schema_version": "ATIF-v1.4",
    "session_id": "task-7",
    "agent": {"name": "a", "model_name": "m"},
    "steps": [
        {"step_id": 1, "source": "user", "message": TASK},
        {
            "step_id": 2, "source": "agent", "message": "I look at the file.", "reasoning_content": "Hm.",
            "tool_calls": [{"tool_call_id": "c", "function_name": "bash", "arguments": {"keystrokes": "cat x.py"}}],
            "observation": {"results": [{"source_call_id": "c", "content": "a = 1\n"}]},
        },
        {"step_id": 3, "source": "agent", "message": "Done."},
    ],
}  # fmt: skip
MINI = {
    "instance_id": "task-7",
    "info": {"exit_status": "Submitted", "submission": DIFF},
    "messages": [*CHAT, {"role": "exit", "content": DIFF}],
    "trajectory_format": "mini-swe-agent-1.1",
}
SWE_AGENT = {
    "history": [{"role": "system", "content": "s"}, {"role": "user", "content": TASK}],
    "trajectory": [
        {"thought": "I look at the file.", "action": "cat x.py\n", "observation": "a = 1", "response": "..."},
        {"thought": "Submit.", "action": "submit", "observation": DIFF},
    ],
    "info": {"exit_status": "submitted (exit_cost)", "submission": DIFF},
}
OPENHANDS = {
    "instance_id": "task-7",
    "instruction": TASK,
    "history": [
        {"id": 1, "source": "user", "action": "message", "args": {"content": TASK}},
        {"id": 2, "source": "agent", "action": "run", "args": {"command": "cat x.py", "thought": "I look at the file.", "blocking": False}},
        {"id": 3, "source": "agent", "observation": "run", "content": "a = 1", "extras": {}},
        {"id": 4, "source": "agent", "action": "finish", "args": {"final_thought": "Done."}},
    ],
    "test_result": {"git_patch": DIFF},
    "error": None,
}  # fmt: skip
LOGS = {
    "chat": ({"id": "task-7", "messages": CHAT}, True, None),
    "atif": (ATIF, True, None),
    "mini-swe-agent": (MINI, True, DIFF),
    "swe-agent": (SWE_AGENT, False, DIFF),
    "openhands": (OPENHANDS, True, DIFF),
}


def read(path, format_="auto"):
    cases = list(open_cases(str(path), format_))
    assert all(isinstance(case, Case) for case in cases), cases
    return cases


@pytest.mark.parametrize("layout", [None, 2], ids=["on one line", "over several lines"])
@pytest.mark.parametrize(("name", "log"), [(name, log) for name, (log, *_) in LOGS.items()], ids=LOGS)
def test_a_run_is_read_from_the_log_of_each_tool(tmp_path, name, log, layout):
    path = tmp_path / "task-7.traj.json"
    path.write_text(json.dumps(log, indent=layout))
    for format_ in ("auto", name):
        (case,) = read(path, format_)
        _, finished, answer = LOGS[name]
        assert (case.id, case.domain, case.problem.text) == ("task-7", "trajectory", TASK)
        (candidate,) = case.candidates
        run = read_run(candidate.text)
        assert run.steps[0].text.endswith("I look at the file.")
        assert run.steps[0].calls[0].arguments.strip() == "cat x.py"
        assert "a = 1" in run.steps[0].results[0]
        assert run.finished == finished
        assert candidate.answer == answer


def test_runs_of_several_files_and_lines_are_candidates_of_one_case(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(OPENHANDS) + "\n")
    (case,) = merge([open_cases(str(tmp_path / f"{name}.jsonl")) for name in ("a", "b")])
    assert len(case.candidates) == 2
    runs = [{"id": "t", "messages": CHAT, "correct": correct} for correct in (True, False)]
    (tmp_path / "chat.jsonl").write_text("\n".join(map(json.dumps, runs)))
    (case,) = read(tmp_path / "chat.jsonl")
    assert [run.correct for run in case.candidates] == [True, False]


def test_samples_of_inspect_with_tools_are_runs(tmp_path):
    answered = {"choices": [{"message": {"role": "assistant", "content": "Done."}}]}
    sample = {
        "id": "t", "epoch": 1, "input": TASK, "target": "", "output": answered, "scores": {"s": {"value": "C"}},
        "attachments": {"x": "a = 1"},
        "messages": [
            {"role": "user", "content": TASK},
            {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "1", "function": "bash", "arguments": {"cmd": "cat x.py"}}]},
            {"role": "tool", "content": "attachment://x", "function": "bash"},
            {"role": "assistant", "content": "Done."},
        ],
    }  # fmt: skip
    (case,) = read(archive(tmp_path / "log.eval", {"samples/t_epoch_1.json": sample}))
    (candidate,) = case.candidates
    assert (case.domain, candidate.correct) == ("general", True)
    step = read_run(candidate.text).steps[0]
    assert (step.calls, step.results) == ((Call("bash", "cat x.py"),), ("a = 1",))


def test_a_case_may_hold_messages_or_steps():
    for run in ({"messages": CHAT}, {"steps": ATIF["steps"]}):
        case = parse_row({"problem": TASK, "candidates": [run, {**run, "correct": False}]}, default_id="1")
        assert case.candidates[1].correct is False
        assert len(read_run(case.candidates[0].text).steps) in (2, 3)
    with pytest.raises(InputError, match=r"candidates\[0\]\.messages"):
        parse_row({"problem": TASK, "candidates": [{"messages": [3]}]}, default_id="1")


def test_bad_logs_are_named_down_to_the_field(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"id": "a", "messages": [{"content": "x"}]}\n3\n{"id": "b", "messages": []}')
    errors = [str(error) for error in open_cases(str(path), "chat")]
    reasons = "messages: every message needs a role", "must be an object", "messages: no message of a user"
    for line, (error, reason) in enumerate(zip(errors, reasons, strict=True), start=1):
        assert error.startswith(f"{path}:{line}: {reason}")


def candidate(messages, **more):
    row = {"problem": TASK, "candidates": [{"messages": messages, **more}]}
    return parse_row(row, default_id="1").candidates[0]


def test_a_partial_view_has_the_plan_the_errors_the_last_steps_and_the_final_state():
    long = [*CHAT[:4], *CHAT[4:6] * 20, CHAT[-1]]
    run = candidate(long, answer=DIFF)
    view, whole = run_summary(run), run_full(run)
    start = (
        "22 steps, 21 tool calls, 20 of them with errors; the run ended by itself\nPlan: I look at the file."
    )
    assert view.startswith(start)
    marks = "[...19 earlier steps left out...]", "[step 22] says: Done."
    for words in (*marks, "+a = 2", "sed: no such file"):
        assert words in view
    assert len(view) < len(whole) / 2
    assert "[step 1] calls bash: cat x.py" in whole


def test_long_outputs_are_shortened_with_a_mark_that_says_by_how_much():
    noisy = [*CHAT[:3], {"role": "tool", "content": "x" * 10_000}, CHAT[-1]]
    assert "[...7,000 characters left out...]" in run_full(candidate(noisy))


def test_runs_with_the_same_final_state_are_equal_and_others_are_not():
    other = DIFF.replace("@@ -1 +1 @@", "@@ -1,1 +1,1 @@ x")
    shown = [*CHAT[:-1], {"role": "assistant", "content": f"```diff\n{DIFF}```"}]
    same = candidate(CHAT, answer=DIFF), candidate(CHAT[:-1], answer=other), candidate(shown)
    assert len({final_state(run) for run in same}) == 1
    assert final_state(candidate(CHAT)) is None, "what an agent says at the end is no state"
    assert final_state(candidate(CHAT, answer="42")) == final_state(candidate(CHAT[:-1], answer=" 42 "))
