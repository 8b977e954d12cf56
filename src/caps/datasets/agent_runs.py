"""Logs of agents: each run becomes a candidate, the runs of one task become a case.

A run is stored as the list of its messages after the task, in the chat format of OpenAI; how formats differ
is known here only. `evidence/trajectories.py` reads what is written here.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from caps.core.errors import InputError
from caps.core.types import Candidate, Case, Message, Problem
from caps.datasets.reading import LIMITS, Row, decode, join_lines, kind_of, objects, required
from caps.evidence.trajectories import message_text

DOMAIN = "trajectory"
_TASK_ROLES = ("system", "developer", "user", "human")
_ID_FIELDS = ("instance_id", "task_id", "id", "session_id")


@dataclass(frozen=True, slots=True)
class AgentRun:
    """One run: the task it belongs to, its messages, its final state, and whether it is right if known."""

    task: str
    problem: Problem
    text: str
    answer: str | None = None
    correct: bool | None = None


def run_text(messages: Sequence[Mapping[str, Any]], ending: object = None) -> str:
    """The messages after the task as the text of a candidate; `ending` says how the run ended."""
    start = next((at for at, one in enumerate(messages) if one.get("role") not in _TASK_ROLES), len(messages))
    rows = [dict(one) for one in messages[start:]]
    if isinstance(ending, str) and ending:
        rows.append({"role": "exit", "content": ending})
    return json.dumps(rows, ensure_ascii=False)


def candidate_text(row: Mapping[str, Any], where: str) -> str | None:
    """The text of a candidate that is given as `messages` (chat) or `steps` (ATIF); None if it is neither."""
    for name, read in (("messages", chat_messages), ("steps", atif_messages)):
        if isinstance(row.get(name), list):
            try:
                return run_text(read(objects(dict(row), name)))
            except InputError as error:
                raise InputError(f"{where}.{error}") from None
    return None


def chat_messages(rows: Iterable[Row]) -> list[Row]:
    """Messages in the chat format, with tool calls of OpenAI, Inspect or Anthropic."""
    messages: list[Row] = []
    for row in rows:
        role, content = row.get("role"), row.get("content")
        if not isinstance(role, str):
            raise InputError("messages: every message needs a role")
        calls = [_call(one) for one in row.get("tool_calls") or () if isinstance(one, dict)]
        blocks = [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []
        calls += [_call(one) for one in blocks if one.get("type") == "tool_use"]
        results = [one for one in blocks if one.get("type") == "tool_result"]
        text = "\n".join(piece for piece in (_reasoning(row), message_text(content)) if piece)
        if text or calls or not results:
            messages.append(_message(role, text, calls))
        messages += [_message("tool", message_text(one.get("content"))) for one in results]
    return messages


def atif_messages(steps: Iterable[Row]) -> list[Row]:
    """Messages of the steps of the agent trajectory interchange format (ATIF)."""
    messages: list[Row] = []
    for step in steps:
        source, text = step.get("source"), message_text(step.get("message"))
        if source in ("user", "system"):
            messages.append(_message(str(source), text))
            continue
        thoughts = step.get("reasoning_content")
        words = "\n".join(one for one in (thoughts, text) if isinstance(one, str) and one)
        calls = [_call(one) for one in step.get("tool_calls") or () if isinstance(one, dict)]
        messages.append(_message("assistant", words, calls))
        seen = step.get("observation")
        results = seen.get("results") if isinstance(seen, dict) else None
        for result in results if isinstance(results, list) else ():
            content = result.get("content") if isinstance(result, dict) else result
            messages.append(_message("tool", message_text(content)))
    return messages


def _message(role: str, text: str, calls: Sequence[Row] = ()) -> Row:
    return {"role": role, "content": text, **({"tool_calls": list(calls)} if calls else {})}


def _call(row: Row) -> Row:
    """A tool call in the format of OpenAI."""
    function = row.get("function")
    if isinstance(function, dict):
        name, arguments = function.get("name"), function.get("arguments")
    else:
        name = function or row.get("function_name") or row.get("tool_name") or row.get("name")
        arguments = row.get("arguments", row.get("input"))
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"type": "function", "function": {"name": str(name or ""), "arguments": text}}


def _reasoning(row: Row) -> str:
    value = row.get("reasoning_content") or row.get("reasoning")
    return value if isinstance(value, str) else ""


# Formats: one run in an object, or one on each line


def _chat_run(row: Row, name: str) -> AgentRun:
    messages = chat_messages(objects(row, "messages"))
    return AgentRun(
        _task_id(row, name), _task(messages), run_text(messages), _text(row.get("answer")), _label(row)
    )


def _atif_run(row: Row, name: str) -> AgentRun:
    messages = atif_messages(objects(row, "steps"))
    return AgentRun(_task_id(row, name), _task(messages), run_text(messages), correct=_label(row))


def _mini_run(row: Row, name: str) -> AgentRun:
    """A `.traj.json` of mini-swe-agent: messages, and in `info` how it ended and what was submitted."""
    messages = [one for one in chat_messages(objects(row, "messages")) if one["role"] != "exit"]
    info = required(row, "info", dict)
    text = run_text(messages, info.get("exit_status"))
    return AgentRun(_task_id(row, name), _task(messages), text, _text(info.get("submission")), _label(row))


def _swe_agent_run(row: Row, name: str) -> AgentRun:
    """A `.traj` of SWE-agent: `history` has the task, `trajectory` the steps, `info` the submission."""
    messages = [
        _message(str(one.get("role")), message_text(one.get("content")))
        for one in objects({"history": row.get("history") or []}, "history")
        if one.get("role") in _TASK_ROLES and not one.get("is_demo")
    ][:2]
    for step in objects(row, "trajectory"):
        words = step.get("thought") or step.get("response") or ""
        action = step.get("action")
        calls = (
            [_call({"name": "shell", "arguments": action})]
            if isinstance(action, str) and action.strip()
            else []
        )
        messages.append(_message("assistant", message_text(words), calls))
        messages.append(_message("tool", message_text(step.get("observation"))))
    info = _part(row, "info")
    text = run_text(messages, info.get("exit_status"))
    return AgentRun(_task_id(row, name), _task(messages), text, _text(info.get("submission")), _label(row))


def _openhands_run(row: Row, name: str) -> AgentRun:
    """A line of an OpenHands `output.jsonl`: a history of actions and observations, and the final patch."""
    messages = [_message("user", required(row, "instruction", str))]
    for event in objects(row, "history"):
        content = message_text(event.get("content") or event.get("message"))
        if "observation" in event:
            messages.append(_message("tool", content))
        elif event.get("source") == "agent" and event.get("action") not in (None, "system"):
            arguments = _part(event, "args")
            words = arguments.get("thought") or (content if event["action"] in ("message", "finish") else "")
            kept = {key: value for key, value in arguments.items() if key in _SHOWN_ARGUMENTS and value}
            call = (
                [_call({"name": event["action"], "arguments": kept})] if event["action"] != "message" else []
            )
            messages.append(_message("assistant", message_text(words), call))
    error = row.get("error")
    result = _part(row, "test_result")
    text = run_text(messages, f"error: {error}" if error else None)
    return AgentRun(_task_id(row, name), _task(messages), text, _text(result.get("git_patch")), _label(row))


_SHOWN_ARGUMENTS = (
    "command",
    "code",
    "path",
    "content",
    "old_str",
    "new_str",
    "url",
    "final_thought",
    "outputs",
)


def _task_id(row: Row, name: str) -> str:
    found = next((row[field] for field in _ID_FIELDS if isinstance(row.get(field), str | int)), None)
    return str(found) if found is not None else name


def _task(messages: Sequence[Row]) -> Problem:
    """The task: the messages of users before the agent's first, without the agent's own instructions."""
    start = [one for one in messages if one["role"] in ("user", "human")]
    first = next((at for at, one in enumerate(messages) if one["role"] not in _TASK_ROLES), len(messages))
    told = [one for one in messages[:first] if one["role"] in ("user", "human")] or start[:1]
    if not told:
        raise InputError("messages: no message of a user states the task")
    return Problem(tuple(Message("user", one["content"]) for one in told))


def _part(row: Row, name: str) -> Row:
    """A field that is an object; empty if it is missing or none."""
    value = row.get(name)
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _label(row: Row) -> bool | None:
    return next(
        (row[name] for name in ("correct", "resolved", "success") if isinstance(row.get(name), bool)), None
    )


Parse = Callable[[Row, str], AgentRun]


def _reader(parse: Parse) -> Callable[[Iterable[bytes], str], Iterator[Case | InputError]]:
    """A reader of a file that is one run, or has one on each line."""

    def read(lines: Iterable[bytes], path: str) -> Iterator[Case | InputError]:
        runs: dict[str, list[AgentRun]] = {}
        for where, row in _rows(lines, path):
            try:
                if isinstance(row, InputError):
                    raise row
                run = parse(row, PurePath(path).name.partition(".")[0])
                runs.setdefault(run.task, []).append(run)
                if run.problem != runs[run.task][0].problem:
                    runs[run.task].pop()
                    raise InputError(f"task {run.task!r}: has a different problem in an earlier run")
            except InputError as error:
                yield InputError(f"{where}: {error}")
        for task, found in runs.items():
            candidates = tuple(Candidate(one.text, answer=one.answer, correct=one.correct) for one in found)
            yield Case(task, found[0].problem, candidates, DOMAIN)

    return read


def _rows(lines: Iterable[bytes], path: str) -> Iterator[tuple[str, Row | InputError]]:
    """The objects of a file: the whole file if it is one object over several lines, else its lines."""
    every = list(lines)
    if every and every[0].strip() in (b"{", b"["):
        try:
            whole = decode(join_lines(every, path, LIMITS))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        for at, row in enumerate(whole if isinstance(whole, list) else [whole]):
            yield f"{path}[{at}]" if isinstance(whole, list) else path, _object(row)
        return
    for number, line in enumerate(every, start=1):
        if line.strip():
            where = f"{path}:{number}"
            try:
                yield where, _object(decode(line))
            except InputError as error:
                yield where, error


def _object(row: object) -> Row | InputError:
    return row if isinstance(row, dict) else InputError(f"must be an object, not {kind_of(row)}")


read_chats = _reader(_chat_run)
read_atif = _reader(_atif_run)
read_mini_swe_agent = _reader(_mini_run)
read_swe_agent = _reader(_swe_agent_run)
read_openhands = _reader(_openhands_run)
