"""Logs of agents: each run becomes a candidate, the runs of one task become a case.

A run is stored as the list of its messages after the task, in the chat format of OpenAI, which `runs` reads.
"""

import json
from collections.abc import Sequence
from typing import Any

from caps import Candidate, Case, InputError, LogFormat, Message, Problem
from caps_agents.messages import Row, atif_messages, chat_messages, message, message_text, tool_call

DOMAIN = "trajectory"
_USER_ROLES = ("user", "human")
_TASK_ROLES = ("system", "developer", *_USER_ROLES)
_ID_FIELDS = ("instance_id", "task_id", "id", "session_id")
_LABELS = ("correct", "resolved", "success")


def chat_case(row: Row, name: str) -> Case:
    """A run as `{"id": …, "messages": […]}` in OpenAI's chat format."""
    return _case(row, name, chat_messages(_objects(row, "messages")), answer=row.get("answer"))


def atif_case(row: Row, name: str) -> Case:
    """A run in steps (ATIF)."""
    return _case(row, name, atif_messages(_objects(row, "steps")))


def mini_swe_agent_case(row: Row, name: str) -> Case:
    """A `.traj.json` of mini-swe-agent: messages, and in `info` how it ended and what was submitted."""
    messages = [turn for turn in chat_messages(_objects(row, "messages")) if turn["role"] != "exit"]
    info = _part(row, "info")
    return _case(row, name, messages, ending=info.get("exit_status"), answer=info.get("submission"))


def swe_agent_case(row: Row, name: str) -> Case:
    """A `.traj` of SWE-agent: `history` has the task, `trajectory` the steps, `info` the submission."""
    messages = [
        message(str(turn.get("role")), message_text(turn.get("content")))
        for turn in _objects({"history": row.get("history") or []}, "history")
        if turn.get("role") in _TASK_ROLES and not turn.get("is_demo")
    ][:2]
    for step in _objects(row, "trajectory"):
        words, action = step.get("thought") or step.get("response") or "", step.get("action")
        acts = isinstance(action, str) and bool(action.strip())
        calls = [tool_call({"name": "shell", "arguments": action})] if acts else []
        messages.append(message("assistant", message_text(words), calls))
        messages.append(message("tool", message_text(step.get("observation"))))
    info = _part(row, "info")
    return _case(row, name, messages, ending=info.get("exit_status"), answer=info.get("submission"))


def openhands_case(row: Row, name: str) -> Case:
    """A line of an OpenHands `output.jsonl`: a history of actions and observations, and the final patch."""
    instruction = row.get("instruction")
    if not isinstance(instruction, str):
        raise InputError("instruction: must be a text")
    messages = [message("user", instruction)]
    for event in _objects(row, "history"):
        content = message_text(event.get("content") or event.get("message"))
        action = event.get("action")
        if "observation" in event:
            messages.append(message("tool", content))
        elif event.get("source") == "agent" and action not in (None, "system"):
            arguments = _part(event, "args")
            words = arguments.get("thought") or (content if action in ("message", "finish") else "")
            shown = {key: value for key, value in arguments.items() if key in _SHOWN_ARGUMENTS and value}
            calls = [] if action == "message" else [tool_call({"name": action, "arguments": shown})]
            messages.append(message("assistant", message_text(words), calls))
    error = row.get("error")
    return _case(
        row,
        name,
        messages,
        ending=f"error: {error}" if error else None,
        answer=_part(row, "test_result").get("git_patch"),
    )


_SHOWN_ARGUMENTS = (
    "command", "code", "path", "content", "old_str", "new_str", "url", "final_thought", "outputs",
)  # fmt: skip


def _case(
    row: Row, name: str, messages: Sequence[Row], *, ending: object = None, answer: object = None
) -> Case:
    """The case of one run: its task, and a candidate with the messages after it."""
    places = (place for place, turn in enumerate(messages) if turn["role"] not in _TASK_ROLES)
    start = next(places, len(messages))
    steps = list(messages[start:])
    if isinstance(ending, str) and ending:
        steps.append(message("exit", ending))
    candidate = Candidate(
        json.dumps(steps, ensure_ascii=False),
        answer=answer if isinstance(answer, str) and answer.strip() else None,
        correct=next((row[label] for label in _LABELS if isinstance(row.get(label), bool)), None),
    )
    ids = (str(row[field]) for field in _ID_FIELDS if isinstance(row.get(field), str | int))
    return Case(next(ids, name), _task(messages, start), (candidate,), DOMAIN)


def _task(messages: Sequence[Row], start: int) -> Problem:
    """The task: the messages of users before the agent's first, without the agent's own instructions."""
    asked = [turn for turn in messages if turn["role"] in _USER_ROLES]
    before = [turn for turn in messages[:start] if turn["role"] in _USER_ROLES]
    if not asked:
        raise InputError("messages: no message of a user states the task")
    return Problem(tuple(Message("user", turn["content"]) for turn in before or asked[:1]))


def _objects(row: Row, field: str) -> list[Row]:
    value = row.get(field)
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise InputError(f"{field}: must be a list of objects")
    return value


def _part(row: Row, field: str) -> dict[str, Any]:
    """A field that is an object; empty if it is missing or none."""
    value = row.get(field)
    return value if isinstance(value, dict) else {}


CHAT = LogFormat(
    about="runs of agents in OpenAI's chat format, one on each line",
    known_by=(frozenset({"messages"}),),
    parse=chat_case,
)
ATIF = LogFormat(
    about="agent trajectories in steps (ATIF), as of terminal-bench",
    known_by=(frozenset({"steps", "agent"}), frozenset({"steps", "schema_version"})),
    parse=atif_case,
)
MINI_SWE_AGENT = LogFormat(
    about="a .traj.json of mini-swe-agent",
    known_by=(frozenset({"messages", "info"}),),
    parse=mini_swe_agent_case,
)
SWE_AGENT = LogFormat(
    about="a .traj of SWE-agent",
    known_by=(frozenset({"trajectory", "info"}), frozenset({"trajectory", "history"})),
    parse=swe_agent_case,
)
OPENHANDS = LogFormat(
    about="output.jsonl of OpenHands",
    known_by=(frozenset({"instance_id", "instruction", "history"}),),
    parse=openhands_case,
)
